package state_test

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	"evenkeel/cluster/state"
)

// changed is a plan that gives a VC another count of the group g, with a version that says so.
func changed(s *state.Snapshot, name string, count int, put state.VersionPut) state.Plan {
	vc, _ := s.VCNamed(name)
	vc.Groups = slices.Clone(vc.Groups)
	put.Spec = state.SpecOf(vc)
	put.Spec.Groups[0].Count = count
	return state.Plan{Basis: s.Index(), Verb: "changed", VC: &vc, VCVersion: vc.ModifyIndex, Version: &put,
		Operation: &state.Operation{ID: fmt.Sprintf("op-%s-%d", name, s.Index()), Kind: "apply", VC: vc.ID, Name: name}}
}

// withVersions has a VC with versions that users made, and a group that is removed from it.
func withVersions(t *testing.T, k *cluster) {
	t.Helper()
	k.must(t, state.KindPlan, planOf(k.Snapshot(), "versioned", 0.25, gib, "h1"))
	k.must(t, state.KindVMReport, report("h1", "vm-versioned-0", 1, state.Running))
	k.must(t, state.KindPlan, changed(k.Snapshot(), "versioned", 1, state.VersionPut{Verb: "apply", By: "ann", ByTenant: "film", Applied: true}))
	p := changed(k.Snapshot(), "versioned", 1, state.VersionPut{Verb: "edit"})
	p.VC.Groups = append(p.VC.Groups, state.Group{Name: "removed", CPU: 1, VCPUs: 1, Memory: gib, MemoryMin: gib})
	k.must(t, state.KindPlan, p)
}

// Versions are numbered; the oldest go, but never the newest applied one; all go with their VC.
func TestVersions(t *testing.T) {
	k := small(t, 1)
	k.must(t, state.KindPlan, planOf(k.Snapshot(), "a", 0.25, gib, "h1"))
	vc, _ := k.Snapshot().VCNamed("a")
	if now, applied := k.Snapshot().Written(vc, "", state.Author{}); applied != nil || len(now.Groups) != 1 || now.Groups[0].Allocation != 0 {
		t.Errorf("without versions: %+v, %+v", now, applied)
	}
	k.must(t, state.KindPlan, changed(k.Snapshot(), "a", 7, state.VersionPut{Verb: "apply", Applied: true, By: "ann"}))
	for i := range 20 {
		k.must(t, state.KindPlan, changed(k.Snapshot(), "a", 8+i, state.VersionPut{Verb: "scale"}))
	}
	vs := k.Snapshot().VersionsOf("vc-a")
	if len(vs) != state.MaxVersions || vs[0].Number != 1 || !vs[0].Applied || vs[1].Number != 13 || vs[9].Number != 21 {
		t.Errorf("kept %+v", vs)
	}
	if now, applied := k.Snapshot().Written(vc, "", state.Author{}); now.Groups[0].Count != 27 || applied == nil || applied.Groups[0].Count != 7 {
		t.Errorf("written %+v, applied %+v", now, applied)
	}
	if _, base := k.Snapshot().Written(vc, vs[5].ID, state.Author{}); base == nil || base.Groups[0].Count != vs[5].Spec.Groups[0].Count {
		t.Errorf("a file of version %s is compared with %+v", vs[5].ID, base)
	}
	if _, base := k.Snapshot().Written(vc, "vc-other/000021", state.Author{}); base == nil || base.Groups[0].Count != 7 {
		t.Errorf("a file of another virtual cluster is compared with %+v", base)
	}
	k.must(t, state.KindPlan, changed(k.Snapshot(), "a", 30, state.VersionPut{Verb: "apply", Applied: true, By: "ben"}))
	for author, want := range map[string]int{"ann": vs[5].Spec.Groups[0].Count, "ben": 30, "": vs[5].Spec.Groups[0].Count} {
		if _, base := k.Snapshot().Written(vc, vs[5].ID, state.Author{By: author}); base == nil || base.Groups[0].Count != want {
			t.Errorf("a file of version %s that %q hands in after ben's is compared with %+v; want a count of %d", vs[5].ID, author, base, want)
		}
	}
	if _, base := k.Snapshot().Written(vc, "", state.Author{By: "ann"}); base == nil || base.Groups[0].Count != 30 {
		t.Errorf("a file that names no version is compared with %+v, not with the last one", base)
	}
	var saved bytes.Buffer
	if err := k.Snapshot().Save(&saved); err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(saved.String(), `{"t":"vc-versions"`); n != state.MaxVersions {
		t.Errorf("%d versions are saved", n)
	}
	k.must(t, state.KindPlan, leave(k.Snapshot(), "a", state.GoalDelete))
	gone := report("h1", "vm-a-0", 1, state.Stopped)
	gone.VMs[0].SourceLost = true
	k.must(t, state.KindVMReport, gone)
	if vs := k.Snapshot().VersionsOf("vc-a"); len(vs) > 0 {
		t.Errorf("the virtual cluster is gone, and has %d versions", len(vs))
	}
}

// The bytes of the versions of a VC are bounded, the newest and the newest applied one apart.
func TestBytesOfVersions(t *testing.T) {
	k := small(t, 1)
	k.must(t, state.KindPlan, planOf(k.Snapshot(), "a", 0.25, gib, "h1"))
	for i := range 5 {
		p := changed(k.Snapshot(), "a", 1+i, state.VersionPut{Verb: "scale"})
		p.Version.Spec.Groups[0].CloudInit.UserData = strings.Repeat("x", 400<<10)
		k.must(t, state.KindPlan, p)
	}
	if vs := k.Snapshot().VersionsOf("vc-a"); len(vs) != 2 || vs[1].Number != 5 {
		t.Errorf("%d versions", len(vs))
	}
}

// A server that does not know versions finds none in what it is sent.
func TestVersionsAndAnOlderServer(t *testing.T) {
	k := small(t, 1)
	k.must(t, state.KindPlan, planOf(k.Snapshot(), "a", 0.25, gib, "h1"))
	k.must(t, state.KindPlan, changed(k.Snapshot(), "a", 2, state.VersionPut{Verb: "apply", Applied: true}))
	k.must(t, state.KindMemberPut, state.Member{Name: "old", Server: true, Address: "10.0.0.1:1", Format: 1})
	if vs := k.Snapshot().VersionsOf("vc-a"); len(vs) > 0 {
		t.Errorf("%d versions", len(vs))
	}
	if _, err := k.Snapshot().Encode(state.KindPlan, start, changed(k.Snapshot(), "a", 3, state.VersionPut{Verb: "apply"})); err == nil {
		t.Error("a version is proposed that it could not read")
	}
}

// A group that was removed stays in the row until its VMs are gone, and then goes.
func TestRemovedGroup(t *testing.T) {
	k := small(t, 1)
	p := planOf(k.Snapshot(), "a", 0.25, gib, "h1")
	p.VC.Groups = append(p.VC.Groups, state.Group{Name: "other", Count: 1, CPU: 0.25, VCPUs: 1, Memory: gib, MemoryMin: gib, Allocation: 0.25})
	p.VC.Groups[0].CloudInit, p.VC.Groups[1].CloudInit = state.CloudInit{UserData: "12345"}, state.CloudInit{UserData: "123"}
	k.must(t, state.KindPlan, p)
	used := func() state.Limit { return state.Limit(k.Snapshot().UseOf(state.DefaultTenant)[state.QuotaCloudInit]) }
	if used() != 8 {
		t.Errorf("%v bytes of cloud-init data", used())
	}
	q := changed(k.Snapshot(), "a", 1, state.VersionPut{Verb: "apply"})
	q.VC.Groups[0].Count = 0
	vm, _ := k.Snapshot().VM("vm-a-0")
	q.VMs = []state.VM{vm.Leaving(q.VC.Groups[0], state.GoalDelete)}
	q.AffectedHosts = []string{"h1"}
	k.must(t, state.KindPlan, q)
	groups := func() (out []string) {
		vc, _ := k.Snapshot().VCNamed("a")
		for _, g := range vc.Groups {
			out = append(out, g.Name)
		}
		return out
	}
	if got := groups(); !slices.Equal(got, []string{"g", "other"}) || used() != 3 {
		t.Errorf("groups %v, %v bytes of cloud-init data are charged", got, used())
	}
	gone := report("h1", "vm-a-0", 1, state.Stopped)
	gone.VMs[0].SourceLost = true
	k.must(t, state.KindVMReport, gone)
	if got := groups(); !slices.Equal(got, []string{"other"}) {
		t.Errorf("groups %v", got)
	}
}
