package node

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestWrongClocks(t *testing.T) {
	const day = 24 * time.Hour
	server := func(name string, ahead, margin time.Duration) Clock { return Clock{name, true, ahead, margin} }
	host := func(name string, ahead time.Duration) Clock { return Clock{name, false, ahead, 0} }
	for _, c := range []struct {
		name   string
		clocks []Clock
		want   []string // name and by how much, or the names among which
	}{
		{"none", nil, nil},
		{"one", []Clock{server("h1", 0, 0)}, nil},
		{"all well", []Clock{server("h1", 0, 0), server("h2", 20*time.Second, 0), server("h3", -20*time.Second, 0)}, nil},
		{"another's is ahead", []Clock{server("h1", 0, 0), server("h2", time.Hour, 0), server("h3", time.Second, 0)}, []string{"h2 +59m59s"}},
		{"this one's is ahead", []Clock{server("h1", 0, 0), server("h2", -400*day, 0), server("h3", -400*day-time.Second, 0)}, []string{"h1 +9600h0m0s"}},
		{"this one's is behind", []Clock{server("h1", 0, 0), server("h2", time.Minute, 0), server("h3", time.Minute, 0)}, []string{"h1 -1m0s"}},
		{"within what is known", []Clock{server("h1", 0, 0), server("h2", 35*time.Second, 6*time.Second), server("h3", 0, 0)}, nil},
		{"beyond what is known", []Clock{server("h1", 0, 0), server("h2", 37*time.Second, 6*time.Second), server("h3", 0, 0)}, []string{"h2 +37s"}},
		{"two that differ", []Clock{server("h1", 0, 0), server("h2", time.Hour, 0)}, []string{"h1,h2 1h0m0s"}},
		{"two that differ, and a host", []Clock{server("h1", 0, 0), server("h2", time.Hour, 0), host("a", 0)}, []string{"h1,h2 1h0m0s"}},
		{"two that agree, and a host", []Clock{server("h1", 0, 0), server("h2", time.Second, 0), host("a", day)}, []string{"a +23h59m59s"}},
		{"hosts are no majority", []Clock{server("h1", 0, 0), server("h2", 0, 0), server("h3", 0, 0), host("a", day), host("b", day), host("c", day), host("d", day)}, []string{"a +24h0m0s", "b +24h0m0s", "c +24h0m0s", "d +24h0m0s"}},
		{"one of four", []Clock{server("h1", 0, 0), server("h2", day, 0), server("h3", 0, 0), server("h4", 0, 0)}, []string{"h2 +24h0m0s"}},
		{"two of four", []Clock{server("h1", 0, 0), server("h2", day, 0), server("h3", 0, 0), server("h4", day, 0)}, []string{"h1,h2,h3,h4 24h0m0s"}},
		{"two of five", []Clock{server("h1", 0, 0), server("h2", day, 0), server("h3", 0, 0), server("h4", -day, 0), server("h5", 0, 0)}, []string{"h2 +24h0m0s", "h4 -24h0m0s"}},
	} {
		var got []string
		for _, w := range WrongClocks(c.clocks) {
			if w.Name == "" {
				got = append(got, fmt.Sprintf("%s %s", strings.Join(w.Among, ","), w.Ahead))
			} else {
				sign := "+"
				if w.Ahead < 0 {
					sign = ""
				}
				got = append(got, fmt.Sprintf("%s %s%s", w.Name, sign, w.Ahead))
			}
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

func TestWrongClockText(t *testing.T) {
	for _, c := range []struct {
		w    WrongClock
		want string
	}{
		{WrongClock{Name: "h1", Ahead: 9600 * time.Hour}, "its clock is wrong: 400 days ahead of those of most servers"},
		{WrongClock{Name: "h1", Ahead: -90 * time.Second}, "its clock is wrong: 1m30s behind those of most servers"},
		{WrongClock{Among: []string{"h1", "h2"}, Ahead: time.Hour}, "the clocks of servers h1, h2 differ by 1h0m0s, and no majority shows which is wrong"},
	} {
		if got := c.w.String(); !strings.HasPrefix(got, c.want) || !strings.Contains(got, "chronyc tracking or timedatectl") {
			t.Errorf("%q, want %q and the way out", got, c.want)
		}
	}
}

// Members send each other their time of day. After a clock is set its member is reported with the new time, whatever was
// received before.
func TestGossipReportsClocks(t *testing.T) {
	t.Parallel()
	const far = 400 * 24 * time.Hour
	a := gossip(t, GossipOptions{Name: "a", Bind: "127.0.0.1:0", Meta: GossipMeta{Roles: []string{"server"}}})
	b := gossip(t, GossipOptions{Name: "b", Bind: "127.0.0.1:0", Meta: GossipMeta{Roles: []string{"server", "agent"}}, Wall: func() time.Time { return time.Now().Add(far) }})
	b.joinIn(t, a.Address())
	near := func(got, want time.Duration) bool { return (got - want).Abs() < 10*time.Second }
	for _, x := range []struct {
		of   *Gossip
		name string
		want time.Duration
	}{{a, "b", far}, {b, "a", -far}} {
		got := await(t, x.name+" is heard of", func() any { return len(x.of.Clocks()) }, func() *[]Clock {
			if c := x.of.Clocks(); len(c) == 2 {
				return &c
			}
			return nil
		})
		if c := (*got)[1]; c.Name != x.name || !c.Server || !near(c.Ahead, x.want) || c.Margin <= 0 {
			t.Errorf("%+v", c)
		}
		if c := (*got)[0]; c.Name != x.of.o.Name || c.Ahead != 0 {
			t.Errorf("its own: %+v", c)
		}
	}
	if w := WrongClocks(a.Clocks()); len(w) != 1 || len(w[0].Among) != 2 {
		t.Errorf("%+v", w)
	}
}
