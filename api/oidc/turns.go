package oidc

import (
	"context"
	"fmt"
	"sync"
	"time"

	"evenkeel/api/oidc/issuer"
)

const (
	// maxExchanges is how many log-ins of browsers may ask the issuer for tokens at a time.
	maxExchanges = 8
	// maxTurn is how long a log-in waits until it may.
	maxTurn = 5 * time.Second
	// maxWaiting is how many log-ins of one client address may be under way, and maxAddresses of how many addresses.
	maxWaiting, maxAddresses = 8, 1024
)

// turns let maxExchanges log-ins ask the issuer at a time, of which one is of a client address: strangers at one address keep nobody
// else out.
type turns struct {
	all chan struct{} // one for each log-in that asks

	mu sync.Mutex
	of map[string]*turn // by client address; those that have log-ins under way
}

// turn of a client address.
type turn struct {
	one   chan struct{} // the log-in whose turn it is
	count int           // log-ins that wait or ask
}

func newTurns() *turns {
	return &turns{all: make(chan struct{}, maxExchanges), of: map[string]*turn{}}
}

// take waits for the turn of a log-in from a client address, and returns what ends it. The error is issuer.ErrBusy.
func (t *turns) take(ctx context.Context, from string) (end func(), err error) {
	own := t.enter(from)
	if own == nil {
		return nil, fmt.Errorf("%w; try again", issuer.ErrBusy)
	}
	ctx, cancel := context.WithTimeout(ctx, maxTurn)
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
func (t *turns) enter(from string) *turn {
	t.mu.Lock()
	defer t.mu.Unlock()
	own := t.of[from]
	if own == nil {
		if len(t.of) >= maxAddresses {
			return nil
		}
		own = &turn{one: make(chan struct{}, 1)}
		t.of[from] = own
	}
	if own.count >= maxWaiting {
		return nil
	}
	own.count++
	return own
}

func (t *turns) leave(from string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if own := t.of[from]; own.count > 1 {
		own.count--
	} else {
		delete(t.of, from)
	}
}
