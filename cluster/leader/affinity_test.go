package leader_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"evenkeel/cluster/leader"
	"evenkeel/cluster/state"
	"evenkeel/test/scratch"
)

// Rules of a VC file hold from its creation on, through scaling, and are explained.
func TestAffinity(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := startCluster(t, scratch.Dir(t), newWorld(t, 3), 3)
		ctx := t.Context()
		ruled := func(name string, count int, a state.Affinity, app string) state.VC {
			x := vc(name, count, 0.5, 512*mib)
			x.Groups[0].Affinity, x.Groups[0].Labels = a, map[string]string{"app": app}
			return x
		}
		on := func(v *leader.View, name string) string {
			var hosts []string
			for _, vm := range v.VMsOf(c.vc(v, name).ID) {
				hosts = append(hosts, vm.Host)
			}
			slices.Sort(hosts)
			return strings.Join(hosts, " ")
		}
		c.done(c.Create(ctx, ruled("db", 1, state.Affinity{Require: []string{"host:h2"}}, "db"), leader.Call{}))
		c.done(c.Create(ctx, ruled("web", 2, state.Affinity{Spread: "host", Avoid: []string{"vc:db"}, Prefer: []string{"app=cache", "vc:web"}}, "web"), leader.Call{}))
		v := c.done(c.Create(ctx, ruled("late", 1, state.Affinity{Avoid: []string{"app=web"}}, "late"), leader.Call{}))
		if got := on(v, "db") + ", " + on(v, "web") + ", " + on(v, "late"); got != "h2, h1 h3, h2" {
			t.Errorf("db, web and late are on %s", got)
		}

		// A third of web has nowhere to go: on h2 are the database and what avoids web.
		three := 3
		var refused *leader.Refused
		if _, err := c.Scale(ctx, "web", leader.Scale{Count: &three}, leader.Call{}); !errors.As(err, &refused) {
			t.Fatalf("a third of web: %v", err)
		}
		var texts []string
		for _, h := range refused.Decision.Hosts {
			texts = append(texts, h.Host+": "+h.Text)
		}
		if got, want := strings.Join(texts, "\n"), "h1: spread host: a VM of the group is on it\nh2: avoid vc:db: a VM of db/g is on it\nh3: spread host: a VM of the group is on it"; got != want {
			t.Errorf("got\n%s\nwant\n%s", got, want)
		}

		e := leader.Explain(v, c.vc(v, "web").VC)
		for _, want := range []string{"group g: spread host: kept by 2 of 2 VMs", "group g: avoid vc:db: kept by 2 of 2 VMs",
			"group g: prefer app=cache: kept by 0 of 2 VMs; VM web-g-0 on host h1 does not"} {
			if !slices.Contains(e.Lines, want) {
				t.Errorf("explained without %q: %q", want, e.Lines)
			}
		}
	})
}

// What a rule names must be there; the fault names the field.
func TestAffinityIsChecked(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := startCluster(t, scratch.Dir(t), newWorld(t, 1), 1)
		for _, x := range []struct {
			field string
			rule  state.Affinity
		}{
			{"groups[0].affinity.require[1]", state.Affinity{Require: []string{"host:h1", "host:h2"}}},
			{"groups[0].affinity.avoid[1]", state.Affinity{Avoid: []string{"app=y", "host:h3"}}},
			{"groups[0].affinity.prefer[0]", state.Affinity{Prefer: []string{"vc:missing"}}},
		} {
			y := vc("a", 1, 0.5, 512*mib)
			y.Groups[0].Affinity = x.rule
			var invalid *leader.Invalid
			if _, err := c.Create(t.Context(), y, leader.Call{}); !errors.As(err, &invalid) || len(invalid.Fields) != 1 || invalid.Fields[0].Field != x.field {
				t.Errorf("%+v: got %v, want a fault of %s", x.rule, err, x.field)
			}
		}
		own := vc("self", 2, 0.5, 512*mib)
		own.Groups[0].Affinity = state.Affinity{Require: []string{"vc:self"}} // all its VMs on one host
		c.done(c.Create(t.Context(), own, leader.Call{}))
	})
}
