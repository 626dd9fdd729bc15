package leader

import (
	"context"
	"math"

	"evenkeel/cluster/audit"
	"evenkeel/cluster/scheduler/admission"
	"evenkeel/cluster/state"
)

// recordVersion lets the plan of an answer record what users ask of the VC from now on.
func recordVersion(ctx context.Context, s *state.Snapshot, a *admission.Answer, v state.VersionPut) {
	if a.Plan == nil || !s.KeepsVersions() {
		return
	}
	by := authorOf(ctx)
	v.By, v.ByTenant = by.By, by.Tenant
	a.Plan.Version = &v
}

// authorOf a request is its user.
func authorOf(ctx context.Context) (a state.Author) {
	if by := audit.Of(ctx); by.ID != "" {
		a = state.Author{By: by.String(), Tenant: by.Tenant}
	}
	return a
}

// onSpec makes the change in a spec as a user wrote it. scaled is what it makes of the VC's row.
func (by Scale) onSpec(s *state.Snapshot, vc, scaled state.VC) state.VCSpec {
	spec, _ := s.Written(vc, "", state.Author{})
	spec = spec.Clone()
	for i := range spec.Groups {
		g := &spec.Groups[i]
		row := scaled.SharedGroup(g.Name)
		if row == nil || by.Group != "" && by.Group != g.Name {
			continue
		}
		if by.Count != nil {
			g.Count = *by.Count
		}
		if by.CPU != nil {
			g.CPU = *by.CPU
		}
		if by.Memory != nil {
			g.Memory = *by.Memory
		}
		if vcpus := vcpusOf(*g); vcpus != row.VCPUs {
			g.VCPUs = row.VCPUs
		}
		if memoryMinOf(*g) != row.MemoryMin {
			g.MemoryMin = row.MemoryMin
		}
	}
	return spec
}

// vcpusOf a group as it was written: the default is its need rounded up.
func vcpusOf(g state.Group) int {
	if g.VCPUs == 0 && finite(g.CPU) && g.CPU > 0 && g.CPU <= maxCPU {
		return int(math.Ceil(g.CPU))
	}
	return g.VCPUs
}

// memoryMinOf a group as it was written: the default is its memory.
func memoryMinOf(g state.Group) int64 {
	if g.MemoryMin == 0 {
		return g.Memory
	}
	return g.MemoryMin
}
