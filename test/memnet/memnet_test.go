package memnet

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/nettest"
)

func pipe() (near, far net.Conn, stop func(), err error) {
	n := &Network{}
	l, err := n.Listen("127.0.0.1:0")
	if err != nil {
		return nil, nil, nil, err
	}
	if near, err = n.Dial(context.Background(), "tcp", l.Addr().String()); err != nil {
		return nil, nil, nil, err
	}
	if far, err = l.Accept(); err != nil {
		return nil, nil, nil, err
	}
	return near, far, func() { _, _, _ = near.Close(), far.Close(), l.Close() }, nil
}

// What any connection must do.
func TestConn(t *testing.T) {
	t.Parallel()
	nettest.TestConn(t, pipe)
}

// In a bubble a deadline takes no real time, and a goroutine that waits for it does not stop simulated time.
func TestDeadlineInABubble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, _, stop, err := pipe()
		if err != nil {
			t.Fatal(err)
		}
		defer stop()
		began := time.Now()
		_ = near.SetReadDeadline(began.Add(time.Hour))
		if _, err := near.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) || time.Since(began) != time.Hour {
			t.Errorf("after %s: %v", time.Since(began), err)
		}
	})
}

func TestAddresses(t *testing.T) {
	t.Parallel()
	n := &Network{}
	if _, err := n.Dial(t.Context(), "tcp", "127.0.0.1:80"); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("without a listener: %v", err)
	}
	l, err := n.Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	at := l.Addr().String()
	if _, err := n.Listen(at); !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("a second listener: %v", err)
	}
	from := netip.MustParseAddr("127.0.1.7")
	if _, err := n.From(from)(t.Context(), "tcp", at); err != nil {
		t.Fatal(err)
	}
	c, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	if got := netip.MustParseAddrPort(c.RemoteAddr().String()).Addr(); got != from || c.LocalAddr().String() != at {
		t.Errorf("from %s to %s", got, c.LocalAddr())
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	if _, err := l.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("accept after the end: %v", err)
	}
	if l, err = n.Listen(at); err != nil {
		t.Errorf("listen again: %v", err)
	} else if err := l.Close(); err != nil {
		t.Error(err)
	}
}
