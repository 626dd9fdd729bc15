package admission

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"evenkeel/cluster/scheduler/placement"
	"evenkeel/cluster/state"
	"evenkeel/forecast"
)

// MarginFor says how the factor P follows the quality of service for estimates of that aggressiveness (Flex, Algorithm 3).
// Balanced has the values with which Flex was evaluated, but with a minimum from which P can rise again.
func MarginFor(aggressiveness string) forecast.MarginSettings {
	s := forecast.QualityPenalty
	switch aggressiveness {
	case state.Conservative:
		s.Start, s.Min = 2, 1.2
	case state.Aggressive:
		s.Start = 1.1
	}
	return s
}

// headroom is what a host has for VMs that are placed now: CPU at the minimum yields of all, and memory with what a VM costs
// its host beyond its own.
type headroom struct {
	cpu, memory float64
	// unmargined: by the estimates alone. margined: with the margin, before the host's report bounds it.
	unmarginedCPU, unmarginedMemory float64
	marginedCPU, marginedMemory     float64
	// What its VMs with estimated needs need, and what that counts as: cores, bytes.
	needs, counts  state.Resources
	availability   placement.HostAvailability
	ignored        string // why the reported availability does not count; "" = it counts
	byAvailability bool   // the reported availability is what leaves so little
}

// applyMargin computes the headroom for new VMs where the margin is added to estimates. The problem has all VMs that run, and
// is finished. Where needs are not estimated applyMargin changes nothing.
//
// In memory the headroom is what the host has less P times the expected needs of its VMs (Flex, Algorithm 3: P L + r <= C), and
// at most what is left beside the reserve. In CPU, of which all VMs may get less than they need, each VC must be sure of its
// minimum yield even if needs were P times as large. No VM counts as more than it declared: it can use no more. The headroom is
// never more than the host's reported availability.
func (p *problem) applyMargin(s *state.Snapshot, skip string, env placement.Env, vc *state.VC) {
	d := env.Margin.RulesFor(s, vc)
	if d == nil {
		return
	}
	set := d.Settings
	p.headroom, p.margin, p.aggressiveness = make([]headroom, len(p.Hosts)), d.Margin, map[string]bool{}
	more := make([]state.Resources, len(p.Hosts)) // that needs count as beyond what they are, CPU at the least yields
	owed := make([]float64, len(p.Hosts))         // CPU at the least yields
	missed := make([]state.Resources, len(p.Hosts))
	known := make([]float64, len(p.Hosts)) // of owed: to VMs that the reported availability includes
	memory := func(vc *state.VC, g state.Group, vm state.VM, at int) {
		charged := vm.CountedMemory(g)
		if w := p.headroom[at].availability; w.VMs[vm.ID] != vm.Generation {
			missed[at].Memory += charged + p.Rows[at].VMOverhead
		}
		if vm.Target <= 0 || !set.Estimates(vc) {
			return
		}
		r := &p.headroom[at]
		counts := max(charged, d.Memory(vc, g, vm))
		r.needs.Memory += vm.Due(g)
		r.counts.Memory += counts
		more[at].Memory += counts - charged
	}
	for j, h := range p.Rows {
		r := &p.headroom[j]
		r.unmarginedCPU, r.unmarginedMemory = p.Hosts[j].CPU, p.Hosts[j].Memory
		if r.ignored = env.Ignored(s, h.Name); r.ignored == "" {
			r.availability = env.Availability[h.Name]
		}
		for _, vm := range s.VMsMovingTo(h.Name) {
			if vm.VC == skip {
				continue // among the groups
			}
			vc, _ := s.VC(vm.VC)
			g, _ := vc.GroupOf(vm)
			memory(&vc, g, vm, j)
		}
	}
	for i := range p.Refs {
		ref, q := &p.Refs[i], &p.Groups[i]
		need, counts := q.CPU, q.CPU
		if set.Estimates(&ref.VC) {
			p.aggressiveness[set.AggressivenessOf(&ref.VC)] = true
			if !ref.Frozen {
				counts = d.CPU(&ref.VC, ref.Group)
			}
		}
		for k, at := range q.Hosts {
			if at < 0 || !ref.VMs[k].ConsumesResources() {
				continue
			}
			r := &p.headroom[at]
			r.unmarginedMemory -= q.Memory
			owed[at] += q.MinYield * need
			if r.availability.VMs[ref.VMs[k].ID] == ref.VMs[k].Generation {
				known[at] += q.MinYield * need
			}
			if ref.Group.Estimated > 0 && set.Estimates(&ref.VC) {
				r.needs.CPU += need
				r.counts.CPU += counts
			}
			more[at].CPU += q.MinYield * (counts - need)
			memory(&ref.VC, ref.Group, ref.VMs[k], at)
		}
	}
	for j := range p.headroom {
		r := &p.headroom[j]
		r.unmarginedCPU -= owed[j]
		r.cpu = r.unmarginedCPU - more[j].CPU
		r.memory = r.unmarginedMemory - float64(max(0, more[j].Memory-p.Reserve(j))) // what is reserved is for the same
		r.marginedCPU, r.marginedMemory = r.cpu, r.memory
		if r.ignored != "" {
			continue
		}
		// A VM may use more CPU than it is sure of. New VMs may take that, as everywhere.
		cpu := r.availability.Available.CPU + max(0, r.availability.Used.CPU-known[j]) - (owed[j] - known[j])
		memory := float64(r.availability.Available.Memory - missed[j].Memory)
		r.byAvailability = cpu < r.cpu || memory < r.memory
		r.cpu, r.memory = min(r.cpu, cpu), min(r.memory, memory)
	}
}

// exceeds returns the first host on which the VMs that are placed there exceed the headroom for new ones; -1: none.
func (p *problem) exceeds(hosts [][]int) int {
	cpu, memory := make([]float64, len(p.Hosts)), make([]float64, len(p.Hosts))
	for i := range p.Refs {
		for k, at := range hosts[i] {
			if at >= 0 && !p.Refs[i].VMs[k].ConsumesResources() {
				cpu[at] += p.Groups[i].MinYield * p.Groups[i].CPU
				memory[at] += p.Groups[i].Memory
			}
		}
	}
	for j, r := range p.headroom {
		if cpu[j] > 0 && cpu[j] > r.cpu+placement.TooMuch*p.Hosts[j].CPU || memory[j] > 0 && memory[j] > r.memory {
			return j
		}
	}
	return -1
}

// restricted returns the problem with hosts that have no more than what runs there and the headroom for new VMs. VMs that run
// keep what they are sure of; what they have beyond it does not count.
func (p *problem) restricted() *problem {
	t := *p
	t.Hosts, t.Unavailable = slices.Clone(p.Hosts), map[string]string{}
	for name, why := range p.Unavailable {
		t.Unavailable[name] = why
	}
	for j := range t.Hosts {
		h, r := &t.Hosts[j], &p.headroom[j]
		if deficit := p.explainHeadroom(j); deficit != "" && (r.cpu <= placement.TooMuch*h.CPU || r.memory <= 0) && !h.Cordoned {
			h.Cordoned, h.Unavailable, t.Unavailable[h.Name] = true, true, "has no room for new VMs: "+deficit
			continue
		}
		h.CPU = max(0, h.CPU-max(0, r.unmarginedCPU-r.cpu))
		h.Memory = max(0, h.Memory-max(0, r.unmarginedMemory-r.memory))
	}
	return &t
}

// explainHeadroom says what of a host new VMs do not get; "" = nothing.
func (p *problem) explainHeadroom(j int) string {
	r := &p.headroom[j]
	var explained []string
	if n, c := r.needs, r.counts; c.CPU > n.CPU*(1+placement.LittleMore) || c.Memory > n.Memory {
		explained = append(explained, fmt.Sprintf("its VMs are estimated to need %.2f cores and %d MiB, which count as %.2f and %d", n.CPU, n.Memory>>20, c.CPU, c.Memory>>20))
	}
	if r.byAvailability {
		explained = append(explained, fmt.Sprintf("the host itself holds %.2f cores and %d MiB to be available", r.availability.Available.CPU, r.availability.Available.Memory>>20))
	}
	return strings.Join(explained, "; ")
}

// factors names the factors by which needs are multiplied; "" = none is above 1.
func (p *problem) factors() string {
	var out []string
	for _, text := range []string{state.Conservative, state.Balanced, state.Aggressive} {
		if f := p.margin.Of(text); p.aggressiveness[text] && f > 1 {
			out = append(out, fmt.Sprintf("%.2f times (%s)", f, text))
		}
	}
	if len(out) == 0 {
		return ""
	}
	return "what running VMs are estimated to need counts " + strings.Join(out, ", ")
}

// explainRefusal says why a VC that would fit by the estimates is refused.
func (p *problem) explainRefusal() string {
	text := "by the estimates alone it would fit"
	if factors := p.factors(); factors != "" {
		text += "; " + factors + " where new ones are placed"
		if q := p.margin.Quality; q > 0 {
			text += fmt.Sprintf(", and in %.1f%% of the looks at them they had what they could use", 100*q)
		}
	}
	byAvailability, ignored, first := 0, 0, ""
	for j := range p.headroom {
		switch r := &p.headroom[j]; {
		case r.byAvailability:
			byAvailability++
		case r.ignored != "":
			if ignored++; first == "" {
				first = fmt.Sprintf("%s is passed over: %s", p.Rows[j].Name, r.ignored)
			}
		}
	}
	if byAvailability > 0 {
		text += fmt.Sprintf("; %d of %d hosts say themselves that less is available", byAvailability, len(p.headroom))
	}
	if ignored > 0 {
		text += "; the word on that of host " + first
		if ignored > 1 {
			text += fmt.Sprintf(", and of %d others", ignored-1)
		}
	}
	return text
}

// advice says what would make room.
func (p *problem) advice() []string {
	best := math.Inf(1)
	for text := range p.aggressiveness {
		best = min(best, p.margin.Of(text)-MarginFor(text).Min)
	}
	var out []string
	if s := forecast.QualityPenalty; best > 1e-9 && !math.IsInf(best, 1) {
		out = append(out, fmt.Sprintf("wait: the factor falls by %.0f%% with every look at which more than %.0f%% of the VMs have what they can use (see vcctl rightsizing status)", 100*(1-s.Decay), 100*s.Target))
	}
	for _, text := range []string{state.Conservative, state.Balanced} {
		if p.aggressiveness[text] {
			return append(out, "let estimates be bolder than "+text+": aggressiveness in the files of virtual clusters, or rightsizing.aggressiveness of the cluster's settings")
		}
	}
	return out
}

// Headroom is what one host has for new VMs, and why it has no more.
type Headroom struct {
	Host string
	// Free by the estimates alone, with the margin, and within the host's own report besides: cores at the minimum yields of all VCs, bytes.
	FreeByEstimates, FreeByMargin, Free state.Resources
	// Needs of its VMs whose needs are estimated, and what they count as.
	Needs, Counts state.Resources
	Ignored       string // why the host's own report does not count; "" = it counts, where needs are estimated
}

// HeadroomForNew returns the headroom of all hosts, as a VC with estimated needs would find it now. In shadow mode estimates
// are not in force, and do not count.
func HeadroomForNew(s *state.Snapshot, env placement.Env) []Headroom {
	p := newProblem(s, "")
	p.CloseHosts(env.Unavailable)
	p.SubtractReserves()
	p.applyMargin(s, "", env, nil)
	out := make([]Headroom, len(p.Rows))
	floor := func(cpu, memory float64) state.Resources {
		return state.Resources{CPU: max(0, cpu), Memory: int64(max(0, memory))}
	}
	for j, h := range p.Rows {
		out[j] = Headroom{Host: h.Name, Ignored: env.Ignored(s, h.Name)}
		if p.headroom != nil {
			r := &p.headroom[j]
			out[j].FreeByEstimates, out[j].FreeByMargin, out[j].Free = floor(r.unmarginedCPU, r.unmarginedMemory), floor(r.marginedCPU, r.marginedMemory), floor(r.cpu, r.memory)
			out[j].Needs, out[j].Counts = r.needs, r.counts
			continue
		}
		cpu, memory := p.Hosts[j].CPU, p.Hosts[j].Memory
		for i := range p.Groups {
			for _, at := range p.Groups[i].Hosts {
				if at == j {
					cpu, memory = cpu-p.Groups[i].MinYield*p.Groups[i].CPU, memory-p.Groups[i].Memory
				}
			}
		}
		out[j].FreeByEstimates = floor(cpu, memory)
		out[j].FreeByMargin, out[j].Free = out[j].FreeByEstimates, out[j].FreeByEstimates
	}
	return out
}
