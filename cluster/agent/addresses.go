package agent

import (
	"context"
	"net/netip"
	"sync"
	"time"

	"evenkeel/hypervisor"
)

const (
	// addressesEvery is how often addresses are asked for; sooner, by addressesSoon, when a VM was asked for that has none yet.
	addressesEvery = 30 * time.Second
	addressesSoon  = 5 * time.Second
	// addressesSoonFor is how long a VM without an address is asked about sooner.
	addressesSoonFor = 2 * time.Minute
)

// addressBook has the addresses of the host's VMs. They are found beside the rounds: a guest agent may take its time.
type addressBook struct {
	hypervisor hypervisor.Addressing
	wanting    chan struct{}

	mu    sync.Mutex // protects both
	known map[string][]netip.Addr
	since map[string]time.Time // when a VM without an address was first asked for
}

func newAddressBook(h hypervisor.Addressing) *addressBook {
	return &addressBook{hypervisor: h, wanting: make(chan struct{}, 1), known: map[string][]netip.Addr{}, since: map[string]time.Time{}}
}

// of a VM; nil where none is known.
func (b *addressBook) of(vm string) []netip.Addr {
	if b == nil {
		return nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if found := b.known[vm]; len(found) > 0 {
		delete(b.since, vm)
		return found
	}
	first, asked := b.since[vm]
	if !asked {
		first = time.Now()
		b.since[vm] = first
	}
	if time.Since(first) < addressesSoonFor {
		select {
		case b.wanting <- struct{}{}:
		default:
		}
	}
	return nil
}

// run asks for addresses until ctx ends.
func (b *addressBook) run(ctx context.Context) {
	for {
		found, err := b.hypervisor.Addresses(ctx)
		if err == nil { // else what was known stays
			b.take(found)
		}
		asked := time.Now()
		soon, later := b.wanting, time.After(addressesEvery)
		for waits := true; waits; {
			select {
			case <-ctx.Done():
				return
			case <-later:
				waits = false
			case <-soon:
				soon, later = nil, time.After(max(0, addressesSoon-time.Since(asked)))
			}
		}
	}
}

// take in what was found, and forget VMs that are gone.
func (b *addressBook) take(found map[string][]netip.Addr) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.known = found
	for vm, at := range b.since {
		if _, has := found[vm]; has || time.Since(at) > time.Hour {
			delete(b.since, vm)
		}
	}
}
