package leader

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"evenkeel/cluster/state"
)

// A file, the one before it and what is in force make one spec: what only one side changed is taken, what both changed is a conflict.
func TestMerge(t *testing.T) {
	spec := func(priority int, groups ...state.Group) state.VCSpec {
		return state.VCSpec{MinYield: -1, Priority: priority, Groups: groups}
	}
	group := func(name string, count int) state.Group {
		return state.Group{Name: name, Count: count, CPU: 1, Memory: 1 << 30}
	}
	labelled := func(pairs ...string) state.VCSpec {
		g := group("a", 1)
		g.Labels = map[string]string{}
		for _, pair := range pairs {
			key, value, _ := strings.Cut(pair, "=")
			g.Labels[key] = value
		}
		return spec(1, g)
	}
	a1, a2, a3, b1 := group("a", 1), group("a", 2), group("a", 3), group("b", 1)
	for name, c := range map[string]struct {
		base, now, mine, want state.VCSpec
		kept, conflicts       []string
		force                 bool
	}{
		"nothing changed":                       {base: spec(1, a1), now: spec(1, a1), mine: spec(1, a1), want: spec(1, a1)},
		"the file":                              {base: spec(1, a1), now: spec(1, a1), mine: spec(2, a2), want: spec(2, a2)},
		"another":                               {base: spec(1, a1), now: spec(2, a2), mine: spec(1, a1), want: spec(2, a2), kept: []string{"priority", "groups[a].count"}},
		"each another field":                    {base: spec(1, a1), now: spec(2, a1), mine: spec(1, a2), want: spec(2, a2), kept: []string{"priority"}},
		"both the same":                         {base: spec(1, a1), now: spec(1, a2), mine: spec(1, a2), want: spec(1, a2)},
		"both":                                  {base: spec(1, a1), now: spec(1, a2), mine: spec(1, a3), conflicts: []string{"groups[a].count"}},
		"both, by force":                        {base: spec(1, a1), now: spec(1, a2), mine: spec(1, a3), want: spec(1, a3), force: true},
		"another, by force":                     {base: spec(1, a1), now: spec(2, a2), mine: spec(1, a1), want: spec(1, a1), force: true},
		"the file adds a group":                 {base: spec(1, a1), now: spec(1, a1), mine: spec(1, a1, b1), want: spec(1, a1, b1)},
		"another adds a group":                  {base: spec(1, a1), now: spec(1, a1, b1), mine: spec(1, a1), want: spec(1, a1, b1), kept: []string{"groups[b]"}},
		"the file removes a group":              {base: spec(1, a1, b1), now: spec(1, a1, b1), mine: spec(1, a1), want: spec(1, a1)},
		"another removes a group":               {base: spec(1, a1, b1), now: spec(1, b1), mine: spec(1, a1, b1), want: spec(1, b1), kept: []string{"groups[a]"}},
		"the file removes what another changed": {base: spec(1, a1, b1), now: spec(1, a2, b1), mine: spec(1, b1), conflicts: []string{"groups[a]"}},
		"the file changes what another removed": {base: spec(1, a1, b1), now: spec(1, b1), mine: spec(1, a2, b1), conflicts: []string{"groups[a]"}},
		"the file adds a label, another removes one": {base: labelled("x=1", "y=1"), now: labelled("x=1"), mine: labelled("x=1", "y=1", "z=1"),
			want: labelled("x=1", "z=1"), kept: []string{"groups[a].labels[y]"}},
		"the file removes a label, another adds one": {base: labelled("x=1"), now: labelled("x=1", "y="), mine: labelled(),
			want: labelled("y="), kept: []string{"groups[a].labels[y]"}},
		"another removes the last label":                {base: labelled("x="), now: labelled(), mine: labelled("x="), want: spec(1, a1), kept: []string{"groups[a].labels[x]"}},
		"both give a label the same value":              {base: labelled("x=1"), now: labelled("x=2"), mine: labelled("x=2"), want: labelled("x=2")},
		"both change a label":                           {base: labelled("x=1"), now: labelled("x=2", "y=1"), mine: labelled("x=3"), conflicts: []string{"groups[a].labels[x]"}},
		"the file empties a label that another removes": {base: labelled("x=1"), now: labelled(), mine: labelled("x="), conflicts: []string{"groups[a].labels[x]"}},
		"both add the same group otherwise":             {base: spec(1, b1), now: spec(1, a1, b1), mine: spec(1, a2, b1), conflicts: []string{"groups[a].count"}},
	} {
		got, kept, err := merge(&c.base, c.now, c.mine, c.force)
		var conflicts *Conflicts
		if errors.As(err, &conflicts) != (len(c.conflicts) > 0) {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if conflicts != nil {
			if fields := names(conflicts.Fields, func(f Conflict) string { return f.Field }); !slices.Equal(fields, c.conflicts) {
				t.Errorf("%s: conflicts %v, want %v", name, fields, c.conflicts)
			}
			continue
		}
		if d := differences(&c.want, &got); len(d) > 0 {
			t.Errorf("%s: %+v", name, d)
		}
		if fields := names(kept, func(f FieldChange) string { return f.Field }); !slices.Equal(fields, c.kept) {
			t.Errorf("%s: kept %v, want %v", name, fields, c.kept)
		}
	}
}

// Labels merge by key, whatever they are: what one side alone changed is taken, what both made the same is taken once, and nothing else
// is touched. A conflict is a key that both made something else of.
func TestMergeLabels(t *testing.T) {
	draw := func(rt *rapid.T, what string) map[string]string {
		return rapid.MapOfN(rapid.SampledFrom([]string{"a", "b", "c", "d"}), rapid.SampledFrom([]string{"", "1", "2"}), 0, 4).Draw(rt, what)
	}
	with := func(labels map[string]string) state.VCSpec {
		return state.VCSpec{MinYield: -1, Groups: []state.Group{{Name: "g", Count: 1, CPU: 1, Memory: 1 << 30, Labels: maps.Clone(labels)}}}
	}
	rapid.Check(t, func(rt *rapid.T) {
		base, now, mine := draw(rt, "base"), draw(rt, "now"), draw(rt, "mine")
		old := with(base)
		want, clash := map[string]string{}, 0
		for _, key := range []string{"a", "b", "c", "d"} {
			was, had := base[key]
			theirs, has := now[key]
			own, owns := mine[key]
			switch {
			case had == has && was == theirs, has == owns && theirs == own:
				if owns {
					want[key] = own
				}
			case had == owns && was == own:
				if has {
					want[key] = theirs
				}
			default:
				clash++
			}
		}
		before := maps.Clone(mine)
		file := with(mine)
		got, _, err := merge(&old, with(now), file, false)
		var conflicts *Conflicts
		if errors.As(err, &conflicts) != (clash > 0) || conflicts != nil && len(conflicts.Fields) != clash {
			rt.Fatalf("%v, want %d conflicts", err, clash)
		}
		if clash == 0 && !maps.Equal(got.Groups[0].Labels, want) {
			rt.Fatalf("%v, want %v", got.Groups[0].Labels, want)
		}
		if !maps.Equal(file.Groups[0].Labels, before) {
			rt.Fatalf("the file's own labels became %v", file.Groups[0].Labels)
		}
	})
}

// Two files that are within the limit of labels may not make one that is not. By force the file is taken as it is.
func TestMergeBoundsLabels(t *testing.T) {
	with := func(prefix string, n int) state.VCSpec {
		labels := map[string]string{}
		for i := range n {
			labels[fmt.Sprint(prefix, i)] = "x"
		}
		return state.VCSpec{MinYield: -1, Groups: []state.Group{{Name: "g", Count: 1, CPU: 1, Memory: 1 << 30, Labels: labels}}}
	}
	base := with("", 0)
	for n, ok := range map[int]bool{MaxLabels - 40: true, MaxLabels - 39: false} {
		got, _, err := merge(&base, with("a", n), with("b", 40), false)
		var invalid *Invalid
		if errors.As(err, &invalid) == ok || ok && len(got.Groups[0].Labels) != MaxLabels {
			t.Errorf("%d and 40 labels: %v, %d", n, err, len(got.Groups[0].Labels))
		}
		if _, _, err := merge(&base, with("a", n), with("b", 40), true); err != nil {
			t.Errorf("%d and 40 labels, by force: %v", n, err)
		}
	}
}

func names[T any](in []T, of func(T) string) (out []string) {
	for _, x := range in {
		out = append(out, of(x))
	}
	return out
}

// A tenant changes a VC whose rule of an operator names a host that is gone since: the rule stays and is not checked again. An operator's
// file that names it is refused.
func TestRuleOnAHostThatIsGone(t *testing.T) {
	st := state.New()
	vc := state.VC{ID: "1", Name: "film/a", OnFull: state.Queue, OnHostLoss: state.KeepOnLoss, Goal: state.GoalStop, Groups: []state.Group{{Name: "g", Count: 1, CPU: 1, VCPUs: 1,
		Memory: 1 << 30, MemoryMin: 1 << 30, Image: "tiny", Role: "core", Affinity: state.Affinity{Avoid: []string{"host:gone"}}}}}
	for i, c := range []struct {
		kind state.Kind
		body any
	}{
		{state.KindInit, state.Init{ID: "c", Settings: state.Settings{OnFull: state.Queue, MaxVMs: 64}}},
		{state.KindImagePut, state.Image{Name: "tiny", Kind: state.KernelImage, File: "/images/tiny"}},
		{state.KindTenantPut, state.TenantPut{Tenant: state.Tenant{Name: "film", Salt: "ab"}}},
		{state.KindPlan, state.Plan{Basis: 3, Verb: "created", VC: &vc}},
	} {
		entry, err := state.Encode(c.kind, time.Unix(0, 0), c.body)
		if err == nil {
			err = st.Apply(uint64(i)+1, entry)
		}
		if err != nil {
			t.Fatal(c.kind, err)
		}
	}
	s := st.Snapshot()
	mine := state.SpecOf(vc).Clone()
	mine.Groups[0].CPU, mine.Groups[0].Affinity.Avoid = 0.5, nil
	ch, err := changeOf(s, vc, mine, Apply{Verb: "edit", OfTenant: true})
	if err != nil || !slices.Equal(ch.next.Groups[0].Affinity.Avoid, []string{"host:gone"}) || !slices.Equal(ch.spec.Groups[0].Affinity.Avoid, []string{"host:gone"}) {
		t.Errorf("%+v, %v", ch, err)
	}
	mine.Groups[0].Affinity.Avoid = []string{"host:gone"}
	var invalid *Invalid
	if _, err := changeOf(s, vc, mine, Apply{Verb: "edit"}); !errors.As(err, &invalid) {
		t.Errorf("an operator's file: %v", err)
	}
}

// A file that leaves the image out is answered with the name of the default that is not there.
func TestDefaultImageIsNotThere(t *testing.T) {
	f, g := faults{}, state.Group{}
	st := state.New()
	entry, err := state.Encode(state.KindInit, time.Unix(0, 0), state.Init{ID: "c", Settings: state.Settings{OnFull: state.Queue, MaxVMs: 64, Image: "tiny"}})
	if err == nil {
		err = st.Apply(1, entry)
	}
	if err != nil {
		t.Fatal(err)
	}
	checkBoot(&f, "groups[0].", st.Snapshot(), "a", &g)
	if err := f.err(); err == nil || !strings.Contains(err.Error(), `groups[0].image: image "tiny" (the cluster's default) is not in the catalogue`) {
		t.Error(err)
	}
}
