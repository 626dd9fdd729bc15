package transport

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"

	"evenkeel/hypervisor"
)

// tty is a host whose VMs' consoles echo their input.
type tty struct {
	mu   sync.Mutex
	open []net.Conn
}

func (h *tty) Console(_ context.Context, id string) (io.ReadWriteCloser, error) {
	if id != "a b" {
		return nil, hypervisor.ErrNotFound
	}
	near, far := net.Pipe()
	h.mu.Lock()
	h.open = append(h.open, near)
	h.mu.Unlock()
	go func() {
		_, _ = io.Copy(far, far)
		_ = far.Close()
	}()
	return near, nil
}

func TestConsole(t *testing.T) {
	s, host := newSite(t), &tty{}
	h1 := s.member("h1", false, true, PeersOptions{Consoles: host})
	s1 := s.member("s1", true, false, PeersOptions{Lead: none})
	h2 := s.member("h2", false, true, PeersOptions{Consoles: host})
	opening, cancel := context.WithTimeout(context.Background(), waitLimit)
	stream, err := s1.client.Console(opening, h1.at, "h1", "a b")
	if err != nil {
		t.Fatal(err)
	}
	cancel() // it bounds the opening only
	echo := func() error {
		if _, err := io.WriteString(stream, "login: "); err != nil {
			return err
		}
		got := make([]byte, 7)
		_, err := io.ReadFull(stream, got)
		if err == nil && string(got) != "login: " {
			t.Errorf("got %q", got)
		}
		return err
	}
	for range 3 {
		if err := echo(); err != nil {
			t.Fatal(err)
		}
	}
	// The VM stops: the stream ends.
	host.mu.Lock()
	_ = host.open[0].Close()
	host.mu.Unlock()
	if got, _ := io.ReadAll(stream); len(got) != 0 {
		t.Errorf("got %q after the end", got)
	}
	_ = stream.Close()

	ctx, cancel := context.WithTimeout(context.Background(), waitLimit)
	defer cancel()
	var p *Problem
	if _, err := s1.client.Console(ctx, h1.at, "h1", "c"); !errors.As(err, &p) || p.Status != http.StatusNotFound {
		t.Errorf("a VM that is not there: %v", err)
	}
	if _, err := h2.client.Console(ctx, h1.at, "h1", "a b"); !errors.Is(err, ErrRefused) {
		t.Errorf("an agent opened another's console: %v", err)
	}
	if _, err := s1.client.Console(ctx, h2.at, "h1", "a b"); err == nil {
		t.Error("the console of a host that is not the one meant")
	}
	if stream, err = s1.client.Console(ctx, h1.at, "h1", "a b"); err != nil {
		t.Fatal(err)
	}
	if err := echo(); err != nil {
		t.Fatal(err)
	}
	begin := time.Now()
	h1.stop() // ends consoles, and does not wait for people
	if got, _ := io.ReadAll(stream); len(got) != 0 || time.Since(begin) > waitLimit {
		t.Errorf("got %q after the end", got)
	}
	_ = stream.Close()
}
