package loop

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

// lacking says whether a host is known not to have the pool of a group's disks.
func (p Pools) lacking(s *state.Snapshot, host string, g state.Group) bool {
	has, known := p[host]
	if !known || g.Disk.Pool == "" || !hasDisk(s, g) {
		return false
	}
	_, there := has[g.Disk.Pool]
	return !there
}

// hasDisk says whether the VMs of a group have one.
func hasDisk(s *state.Snapshot, g state.Group) bool {
	img, _ := s.Image(g.Image)
	return g.Disk.Size > 0 || img.Kind == state.DiskImage
}

// heed takes hosts out of the candidates that lack the pool of a group some VMs of which are to be placed.
func (p *problem) heed(s *state.Snapshot, pools Pools) {
	if len(pools) == 0 {
		return
	}
	p.pools, p.lacking = pools, make([][]string, len(p.groups))
	for i, ref := range p.groups {
		for _, h := range p.hosts {
			placed := slices.ContainsFunc(ref.vms, func(vm state.VM) bool { return vm.Host == h.Name })
			if slices.Contains(p.Groups[i].Hosts, -1) && !placed && pools.lacking(s, h.Name, ref.group) {
				p.lacking[i] = append(p.lacking[i], h.Name)
			}
		}
	}
}

// lackingOf returns the hosts that lack the pool of a group.
func (p *problem) lackingOf(i int) []string {
	if i >= len(p.lacking) {
		return nil
	}
	return p.lacking[i]
}

// poolless refuses VMs whose pool no host has.
func (p *problem) poolless() (allocator.Admission, bool) {
	for i, ref := range p.groups {
		lacking := p.lackingOf(i)
		if len(lacking) == 0 || len(lacking) < len(p.hosts) {
			continue
		}
		all := map[string]bool{}
		out := allocator.Admission{NeverFits: true}
		for _, name := range lacking {
			maps.Copy(all, keysOf(p.pools[name]))
			out.Reasons = append(out.Reasons, allocator.HostReason{Host: name, Text: p.deficitText(name, ref.group.Disk.Pool)})
		}
		out.Summary = fmt.Sprintf("no host has the storage pool %s of group %s; hosts have %s", ref.group.Disk.Pool, ref.group.Name, textOf(all))
		out.Advice = []string{fmt.Sprintf("start pool %s on a host (virsh pool-start %s; agents look once a minute), or name one that hosts have", ref.group.Disk.Pool, ref.group.Disk.Pool)}
		return out, true
	}
	return allocator.Admission{}, false
}

// explainDeficit puts the missing pool in place of the rule that stands for it.
func (p *problem) explainDeficit(r *allocator.HostReason) {
	if !strings.Contains(r.Rule, "host:"+r.Host) {
		return
	}
	for i, ref := range p.groups {
		if slices.Contains(p.lackingOf(i), r.Host) {
			r.Rule, r.Text = "", p.deficitText(r.Host, ref.group.Disk.Pool)
			return
		}
	}
}

func (p *problem) deficitText(host, pool string) string {
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
	return strings.Join(sorted(set), ", ")
}
