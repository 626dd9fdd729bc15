package libvirt

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"evenkeel/hypervisor"
)

// unlimited is the limit of a call that only the end of its connection bounds.
const unlimited time.Duration = 1 << 62

// pending is a call of libvirt that is under way.
type pending struct {
	vm, object string

	mu      sync.Mutex
	name    string
	since   time.Time // of the function of libvirt that is called now
	givenUp bool      // it had its time
}

type pendingKey struct{}

// calling returns a context that names the next call made with it: the function of libvirt, the id of the VM ("" = none), and
// what people call the object ("" = named by that id).
func calling(ctx context.Context, name, vm, object string) context.Context {
	if object == "" && vm != "" {
		object = "VM " + vm
	}
	return context.WithValue(ctx, pendingKey{}, &pending{name: name, vm: vm, object: object})
}

// calledBy is the call that the context names. A context is good for one call at a time.
func calledBy(ctx context.Context) *pending {
	if p, is := ctx.Value(pendingKey{}).(*pending); is {
		return p
	}
	return &pending{name: "a call"}
}

// becomes records which function of libvirt is called now: fn may call several.
func (p *pending) becomes(name string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.name, p.since = name, time.Now()
}

// hung is the call as it is reported. p is locked.
func (p *pending) hung() hypervisor.Hung {
	text := p.name
	if p.object != "" {
		text += " of " + p.object
	}
	return hypervisor.Hung{Call: text, VM: p.vm, Since: p.since}
}

// calls that are under way, the first at first.
type calls struct {
	mu   sync.Mutex
	list []*pending
}

// begin a call; the function that is returned ends it.
func (c *calls) begin(p *pending) (ended func()) {
	p.mu.Lock()
	p.since, p.givenUp = time.Now(), false
	p.mu.Unlock()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.list = append(c.list, p)
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if at := slices.Index(c.list, p); at >= 0 {
			c.list = slices.Delete(c.list, at, at+1)
		}
	}
}

// giveUp waiting for a call: it hangs until it ends after all.
func (c *calls) giveUp(p *pending) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.givenUp = true
	return fmt.Errorf("libvirt does not answer: %s has been waiting for %s: %w", p.hung().Call, time.Since(p.since).Round(time.Second/10), hypervisor.ErrUnavailable)
}

// Hanging implements hypervisor.Hanging.
func (h *Host) Hanging() []hypervisor.Hung {
	h.calls.mu.Lock()
	defer h.calls.mu.Unlock()
	var out []hypervisor.Hung
	for _, p := range h.calls.list {
		p.mu.Lock()
		if p.givenUp {
			out = append(out, p.hung())
		}
		p.mu.Unlock()
	}
	return out
}
