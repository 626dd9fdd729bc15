package manyhosts

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// process is a server that runs as a child.
type process struct {
	name, dir, listen, gossip string

	cmd *exec.Cmd
	in  io.WriteCloser

	mu  sync.Mutex // one question at a time
	out *bufio.Reader
}

// start the process; it returns once its port is open.
func (p *process) start(ctx context.Context, token string) error {
	exe, err := os.Executable()
	if err != nil {
		return err
	}
	log, err := os.OpenFile(p.dir+".log", os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close() //nolint:errcheck // the child has it
	p.cmd = exec.CommandContext(ctx, exe, "cluster-server", "--dir", p.dir, "--listen", p.listen, "--gossip", p.gossip, "--token", token)
	p.cmd.Cancel = func() error { return p.cmd.Process.Signal(syscall.SIGTERM) }
	p.cmd.Stderr = log
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		return err
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := p.cmd.Start(); err != nil {
		return err
	}
	p.out = bufio.NewReader(out)
	if output, err := p.out.ReadString('\n'); err != nil || output != "ready\n" {
		why, _ := os.ReadFile(p.dir + ".log")
		return errors.Join(fmt.Errorf("server %s did not start: %q, %w\n%s", p.name, output, err, why), p.end(syscall.SIGKILL))
	}
	return nil
}

// ask a question of one line.
func (p *process) ask(line string) (string, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, err := fmt.Fprintln(p.in, line); err != nil {
		return "", fmt.Errorf("server %s: %w", p.name, err)
	}
	output, err := p.out.ReadString('\n')
	if err != nil {
		return "", fmt.Errorf("server %s: %w", p.name, err)
	}
	if text, bad := strings.CutPrefix(output, "error: "); bad {
		return "", fmt.Errorf("server %s: %s", p.name, strings.TrimSpace(text))
	}
	return strings.TrimSpace(output), nil
}

func (p *process) index() (uint64, error) {
	output, err := p.ask("index")
	if err != nil {
		return 0, err
	}
	return strconv.ParseUint(output, 10, 64)
}

// end the process by a signal and wait for it.
func (p *process) end(by syscall.Signal) error {
	if p.cmd == nil || p.cmd.Process == nil {
		return nil
	}
	_ = p.cmd.Process.Signal(by)
	_ = p.in.Close()
	err := p.cmd.Wait()
	p.cmd = nil
	var exit *exec.ExitError
	if errors.As(err, &exit) && by == syscall.SIGKILL || errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// usage of a process so far.
type usage struct {
	at   time.Time
	cpu  time.Duration // user and system
	rss  int64         // bytes now
	peak int64         // bytes, the most so far
}

func usageOf(pid int) (usage, error) {
	u := usage{at: time.Now()}
	dir := filepath.Join("/proc", strconv.Itoa(pid))
	stat, err := os.ReadFile(filepath.Join(dir, "stat"))
	if err != nil {
		return u, err
	}
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	for _, f := range fields[11:13] {
		n, err := strconv.ParseInt(f, 10, 64)
		if err != nil {
			return u, fmt.Errorf("process %d: %w", pid, err)
		}
		u.cpu += time.Duration(n) * 10 * time.Millisecond // the kernel counts for programs in hundredths, whatever it ticks in
	}
	status, err := os.ReadFile(filepath.Join(dir, "status"))
	if err != nil {
		return u, err
	}
	for line := range strings.Lines(string(status)) {
		key, value, _ := strings.Cut(line, ":")
		kib, _ := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(value), " kB"), 10, 64)
		switch key {
		case "VmRSS":
			u.rss = kib << 10
		case "VmHWM":
			u.peak = kib << 10
		}
	}
	return u, nil
}

// spent is how long the machine's processors worked and waited since it was started, as a sum over them.
func spent() (busy, all time.Duration) {
	b, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0, 0
	}
	first, _, _ := strings.Cut(string(b), "\n")
	for i, f := range strings.Fields(first)[1:] {
		n, _ := strconv.ParseInt(f, 10, 64)
		if i > 7 { // guests are counted in user already
			break
		}
		all += time.Duration(n) * 10 * time.Millisecond
		if i != 3 && i != 4 {
			busy += time.Duration(n) * 10 * time.Millisecond
		}
	}
	return busy, all
}

// sizeOf the files below a path, bytes. What is not there, or goes meanwhile, is 0.
func sizeOf(path string) int64 {
	var sum int64
	_ = filepath.WalkDir(path, func(_ string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			if info, err := d.Info(); err == nil {
				sum += info.Size()
			}
		}
		return nil
	})
	return sum
}
