package node

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestAppendTimes(t *testing.T) {
	const ms = time.Millisecond
	for what, c := range map[string]struct {
		takes []time.Duration // of appends, one after the other
		under time.Duration   // of one that goes on
		later time.Duration
		want  Appends
	}{
		"none":                     {want: Appends{}},
		"quick ones":               {takes: []time.Duration{2 * ms, 3 * ms, ms}, want: Appends{3, 3 * ms, 0}},
		"slow ones add up":         {takes: []time.Duration{1500 * ms, 2000 * ms}, want: Appends{2, 2000 * ms, 3500 * ms}},
		"a quick one in between":   {takes: []time.Duration{9000 * ms, ms, 1500 * ms}, want: Appends{3, 9000 * ms, 1500 * ms}},
		"at the limit":             {takes: []time.Duration{1000 * ms}, want: Appends{1, 1000 * ms, 0}},
		"one that hangs":           {takes: []time.Duration{ms}, under: 7000 * ms, want: Appends{1, 7000 * ms, 7000 * ms}},
		"one that may yet be well": {takes: []time.Duration{1500 * ms}, under: 900 * ms, want: Appends{1, 1500 * ms, 1500 * ms}},
		"long ago":                 {takes: []time.Duration{1500 * ms}, later: appendWindow * time.Second, want: Appends{}},
	} {
		now := time.Unix(1_000_000, 0)
		a := appendTimes{limit: time.Second}
		for _, d := range c.takes {
			a.begin(now)
			now = now.Add(d)
			a.end(now)
		}
		if c.under > 0 {
			a.begin(now)
		}
		if got := a.lately(now.Add(c.under + c.later)); got != c.want {
			t.Errorf("%s: %+v, want %+v", what, got, c.want)
		}
	}
}

func TestSuccessor(t *testing.T) {
	const ms = time.Millisecond
	slow, quick := Appends{4, 1600 * ms, 6 * time.Second}, Appends{20, 30 * ms, 0}
	server := func(id string, lately Appends, change ...func(*Server)) Server {
		s := Server{ID: id, Voter: true, Healthy: true, Stats: Stats{Appends: lately}}
		for _, f := range change {
			f(&s)
		}
		return s
	}
	for what, c := range map[string]struct {
		servers []Server
		want    string
	}{
		"alone":                       {[]Server{server("s1", slow)}, ""},
		"all are quick":               {[]Server{server("s1", quick), server("s2", quick)}, ""},
		"all are slow":                {[]Server{server("s1", slow), server("s2", slow), server("s3", slow)}, ""},
		"it is slow":                  {[]Server{server("s1", slow), server("s2", slow), server("s3", quick)}, "s3"},
		"the quickest":                {[]Server{server("s2", quick), server("s1", slow), server("s3", Appends{2, 5 * ms, 0})}, "s3"},
		"not for long enough":         {[]Server{server("s1", Appends{4, 1600 * ms, 4900 * ms}), server("s2", quick)}, ""},
		"the other is no voter":       {[]Server{server("s1", slow), server("s2", quick, func(s *Server) { s.Voter = false })}, ""},
		"the other is not healthy":    {[]Server{server("s1", slow), server("s2", quick, func(s *Server) { s.Healthy = false })}, ""},
		"the other reports nothing":   {[]Server{server("s1", slow), server("s2", Appends{})}, ""},
		"the other is hardly quicker": {[]Server{server("s1", slow), server("s2", Appends{20, 700 * ms, 0})}, ""},
		"the other was slow lately":   {[]Server{server("s1", slow), server("s2", Appends{20, 1600 * ms, 0})}, ""},
		"another's slowness":          {[]Server{server("s1", quick), server("s2", slow), server("s3", quick)}, ""},
	} {
		if got := (Autopilot{}).defaults().successor("s1", c.servers); got != c.want {
			t.Errorf("%s: %q, want %q", what, got, c.want)
		}
	}
}

// put entries for so long, one after the other.
func (c *simulated) putFor(long time.Duration) {
	c.t.Helper()
	for end := time.Now().Add(long); time.Now().Before(end); {
		ctx, cancel := context.WithTimeout(c.t.Context(), 10*time.Second)
		if _, outcome, err := c.leader().Apply(ctx, entry(c.written)); err == nil || outcome != nil {
			c.written++
		}
		cancel()
		time.Sleep(50 * time.Millisecond) // sleep: simulated time
	}
}

func (c *simulated) slow(id string, takes time.Duration) { c.full[id].takes.Store(int64(takes)) }

// A leader whose log is slow transfers leadership for good: the slow server does not get it back, not even when its log is
// quick again.
func TestSlowLogInSimulatedTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := simulate(t, 3)
		c.put(20)
		first := c.leader()
		c.slow(first.id, 1500*time.Millisecond)
		c.putFor(15 * time.Second)
		second := c.leader()
		if second == first {
			t.Fatalf("it leads still: %+v", first.Stats().Appends)
		}
		var seen Server
		for _, s := range second.Servers() {
			if s.ID == first.id {
				seen = s
			}
		}
		if !strings.Contains(seen.Slow, "its log is slow: each append to it took over 1s") {
			t.Errorf("the next leader says of it %q", seen.Slow)
		}
		term := second.Term()
		c.putFor(time.Minute)
		c.slow(first.id, 0)
		c.putFor(time.Minute)
		if now := c.leader(); now != second || now.Term() != term {
			t.Errorf("%s led in term %d, and %s leads in term %d", second.id, term, now.id, now.Term())
		}
		c.awaitQuiet()
	})
}

// Where all logs are as slow, or only a follower's is, nothing changes hands.
func TestSlowLogsThatChangeNothing(t *testing.T) {
	for what, principal := range map[string]func(leader, id string) bool{
		"all":       func(string, string) bool { return true },
		"followers": func(leader, id string) bool { return id != leader },
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := simulate(t, 3)
				c.put(20)
				first := c.leader()
				for id := range c.servers {
					if principal(first.id, id) {
						c.slow(id, 1500*time.Millisecond)
					}
				}
				term := first.Term()
				c.putFor(2 * time.Minute)
				if now := c.leader(); now != first || now.Term() != term {
					t.Errorf("%s led in term %d, and %s leads in term %d", first.id, term, now.id, now.Term())
				}
				for id := range c.servers {
					c.slow(id, 0)
				}
				c.awaitQuiet()
			})
		})
	}
}

// The same with files and TCP: the log of the leader is slow, and another server leads.
func TestSlowLog(t *testing.T) {
	bubble(t, func(t *testing.T) {
		g, disks := fullGroup(t, "", func(a *Autopilot) { a.SlowAppend, a.SlowFor = 2*time.Second, 2*time.Second })
		g.put(0, 10)
		first := g.leader()
		disks[first.id].takes.Store(int64(2500 * time.Millisecond))
		written := 10
		g.until("another leads", func() bool {
			g.put(written, written+1)
			written++
			return g.leader() != first
		})
		disks[first.id].takes.Store(0)
		g.put(written, written+10)
		g.until("it has all", func() bool { return first.images() == written+10 })
	})
}
