package placement

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"evenkeel/allocator"
	"evenkeel/cluster/state"
)

// Pools are the storage pools that hosts have started, by host and pool. A host that is not in it has not reported its
// pools yet: it may have any.
type Pools map[string]map[string]string

// Lacking says whether a host is known not to have the pool of a group's disks.
func (p Pools) Lacking(s *state.Snapshot, host string, g state.Group) bool {
	has, known := p[host]
	if !known || g.Disk.Pool == "" || !HasDisk(s, g) {
		return false
	}
	_, there := has[g.Disk.Pool]
	return !there
}

// HasDisk says whether the VMs of a group have one.
func HasDisk(s *state.Snapshot, g state.Group) bool {
	img, _ := s.Image(g.Image)
	return g.Disk.Size > 0 || img.Kind == state.DiskImage
}

// ApplyPools takes hosts out of the candidates that lack the pool of a group some VMs of which are to be placed.
func (p *Problem) ApplyPools(s *state.Snapshot, pools Pools) {
	if len(pools) == 0 {
		return
	}
	p.pools, p.lacking = pools, make([][]string, len(p.Refs))
	for i, ref := range p.Refs {
		for _, h := range p.Rows {
			placed := slices.ContainsFunc(ref.VMs, func(vm state.VM) bool { return vm.Host == h.Name })
			if slices.Contains(p.Groups[i].Hosts, -1) && !placed && pools.Lacking(s, h.Name, ref.Group) {
				p.lacking[i] = append(p.lacking[i], h.Name)
			}
		}
	}
}

// lackingOf returns the hosts that lack the pool of a group.
func (p *Problem) lackingOf(i int) []string {
	if i >= len(p.lacking) {
		return nil
	}
	return p.lacking[i]
}

// RefuseWithoutPool refuses VMs whose pool no host has.
func (p *Problem) RefuseWithoutPool() (allocator.Admission, bool) {
	for i, ref := range p.Refs {
		lacking := p.lackingOf(i)
		if len(lacking) == 0 || len(lacking) < len(p.Rows) {
			continue
		}
		all := map[string]bool{}
		out := allocator.Admission{NeverFits: true}
		for _, name := range lacking {
			maps.Copy(all, keysOf(p.pools[name]))
			out.Reasons = append(out.Reasons, allocator.HostReason{Host: name, Text: p.deficitText(name, ref.Group.Disk.Pool)})
		}
		out.Summary = fmt.Sprintf("no host has the storage pool %s of group %s; hosts have %s", ref.Group.Disk.Pool, ref.Group.Name, textOf(all))
		out.Advice = []string{fmt.Sprintf("start pool %s on a host (virsh pool-start %s; agents look once a minute), or name one that hosts have", ref.Group.Disk.Pool, ref.Group.Disk.Pool)}
		return out, true
	}
	return allocator.Admission{}, false
}

// ExplainMissingPool puts the missing pool in place of the rule that stands for it.
func (p *Problem) ExplainMissingPool(r *allocator.HostReason) {
	if r.Rule.Kind != allocator.ByAvoidHost {
		return
	}
	for i, ref := range p.Refs {
		if slices.Contains(p.lackingOf(i), r.Host) {
			r.Rule, r.Text = allocator.Refusal{}, p.deficitText(r.Host, ref.Group.Disk.Pool)
			return
		}
	}
}

func (p *Problem) deficitText(host, pool string) string {
	return fmt.Sprintf("has no storage pool %s; it has %s", pool, textOf(keysOf(p.pools[host])))
}

func keysOf(m map[string]string) map[string]bool {
	out := map[string]bool{}
	for k := range m {
		out[k] = true
	}
	return out
}

func textOf(set map[string]bool) string {
	if len(set) == 0 {
		return "none"
	}
	return strings.Join(SortedNames(set), ", ")
}
