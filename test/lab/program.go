package lab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

func (h *Host) environ() []string {
	return []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root", "LANG=C.UTF-8"}
}

// Command runs a program in the host.
func (h *Host) Command(ctx context.Context, name string, args ...string) *exec.Cmd {
	first, _ := h.first()
	cmd := exec.CommandContext(ctx, filepath.Join(h.lab.dir, "host.sh"), append([]string{"enter", h.dir, strconv.Itoa(first.PID), name}, args...)...)
	cmd.Env = h.environ()
	return cmd
}

// Program is a program that runs in a host from Launch on, until it ends, is
// killed, or the host's power goes.
type Program struct {
	host  *Host
	name  string
	log   string
	inner process // the program
	outer process // what waits for it outside the host's PID namespace
	done  chan struct{}
	err   error // of its end, once done is closed
}

// Launch starts a program in the host and does not wait for its end. What it prints is appended to
// the file log; to one in the host's directory, which goes with the lab, if log is empty.
// It has no standard input, and no controlling terminal.
func (h *Host) Launch(log, name string, args ...string) (*Program, error) {
	p := &Program{host: h, name: filepath.Base(name), log: log, done: make(chan struct{})}
	if p.log == "" {
		p.log = filepath.Join(h.dir, "programs", p.name+".log")
	}
	if err := p.launch(name, args); err != nil {
		return nil, fmt.Errorf("launch %s on %s: %w", p.name, h.Name, err)
	}
	return p, nil
}

func (p *Program) launch(name string, args []string) error {
	if !p.host.Up() {
		return errors.New("the host has no power")
	}
	out, err := os.OpenFile(p.log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return err
	}
	defer out.Close()
	cmd := p.host.Command(context.Background(), name, args...)
	cmd.Stdout, cmd.Stderr = out, out
	// A wrapper that is stopped (see Pause) and has lost its owner would keep the host from its end, as
	// no other process may clear away what is left of the program.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		return err
	}
	p.outer, err = processOf(cmd.Process.Pid)
	if err != nil {
		return errors.Join(err, cmd.Wait())
	}
	go func() {
		p.err = cmd.Wait()
		close(p.done)
	}()
	err = eventually(patience, func() error {
		select {
		case <-p.done:
			return nil
		default:
		}
		inner, err := p.find()
		p.inner = inner
		return err
	})
	if err == nil && p.inner.PID == 0 { // it has ended already: no harm, unless it never began
		if output, _ := os.ReadFile(p.log); p.err != nil {
			return fmt.Errorf("%w: %s", p.err, strings.TrimSpace(string(output[max(0, len(output)-2000):])))
		}
		return nil
	}
	if err != nil {
		_ = cmd.Process.Kill()
		return err
	}
	go p.tend()
	return nil
}

// find finds the program's process: nsenter's child, once it is in the host.
func (p *Program) find() (process, error) {
	child, err := childOf(p.outer.PID)
	if err != nil {
		return process{}, err
	}
	first, up := p.host.first()
	if !up {
		return process{}, errors.New("the host has no power")
	}
	its, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/pid", child.PID))
	if err != nil {
		return process{}, err
	}
	if ns, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/pid", first.PID)); err != nil || ns != its {
		return process{}, errors.New("it is not in the host yet")
	}
	wrapper, err1 := os.Stat(fmt.Sprintf("/proc/%d/exe", p.outer.PID))
	program, err2 := os.Stat(fmt.Sprintf("/proc/%d/exe", child.PID))
	if err := errors.Join(err1, err2); err != nil {
		return process{}, err
	}
	if os.SameFile(wrapper, program) {
		return process{}, errors.New("nsenter has not started it yet, and may find nothing to start")
	}
	return child, nil
}

// tend notices the end of the program. nsenter stops itself when its child is stopped, and then
// does not see the child's end.
func (p *Program) tend() {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-p.done:
			return
		case <-tick.C:
			if !p.inner.alive() {
				_ = p.outer.kill(syscall.SIGCONT)
			}
		}
	}
}

// PID is the program's process id outside the host.
func (p *Program) PID() int { return p.inner.PID }

// Log is the file with what the program prints.
func (p *Program) Log() string { return p.log }

// Done is closed when the program has ended.
func (p *Program) Done() <-chan struct{} { return p.done }

// Err is how the program ended (nil: with status 0), once Done is closed.
func (p *Program) Err() error {
	select {
	case <-p.done:
		return p.err
	default:
		return nil
	}
}

// Signal sends the program a signal, SIGTERM for one. To stop it, use Pause.
func (p *Program) Signal(sig syscall.Signal) error {
	if err := p.inner.kill(sig); err != nil {
		return fmt.Errorf("%s on %s: %w", p.name, p.host.Name, err)
	}
	return nil
}

// Kill kills the program, as kill -9 does, and returns when it is gone. What it started lives on.
func (p *Program) Kill() error {
	if err := p.Signal(syscall.SIGKILL); err != nil {
		return err
	}
	return p.Wait(patience)
}

// Wait waits so long at most for the program's end. How it ended is for Err to say.
func (p *Program) Wait(limit time.Duration) error {
	select {
	case <-p.done:
		return nil
	case <-time.After(limit):
		return fmt.Errorf("%s on %s: still there after %v", p.name, p.host.Name, limit)
	}
}

// Pause stops the program where it is (SIGSTOP), and returns when it stands.
func (p *Program) Pause() error {
	// nsenter follows its child into the stop. Only when it stands, too, is there no SIGCONT of an
	// earlier Resume left that it will yet send its child: until then one SIGSTOP may be undone.
	err := eventually(patience, func() error {
		for _, q := range []process{p.outer, p.inner} {
			state, err := q.state()
			if err == nil && state != "T" {
				err = errors.Join(fmt.Errorf("process %d is in state %q, not stopped", q.PID, state), p.inner.kill(syscall.SIGSTOP))
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("pause %s on %s: %w", p.name, p.host.Name, err)
	}
	return nil
}

// Resume ends Pause.
func (p *Program) Resume() error {
	if err := errors.Join(p.Signal(syscall.SIGCONT), p.outer.kill(syscall.SIGCONT)); err != nil {
		return err
	}
	err := eventually(patience, func() error {
		if state, err := p.outer.state(); err == nil && state == "T" {
			return fmt.Errorf("process %d is still stopped", p.outer.PID)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("resume %s on %s: %w", p.name, p.host.Name, err)
	}
	return nil
}
