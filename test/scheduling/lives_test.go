package scheduling_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"evenkeel/cluster/scheduler/admission"
	"evenkeel/cluster/state"
	"evenkeel/test/scheduling"
)

// On random clusters, whatever was done before: plans apply to the state they were made on, nothing that runs
// moves, limits and yields hold (enact), the loop comes to rest (decide), and equal states give equal plans.
func TestRandomLives(t *testing.T) {
	followed := 0
	rapid.Check(t, func(t *rapid.T) {
		hosts := []string{"h1", "h2", "h3"}[:rapid.IntRange(1, 3).Draw(t, "hosts")]
		c := scheduling.NewCluster(t, hosts...)
		n := func(what string, limit int) int { return rapid.IntRange(0, limit).Draw(t, what) }
		names := []string{"a", "b", "c", "d", "e"}
		for range rapid.IntRange(1, 40).Draw(t, "length") {
			name := rapid.SampledFrom(names).Draw(t, "VC")
			s := c.Snapshot()
			x, exists := s.VCNamed(name)
			x.Groups = slices.Clone(x.Groups)
			var a admission.Answer
			var asked state.VC
			var again func() admission.Answer
			ids := c.IDs
			switch what := rapid.SampledFrom([]string{"create", "create", "scale", "scale", "start", "stop", "delete", "host", "cordon", "fail", "follow", "follow", "decide"}).Draw(t, "what"); what {
			case "create":
				if exists {
					continue
				}
				var groups []state.Group
				for range 1 + n("groups", 1) {
					g := scheduling.Group(1+n("count", 4), float64(1+n("tenths", 20))/10, int64(1+n("quarters", 8))*scheduling.GiB/4)
					if n("disk", 2) == 0 {
						g.Image = "disk"
					}
					g.Labels = map[string]string{"app": rapid.SampledFrom(names[:2]).Draw(t, "app")}
					if n("rules", 2) == 0 {
						terms := func(what string) (list []string) {
							for range n(what, 1) {
								list = append(list, rapid.SampledFrom([]string{"app=a", "app=b", "vc:a", "vc:b", "host:h1", "host:h2"}).Draw(t, "term"))
							}
							return list
						}
						g.Affinity = state.Affinity{Spread: rapid.SampledFrom([]string{"", "host"}).Draw(t, "spread"), Require: terms("require"), Prefer: terms("prefer"), Avoid: terms("avoid")}
					}
					groups = append(groups, g)
				}
				y := scheduling.VC(name, float64(n("min yield", 4))/4, groups...)
				y.ID = fmt.Sprintf("vc-%s-%d", name, c.Index)
				asked = y
				asked.Goal = state.GoalRun
				again = func() admission.Answer { return admission.Create(s, y, c.Env()) }
			case "scale":
				if !exists || x.Goal == state.GoalDelete || x.Goal == state.GoalStop && state.CountPhases(s.VMsOf(x.ID)).Stopping > 0 {
					continue
				}
				g := &x.Groups[n("group", len(x.Groups)-1)]
				switch n("which", 2) {
				case 0:
					g.Count = 1 + n("count", 4)
				case 1:
					g.CPU = float64(1+n("tenths", 20)) / 10
				case 2:
					g.Memory = int64(1+n("quarters", 8)) * scheduling.GiB / 4
					for _, vm := range s.VMsOf(x.ID) {
						if vm.Group == g.Name && vm.ConsumesResources() {
							g.Memory = min(g.Memory, vm.BootMemory)
						}
					}
				}
				again = func() admission.Answer { return admission.Scale(s, x, c.Env()) }
			case "start":
				if !exists || x.Goal == state.GoalDelete || x.Goal == state.GoalStop && state.CountPhases(s.VMsOf(x.ID)).Stopping > 0 {
					continue
				}
				again = func() admission.Answer { return admission.Start(s, x, c.Env()) }
			case "stop", "delete":
				if !exists || x.Goal == state.GoalDelete {
					continue
				}
				again = func() admission.Answer { return admission.Stop(s, x, c.Env()) }
				if what == "delete" {
					again = func() admission.Answer { return admission.Delete(s, x, c.Env()) }
				}
			case "host":
				c.Host(rapid.SampledFrom(hosts).Draw(t, "host"), float64(n("cores", 8)), int64(n("memory", 8))*scheduling.GiB, state.Resources{CPU: float64(n("foreign", 2)), Memory: int64(n("foreign", 2)) * scheduling.GiB})
				continue
			case "cordon":
				c.Must(state.KindHostCordon, state.HostCordon{Host: rapid.SampledFrom(hosts).Draw(t, "host"), Cordoned: n("cordon", 1) == 0})
				continue
			case "fail":
				if vms := s.VMs(); len(vms) > 0 {
					vm := rapid.SampledFrom(vms).Draw(t, "VM")
					c.Must(state.KindVMReport, state.VMReport{Host: vm.Host, VMs: []state.VMStatus{{VM: vm.ID, Generation: vm.Generation, Phase: state.Failed}}})
				}
				continue
			case "follow":
				for _, vm := range s.VMs() {
					if n("follow", 2) > 0 {
						c.Follow(vm)
					}
				}
				continue
			case "decide":
				c.Decide()
				continue
			}
			a = again()
			c.IDs = ids
			if x, y := text(a), text(again()); x != y {
				t.Fatalf("two answers to one question:\n%s\n%s", x, y)
			}
			if !exists && !a.Decision.Admitted && asked.ID != "" {
				followed += adviceIsTrue(c, asked, a.Decision)
			}
			if a.Plan == nil {
				if a.Decision.Admitted || a.Decision.Summary == "" {
					t.Fatalf("refused without a reason: %+v", a)
				}
				continue
			}
			c.Enact("request", a.Plan)
		}
		c.Decide()
	})
	t.Logf("%d pieces of advice followed", followed)
}

// text is the whole text of an answer.
func text(a admission.Answer) string {
	b, err := json.Marshal(a)
	if err != nil {
		return err.Error()
	}
	return string(b)
}
