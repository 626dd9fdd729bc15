package reservation

// Reprovisioning are the parameters of sec. 7. Amounts are of one resource, in its unit.
type Reprovisioning struct {
	Rho      float64 // a grant is at most so many times the most that was reserved lately
	Recent   int     // steps that are lately
	Lasts    int     // steps until a grant ends, and is decided again: T
	MaxShare float64 // of the capacity, that all grants together may have; the paper: bounded and configurable
}

// DefaultReprovisioning is the paper's, with steps of a minute. The paper gives no bound for all grants; ours is a quarter.
func DefaultReprovisioning() Reprovisioning { return Reprovisioning{2, 2, 1, 0.25} }

// Instance is one run of a slot as it goes on.
type Instance struct {
	Demand   float64   // what it uses and asks for now
	Reserved float64   // what it has in this step, earlier grants left aside
	Recent   []float64 // what it had in the steps before, earlier grants included, the last one last
}

// Room is what there is besides.
type Room struct {
	Capacity float64 // of the cluster
	Planned  float64 // the most that is reserved in any of the steps that the grant would last, this instance's part included
	Granted  float64 // to all instances, in those steps
}

// Bound is what limits a grant.
type Bound string

// The bounds.
const (
	ByDemand Bound = "demand" // nothing does: it gets all it asks for
	ByRecent Bound = "recent" // Rho times what was reserved lately
	ByPlan   Bound = "plan"   // no more room in the agenda
	ByShare  Bound = "share"  // all grants together have what they may
)

// Grant is what an instance is given beyond its reservation.
type Grant struct {
	Extra float64 // 0: none
	Steps int     // for how many
	Bound Bound
}

// Decide grants an instance that asks for more than is reserved min(demand, Rho max(Recent)) for T steps, if the agenda has room: it
// takes nothing from another reservation.
func (p Reprovisioning) Decide(i Instance, r Room) Grant {
	if !(i.Demand > i.Reserved) {
		return Grant{Bound: ByDemand}
	}
	recent := i.Reserved
	for _, x := range i.Recent[max(0, len(i.Recent)-p.Recent):] {
		recent = max(recent, x)
	}
	g := Grant{Extra: i.Demand - i.Reserved, Steps: p.Lasts, Bound: ByDemand}
	limit := func(peak float64, by Bound) {
		if peak = max(0, peak); peak < g.Extra {
			g.Extra, g.Bound = peak, by
		}
	}
	limit(p.Rho*recent-i.Reserved, ByRecent)
	limit(r.Capacity-r.Planned-r.Granted, ByPlan)
	limit(p.MaxShare*r.Capacity-r.Granted, ByShare)
	if g.Extra == 0 {
		g.Steps = 0
	}
	return g
}

// Late is by how much a run is late: what it left unused of the steps before at, or by how much its demand exceeds what is left of its
// slot, whichever is more. A run whose slot is longer than its skyline asks for more than the slot has in most steps, and is not late
// for that. With Reserved and Late as its demand such a run is granted only what it cannot do in its slot. The paper's trigger grants
// all that it asks for.
func Late(slot []float64, at int, used, demand float64) float64 {
	passed, left := -used, demand
	for i, v := range slot {
		if i < at {
			passed += v
		} else {
			left -= v
		}
	}
	return max(0, passed, left)
}
