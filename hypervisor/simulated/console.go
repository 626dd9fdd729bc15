package simulated

import (
	"fmt"
	"io"
	"sync"
	"time"
)

// maxUnread is how many bytes a console keeps for a reader; older ones are lost.
const maxUnread = 64 << 10

// console is one reader's hold on a VM's serial console. The guest prints the
// test guest's beat and echoes its input.
type console struct {
	mu     sync.Mutex
	unread []byte
	over   bool
	more   chan struct{} // holds one token if there may be something to read
	done   chan struct{}
	stop   func() bool // of the timer for the next beat
}

// attach makes a console of a VM and starts its beat. The machine is locked.
func (m *machine) attach(v *vm) *console {
	if v.console != nil {
		v.console.end()
	}
	c := &console{more: make(chan struct{}, 1), done: make(chan struct{}), stop: func() bool { return false }}
	v.console = c
	if !v.paused {
		m.speak(v)
	}
	return c
}

// speak has a guest write to its console, if a reader is attached.
func (m *machine) speak(v *vm) {
	if v.console == nil {
		return
	}
	if m.at >= v.bootAt {
		v.console.say(fmt.Sprintf("EVENKEEL-GUEST ready kernel=simulated vcpus=%d\r\n", v.spec.VCPUs))
	}
	if m.w.timing.Beat > 0 {
		m.beat(v, v.console, m.at)
	}
}

// beat prints a line for each whole beat of the guest's own time, from at on.
func (m *machine) beat(v *vm, c *console, at int64) {
	every := int64(m.w.timing.Beat)
	n := max(at-v.bootAt, 0)/every + 1
	instant := v.bootAt + n*every
	stop := m.w.clock.AfterFunc(time.Duration(instant-m.w.now()), func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		if m.ended || v.console != c {
			return
		}
		now := m.advance(m.w.now())
		if now < instant { // a clock that fires early
			m.beat(v, c, at)
			return
		}
		c.say(fmt.Sprintf("BEAT %d uptime_ms=%d memtotal_kb=%d\r\n", n, (instant-v.bootAt)/int64(time.Millisecond), v.balloonNow(now, m.w.timing.Balloon)>>10))
		m.beat(v, c, instant)
	})
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stop = stop
	if c.over {
		stop()
	}
}

// say adds to what there is to read.
func (c *console) say(text string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.over {
		return
	}
	c.unread = append(c.unread, text...)
	if n := len(c.unread) - maxUnread; n > 0 {
		c.unread = append(c.unread[:0], c.unread[n:]...)
	}
	select {
	case c.more <- struct{}{}:
	default:
	}
}

func (c *console) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	for {
		c.mu.Lock()
		n := copy(p, c.unread)
		c.unread = c.unread[n:]
		over := c.over
		c.mu.Unlock()
		if n > 0 {
			return n, nil
		}
		if over {
			return 0, io.EOF
		}
		select {
		case <-c.more:
		case <-c.done:
		}
	}
}

// Write sends p to the guest, which only echoes it.
func (c *console) Write(p []byte) (int, error) {
	c.mu.Lock()
	over := c.over
	c.mu.Unlock()
	if over {
		return 0, io.ErrClosedPipe
	}
	c.say(string(p))
	return len(p), nil
}

// Close lets go of the console.
func (c *console) Close() error {
	c.end()
	return nil
}

func (c *console) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.over {
		c.over = true
		close(c.done)
		c.stop()
	}
}
