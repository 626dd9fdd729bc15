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
			if state == "" && bits>>12&3 != 0 {
				continue // nothing is here that could be a leftover, or of another generation
			}
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

// here: the instance that moves is on this host, and is not on its way to it.
func (s situation) here() bool {
	return s.runs && s.now.Generation == s.vm.Spec.Generation && s.now.State != hypervisor.Incoming
}

// source: this host is the source of the move, and none of its migrations goes on.
func (s situation) source() bool { return !s.vm.Move.Incoming && !s.past.Moving["m"] }

// arrivedPaused: the VM stands at its target, and its source reported that it left.
func (s situation) arrivedPaused() bool {
	return s.vm.Move.Incoming && s.here() && s.now.State == hypervisor.Paused && s.vm.Move.Left
}

// stranded: a migration that has ended left the VM behind at its source.
func (s situation) stranded() bool {
	return s.source() && s.now.Generation == s.vm.Spec.Generation && s.now.Leftover
}

// breaks says which rule of moves an operation breaks; "" = none.
func (s situation) breaks(op Operation, force float64) string {
	m := s.vm.Move
	kept, rule := false, "only its stage decides on a VM with an open move"
	switch op := op.(type) {
	case Blocked:
		kept = true
	case Migrate:
		kept, rule = s.mayLeave() && force <= s.vm.Spec.CPU.Cap, "a VM leaves once, from where it runs, to where there is room, with no more than its share, and for no reason to stay"
	case SetCPU:
		kept, rule = s.source() && s.here(), "only the source shrinks it, before it leaves"
	case AbortMove:
		kept, rule = !m.Incoming && s.past.Moving["m"] && m.Abort != "", "only a migration from here that goes on is aborted"
	case Destroy:
		kept, rule = s.arrivedPaused() && s.past.Unresumable["m"], "only what arrived and cannot be resumed is destroyed"
	case Resume:
		kept, rule = op.Here && s.stranded() || !op.Here && s.arrivedPaused(), "the target resumes what its source reported to have left, the source what its migration left behind"
	case ReportStatus:
		return s.breaksReport(op.Status)
	}
	if kept {
		return ""
	}
	return rule
}

// mayLeave says whether all is as it must be for a hand-over.
func (s situation) mayLeave() bool {
	m := s.vm.Move
	return s.source() && s.here() && !m.Wait && s.vm.Want == WantRun && m.Abort == "" && len(s.past.Moved) == 0
}

// breaksReport says which rule of moves a report breaks; "" = none.
func (s situation) breaksReport(st Status) string {
	m := s.vm.Move
	so := map[Phase]bool{
		PhaseStayed:  s.source() && s.here(),
		PhaseLost:    !s.runs && (s.source() || m.Incoming && m.SourceLost),
		PhaseArrived: m.Incoming && s.here() && !(m.Paused && s.now.State == hypervisor.Paused && !m.Left),
		PhaseRoom:    m.Incoming && m.Wait && s.fits && !s.here(),
	}
	switch {
	case !so[st.Phase]:
		return fmt.Sprintf("phase %s is reported only of what is so", st.Phase)
	case st.Left && (m.Incoming || !m.Paused || !s.past.Handed["m"]):
		return "only the source of a move that leaves it paused reports that it left, and only if it was handed over"
	case st.Move != m.Open || st.Permit != m.Permit:
		return "what is reported of a move names it and its last permit"
	}
	return ""
}

// In each situation a move has one stage, whose operation breaks none of the rules of moves; each stage has a situation.
func TestMoveStages(t *testing.T) {
	t.Parallel()
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
