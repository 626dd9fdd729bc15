package leader

import (
	"fmt"
	"strings"

	"evenkeel/cluster/scheduler/admission"
	"evenkeel/cluster/scheduler/moves"
	"evenkeel/cluster/scheduler/placement"
	"evenkeel/cluster/state"
)

// Explanation says why a VC is in its present state.
type Explanation struct {
	Decision   state.Decision // admission's last answer; for a queued VC its answer now
	Yield      float64
	MinYield   float64
	Bottleneck string // the host that keeps its yield down, "" if none does
	Lines      []string
}

// ownOf names those of some VCs, by id, that belong to the tenant of a VC.
func ownOf(s *state.Snapshot, of string, ids []string) string {
	tenant, _ := state.SplitName(of)
	var names []string
	for _, id := range ids {
		other, _ := s.VC(id)
		if t, _ := state.SplitName(other.Name); other.Name != "" && t == tenant {
			names = append(names, other.Name)
		}
	}
	if len(names) == 0 {
		return ""
	}
	return ", among them " + moves.Names(names)
}

// Explain explains the state and yield of a VC.
func Explain(v *View, vc state.VC) Explanation {
	view := v.VCView(vc)
	out := Explanation{Decision: vc.Decision, Yield: view.Yield, MinYield: vc.MinYield}
	say := func(format string, args ...any) { out.Lines = append(out.Lines, fmt.Sprintf(format, args...)) }
	say("%s is %s", vc.Name, view.State)
	if view.State == state.VCQueued {
		if vc.Decision.Preempted {
			say("%s", vc.Decision.Summary)
		}
		if tenant, _ := state.SplitName(vc.Name); suspended(v.Snapshot, tenant) {
			say("tenant %s is suspended: nothing of it starts", tenant)
		}
		reports := &v.term.reports
		env := v.withMargin(placement.Env{Now: v.now, NewID: func() string { return "" }, Unavailable: v.term.failover.Unavailable(v.Snapshot), Pools: reports.pools(), Lists: listerOf(reports.each)})
		out.Decision = admission.Consider(v.Snapshot, vc, env)
		if h := env.Head; h != nil && h.VC == vc.ID {
			say("room on %d hosts is kept for it from %s on, by when %d virtual clusters there are to have ended%s", len(h.Hosts), h.At.Format("2006-01-02 15:04:05 MST"), len(h.Ends), ownOf(v.Snapshot, vc.Name, h.Ends))
		}
		for i, w := range admission.Queue(v.Snapshot) {
			if w.ID == vc.ID {
				say("number %d in the queue, priority %d, waiting since %s", i+1, w.Priority, w.QueuedAt.Format("2006-01-02 15:04:05 MST"))
			}
		}
	}
	if out.Decision.Summary != "" {
		say("admission: %s", out.Decision.Summary)
	}
	if view.Reason != "" && view.State != state.VCQueued {
		say("reason: %s", view.Reason)
	}
	if view.Count.Running+view.Count.Starting == 0 {
		return out
	}
	for _, g := range vc.Groups {
		say("group %s: %s, each is given %.3f of the %.3f cores it needs: yield %.3f", g.Name, state.VMs(g.Count), g.Allocation, g.Need(), g.Yield())
	}
	for _, line := range v.rightsizingOf(vc) {
		say("%s", line)
	}
	for _, line := range GrantLines(v.Snapshot, vc.ID, true) {
		say("%s", line)
	}
	for _, line := range placement.RulesOf(v.Snapshot, vc) {
		say("%s", line)
	}
	lowest := 0.0
	seen := map[string]bool{}
	for _, vm := range v.VMsOf(vc.ID) {
		if seen[vm.Host] || !vm.ConsumesResources() {
			continue
		}
		seen[vm.Host] = true
		h, _ := v.Host(vm.Host)
		need, limit := v.needOn(vm.Host), h.Usable().CPU
		switch {
		case need <= limit:
			say("host %s: %.2f cores needed of %.2f: room for all", h.Name, need, limit)
		default:
			say("host %s: %.2f cores needed of %.2f: %.0f%% can be given on average", h.Name, need, limit, 100*limit/need)
			if out.Bottleneck == "" || limit/need < lowest {
				out.Bottleneck, lowest = h.Name, limit/need
			}
		}
	}
	if out.Bottleneck != "" && out.Yield < 1 {
		say("host %s keeps its yield down", out.Bottleneck)
	}
	return out
}

// maxRecommendations is how many VMs of one VC are explained one by one.
const maxRecommendations = 64

// rightsizingOf says, for a VC whose needs are estimated, what that means for each of its VMs.
func (v *View) rightsizingOf(vc state.VC) (lines []string) {
	say := func(format string, args ...any) { lines = append(lines, fmt.Sprintf(format, args...)) }
	meta, _ := v.Meta()
	set := meta.Settings.Rightsizing.WithDefaults()
	if !set.Estimates(&vc) {
		return nil
	}
	if set.Mode != state.RightsizingOn {
		say("its needs are to be estimated, %s; rightsizing is %s: it has what was declared", set.AggressivenessOf(&vc), set.Mode)
		return lines
	}
	say("its needs are estimated, %s", set.AggressivenessOf(&vc))
	if len(set.DisabledStages) > 0 {
		say("stages of rightsizing that are switched off: %s", strings.Join(set.DisabledStages, ", "))
	}
	for _, g := range vc.Groups {
		if g.Estimated > 0 {
			say("group %s: %.3f of the %.3f cores that were declared are thought to be needed", g.Name, g.Need(), g.CPU)
		}
	}
	found := v.recommendations()
	for i, vm := range v.VMsOf(vc.ID) {
		g, _ := vc.GroupOf(vm)
		switch one, known := found[vm.ID]; {
		case i >= maxRecommendations:
		case vm.PreemptedAt > 0 && vm.Goal == state.GoalStop:
			say("VM %s: %s; it starts again once there is room", vm.Name, vm.Reason)
		case !vm.ConsumesResources():
		case known:
			say("VM %s: %d of %d MiB: %s", vm.Name, vm.Due(g)>>20, g.Memory>>20, one.Text)
		case vm.Target > 0:
			say("VM %s: %d of %d MiB", vm.Name, vm.Due(g)>>20, g.Memory>>20)
		}
	}
	return lines
}

// needOn is the need of the VMs that have CPU on a host, cores.
func (v *View) needOn(host string) float64 {
	var need float64
	for _, vm := range v.VMsOn(host) {
		if vm.ConsumesResources() {
			vc, _ := v.VC(vm.VC)
			g, _ := vc.GroupOf(vm)
			need += g.Need()
		}
	}
	return need
}
