package node

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/memberlist"
)

// Members send each other the time of day in the answers to gossip's probes: gossip needs no certificates, which a wrong clock
// takes for expired. Nothing is decided by it; it is for operators.

// ClockSlack is how far clocks may be apart before that is reported.
const ClockSlack = 30 * time.Second

// clockHeard is for how long a member's report of its clock counts.
const clockHeard = 10 * time.Minute

// Clock is a member's clock, compared with this one's.
type Clock struct {
	Name   string
	Server bool
	Ahead  time.Duration // of this member's clock
	Margin time.Duration // by which Ahead may be wrong: half of a round trip
}

// heardClock is what a member reported.
type heardClock struct {
	reported time.Time
	at       time.Duration // when it was reported, by a clock that is never set
	margin   time.Duration
}

// WrongClocks returns the clocks that are wrong: those that differ from the median of the servers' clocks by more than
// ClockSlack and the uncertainty of the measurement. Where as many servers are on one side as on the other, as with two, it is
// not known which are wrong, and all are returned. The order is that of clocks.
func WrongClocks(clocks []Clock) []WrongClock {
	var servers []Clock
	for _, c := range clocks {
		if c.Server {
			servers = append(servers, c)
		}
	}
	if len(servers) == 0 {
		return nil
	}
	slices.SortFunc(servers, func(a, b Clock) int { return cmp.Compare(a.Ahead, b.Ahead) })
	apart := func(a, b Clock) bool { return (a.Ahead-b.Ahead).Abs()-a.Margin-b.Margin > ClockSlack }
	low, high := servers[(len(servers)-1)/2], servers[len(servers)/2] // the same one if their number is odd
	if apart(low, high) {                                             // two halves: no majority
		var names []string
		for _, s := range servers {
			names = append(names, s.Name)
		}
		slices.Sort(names)
		return []WrongClock{{Among: names, Ahead: (high.Ahead - low.Ahead).Abs()}}
	}
	var out []WrongClock
	for _, c := range clocks {
		if nearest := min((c.Ahead - low.Ahead).Abs(), (c.Ahead - high.Ahead).Abs()); apart(c, low) && apart(c, high) {
			by := nearest
			if c.Ahead < low.Ahead {
				by = -by
			}
			out = append(out, WrongClock{Name: c.Name, Ahead: by})
		}
	}
	return out
}

// WrongClock is a clock that differs from the others.
type WrongClock struct {
	Name  string   // "" where it is not known which it is:
	Among []string // then it is one of these servers
	Ahead time.Duration
}

// String says what is wrong, and what to do.
func (w WrongClock) String() string {
	mend := "look at chronyc tracking or timedatectl there"
	if w.Name == "" {
		return fmt.Sprintf("the clocks of servers %s differ by %s, and no majority shows which is wrong: look at chronyc tracking or timedatectl on each",
			strings.Join(w.Among, ", "), rounded(w.Ahead))
	}
	side := "ahead of"
	if w.Ahead < 0 {
		side = "behind"
	}
	return fmt.Sprintf("its clock is wrong: %s %s those of most servers; certificates count by it: %s", rounded(w.Ahead.Abs()), side, mend)
}

// rounded rounds to the units of a text: days, hours or seconds.
func rounded(d time.Duration) string {
	switch {
	case d >= 48*time.Hour:
		return fmt.Sprintf("%d days", int(d.Round(24*time.Hour)/(24*time.Hour)))
	case d >= time.Hour:
		return d.Round(time.Minute).String()
	}
	return d.Round(time.Second).String()
}

// Clocks returns the clocks of the members that were heard of lately, this one's first.
func (g *Gossip) Clocks() []Clock {
	g.mu.Lock()
	defer g.mu.Unlock()
	now, at := g.o.Wall(), g.o.Steady()
	server := func(name string) bool { return slices.Contains(g.peers[name].Meta.Roles, "server") }
	out := []Clock{{Name: g.o.Name, Server: server(g.o.Name)}}
	for name, c := range g.clocks {
		if since := at - c.at; since > clockHeard {
			delete(g.clocks, name)
		} else if _, there := g.peers[name]; there {
			out = append(out, Clock{Name: name, Server: server(name), Ahead: c.reported.Add(since).Sub(now), Margin: c.margin})
		}
	}
	slices.SortFunc(out[1:], func(a, b Clock) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// AckPayload implements memberlist.PingDelegate: the time of day, nanoseconds since 1970.
func (d gossipDelegate) AckPayload() []byte {
	return binary.BigEndian.AppendUint64(nil, uint64(d.o.Wall().UnixNano())) //nolint:gosec // back in NotifyPingComplete
}

// NotifyPingComplete implements memberlist.PingDelegate. It ignores a payload that is no time of day.
func (d gossipDelegate) NotifyPingComplete(other *memberlist.Node, rtt time.Duration, payload []byte) {
	if len(payload) != 8 || rtt < 0 {
		return
	}
	reported := time.Unix(0, int64(binary.BigEndian.Uint64(payload))) //nolint:gosec // by AckPayload
	d.mu.Lock()
	defer d.mu.Unlock()
	d.clocks[other.Name] = heardClock{reported: reported, at: d.o.Steady() - rtt/2, margin: rtt / 2}
}
