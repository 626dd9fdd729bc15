package oidc

import (
	"context"
	"fmt"
	"net/netip"
	"sync"
	"time"

	"evenkeel/api/oidc/issuer"
)

const (
	// maxExchanges is how many log-ins of browsers may ask the issuer for tokens at a time.
	maxExchanges = 8
	// maxWait is how long a log-in waits until it may.
	maxWait = 5 * time.Second
	// maxWaiting is how many log-ins of one client address may be under way, and maxAddresses of how many addresses.
	maxWaiting, maxAddresses = 8, 1024
)

// exchanges let maxExchanges log-ins ask the issuer at a time, of which one is of a client address: strangers at one address keep no one
// else out.
type exchanges struct {
	all chan struct{} // one for each log-in that asks

	mu sync.Mutex
	of map[string]*source // by client address; those that have log-ins under way
}

// source is a client address.
type source struct {
	one   chan struct{} // the log-in whose turn it is
	count int           // log-ins that wait or ask
}

func newExchanges() *exchanges {
	return &exchanges{all: make(chan struct{}, maxExchanges), of: map[string]*source{}}
}

// take waits for the turn of a log-in from a client address, and returns what ends it. The error is issuer.ErrBusy.
func (t *exchanges) take(ctx context.Context, from string) (end func(), err error) {
	own := t.enter(from)
	if own == nil {
		return nil, fmt.Errorf("%w; try again", issuer.ErrBusy)
	}
	ctx, cancel := context.WithTimeout(ctx, maxWait)
	defer cancel()
	select {
	case own.one <- struct{}{}:
	case <-ctx.Done():
		t.leave(from)
		return nil, fmt.Errorf("%w from your address; try again", issuer.ErrBusy)
	}
	select {
	case t.all <- struct{}{}:
	case <-ctx.Done():
		<-own.one
		t.leave(from)
		return nil, fmt.Errorf("%w; try again", issuer.ErrBusy)
	}
	return func() {
		<-t.all
		<-own.one
		t.leave(from)
	}, nil
}

// enter counts a log-in; nil: there are too many.
func (t *exchanges) enter(from string) *source {
	t.mu.Lock()
	defer t.mu.Unlock()
	own := t.of[from]
	if own == nil {
		if len(t.of) >= maxAddresses {
			return nil
		}
		own = &source{one: make(chan struct{}, 1)}
		t.of[from] = own
	}
	if own.count >= maxWaiting {
		return nil
	}
	own.count++
	return own
}

func (t *exchanges) leave(from string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if own := t.of[from]; own.count > 1 {
		own.count--
	} else {
		delete(t.of, from)
	}
}

// sourceOf a client at host:port: its address, or the /64 of it for IPv6, of which a client has as many as it likes. Addresses that
// cannot be read count as one.
func sourceOf(from string) string {
	at, _ := netip.ParseAddrPort(from)
	a := at.Addr().Unmap().WithZone("")
	bits := a.BitLen()
	if a.Is6() {
		bits = 64
	}
	p, _ := a.Prefix(bits) // no error: bits fit
	return p.String()
}
