package state_test

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"evenkeel/cluster/state"
)

// drawn makes random commands: some right, some stale, some wrong.
type drawn struct {
	t    *rapid.T
	k    *cluster
	old  []*state.Snapshot
	next int
}

var (
	hostNames  = []string{"h1", "h2", "h3"}
	tokenNames = []string{"t1", "t2", "t3"}
)

func (d *drawn) pick(what string, of []string) string {
	return rapid.SampledFrom(of).Draw(d.t, what)
}
func (d *drawn) upTo(what string, n int) int { return rapid.IntRange(0, n).Draw(d.t, what) }
func (d *drawn) chance(what string, in int) bool {
	return rapid.IntRange(1, in).Draw(d.t, what) == 1
}

func (d *drawn) command() (state.Kind, any) {
	s := d.k.Snapshot()
	switch rapid.SampledFrom([]string{"host", "cordon", "image", "drop", "plan", "plan", "plan", "plan", "report", "report", "report", "token", "revoke", "used"}).Draw(d.t, "command") {
	case "token":
		row := token(d.pick("token", tokenNames), rapid.SampledFrom(state.Roles()).Draw(d.t, "role"))
		if d.chance("ends", 2) {
			row.Until = start.Add(time.Duration(d.upTo("until", 3)) * time.Minute)
		}
		return state.KindAdminToken, row
	case "revoke":
		return state.KindTokenDrop, state.TokenDrop{ID: token(d.pick("token", tokenNames), "").ID, By: "ann"}
	case "used":
		return state.KindTokensUsed, state.TokensUsed{Used: []state.TokenUse{{ID: token(d.pick("token", tokenNames), "").ID, At: start.Add(time.Duration(d.upTo("used", 100)) * time.Second)}}}
	case "host":
		r := hostReport(d.pick("host", hostNames), float64(d.upTo("cores", 8))/2, int64(d.upTo("memory", 8))*gib)
		if d.chance("foreign", 3) {
			r.Foreign, r.ForeignVMs = state.Resources{CPU: 1, Memory: gib}, 1
		}
		return state.KindHostReport, r
	case "cordon":
		return state.KindHostCordon, state.HostCordon{Host: d.pick("host", hostNames), Cordoned: d.chance("cordon", 2)}
	case "image":
		return state.KindImagePut, state.Image{Name: d.pick("image", []string{"tiny", "i1", "i2"}), Kind: state.DiskImage}
	case "drop":
		return state.KindImageDrop, state.ImageDrop{Name: d.pick("image", []string{"tiny", "i1", "i2"})}
	case "report":
		return state.KindVMReport, d.report(s)
	}
	if len(d.old) > 0 && d.chance("stale", 4) {
		s = rapid.SampledFrom(d.old).Draw(d.t, "basis")
	}
	p := d.plan(s)
	if d.chance("says nothing of the hosts", 10) {
		p.AffectedHosts = nil
	}
	if d.chance("key", 10) {
		p.Remembered = &state.Remembered{Key: d.pick("key", []string{"k1", "k2"})}
	}
	return state.KindPlan, p
}

func (d *drawn) plan(s *state.Snapshot) state.Plan {
	verb := rapid.SampledFrom([]string{"create", "create", "stop", "delete", "start", "share", "balloon"}).Draw(d.t, "verb")
	names := []string{"a", "b", "c", "d", "e"}
	name := d.pick("VC", names)
	vc, ok := s.VCNamed(name)
	if verb == "create" || !ok {
		hosts := rapid.SliceOfN(rapid.SampledFrom(hostNames), 1, 4).Draw(d.t, "hosts")
		p := planOf(s, name, float64(1+d.upTo("tenths", 20))/10, int64(1+d.upTo("memory", 3))*gib/2, hosts...)
		d.next++
		p.Operation.ID = fmt.Sprintf("op-%03d", d.next)
		return p
	}
	g := vc.Groups[0]
	switch verb {
	case "stop":
		return leave(s, name, state.GoalStop)
	case "delete":
		return leave(s, name, state.GoalDelete)
	case "share":
		p := state.Plan{Basis: s.Index(), Verb: "reallocated", Allocations: []state.Allocation{{VC: vc.ID, Group: "g", CPU: g.CPU * float64(d.upTo("share", 8)) / 8}}}
		for _, vm := range s.VMsOf(vc.ID) {
			p.AffectedHosts = append(p.AffectedHosts, vm.Host)
		}
		return p
	}
	p := state.Plan{Basis: s.Index(), Verb: verb, VCVersion: vc.ModifyIndex}
	vc.Groups = slices.Clone(vc.Groups)
	vc.Goal = state.GoalRun
	if verb == "balloon" {
		vc.Groups[0].Memory = int64(1+d.upTo("memory", 3)) * gib / 2
	}
	p.VC = &vc
	for _, vm := range s.VMsOf(vc.ID) {
		p.AffectedHosts = append(p.AffectedHosts, vm.Host)
		if verb == "start" && d.chance("start", 2) {
			vm.Goal, vm.Phase, vm.Host = state.GoalRun, state.Starting, d.pick("host", hostNames)
			vm.Generation++
			vm.BootMemory, vm.ChargedMemory, vm.Frozen = g.Memory, g.Memory, 0
			p.AffectedHosts = append(p.AffectedHosts, vm.Host)
		} else if verb == "balloon" && vm.ConsumesResources() {
			vm.ChargedMemory = max(vm.ChargedMemory, vc.Groups[0].Memory)
		}
		p.VMs = append(p.VMs, vm)
	}
	return p
}

func (d *drawn) report(s *state.Snapshot) state.VMReport {
	r := state.VMReport{Host: d.pick("host", hostNames)}
	for _, vm := range s.VMsOn(r.Host) {
		if d.chance("report", 2) {
			continue
		}
		st := state.VMStatus{VM: vm.ID, Generation: vm.Generation, Phase: rapid.SampledFrom([]state.Phase{state.Running, state.Running, state.Stopped, state.Failed}).Draw(d.t, "phase")}
		if d.chance("another generation", 5) {
			st.Generation += uint64(d.upTo("generation", 2)) - 1
		}
		if st.Phase == state.Running && d.chance("held", 3) {
			st.ChargedMemory = int64(1+d.upTo("held", 4)) * gib / 2
		}
		st.SourceLost = st.Phase == state.Stopped && d.chance("gone", 2)
		r.VMs = append(r.VMs, st)
	}
	return r
}

// Whatever the commands, right, stale or wrong: hosts keep their limits, names are unique,
// no VM is without its VC, phases and versions only move forward, and what is refused changes nothing.
func TestInvariants(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := &drawn{t: t, k: small(t, 3)}
		excused := map[string]bool{} // beyond its limits by its own host's word
		for range rapid.IntRange(1, 60).Draw(t, "length") {
			before := d.k.Snapshot()
			if d.chance("remember", 5) {
				d.old = append(d.old, before)
			}
			kind, body := d.command()
			err := d.k.apply(t, kind, body)
			after := d.k.Snapshot()
			if err != nil && rows(t, before) != rows(t, after) {
				t.Fatalf("%s refused (%v), but the state changed", kind, err)
			}
			for _, h := range after.Hosts() {
				limit, l := h.Usable(), after.LoadOf(h.Name)
				over := l.CPU > limit.CPU*(1+1e-9) || l.Taken() > limit.Memory
				if !over {
					delete(excused, h.Name)
				} else if kind == state.KindHostReport || kind == state.KindVMReport {
					excused[h.Name] = true
				} else if !excused[h.Name] {
					t.Fatalf("%s %+v: host %s: %+v of %+v", kind, body, h.Name, l, limit)
				}
			}
			checkRows(t, kind, before, after)
		}
	})
}

func checkRows(t *rapid.T, kind state.Kind, before, after *state.Snapshot) {
	if administered(before) && !administered(after) {
		t.Fatalf("%s left no user who can administer the cluster", kind)
	}
	names := map[string]bool{}
	for _, vc := range after.VCs() {
		if names[vc.Name] {
			t.Fatalf("two virtual clusters are named %s", vc.Name)
		}
		names[vc.Name] = true
		if old, ok := before.VC(vc.ID); ok && (vc.ModifyIndex < old.ModifyIndex || vc.CreateIndex != old.CreateIndex) || vc.ModifyIndex > after.Index() {
			t.Fatalf("versions of %s: %d, then %d", vc.Name, old.ModifyIndex, vc.ModifyIndex)
		}
		if vc.Goal == state.GoalDelete && len(after.VMsOf(vc.ID)) == 0 {
			t.Fatalf("%s is to be deleted, has no VM, and is there", vc.Name)
		}
	}
	clear(names)
	for _, vm := range after.VMs() {
		if names[vm.Name] {
			t.Fatalf("two VMs are named %s", vm.Name)
		}
		names[vm.Name] = true
		if _, ok := after.VC(vm.VC); !ok {
			t.Fatalf("VM %s without its virtual cluster", vm.Name)
		}
		old, ok := before.VM(vm.ID)
		if !ok {
			continue
		}
		switch {
		case vm.Generation < old.Generation, vm.ModifyIndex < old.ModifyIndex, vm.CreateIndex != old.CreateIndex:
			t.Fatalf("VM went back: %+v, then %+v", old, vm)
		case old.ConsumesResources() && (vm.Host != old.Host || vm.Generation != old.Generation):
			t.Fatalf("VM was held, and moved or started again: %+v, then %+v", old, vm)
		case vm.Generation == old.Generation && rank(vm.Phase) < rank(old.Phase) && !(kind == state.KindVMReport && old.Phase == state.Failed && vm.Phase == state.Running):
			t.Fatalf("phase went back: %+v, then %+v", old, vm)
		}
	}
	for _, h := range after.Hosts() {
		old, _ := before.Host(h.Name)
		if h.Version < old.Version || h.Version > after.Index() {
			t.Fatalf("version of host %s: %d, then %d", h.Name, old.Version, h.Version)
		}
		if l, was := after.LoadOf(h.Name), before.LoadOf(h.Name); l != was && h.Version != after.Index() {
			t.Fatalf("%s changed the load of %s from %+v to %+v, its version did not move", kind, h.Name, was, l)
		}
	}
	if before.LastEvent() > after.LastEvent() {
		t.Fatalf("events went back")
	}
}

func rank(p state.Phase) int {
	return map[state.Phase]int{state.Starting: 0, state.Running: 1, state.Stopping: 2, state.Stopped: 3, state.Failed: 3}[p]
}

// The same log gives the same bytes, saved and restored on the way or not.
func TestReplayIsDeterministic(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := &drawn{t: t, k: small(t, 3)}
		outcomes := make([]string, len(d.k.log))
		for range rapid.IntRange(1, 60).Draw(t, "length") {
			kind, body := d.command()
			outcomes = append(outcomes, fmt.Sprint(d.k.apply(t, kind, body)))
		}
		want := save(t, d.k.Snapshot())
		plain, broken := state.New(), state.New()
		for i, entry := range d.k.log {
			for _, s := range []*state.Store{plain, broken} {
				if err := s.Apply(uint64(i)+1, entry); outcomes[i] != "" && fmt.Sprint(err) != outcomes[i] {
					t.Fatalf("entry %d: outcome %v, the first time %v", i+1, err, outcomes[i])
				}
			}
			if d.chance("save and restore", 8) {
				saved := save(t, broken.Snapshot())
				if d.chance("another process", 2) {
					broken = state.New()
				}
				if err := broken.Restore(strings.NewReader(saved)); err != nil {
					t.Fatalf("restore at %d: %v", i+1, err)
				}
			}
		}
		for _, s := range []*state.Store{plain, broken} {
			if got := save(t, s.Snapshot()); got != want {
				t.Fatalf("state differs:\n%s\nwant:\n%s", got, want)
			}
		}
	})
}

// A file that was cut, changed, or is of another kind is refused and leaves the state as it was.
func TestRestoreRefusesWhatIsNotWhole(t *testing.T) {
	k := small(t, 2)
	k.must(t, state.KindPlan, planOf(k.Snapshot(), "a", 1, gib, "h1", "h2"))
	good := []byte(save(t, k.Snapshot()))
	other := small(t, 1)
	before := save(t, other.Snapshot())
	refuse := func(t failer, what string, b []byte) {
		if err := other.Restore(bytes.NewReader(b)); err == nil {
			t.Fatalf("%s: restored", what)
		}
		if save(t, other.Snapshot()) != before {
			t.Fatalf("%s: refused, but the state changed", what)
		}
	}
	for n := range good {
		refuse(t, fmt.Sprintf("cut to %d bytes", n), good[:n])
	}
	refuse(t, "bytes after the end", append(slices.Clone(good), '\n'))
	for what, b := range map[string]string{
		"nothing": "", "another format": `{"format":"other","v":1}` + "\n", "a newer version": strings.Replace(string(good), fmt.Sprintf(`"v":%d`, state.FormatVersion), fmt.Sprintf(`"v":%d`, state.FormatVersion+1), 1),
		"an unknown table": strings.Replace(string(good), `{"t":"hosts"`, `{"t":"ghosts"`, 1), "no JSON": "{\n",
	} {
		refuse(t, what, []byte(b))
	}
	lines := bytes.SplitAfter(good, []byte("\n"))
	for i := range lines[:len(lines)-1] {
		refuse(t, fmt.Sprintf("without line %d", i+1), slices.Concat(slices.Concat(lines[:i]...), slices.Concat(lines[i+1:]...)))
		refuse(t, fmt.Sprintf("line %d twice", i+1), slices.Concat(slices.Concat(lines[:i+1]...), slices.Concat(lines[i:]...)))
	}
	rapid.Check(t, func(t *rapid.T) {
		b := slices.Clone(good)
		at := rapid.IntRange(0, len(b)-1).Draw(t, "at")
		b[at] ^= byte(rapid.IntRange(1, 255).Draw(t, "by"))
		refuse(t, fmt.Sprintf("byte %d changed from %q to %q", at, good[at], b[at]), b)
	})
	if err := other.Restore(bytes.NewReader(good)); err != nil {
		t.Fatal(err)
	}
	if save(t, other.Snapshot()) != string(good) {
		t.Error("what was restored is not what was saved")
	}
}
