package machines

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"
)

// commandStall is how long a command may print nothing, in the machine's own time.
const commandStall = 4 * time.Minute

// ssh is the client, with one connection that all commands of a machine share. It asks nothing and reads no configuration.
func (m *Machine) ssh(ctx context.Context, args ...string) *exec.Cmd {
	host, port, _ := net.SplitHostPort(m.address)
	options := []string{"-F", "none", "-i", m.img.Dir + "/key", "-p", port, "-o", "BatchMode=yes", "-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null",
		"-o", "LogLevel=ERROR", "-o", "ControlMaster=auto", "-o", "ControlPath=" + m.path("ssh"), "-o", "ControlPersist=yes", "-o", "ServerAliveInterval=30", "-o", "ServerAliveCountMax=20"}
	return exec.CommandContext(ctx, "ssh", append(append(options, args...), "root@"+host)...)
}

// hangUp ends the shared connection, which outlives its commands.
func (m *Machine) hangUp() {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	_ = m.ssh(ctx, "-O", "exit").Run() // there may be none
	_ = os.Remove(m.path("ssh"))
}

// printed is what a command prints, as it comes.
type printed struct {
	mu   sync.Mutex
	text bytes.Buffer
	also io.Writer // may be nil
}

func (p *printed) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.also != nil {
		_, _ = p.also.Write(b)
	}
	return p.text.Write(b)
}

func (p *printed) String() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.text.String()
}

// Run runs a command line of bash as root, and returns what it printed. It fails if the command does, or prints
// nothing for too long.
func (m *Machine) Run(ctx context.Context, line string) (string, error) {
	return m.run(ctx, line, nil, nil)
}

// Show is Run that also writes what the command prints to w as it comes.
func (m *Machine) Show(ctx context.Context, w io.Writer, line string) (string, error) {
	return m.run(ctx, line, nil, w)
}

// Copy puts a file of this computer at a path of the machine, with that mode.
func (m *Machine) Copy(ctx context.Context, file, path, mode string) error {
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = m.run(ctx, fmt.Sprintf("mkdir -p $(dirname %[1]s) && cat >%[1]s && chmod %[2]s %[1]s", path, mode), f, nil)
	return err
}

// Write puts a text at a path of the machine.
func (m *Machine) Write(ctx context.Context, text, path string) error {
	_, err := m.run(ctx, "cat >"+path, strings.NewReader(text), nil)
	return err
}

func (m *Machine) run(ctx context.Context, line string, in io.Reader, also io.Writer) (string, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	out := &printed{also: also}
	read := &counted{r: in}
	cmd := m.ssh(ctx)
	cmd.Args = append(cmd.Args, "bash", "-c", quote(line))
	cmd.Stdout, cmd.Stderr = out, out
	if in != nil {
		cmd.Stdin = read
	}
	cmd.WaitDelay = time.Second // the shared connection may keep its output open
	if err := cmd.Start(); err != nil {
		return "", err
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	var err error
	stalled := m.Until(ctx, commandStall, line, func() string { return fmt.Sprint(read.count(), " bytes sent; ", out.String()) }, func() bool {
		select {
		case err = <-ended:
			return true
		default:
			return false
		}
	})
	if stalled != nil {
		cancel()
		return out.String(), stalled
	}
	if errors.Is(err, exec.ErrWaitDelay) {
		err = nil
	}
	if err != nil {
		return out.String(), fmt.Errorf("in the machine: %s: %w: %s", line, err, strings.TrimSpace(out.String()))
	}
	return strings.TrimSpace(out.String()), nil
}

// quote makes one word of the shell of a text.
func quote(text string) string { return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'" }

// counted counts what was read.
type counted struct {
	r  io.Reader
	mu sync.Mutex
	n  int64
}

func (c *counted) Read(b []byte) (int, error) {
	n, err := c.r.Read(b)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.n += int64(n)
	return n, err
}

func (c *counted) count() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.n
}
