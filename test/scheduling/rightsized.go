package scheduling

import (
	"time"

	"evenkeel/cluster/scheduler/rightsizing"
	"evenkeel/cluster/state"
)

// Rightsized is a cluster whose VMs use something, minute by minute.
type Rightsized struct {
	*Cluster
	Rightsizer rightsizing.Rightsizer
	Now        time.Time
	Use        map[string]state.Resources                  // by VM name
	Odd        map[string]func(*rightsizing.VMObservation) // edits what is reported, by VM name
	// Unavailable are hosts for which nothing may be decided, and why.
	Unavailable map[string]string
	Since       time.Time // the leader's term began
	Last        rightsizing.Result
	// MoveAway plans moves for a host that is short of memory; nil: no VM moves.
	MoveAway func(rightsizing.Shortage, map[string]string) rightsizing.MovesAway
	// Hangs are VMs, by name, whose hosts report nothing of them: they do not come to a stop.
	Hangs map[string]bool
}

func NewRightsized(t TB, mode state.RightsizingMode, hosts ...string) *Rightsized {
	c := &Rightsized{Cluster: NewCluster(t, hosts...), Now: Start, Since: Start.Add(-time.Hour), Use: map[string]state.Resources{}, Odd: map[string]func(*rightsizing.VMObservation){}}
	c.Set(state.RightsizingSettings{Mode: mode})
	return c
}

func (c *Rightsized) Set(x state.RightsizingSettings) {
	m, _ := c.Snapshot().Meta()
	m.Settings.Rightsizing, m.Settings.OnFull = x, state.Queue
	c.Must(state.KindSettings, state.SettingsPut{Settings: m.Settings, Version: m.SettingsIndex})
}

// Run a VC of VMs that use so much each.
func (c *Rightsized) AddVC(name string, needs string, role string, count int, declared, use state.Resources) {
	c.T.Helper()
	x := VC(name, 0.1, Group(count, declared.CPU, declared.Memory))
	x.Needs, x.Groups[0].Role = needs, role
	if a := c.Create(x); a.Plan == nil || a.Queued {
		c.T.Fatalf("%s does not fit: %+v", name, a.Decision)
	}
	c.CommitPlan()
	for _, vm := range c.Snapshot().VMsOf(x.ID) {
		c.Use[vm.Name] = use
	}
}

// Minute passes: hosts report, the leader looks, hosts follow.
func (c *Rightsized) Minute() rightsizing.Result {
	c.T.Helper()
	c.Now = c.Now.Add(time.Minute)
	in := rightsizing.Observations{Now: c.Now, Since: c.Since, VMs: map[string]rightsizing.VMObservation{}, Unavailable: c.Unavailable}
	s := c.Snapshot()
	for _, vm := range s.VMs() {
		use, runs := c.Use[vm.Name]
		if !vm.ConsumesResources() || !runs {
			continue
		}
		x, _ := s.VC(vm.VC)
		g, _ := x.GroupOf(vm)
		ahead := func(mean float64) rightsizing.Ahead {
			a := rightsizing.Ahead{Trusted: true}
			for range 10 {
				a.Mean, a.Deviation = append(a.Mean, mean), append(a.Deviation, mean/100)
			}
			return a
		}
		used := min(use.Memory, g.Memory) // what its balloon does not leave to a guest it takes back by itself
		see := rightsizing.VMObservation{Generation: vm.Generation, Until: c.Now, CPU: ahead(use.CPU), Memory: ahead(float64(use.Memory)), At: c.Now,
			Cap: g.Allocation, Used: min(use.CPU, g.Allocation), MemoryUsed: used, Balloon: max(used, vm.Due(g)), Reports: true, Follows: true}
		if use.Memory > vm.Due(g)*9/10 && use.Memory < g.Memory {
			see.Pressure = "available memory is under a tenth of its balloon"
		}
		if edit := c.Odd[vm.Name]; edit != nil {
			edit(&see)
		}
		in.VMs[vm.ID] = see
	}
	before := c.Snapshot()
	c.Last = c.Rightsizer.Evaluate(before, in)
	if !c.Last.Command.Empty() {
		if err := c.Put(state.KindRightsize, c.Last.Command); err != nil {
			c.T.Fatalf("refused on its own state: %v\n%+v", err, c.Last.Command)
		}
		c.keepsLimits(before)
	}
	for _, p := range c.Last.Evictions(func(short rightsizing.Shortage, pressed map[string]string) rightsizing.MovesAway {
		if c.MoveAway == nil {
			return rightsizing.MovesAway{Why: "no VM can move here"}
		}
		return c.MoveAway(short, pressed)
	}) {
		c.evictsForUse(before, in, p)
		if plan := rightsizing.Preempt(c.Snapshot(), p, c.Now); plan != nil {
			c.Enact("preempt", plan)
		}
	}
	for _, vm := range c.Snapshot().VMs() {
		if !c.Hangs[vm.Name] {
			c.Follow(vm)
		}
	}
	c.Decide()
	return c.Last
}

// evictsForUse: a VM is evicted only where the memory in use on its host, with what VMs under pressure must grow to and the most that one VM
// may take back, does not fit.
func (c *Rightsized) evictsForUse(s *state.Snapshot, in rightsizing.Observations, p rightsizing.Preemption) {
	c.T.Helper()
	h, _ := s.Host(p.Host)
	inUse, takesBack := int64(0), int64(0)
	for _, vm := range s.VMs() {
		if vm.Host != p.Host || !vm.ConsumesResources() {
			continue
		}
		x, _ := s.VC(vm.VC)
		g, _ := x.GroupOf(vm)
		use := max(vm.Due(g), vm.ChargedMemory)
		if see, known := in.VMs[vm.ID]; known && see.Reports && x.Needs == state.NeedsEstimated {
			use = max(g.MemoryMin, see.MemoryUsed)
			if see.Pressure != "" {
				use = max(use, vm.Due(g)+g.Memory/10, see.Balloon, vm.ChargedMemory)
			}
			use = min(use, g.Memory)
		}
		inUse, takesBack = inUse+use+h.VMOverhead, max(takesBack, g.Memory-use)
	}
	if free := h.Usable().Memory - inUse; free >= takesBack {
		c.T.Fatalf("evicted where %d MiB are in use of %d MiB, and one VM takes back %d MiB at most: %+v", inUse>>20, h.Usable().Memory>>20, takesBack>>20, p)
	}
}

// keepsLimits: memory that is given, and the reserve, within each host's limit, or no more than they were.
func (c *Rightsized) keepsLimits(before *state.Snapshot) {
	c.T.Helper()
	after := c.Snapshot()
	for _, h := range after.Hosts() {
		limit, l, was := h.Usable(), after.LoadOf(h.Name), before.LoadOf(h.Name)
		if l.Taken() > max(limit.Memory, was.Taken()) {
			c.T.Fatalf("host %s: %+v of %+v, before %+v", h.Name, l, limit, was)
		}
	}
}

func (c *Rightsized) Minutes(n int) {
	c.T.Helper()
	for range n {
		c.Minute()
	}
}

func (c *Rightsized) VM(name string) (state.VM, state.Group) {
	c.T.Helper()
	vm, ok := c.Snapshot().VMNamed(name)
	if !ok {
		c.T.Fatalf("no VM %s", name)
	}
	x, _ := c.Snapshot().VC(vm.VC)
	g, _ := x.GroupOf(vm)
	return vm, g
}

func (c *Rightsized) Due(name string) int64 { vm, g := c.VM(name); return vm.Due(g) }

// Resources is so many cores and bytes.
func Resources(cpu float64, memory int64) state.Resources {
	return state.Resources{CPU: cpu, Memory: memory}
}
