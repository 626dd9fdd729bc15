package transport

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"reflect"
	"slices"
	"testing"
	"time"

	"evenkeel/cluster/agent"
	"evenkeel/forecast"
	"evenkeel/hypervisor"
)

// shelf is a host that has histories of some VMs.
type shelf map[string][]byte

func (s shelf) History(vm string) ([]byte, error) {
	if vm == "stuck" {
		return nil, errors.New("the disk is stuck")
	}
	data, ok := s[vm]
	if !ok {
		return nil, fmt.Errorf("VM %s: %w", vm, hypervisor.ErrNotFound)
	}
	return data, nil
}

func (s shelf) Forecast(vm, resource string, steps int) (agent.VMForecast, error) {
	if _, err := s.History(vm); err != nil {
		return agent.VMForecast{}, err
	}
	if resource != agent.ResourceCPU {
		return agent.VMForecast{}, hypervisor.ErrInvalid
	}
	f := agent.VMForecast{Resource: resource, Step: time.Minute}
	f.Ahead, f.Trusted, f.Reason = make([]forecast.Prediction, steps), false, "only one value"
	f.Ahead[0] = forecast.Normal(2, 0.25)
	return f, nil
}

func TestHistory(t *testing.T) {
	s := newSite(t)
	h1 := s.member("h1", false, true, PeersOptions{Histories: shelf{"a b": []byte("what it used")}})
	h2 := s.member("h2", false, true, PeersOptions{})
	s1 := s.member("s1", true, false, PeersOptions{Lead: none})
	ctx, cancel := context.WithTimeout(context.Background(), waitLimit)
	defer cancel()
	if got, err := s1.client.History(ctx, h1.at, "h1", "a b"); err != nil || string(got) != "what it used" {
		t.Errorf("%q, %v", got, err)
	}
	if _, err := s1.client.History(ctx, h1.at, "h1", "c"); !errors.Is(err, hypervisor.ErrNotFound) {
		t.Errorf("a VM that nothing was measured of: %v", err)
	}
	var p *Problem
	if _, err := s1.client.History(ctx, h1.at, "h1", "stuck"); !errors.As(err, &p) || p.Status != http.StatusServiceUnavailable {
		t.Errorf("a host that cannot say: %v", err)
	}
	// One of a version that keeps none does not say that there is none.
	if _, err := s1.client.History(ctx, h2.at, "h2", "a b"); !errors.As(err, &p) || p.Status != http.StatusNotFound || errors.Is(err, hypervisor.ErrNotFound) {
		t.Errorf("a host without histories: %v", err)
	}
	want, _ := shelf{"a b": nil}.Forecast("a b", "cpu", 3)
	if got, err := s1.client.Forecast(ctx, h1.at, "h1", "a b", "cpu", 3); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, %v", got, err)
	}
	if _, err := s1.client.Forecast(ctx, h1.at, "h1", "a b", "disk", 3); !errors.As(err, &p) || p.Status != http.StatusBadRequest {
		t.Errorf("a resource that there is not: %v", err)
	}
	if _, err := s1.client.Forecast(ctx, h1.at, "h1", "c", "cpu", 3); !errors.Is(err, hypervisor.ErrNotFound) {
		t.Errorf("the forecast of a VM that nothing was measured of: %v", err)
	}
	if _, err := h2.client.Forecast(ctx, h1.at, "h1", "a b", "cpu", 3); !errors.Is(err, ErrRefused) {
		t.Errorf("an agent read another's forecast: %v", err)
	}
	if _, err := h2.client.History(ctx, h1.at, "h1", "a b"); !errors.Is(err, ErrRefused) {
		t.Errorf("an agent read another's history: %v", err)
	}
	if _, err := s1.client.History(ctx, h2.at, "h1", "a b"); err == nil {
		t.Error("the history of a host that is not the one meant")
	}
	h1.stop()
	if _, err := s1.client.History(ctx, h1.at, "h1", "a b"); err == nil {
		t.Error("the history of a host that is away")
	}
}

// An agent is given the history of a VM that came to its host, and of no other host's, also through a server that does not lead.
func TestHistoryFor(t *testing.T) {
	s := newSite(t)
	answer := func(_ context.Context, host, vm string) ([]byte, error) {
		switch {
		case host != "h1":
			return nil, fmt.Errorf("asked for host %s", host)
		case vm == "slow":
			return nil, errors.New("it has not arrived")
		case vm != "a b":
			return nil, fmt.Errorf("VM %s: %w", vm, agent.ErrNoHistory)
		}
		return []byte{0, 1, 0xff}, nil
	}
	s1 := s.member("s1", true, false, PeersOptions{Lead: func() Leading { return Leading{Here: true, Term: 1} }, HistoryFor: answer})
	s2 := s.member("s2", true, false, PeersOptions{Lead: func() Leading { return Leading{Term: 1, Address: s1.at} }, HistoryFor: answer})
	old := s.member("s3", true, false, PeersOptions{Lead: func() Leading { return Leading{Here: true, Term: 1} }})
	ctx, cancel := context.WithTimeout(context.Background(), waitLimit)
	defer cancel()
	h1 := s.member("h1", false, true, PeersOptions{})
	ask := func(servers ...string) *Agent {
		return NewAgent(AgentOptions{Host: "h1", Dialer: h1.dialer, Servers: servers, Log: quiet(), Rand: rand.New(rand.NewPCG(1, 2))})
	}
	for name, a := range map[string]*Agent{"the leader": ask(s1.at), "another server": ask(s2.at), "one that is away": ask("127.0.0.1:1", s1.at)} {
		if got, err := a.History(ctx, "a b"); err != nil || !bytes.Equal(got, []byte{0, 1, 0xff}) {
			t.Errorf("%s: %v, %v", name, got, err)
		}
		if _, err := a.History(ctx, "c"); !errors.Is(err, agent.ErrNoHistory) {
			t.Errorf("%s, of a VM that came from nowhere: %v", name, err)
		}
		if _, err := a.History(ctx, "slow"); err == nil || errors.Is(err, agent.ErrNoHistory) {
			t.Errorf("%s, of a VM that has yet to arrive: %v", name, err)
		}
		a.http.CloseIdleConnections()
	}
	hung, err := net.Listen("tcp", "127.0.0.1:0") // connections stay in its backlog
	if err != nil {
		t.Fatal(err)
	}
	defer hung.Close() //nolint:errcheck // at the end
	last := ask(hung.Addr().String(), s1.at)
	last.mu.Lock()
	last.at = slices.Index(last.servers, hung.Addr().String())
	last.mu.Unlock()
	last.hangs(hung.Addr().String())
	soon, enough := context.WithTimeout(ctx, historyTime/5) // shorter than the handshake with it would last
	defer enough()
	if got, err := last.History(soon, "a b"); err != nil || len(got) != 3 {
		t.Errorf("beside a server that hangs: %v, %v", got, err)
	}
	last.http.CloseIdleConnections()
	before := ask(old.at)
	if _, err := before.History(ctx, "a b"); err == nil || errors.Is(err, agent.ErrNoHistory) {
		t.Errorf("a server that answers no such calls: %v", err)
	}
	before.http.CloseIdleConnections()
	h2 := NewAgent(AgentOptions{Host: "h2", Dialer: h1.dialer, Servers: []string{s1.at}, Log: quiet(), Rand: rand.New(rand.NewPCG(1, 2)), SampleEvery: time.Second})
	if _, err := h2.History(ctx, "a b"); !errors.Is(err, ErrRefused) {
		t.Errorf("an agent speaks for another host: %v", err)
	}
	h2.http.CloseIdleConnections()
}
