package replay

// Policy decides where components start, what each is allocated, and which are evicted.
//
// It reads the exported arrays of a Cluster and never writes to them; it changes the cluster by its methods only.
type Policy interface {
	// Name is for people: "reservation".
	Name() string

	// Begin gets the cluster before anything arrives, and returns how allocations are enforced.
	Begin(c *Cluster) Enforcement

	// Rightsize is called at every tick, once use was measured. It may allocate, preempt and move.
	Rightsize(c *Cluster)

	// Schedule is called whenever something might start: after arrivals, ends, failures and Rightsize.
	Schedule(c *Cluster)

	// FreeMemory is called when the components on a host are about to use more memory than it has. If it frees too little the kernel ends
	// components, the one farthest above its allocation first, then the largest.
	FreeMemory(c *Cluster, host int32)
}

// Enforcement is how hosts keep components to their allocations. The zero value leaves all of a host to those that want it.
type Enforcement struct {
	// Capped: a component gets no CPU above its allocation, also where some is idle. Otherwise allocations are weights.
	Capped bool

	// Hard: a component that uses more memory than its allocation ends. Otherwise one ends only where its host has none left.
	Hard bool

	// Paged: where a host has no memory left no component ends. The memory is shared by weighted fair share (sim/flex), and a component that
	// gets less than both its use and its request counts as missed. That is how Flex was evaluated; no real host pages at this speed.
	Paged bool
}

// Reservation gives every component what was asked for, for as long as it runs, and starts what fits: first come, first
// served, the first that does not fit holding up all behind it. It is the baseline of Pace et al. (sec. IV).
type Reservation struct {
	// Passing: those that fit pass one that does not.
	Passing bool

	first firstCome
}

// Name implements Policy.
func (*Reservation) Name() string { return "reservation" }

// Begin implements Policy.
func (p *Reservation) Begin(*Cluster) Enforcement {
	p.first = firstCome{passing: p.Passing}
	return Enforcement{Capped: true, Hard: true}
}

// Rightsize implements Policy.
func (*Reservation) Rightsize(*Cluster) {}

// Schedule implements Policy.
func (p *Reservation) Schedule(c *Cluster) { p.first.schedule(c) }

// FreeMemory implements Policy.
func (*Reservation) FreeMemory(*Cluster, int32) {}
