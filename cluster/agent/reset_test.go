package agent_test

import (
	"slices"
	"strings"
	"testing"

	"evenkeel/cluster/agent"
	"evenkeel/hypervisor"
)

func asked(vm *agent.VM)     { vm.Reset = "r1" }
func permitted(vm *agent.VM) { vm.Reset, vm.ResetPermitted = "r1", true }

// A VM is reset only while it runs as the leader means it, and once; what the host knows of a reset with a permit is reported.
func TestDecideOnResets(t *testing.T) {
	const resets = "reset ek-a generation 1"
	paused := func(vm *hypervisor.VM) { vm.State = hypervisor.Paused }
	older := func(vm *hypervisor.VM) { vm.Generation = 0 }
	moves := func(vm *agent.VM) { vm.Move = &agent.Move{Open: 3, To: "h2", Wait: true} }
	for name, c := range map[string]struct {
		vm    agent.VM
		there []hypervisor.VM
		past  map[string]agent.ResetTry
		does  bool
		says  string // the reason of the report, "-": it was made, "": none
	}{
		"asked":                 {wanted("a", seen, asked), []hypervisor.VM{runs("a")}, nil, true, ""},
		"asked again":           {wanted("a", seen, asked), []hypervisor.VM{runs("a")}, map[string]agent.ResetTry{"r1": {}}, true, ""},
		"made, an older order":  {wanted("a", seen, asked), []hypervisor.VM{runs("a")}, map[string]agent.ResetTry{"r1": {Called: true}}, false, ""},
		"not asked":             {wanted("a", seen), []hypervisor.VM{runs("a")}, nil, false, ""},
		"not there":             {wanted("a", failed, asked), nil, nil, false, ""},
		"another generation":    {wanted("a", seen, asked), []hypervisor.VM{runs("a", older)}, nil, false, ""},
		"paused":                {wanted("a", seen, asked), []hypervisor.VM{runs("a", paused)}, nil, false, ""},
		"it moves":              {wanted("a", seen, asked, moves), []hypervisor.VM{runs("a")}, nil, false, ""},
		"it is to stop":         {wanted("a", seen, asked, stop), []hypervisor.VM{runs("a")}, nil, false, ""},
		"permitted, made":       {wanted("a", seen, permitted), []hypervisor.VM{runs("a")}, map[string]agent.ResetTry{"r1": {Called: true}}, false, "-"},
		"permitted, failed":     {wanted("a", seen, permitted), []hypervisor.VM{runs("a")}, map[string]agent.ResetTry{"r1": {Called: true, Failed: "it hangs"}}, false, "it hangs"},
		"permitted, not heard":  {wanted("a", seen, permitted), []hypervisor.VM{runs("a")}, map[string]agent.ResetTry{"r1": {}}, false, "was not reset"},
		"permitted to one gone": {wanted("a", seen, permitted), []hypervisor.VM{runs("a")}, nil, false, "is not known"},
	} {
		ops := agent.Decide(host(c.vm), c.there, agent.Past{Resets: c.past})
		if does := slices.Contains(texts(ops), resets); does != c.does {
			t.Errorf("%s: %q", name, texts(ops))
		}
		said := ""
		for _, op := range ops {
			if r, is := op.(agent.ReportStatus); is && r.Status.Phase == agent.PhaseReset {
				if said = r.Status.Reason; said == "" {
					said = "-"
				}
			}
		}
		if (said == "") != (c.says == "") || !strings.Contains(said, c.says) {
			t.Errorf("%s: reported %q, want %q", name, said, c.says)
		}
	}
}
