package main

import (
	"fmt"
	"strings"
	"sync"
	"time"

	"evenkeel/api/v1"
)

const (
	// progressAfter is how long something takes before its progress is drawn on a terminal.
	progressAfter = 2 * time.Second
	barCells      = 20
)

// bar of so much of a whole: [#####...............].
func bar(done, total float64) string {
	cells := 0
	if total > 0 {
		cells = int(barCells * min(1, max(0, done/total)))
	}
	return "[" + strings.Repeat("#", cells) + strings.Repeat(".", barCells-cells) + "]"
}

// leftText is about how long the rest takes if it goes on as since the beginning; "" while nothing is done, or all is.
func leftText(done, total float64, elapsed time.Duration) string {
	if done <= 0 || done >= total || elapsed <= 0 {
		return ""
	}
	left := time.Duration(float64(elapsed) * (total - done) / done)
	return "about " + shortTime(left.Round(time.Second)) + " left"
}

// progressText is one line: a bar, what it is, how far, how long it has taken and how long it yet may.
func progressText(text string, done, total float64, elapsed time.Duration) string {
	out := bar(done, total) + " " + text + ", " + shortTime(elapsed)
	if left := leftText(done, total, elapsed); left != "" {
		out += ", " + left
	}
	return out
}

// progress shows how far an operation is: on a terminal in one line that changes every second, elsewhere a line for each step.
type progress struct {
	t        *tool
	terminal bool
	begun    time.Time
	stop     chan struct{} // closed at the end; nil where nothing is drawn
	stopped  sync.WaitGroup

	mu          sync.Mutex // protects what is below
	last        string
	done, total float64
	drawn       bool
}

func (t *tool) progressLine() *progress {
	p := &progress{t: t, terminal: isTerminal(t.err), begun: time.Now()}
	if p.terminal {
		p.stop = make(chan struct{})
		p.stopped.Go(p.draw)
	}
	return p
}

// draw the line every second, once there is reason to.
func (p *progress) draw() {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-p.stop:
			return
		case <-tick.C:
		}
		p.mu.Lock()
		if elapsed := time.Since(p.begun); p.last != "" && elapsed >= progressAfter {
			p.t.say("\r\x1b[K%s", strings.TrimSuffix(fit(p.t.err, progressText(p.last, p.done, p.total, elapsed)+"\n"), "\n"))
			p.drawn = true
		}
		p.mu.Unlock()
	}
}

func (p *progress) set(op v1.Operation) {
	subject, _ := about(op)
	text := op.Kind + " " + subject + ": " + op.State
	if op.Text != "" {
		text += ", " + oneLine(op.Text)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if text == p.last || op.Ended() { // how it ended the result says
		return
	}
	p.last, p.done, p.total = text, float64(op.Done), float64(op.Total)
	if !p.terminal {
		p.t.say("%s\n", text)
	}
}

func (p *progress) end() {
	if p.stop != nil {
		close(p.stop)
		p.stopped.Wait()
	}
	if p.drawn {
		p.t.say("\r\x1b[K")
	}
}

// drainProgress of several hosts in one line, by the bytes that their VMs have to send; begun is when the first began.
func drainProgress(all []v1.Drain, at time.Time) string {
	var done, total float64
	gone, vms := 0, 0
	begun := at
	for _, d := range all {
		if !d.Since.IsZero() && d.Since.Before(begun) {
			begun = d.Since
		}
		for _, vm := range d.VMs {
			vms++
			size := float64(max(vm.Bytes, vm.BytesMoved))
			total += size
			if vm.State == "done" {
				gone++
				done += size
			} else {
				done += min(size, float64(vm.BytesMoved))
			}
		}
	}
	if vms == 0 {
		return ""
	}
	return progressText(fmt.Sprintf("%d of %s gone, %s of %s", gone, countOf(vms, "VM"), v1.Size(done).Short(), v1.Size(total).Short()), done, total, at.Sub(begun))
}
