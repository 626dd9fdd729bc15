package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"sync"
	"time"

	"evenkeel/hypervisor"
)

// lazyHost is a hypervisor that may not answer yet when vcd starts: until it does, every
// call says that it is out of reach. A server must not wait for the libvirt of its host.
type lazyHost struct {
	open func(ctx context.Context) (hypervisor.Host, error)
	log  *slog.Logger

	mu    sync.Mutex
	host  hypervisor.Host
	tried time.Time
	err   error
}

// retryOpen is how often a hypervisor that does not answer is tried.
const retryOpen = 2 * time.Second

func (l *lazyHost) get(ctx context.Context) (hypervisor.Host, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.host != nil {
		return l.host, nil
	}
	if l.err != nil && time.Since(l.tried) < retryOpen {
		return nil, l.err
	}
	h, err := l.open(ctx)
	l.tried = time.Now()
	if err != nil {
		l.err = fmt.Errorf("%w: %w", hypervisor.ErrUnavailable, err)
		return nil, l.err
	}
	l.host, l.err = h, nil
	return h, nil
}

func lazily[T any](ctx context.Context, l *lazyHost, f func(hypervisor.Host) (T, error)) (T, error) {
	h, err := l.get(ctx)
	if err != nil {
		var zero T
		return zero, err
	}
	return f(h)
}

func (l *lazyHost) do(ctx context.Context, f func(hypervisor.Host) error) error {
	h, err := l.get(ctx)
	if err != nil {
		return err
	}
	return f(h)
}

// Capacity and the methods after it implement hypervisor.Host.
func (l *lazyHost) Capacity(ctx context.Context) (hypervisor.Capacity, error) {
	return lazily(ctx, l, func(h hypervisor.Host) (hypervisor.Capacity, error) { return h.Capacity(ctx) })
}
func (l *lazyHost) List(ctx context.Context) ([]hypervisor.VM, error) {
	return lazily(ctx, l, func(h hypervisor.Host) ([]hypervisor.VM, error) { return h.List(ctx) })
}
func (l *lazyHost) Define(ctx context.Context, s hypervisor.Spec) error {
	return l.do(ctx, func(h hypervisor.Host) error { return h.Define(ctx, s) })
}
func (l *lazyHost) Start(ctx context.Context, s hypervisor.Spec) error {
	return l.do(ctx, func(h hypervisor.Host) error { return h.Start(ctx, s) })
}
func (l *lazyHost) Stop(ctx context.Context, id string) error {
	return l.do(ctx, func(h hypervisor.Host) error { return h.Stop(ctx, id) })
}
func (l *lazyHost) Destroy(ctx context.Context, id string) error {
	return l.do(ctx, func(h hypervisor.Host) error { return h.Destroy(ctx, id) })
}
func (l *lazyHost) Undefine(ctx context.Context, s hypervisor.Spec) error {
	return l.do(ctx, func(h hypervisor.Host) error { return h.Undefine(ctx, s) })
}
func (l *lazyHost) SetCPU(ctx context.Context, id string, c hypervisor.CPU) error {
	return l.do(ctx, func(h hypervisor.Host) error { return h.SetCPU(ctx, id, c) })
}
func (l *lazyHost) SetBalloon(ctx context.Context, id string, bytes int64) error {
	return l.do(ctx, func(h hypervisor.Host) error { return h.SetBalloon(ctx, id, bytes) })
}
func (l *lazyHost) Stats(ctx context.Context) ([]hypervisor.Stats, error) {
	return lazily(ctx, l, func(h hypervisor.Host) ([]hypervisor.Stats, error) { return h.Stats(ctx) })
}
func (l *lazyHost) Pressure(ctx context.Context) (hypervisor.Pressure, error) {
	return lazily(ctx, l, func(h hypervisor.Host) (hypervisor.Pressure, error) { return h.Pressure(ctx) })
}
func (l *lazyHost) Events(ctx context.Context) (<-chan hypervisor.Event, error) {
	return lazily(ctx, l, func(h hypervisor.Host) (<-chan hypervisor.Event, error) { return h.Events(ctx) })
}
func (l *lazyHost) Console(ctx context.Context, id string) (io.ReadWriteCloser, error) {
	return lazily(ctx, l, func(h hypervisor.Host) (io.ReadWriteCloser, error) { return h.Console(ctx, id) })
}
func (l *lazyHost) Resume(ctx context.Context, id string) error {
	return l.do(ctx, func(h hypervisor.Host) error { return h.Resume(ctx, id) })
}
func (l *lazyHost) Abort(ctx context.Context, id string) (moved hypervisor.Moved, found bool, err error) {
	h, err := l.get(ctx)
	if err != nil {
		return hypervisor.Moved{}, false, err
	}
	return h.Abort(ctx, id)
}

func (l *lazyHost) Arrival(ctx context.Context, id string) (hypervisor.Moved, error) {
	return lazily(ctx, l, func(h hypervisor.Host) (hypervisor.Moved, error) { return h.Arrival(ctx, id) })
}

func (l *lazyHost) CheckPeer(ctx context.Context, to string) (hypervisor.Obstacle, error) {
	return lazily(ctx, l, func(h hypervisor.Host) (hypervisor.Obstacle, error) { return h.CheckPeer(ctx, to) })
}

func (l *lazyHost) Partner(ctx context.Context) (hypervisor.Partner, error) {
	return lazily(ctx, l, func(h hypervisor.Host) (hypervisor.Partner, error) { return h.Partner(ctx) })
}

func (l *lazyHost) Migrate(ctx context.Context, id string, m hypervisor.Migration) (hypervisor.Moved, error) {
	return lazily(ctx, l, func(h hypervisor.Host) (hypervisor.Moved, error) { return h.Migrate(ctx, id, m) })
}

// Hanging implements hypervisor.Hanging, for a hypervisor that was reached.
func (l *lazyHost) Hanging() []hypervisor.Hung {
	l.mu.Lock()
	h := l.host
	l.mu.Unlock()
	if h == nil {
		return nil
	}
	return hypervisor.HangingOf(h)
}

// Addresses implements hypervisor.Addressing, for a hypervisor that knows any.
func (l *lazyHost) Addresses(ctx context.Context) (map[string][]netip.Addr, error) {
	return lazily(ctx, l, func(h hypervisor.Host) (map[string][]netip.Addr, error) {
		if known, is := h.(hypervisor.Addressing); is {
			return known.Addresses(ctx)
		}
		return nil, nil
	})
}

// Close lets go of the hypervisor, if it was ever reached.
func (l *lazyHost) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.host == nil {
		return nil
	}
	return l.host.Close()
}
