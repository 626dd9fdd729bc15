package agent

import (
	"fmt"
	"time"

	"evenkeel/hypervisor"
)

// When a guest is held to be short of memory. One that has all the memory it can have is not: there is nothing to give.
const (
	// pressedBelow: what it could take into use without swapping is less than that share of its balloon.
	pressedBelow = 0.10
	// A guest that swaps, or reads its programs again and again, is short of memory if it has less than a quarter left: else
	// it reads back what was swapped out before, or for the first time.
	swapsBelow = 0.25
	swapRate   = 512 << 10 // bytes per second
	faultRate  = 100.0     // major faults per second

	// squeezeTo is how much of its balloon a guest may have in use after that was shrunk. The distance to pressedBelow is what
	// keeps a guest from being squeezed and relieved in turn.
	squeezeTo = 0.85

	// reliefStep is how much more than it has, or than it uses, a pressed guest gets at a time: a share of all its memory.
	reliefStep = 4 // its fourth

	// reliefStays for so many steps of forecasts after the guest was pressed last.
	reliefStays = 10
	// defies for so many: a guest that did not follow its balloon is not asked again.
	defies = 10
)

// GuestNeed is what the host itself asks for a guest's sake. The zero value asks for nothing.
type GuestNeed struct {
	Keep  int64 // bytes: its balloon is not shrunk below that
	Raise int64 // bytes: it is short of memory, and to have that much as far as there is room
	Spare int64 // bytes: it could do with that for now, by what it uses; 0 = more than that is not known
}

// guestWatch is what an agent sees of one guest's memory over time. One with nothing but a step knows nothing.
type guestWatch struct {
	step       time.Duration // of forecasts
	generation uint64
	points     []guestPoint // of a while, oldest first
	last       hypervisor.Stats
	memory     int64 // most it can have

	target     int64 // its balloon was last set to that; 0: it was not, by this agent
	reached    bool  // it got there
	nearest    int64 // how close it came
	progressed time.Time
	defied     time.Time // when it was found not to follow; zero: it was not
	moved      time.Time // when the balloon was last seen to be of another size, or set

	pressed string // by its last report
	relief  int64  // bytes it is to have for that; 0 = none
	raised  time.Time
	short   time.Time // when it was pressed last
}

type guestPoint struct {
	at             time.Time
	swapIn, faults int64
}

// set notes that the balloon is being set.
func (g *guestWatch) set(from, to int64, now time.Time) {
	if g.target != to {
		g.target, g.reached, g.nearest, g.progressed, g.moved = to, false, distance(from, to), now, now
	}
	if to < from && to < g.relief { // others needed it more, and it made no use of it
		g.relief = to
	}
}

func distance(a, b int64) int64 { return max(a-b, b-a) }

// see a measurement of a guest that can have so much memory.
func (g *guestWatch) see(s hypervisor.Stats, memory int64, window time.Duration) {
	if g.generation != s.Generation {
		*g = guestWatch{step: g.step, generation: s.Generation}
	}
	g.memory = memory
	g.follow(s)
	if len(g.points) > 0 && s.MajorFaults < g.points[len(g.points)-1].faults {
		g.points = nil // it was booted anew, or fell silent
	}
	if s.MajorFaults >= 0 || s.SwapIn >= 0 {
		g.points = append(g.points, guestPoint{s.At, s.SwapIn, s.MajorFaults})
	}
	for len(g.points) > 2 && s.At.Sub(g.points[1].at) >= window {
		g.points = g.points[1:]
	}
	if distance(s.Balloon, g.last.Balloon) > balloonSlack {
		g.moved = s.At
	}
	took := g.reached && g.target > 0 && s.Balloon > g.target+balloonSlack
	g.last = s
	if g.pressed = g.shortage(took); g.pressed != "" {
		g.short = s.At
		g.raise(took)
	}
	if g.relief > 0 && s.At.Sub(g.short) > reliefStays*g.step {
		g.relief = 0
	}
}

// follow sees how far the balloon is.
func (g *guestWatch) follow(s hypervisor.Stats) {
	if g.target == 0 {
		return
	}
	switch off := distance(s.Balloon, g.target); {
	case g.reached:
	case off <= balloonSlack:
		g.reached, g.defied = true, time.Time{}
	case off < g.nearest-balloonSlack:
		g.nearest, g.progressed = off, s.At
	case s.At.Sub(g.progressed) > balloonPatient && g.defied.IsZero():
		g.defied = s.At
	}
	if !g.defied.IsZero() && s.At.Sub(g.defied) > defies*g.step {
		g.target, g.defied = 0, time.Time{}
	}
}

// rates of what was read back, since the oldest measurement of the window: bytes and faults per second.
func (g *guestWatch) rates() (swapIn, faults float64) {
	if len(g.points) < 2 {
		return 0, 0
	}
	a, b := g.points[0], g.points[len(g.points)-1]
	wall := b.at.Sub(a.at).Seconds()
	if wall <= 0 {
		return 0, 0
	}
	return max(0, float64(b.swapIn-a.swapIn)) / wall, max(0, float64(b.faults-a.faults)) / wall
}

// reports: the guest tells what it uses.
func (g *guestWatch) reports() bool { return g.last.Available >= 0 && g.last.Balloon > 0 }

// settled says whether the guest reported since its balloon moved. What was left while it did is no share of the size that it
// has now: the host learns of both at their own times.
func (g *guestWatch) settled() bool {
	return g.last.Reported.IsZero() || g.last.Reported.After(g.moved) || g.last.Reported.Equal(g.last.At)
}

// used is what it cannot do without, bytes.
func (g *guestWatch) used() int64 { return max(0, g.last.Balloon-g.last.Available) }

// shortage says why the guest is short of memory; "" = it is not, or nobody knows. took: it took memory back by itself.
func (g *guestWatch) shortage(took bool) string {
	s := g.last
	if took {
		return fmt.Sprintf("it ran out of memory and took %d MiB back by itself", (s.Balloon-g.target)>>20)
	}
	if !g.reports() || !g.settled() {
		return ""
	}
	share := float64(s.Available) / float64(s.Balloon)
	swap, faults := g.rates()
	switch {
	case share < pressedBelow:
		return fmt.Sprintf("%d of %d MiB are left", s.Available>>20, s.Balloon>>20)
	case share < swapsBelow && swap > swapRate:
		return fmt.Sprintf("it swaps: %.1f MiB/s, %d of %d MiB are left", swap/(1<<20), s.Available>>20, s.Balloon>>20)
	case share < swapsBelow && faults > faultRate:
		return fmt.Sprintf("it reads pages again: %.0f/s, %d of %d MiB are left", faults, s.Available>>20, s.Balloon>>20)
	}
	return ""
}

// raise what a pressed guest is to have: a step more, once it reported since it got the last one.
func (g *guestWatch) raise(took bool) {
	s := g.last
	if s.Balloon >= g.memory-balloonSlack { // it has all there is
		g.relief = g.memory
		return
	}
	if g.relief > s.Balloon+balloonSlack || s.Reported.Before(g.raised) && !took {
		return // there is no room for it yet, or it has not said yet what it made of it
	}
	g.relief = min(g.memory, max(g.relief, s.Balloon+g.memory/reliefStep, g.used()+g.memory/reliefStep))
	g.raised = s.At
}

// content: it reported that it is short of memory no more, though it was given less than it was to have, and no more is on its way.
func (g *guestWatch) content() bool {
	return g.pressed == "" && g.reports() && g.settled() && !g.last.Reported.Before(g.raised) && (g.reached || g.target <= g.last.Balloon)
}

// need of the guest now.
func (g *guestWatch) need() GuestNeed {
	n := GuestNeed{Keep: g.relief}
	if g.relief > g.last.Balloon+balloonSlack && !g.content() {
		n.Raise = g.relief
	}
	if g.reports() {
		bears := min(g.last.Balloon, (int64(float64(g.used())/squeezeTo)+balloonSlack-1)/balloonSlack*balloonSlack)
		n.Keep = max(n.Keep, bears)
		if g.pressed == "" && g.defied.IsZero() && g.settled() {
			n.Spare = bears
		}
	}
	if !g.defied.IsZero() && g.target < g.last.Balloon {
		n.Keep = max(n.Keep, g.last.Balloon)
	}
	return n
}

// tell what there is to tell; nil of a guest that reports nothing.
func (g *guestWatch) tell() *Guest {
	if !g.reports() && g.last.Unused < 0 {
		return nil
	}
	swap, faults := g.rates()
	out := &Guest{Available: g.last.Available, Unused: g.last.Unused, SwapIn: swap, MajorFaults: faults, Follows: g.defied.IsZero()}
	if g.last.Balloon < g.memory-balloonSlack {
		out.Pressed = g.pressed
	}
	return out
}

// keep guests from being squeezed further than they can bear, whatever their target is.
func (d *decider) keep(vms []VM) {
	for i := range vms {
		if now, in := d.eased(vms[i]); in {
			d.due[now.Identity.VM] = vms[i].Spec.Balloon
			keep := min(d.past.Guests[now.Identity.VM].Keep, now.Balloon)
			vms[i].Spec.Balloon = max(vms[i].Spec.Balloon, keep)
		}
	}
}

// eased says whether the host may look after a VM's memory: not while it moves, or is to end.
func (d *decider) eased(vm VM) (hypervisor.VM, bool) {
	now, runs := d.there[vm.Spec.Identity.VM]
	return now, vm.Move == nil && vm.Want == WantRun && ours(vm, now, runs) && now.State != hypervisor.Incoming
}

// lacks is what a guest that is short of memory is to have, and how much of that does not count as its own yet.
func (d *decider) lacks(vm VM) (now hypervisor.VM, goal, more int64) {
	now, in := d.eased(vm)
	raise := d.past.Guests[now.Identity.VM].Raise
	if !in || raise <= now.Balloon {
		return now, 0, 0
	}
	goal = min(now.Memory, max(raise, vm.Spec.Balloon))
	return now, goal, max(0, goal-max(now.Balloon, d.past.Balloon[now.Identity.VM]))
}

// relieve gives guests that are short of memory more of it, before anything else grows: all that they are to have, or of what
// there is a part in proportion to what they lack.
func (d *decider) relieve(vms []VM) {
	all := int64(0)
	for _, vm := range vms {
		_, _, more := d.lacks(vm)
		all += more
	}
	room := max(0, d.want.Memory-d.memory)
	for i := range vms {
		now, goal, more := d.lacks(vms[i])
		if goal == 0 {
			continue
		}
		if all > room {
			given := int64(float64(room)*float64(more)/float64(all)) / balloonSlack * balloonSlack
			if more-given > balloonSlack {
				d.add(Hold{now.Identity.VM, now.Name, fmt.Sprintf("it is short of memory, and %d bytes more do not fit", more-given), true})
			}
			goal, more = goal-more+given, given
		}
		if more > balloonSlack {
			d.add(SetBalloon{now.Identity.VM, now.Name, now.Balloon, goal, ""})
			d.memory += more
		}
		vms[i].Spec.Balloon = max(vms[i].Spec.Balloon, goal)
		d.given[now.Identity.VM] = goal
	}
}
