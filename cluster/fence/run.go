package fence

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// Options are the options of a Runner.
type Options struct {
	// Dirs are where agents are looked up, in order; none: /usr/sbin, /sbin, /usr/local/sbin.
	Dirs []string
	// Verify bounds how long devices may take to say off after they were switched off; 0: one minute.
	Verify time.Duration
	// Poll is the pause between two questions for it; 0: one second.
	Poll time.Duration
	Log  *slog.Logger // nil: none
}

// Runner runs fence agents. Several goroutines may use it.
type Runner struct {
	dirs         []string
	verify, poll time.Duration
	log          *slog.Logger
}

// New makes a Runner.
func New(o Options) *Runner {
	r := &Runner{dirs: o.Dirs, verify: o.Verify, poll: o.Poll, log: o.Log}
	if len(r.dirs) == 0 {
		r.dirs = []string{"/usr/sbin", "/sbin", "/usr/local/sbin"}
	}
	if r.verify <= 0 {
		r.verify = time.Minute
	}
	if r.poll <= 0 {
		r.poll = time.Second
	}
	if r.log == nil {
		r.log = slog.New(slog.DiscardHandler)
	}
	return r
}

const (
	maxOutput = 16 << 10 // bytes that are kept of what an agent prints; the rest is read and dropped
	maxInText = 400      // bytes of it in an error
	// killWait is how long a killed agent's children may hold on to its output.
	killWait = 2 * time.Second
)

// Exit statuses of agents, for the action status.
const (
	exitOn  = 0
	exitOff = 2
)

// answer is the answer of one run of an agent.
type answer struct {
	exit   int
	output string // scrubbed
}

// errRun says that the agent gave no answer at all.
var errRun = errors.New("the agent gave no answer")

// lookUp finds the agent's program.
func (r *Runner) lookUp(agent string) (string, error) {
	for _, dir := range r.dirs {
		path := filepath.Join(dir, agent)
		info, err := os.Stat(path)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return "", err
		}
		if !info.Mode().IsRegular() || info.Mode().Perm()&0o111 == 0 {
			return "", fmt.Errorf("%s is no program", path)
		}
		if info.Mode().Perm()&0o022 != 0 {
			return "", fmt.Errorf("%s has mode %04o: others than its owner may change it", path, info.Mode().Perm())
		}
		if err := ownedHere(info); err != nil {
			return "", fmt.Errorf("%s: %w", path, err)
		}
		return path, nil
	}
	return "", fmt.Errorf("no program %s in %s; on Debian it may be in the package fence-agents", agent, strings.Join(r.dirs, ", "))
}

// run runs the device's agent once. Its errors wrap errRun, or say why it was not run.
func (r *Runner) run(ctx context.Context, d Device, action string) (answer, error) {
	if err := d.Check(); err != nil {
		return answer{}, err
	}
	path, err := r.lookUp(d.Agent)
	if err != nil {
		return answer{}, err
	}
	secrets, err := d.secrets()
	if err != nil {
		return answer{}, err
	}
	scrub := newScrubber(secrets, d.Options)

	ctx, cancel := context.WithTimeout(ctx, d.timeout())
	defer cancel()
	var out capped
	cmd := exec.CommandContext(ctx, path)
	cmd.Dir = "/"
	cmd.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LANG=C.UTF-8", "HOME=/root"} // ssh, for one, wants a home
	cmd.Stdin = strings.NewReader(d.input(action, secrets))
	cmd.Stdout, cmd.Stderr = &out, &out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) } // with all it started
	cmd.WaitDelay = killWait

	start := time.Now()
	err = cmd.Run()
	if errors.Is(err, exec.ErrWaitDelay) { // it ended well, and left a child behind that holds its output
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		err = nil
	}
	a := answer{output: scrub.text(out.Bytes(), out.cut)}
	var exit *exec.ExitError
	switch {
	case ctx.Err() != nil:
		err = fmt.Errorf("%w to %s within its time: %w", errRun, action, context.Cause(ctx))
	case err == nil:
	case errors.As(err, &exit) && exit.Exited():
		a.exit, err = exit.ExitCode(), nil
	case errors.As(err, &exit):
		err = fmt.Errorf("%w to %s: it was killed (%v)", errRun, action, exit)
	default:
		err = fmt.Errorf("%w to %s: %w", errRun, action, err)
	}
	level := slog.LevelInfo
	if action == "status" { // asked again and again
		level = slog.LevelDebug
	}
	r.log.LogAttrs(ctx, level, "fence agent ran", slog.String("agent", d.Agent), slog.String("action", action),
		slog.Int("exit", a.exit), slog.Bool("answered", err == nil), slog.Duration("took", time.Since(start)))
	if err != nil {
		return a, withOutput(err, a.output)
	}
	return a, nil
}

// withOutput adds what the agent printed last.
func withOutput(err error, output string) error {
	if output == "" {
		return err
	}
	if n := len(output); n > maxInText {
		output = "..." + strings.ToValidUTF8(output[n-maxInText:], "")
	}
	return fmt.Errorf("%w; it printed %q", err, output)
}

// capped keeps the first bytes that are written to it, and takes all.
type capped struct {
	bytes.Buffer
	cut bool
}

// Write implements io.Writer.
func (c *capped) Write(b []byte) (int, error) {
	room := maxOutput - c.Len()
	if len(b) > room {
		c.cut = true
		c.Buffer.Write(b[:room])
		return len(b), nil
	}
	return c.Buffer.Write(b)
}

// ownedHere returns an error unless the file belongs to root, or to the user as which this process runs.
func ownedHere(info os.FileInfo) error {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return errors.New("its owner cannot be informed")
	}
	if st.Uid != 0 && int(st.Uid) != os.Geteuid() {
		return fmt.Errorf("it belongs to user %d, and not to root", st.Uid)
	}
	return nil
}
