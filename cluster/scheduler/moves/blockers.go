package moves

import (
	"fmt"
	"strings"

	"evenkeel/cluster/state"
	"evenkeel/migration"
)

// Blocker is a VM that keeps its host from being drained.
type Blocker struct {
	ID     string
	VM, VC string // names
	Why    string
	Advice []string // what would let it leave
	Proved bool     // nothing that could be moved would let it leave
}

// String returns the VM and the reason.
func (b Blocker) String() string { return b.VM + ": " + b.Why }

// Blockers returns the blockers of a plan in the state's terms.
func (f *Fleet) Blockers(all []migration.Blocker) []Blocker {
	var out []Blocker
	for _, b := range all {
		vm := f.VM(b.Group, b.VM)
		x := Blocker{ID: vm.ID, VM: vm.Name, VC: f.VC(b.Group).Name, Why: b.Why, Proved: b.Proved}
		if b.Cause == migration.ByRules {
			x.Why += rulesText(f.groups[b.Group].group.Affinity)
		}
		if p := f.pinned[vm.ID]; p.why != "" {
			x.Why = p.why
			switch p.cause {
			case byRoutes:
				x.Advice = append(x.Advice, "see "+Docs)
			case byDisk:
				x.Advice = append(x.Advice, "let moves copy disks: vcctl cluster settings set moves.copyStorage=true")
			}
		}
		for _, a := range b.Advice {
			text := string(a)
			if a == migration.StopIt {
				text = "have it shut down (on-blocked shutdown), or stop virtual cluster " + x.VC
			}
			x.Advice = append(x.Advice, text)
		}
		out = append(out, x)
	}
	return out
}

// rulesText names the rules of a group; "" if it has none.
func rulesText(a state.Affinity) string {
	var rules []string
	add := func(what string, terms ...string) {
		for _, t := range terms {
			if t != "" {
				rules = append(rules, what+" "+t)
			}
		}
	}
	add("spread", a.Spread)
	add("require", a.Require...)
	add("avoid", a.Avoid...)
	if len(rules) == 0 {
		return ""
	}
	return "; its rules: " + Names(rules)
}

// BlockersText lists VMs that cannot leave, equal reasons once.
func BlockersText(all []Blocker) string {
	text := "1 VM cannot leave: "
	if len(all) != 1 {
		text = fmt.Sprintf("%d VMs cannot leave: ", len(all))
	}
	byWhy := map[string][]string{}
	var whys, parts []string
	for _, b := range all {
		if byWhy[b.Why] == nil {
			whys = append(whys, b.Why)
		}
		byWhy[b.Why] = append(byWhy[b.Why], b.VM)
	}
	if len(whys) == 1 && len(all) > 1 {
		return text + whys[0] + " (" + Names(byWhy[whys[0]]) + ")"
	}
	left := len(all)
	for _, why := range whys[:min(len(whys), fewBlockers)] {
		parts = append(parts, Names(byWhy[why])+": "+why)
		left -= len(byWhy[why])
	}
	text += strings.Join(parts, "; ")
	if left > 0 {
		text += fmt.Sprintf("; and %d more", left)
	}
	return text
}

// Names lists names, and if they are many the first five.
func Names(all []string) string {
	const few = 5
	if len(all) <= few {
		return strings.Join(all, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(all[:few], ", "), len(all)-few)
}
