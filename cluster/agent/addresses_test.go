package agent

import (
	"context"
	"errors"
	"net/netip"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// anAddressing answers what a test set, and counts how often it was asked.
type anAddressing struct {
	mu    sync.Mutex
	found map[string][]netip.Addr
	err   error
	asked int
}

func (a *anAddressing) Addresses(context.Context) (map[string][]netip.Addr, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.asked++
	return a.found, a.err
}

func (a *anAddressing) set(found map[string][]netip.Addr, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.found, a.err = found, err
}

func (a *anAddressing) times() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.asked
}

func TestAddressBook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		h := &anAddressing{}
		b := newAddressBook(h)
		ended := make(chan struct{})
		go func() { b.run(ctx); close(ended) }()
		synctest.Wait()
		if got := b.of("vm1"); got != nil {
			t.Fatalf("an address before any is known: %v", got)
		}
		want := netip.MustParseAddr("192.0.2.7")
		h.set(map[string][]netip.Addr{"vm1": {want}}, nil)
		time.Sleep(addressesSoon + time.Second)
		synctest.Wait()
		if got := b.of("vm1"); len(got) != 1 || got[0] != want {
			t.Errorf("a new VM's address is not known after %s: %v", addressesSoon, got)
		}
		h.set(nil, errors.New("out of reach"))
		time.Sleep(2 * addressesEvery)
		synctest.Wait()
		if got := b.of("vm1"); len(got) != 1 {
			t.Error("what was known is forgotten when the hypervisor cannot be asked")
		}
		h.set(nil, nil)
		time.Sleep(2 * addressesEvery)
		synctest.Wait()
		before := h.times()
		for range 120 { // a VM that has none, sampled every 10 s for 20 minutes
			if got := b.of("vm1"); got != nil {
				t.Fatalf("an address that is gone: %v", got)
			}
			time.Sleep(10 * time.Second)
		}
		synctest.Wait()
		if n := h.times() - before; n < 38 || n > 60 {
			t.Errorf("asked %d times in 20 minutes: sooner for the first two, then every %s", n, addressesEvery)
		}
		cancel()
		<-ended
	})
	if (*addressBook)(nil).of("vm1") != nil {
		t.Error("an address where the hypervisor knows none")
	}
}
