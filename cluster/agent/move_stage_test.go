package agent

import (
	"fmt"
	"testing"
	"time"

	"evenkeel/hypervisor"
)

// situation is one of all in which a host may find a VM with an open move.
type situation struct {
	vm   VM
	now  hypervisor.VM
	runs bool
	past Past
	fits bool
}

// everySituation calls f with each combination of what the stage of a move depends on.
func everySituation(f func(situation)) {
	states := []hypervisor.State{"", hypervisor.Running, hypervisor.Paused, hypervisor.Incoming}
	for bits := range 1 << 15 {
		for _, state := range states {
			is := func(bit int) bool { return bits&(1<<bit) != 0 }
			m := Move{Open: 5, To: "h2", Permit: 3, Incoming: is(0), Wait: is(1), Paused: is(2), SourceLost: is(3), Left: is(4)}
			past := Past{Moving: map[string]bool{"m": is(5)}, Moved: map[string]MoveEnd{}, Handed: map[string]bool{"m": is(6)}, Waited: map[string]bool{"m": is(7)},
				Resumed: map[string]bool{"m": is(8)}, Unresumable: map[string]bool{"m": is(9)}}
			vm := tracedVM("m")
			if vm.Move = &m; is(10) {
				m.Abort = "an operator asked for it"
			}
			if is(11) {
				vm.Want = WantStop
			}
			s := situation{vm: vm, past: past, fits: is(7), runs: state != ""}
			if s.runs {
				s.now = hypervisor.VM{Identity: vm.Spec.Identity, Name: vm.Spec.Name, State: state, Leftover: is(12), CPU: vm.Spec.CPU}
			}
			if s.runs && is(13) {
				s.now.Generation++
			}
			if is(14) { // a migration ended, with or without an error; a share that must shrink
				past.Moved["m"] = MoveEnd{Error: m.Abort}
			} else if s.runs && is(9) {
				s.now.CPU.Cap *= 2
			}
			f(s)
		}
	}
}

// breaks says which rule of moves an operation breaks; "" = none.
func (s situation) breaks(op Operation, force float64) string {
	m, moving := s.vm.Move, s.past.Moving["m"]
	here := s.runs && s.now.Generation == s.vm.Spec.Generation && s.now.State != hypervisor.Incoming
	for _, rule := range []struct {
		why  string
		kept bool
	}{
		{"a VM leaves once, from where it runs, after its target reported room", !isOf[Migrate](op) || !m.Incoming && here && !moving && !m.Wait},
		{"it takes no larger share than the target keeps for it", !isOf[Migrate](op) || force <= s.vm.Spec.CPU.Cap},
		{"it leaves only if it is to run on, and no reason to stay is known", !isOf[Migrate](op) || s.vm.Want == WantRun && m.Abort == "" && len(s.past.Moved) == 0},
		{"only a migration from here that goes on is aborted", !isOf[AbortMove](op) || !m.Incoming && moving && m.Abort != ""},
		{"the target resumes what stands there, after the source reported that it left", !isOf[Resume](op) || !m.Incoming || here && s.now.State == hypervisor.Paused && m.Left},
		{"the source resumes what its migration left behind", !isOf[Resume](op) || m.Incoming || s.now.Generation == s.vm.Spec.Generation && s.now.Leftover && !moving},
		{"only what arrived and cannot be resumed is destroyed", !isOf[Destroy](op) || m.Incoming && here && m.Left && s.past.Unresumable["m"]},
		{"only the source shrinks it, before it leaves", !isOf[SetCPU](op) || !m.Incoming && here && !moving},
	} {
		if !rule.kept {
			return rule.why
		}
	}
	report, is := op.(ReportStatus)
	if !is {
		return ""
	}
	st := report.Status
	switch ok := map[Phase]bool{
		PhaseStayed:  !m.Incoming && here && !moving,
		PhaseLost:    !s.runs && (m.Incoming && m.SourceLost || !m.Incoming && !moving),
		PhaseArrived: m.Incoming && here && !(m.Paused && s.now.State == hypervisor.Paused && !m.Left),
		PhaseRoom:    m.Incoming && m.Wait && s.fits && !here,
	}; {
	case !ok[st.Phase]:
		return fmt.Sprintf("phase %s is reported only of what is so", st.Phase)
	case st.Left && (m.Incoming || !m.Paused || !s.past.Handed["m"]):
		return "only the source of a move that leaves it paused reports that it left, and only if it was handed over"
	case st.Move != m.Open || st.Permit != m.Permit:
		return "what is reported of a move names it and its last permit"
	}
	return ""
}

func isOf[T Operation](op Operation) bool {
	_, is := op.(T)
	return is
}

// In each situation a move has one stage, whose operation breaks none of the rules of moves; each stage has a situation.
func TestMoveStages(t *testing.T) {
	found := map[moveStage]int{}
	everySituation(func(s situation) {
		if t.Failed() {
			return
		}
		d := newDecider(Desired{Cluster: "c", CPU: 8, Memory: 8 << 30}, nil, s.past)
		d.fits = s.fits
		stage, _ := d.sourceStage(s.vm, s.now, s.runs)
		if s.vm.Move.Incoming {
			stage = d.targetStage(s.vm, s.now, s.runs)
		}
		found[stage]++
		d.past.Leftover = map[string]time.Duration{"m": leftoverFor}
		d.move(s.vm, s.now, s.runs)
		if len(d.ops) > 1 {
			t.Errorf("stage %q has operations %v", stage, d.ops)
		}
		for _, op := range d.ops {
			if why := s.breaks(op, d.force(s.now)); why != "" {
				t.Errorf("stage %q of move %+v: %s of %+v, but %s", stage, *s.vm.Move, op, s.now, why)
			}
		}
	})
	for _, stage := range []moveStage{sourceWaits, sourceShrinks, sourceHandsOver, sourceSends, sourceAborts, sourceLeft, sourceStranded, sourceStays, sourceExcluded,
		targetObstructed, targetPrepares, targetReady, targetExpects, targetStands, targetResumes, targetUnresumable, targetArrived, targetLost} {
		if found[stage] == 0 {
			t.Errorf("no situation has stage %q", stage)
		}
	}
}
