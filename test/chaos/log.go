package chaos

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"
)

// Log is the time line of a run: a JSON object a line, with seconds since its beginning.
type Log struct {
	mu     sync.Mutex
	begun  time.Time
	to     io.Writer
	lines  []Line
	losses []Loss
}

// Line of the time line.
type Line struct {
	T     float64   `json:"t"` // seconds since the beginning
	At    time.Time `json:"at"`
	What  string    `json:"what"` // strike, failed, skipped, undone, lost, on, ended, leader, event, repair, violation, error
	On    string    `json:"on,omitempty"`
	Text  string    `json:"text,omitempty"`
	Fault *Fault    `json:"fault,omitempty"`
}

// NewLog begins now.
func NewLog(to io.Writer) *Log { return &Log{begun: time.Now(), to: to} }

func (l *Log) add(x Line) {
	l.mu.Lock()
	defer l.mu.Unlock()
	x.At = time.Now()
	x.T = float64(x.At.Sub(l.begun).Milliseconds()) / 1000
	l.lines = append(l.lines, x)
	if text, err := json.Marshal(x); err == nil {
		_, _ = l.to.Write(append(text, '\n')) // the lines are kept here, too
	}
}

// Say what happened.
func (l *Log) Say(what, on, text string) { l.add(Line{What: what, On: on, Text: text}) }

// Strike says that a fault struck, or was undone.
func (l *Log) Strike(what, on string, f Fault, err error) {
	x := Line{What: what, On: on, Text: f.String(), Fault: &f}
	if err != nil {
		x.Text += ": " + err.Error()
	}
	l.add(x)
}

// Lost says that a host was lost.
func (l *Log) Lost(host, why string) {
	l.Say("lost", host, why)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.losses = append(l.losses, Loss{At: time.Now(), Host: host})
}

// Stopped says that a host stopped a VM because its lease had ended.
func (l *Log) Stopped(host, domain string) {
	l.Say("stopped", host, domain+": its lease has ended")
	l.mu.Lock()
	defer l.mu.Unlock()
	l.losses = append(l.losses, Loss{At: time.Now(), Host: host, Domain: domain})
}

// DaemonKilled notes that libvirtd of a host was killed.
func (l *Log) DaemonKilled(host string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.losses = append(l.losses, Loss{At: time.Now(), Host: host, Daemon: true})
}

// Losses so far.
func (l *Log) Losses() []Loss {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.losses)
}

// Struck counts the faults that struck by kind.
func (l *Log) Struck() map[string]int {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := map[string]int{}
	for _, x := range l.lines {
		switch x.What {
		case "strike":
			out[x.Fault.Kind]++
		case "failed":
			out[x.Fault.Kind]--
		}
	}
	return out
}

// Last lines of the time line, as text.
func (l *Log) Last(n int) []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var out []string
	for _, x := range l.lines[max(0, len(l.lines)-n):] {
		out = append(out, fmt.Sprintf("%8.3f %-9s %-3s %s", x.T, x.What, x.On, x.Text))
	}
	return out
}

// Violations that were said so far.
func (l *Log) Violations() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var out []string
	for _, x := range l.lines {
		if x.What == "violation" {
			out = append(out, fmt.Sprintf("at %.1f s on %s: %s", x.T, x.On, x.Text))
		}
	}
	return out
}
