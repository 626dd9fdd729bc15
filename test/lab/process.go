package lab

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// processOf names the process of that id.
func processOf(pid int) (process, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return process{}, err
	}
	// The program's name is in parentheses and may hold anything: fields count from behind it.
	_, rest, ok := strings.Cut(string(text[strings.LastIndexByte(string(text), ')'):]), " ")
	fields := strings.Fields(rest)
	const startTime = 22 - 3 // of proc(5)'s fields, the third being the first here
	if !ok || len(fields) <= startTime {
		return process{}, fmt.Errorf("/proc/%d/stat: %q", pid, text)
	}
	if fields[0] == "Z" {
		// A first thread that has ended says little: while others are still on their
		// way out, sockets are open and taking connections.
		if threads, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid)); err != nil || len(threads) <= 1 {
			return process{}, os.ErrProcessDone
		}
	}
	return process{PID: pid, Start: fields[startTime]}, nil
}

func (p process) alive() bool {
	now, err := processOf(p.PID)
	return err == nil && p.PID > 0 && now == p
}

// kill sends a signal, to this process and no other that has its number now.
func (p process) kill(sig syscall.Signal) error {
	if !p.alive() {
		return nil
	}
	if err := syscall.Kill(p.PID, sig); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("signal %v to process %d: %w", sig, p.PID, err)
	}
	return nil
}

// state is the letter of proc(5) for what the process does: "T" is stopped.
func (p process) state() (string, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.PID))
	if err != nil {
		return "", err
	}
	fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
	if len(fields) == 0 {
		return "", fmt.Errorf("/proc/%d/stat: %q", p.PID, text)
	}
	return fields[0], nil
}

// await waits until the process is gone.
func (p process) await(limit time.Duration) error {
	return eventually(limit, func() error {
		if p.alive() {
			return fmt.Errorf("process %d is still there", p.PID)
		}
		return nil
	})
}

// eventually asks again every 10 ms until f has no error, or the limit is up.
func eventually(limit time.Duration, f func() error) error {
	end := time.Now().Add(limit)
	for {
		err := f()
		if err == nil || time.Now().After(end) {
			return err
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// scan calls f with every process's id and status until f says enough. A pattern such as /proc/*/status would
// have the kernel list each process's whole directory.
func scan(f func(pid int, status map[string]string) (enough bool)) {
	proc, err := os.Open("/proc")
	if err != nil {
		return
	}
	names, _ := proc.Readdirnames(-1)
	_ = proc.Close()
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		text, err := os.ReadFile("/proc/" + name + "/status")
		if err != nil {
			continue // it ended
		}
		status := map[string]string{}
		for line := range strings.Lines(string(text)) {
			if k, v, ok := strings.Cut(line, ":"); ok {
				status[k] = strings.TrimSpace(v)
			}
		}
		if f(pid, status) {
			return
		}
	}
}

// childOf finds the (only) child of a process.
func childOf(pid int) (process, error) {
	var child process
	scan(func(p int, status map[string]string) bool {
		if status["PPid"] != strconv.Itoa(pid) {
			return false
		}
		child, _ = processOf(p)
		return child.PID != 0
	})
	if child.PID == 0 {
		return process{}, fmt.Errorf("process %d has no child", pid)
	}
	return child, nil
}

// insiders are the processes that insider found last, by what it was asked for: tests ask for a host's libvirtd many
// times a second. A process keeps its number in a namespace for life, and the programs asked for do not become others.
var insiders sync.Map // of insiderKey to process

type insiderKey struct {
	first process
	inner int
	name  string
}

// insider finds the process that has number inner in the PID namespace of
// first, and that name.
func insider(first process, inner int, name string) (process, bool) {
	asked := insiderKey{first, inner, name}
	if known, ok := insiders.Load(asked); ok && known.(process).alive() {
		return known.(process), true
	}
	found, ok := findInsider(asked)
	if ok {
		insiders.Store(asked, found)
	}
	return found, ok
}

func findInsider(i insiderKey) (process, bool) {
	first, inner, name := i.first, i.inner, i.name
	ns, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/pid", first.PID))
	if err != nil || !first.alive() {
		return process{}, false
	}
	var found process
	scan(func(p int, status map[string]string) bool {
		ids := strings.Fields(status["NSpid"])
		if len(ids) < 2 || ids[len(ids)-1] != strconv.Itoa(inner) || status["Name"] != name {
			return false
		}
		if its, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/pid", p)); err != nil || its != ns {
			return false
		}
		found, _ = processOf(p)
		return true
	})
	return found, found.PID != 0
}
