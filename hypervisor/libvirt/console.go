package libvirt

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"libvirt.org/go/libvirt"

	"evenkeel/hypervisor"
)

// console is a VM's serial console as a stream of libvirt. The stream never
// blocks: the event loop says when there is something to read or room to
// write, and the callback does no more than wake the waiting goroutine.
type console struct {
	host *Host
	id   string

	mu       sync.Mutex // guards the stream, which must not be used after it was freed
	stream   *libvirt.Stream
	want     libvirt.StreamEventType
	shut     bool
	gone     chan struct{} // closed with the console
	readable chan struct{}
	writable chan struct{}
}

// Console attaches to the VM's serial console, and takes it from the client that has it.
func (h *Host) Console(ctx context.Context, id string) (io.ReadWriteCloser, error) {
	h.mu.Lock()
	old := h.consoles[id]
	delete(h.consoles, id)
	h.mu.Unlock()
	if old != nil {
		_ = old.Close()
	}
	c, err := onVM(calling(ctx, "virDomainOpenConsole", id, ""), h, h.opts.CallTimeout, id, func(conn *libvirt.Connect, dom *libvirt.Domain, _ mark) (*console, error) {
		st, err := conn.NewStream(libvirt.STREAM_NONBLOCK)
		if err != nil {
			return nil, err
		}
		if err := dom.OpenConsole("", st, libvirt.DOMAIN_CONSOLE_FORCE); err != nil {
			_ = st.Free()
			return nil, err
		}
		c := &console{
			host: h, id: id, stream: st, gone: make(chan struct{}),
			readable: make(chan struct{}, 1), writable: make(chan struct{}, 1),
		}
		if err := st.EventAddCallback(0, c.event); err != nil {
			_ = st.Abort()
			_ = st.Free()
			return nil, err
		}
		return c, nil
	})
	if err != nil {
		return nil, fmt.Errorf("console of VM %s: %w", id, err)
	}
	h.mu.Lock()
	old, h.consoles[id] = h.consoles[id], c
	closed := h.ctx.Err() != nil
	h.mu.Unlock()
	if old != nil {
		_ = old.Close()
	}
	if closed {
		_ = c.Close()
		return nil, fmt.Errorf("console of VM %s: %w", id, hypervisor.ErrUnavailable)
	}
	return c, nil
}

// event runs in the event loop. It unsubscribes from the event that was served, else
// the loop would call again at once.
func (c *console) event(_ *libvirt.Stream, e libvirt.StreamEventType) {
	c.mu.Lock()
	if !c.shut {
		c.want &^= e
		_ = c.stream.EventUpdateCallback(c.want)
	}
	c.mu.Unlock()
	hup := e&(libvirt.STREAM_EVENT_HANGUP|libvirt.STREAM_EVENT_ERROR) != 0
	if e&libvirt.STREAM_EVENT_READABLE != 0 || hup {
		poke(c.readable)
	}
	if e&libvirt.STREAM_EVENT_WRITABLE != 0 || hup {
		poke(c.writable)
	}
}

func poke(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// wouldBlock is what the binding's Recv and Send return when they would have to wait.
const wouldBlock = -2

// Read reads what the guest writes; io.EOF when the VM is gone, io.ErrClosedPipe
// when another reader took the console.
func (c *console) Read(p []byte) (int, error) {
	n, err := c.try(p, libvirt.STREAM_EVENT_READABLE, c.readable, (*libvirt.Stream).Recv)
	if err == nil && n == 0 && len(p) > 0 {
		return 0, io.EOF
	}
	return n, err
}

// Write types on the console.
func (c *console) Write(p []byte) (int, error) {
	total := 0
	for total < len(p) {
		n, err := c.try(p[total:], libvirt.STREAM_EVENT_WRITABLE, c.writable, (*libvirt.Stream).Send)
		total += n
		if err != nil {
			return total, err
		}
	}
	return total, nil
}

func (c *console) try(p []byte, interest libvirt.StreamEventType, ready <-chan struct{}, op func(*libvirt.Stream, []byte) (int, error)) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	for {
		c.mu.Lock()
		if c.shut {
			c.mu.Unlock()
			return 0, io.ErrClosedPipe
		}
		n, err := op(c.stream, p)
		if err == nil && n == wouldBlock {
			c.want |= interest
			err = c.stream.EventUpdateCallback(c.want)
		}
		c.mu.Unlock()
		switch {
		case errors.Is(err, io.EOF):
			return 0, io.EOF
		case err != nil:
			return 0, fmt.Errorf("console of VM %s: %w", c.id, err)
		case n != wouldBlock:
			return max(n, 0), nil
		}
		select {
		case <-ready:
		case <-c.gone:
			return 0, io.ErrClosedPipe
		}
	}
}

// Close lets go of the console; the VM does not notice.
func (c *console) Close() error {
	c.mu.Lock()
	if c.shut {
		c.mu.Unlock()
		return nil
	}
	c.shut = true
	st := c.stream
	c.mu.Unlock()
	close(c.gone)
	c.host.mu.Lock()
	if c.host.consoles[c.id] == c {
		delete(c.host.consoles, c.id)
	}
	c.host.mu.Unlock()
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = st.EventRemoveCallback()
		_ = st.Abort()
		_ = st.Free()
	}()
	select {
	case <-done:
	case <-time.After(c.host.opts.CallTimeout): // a hung daemon: leave it to its goroutine
	}
	return nil
}
