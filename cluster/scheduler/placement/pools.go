package placement

import (
	"fmt"
	"maps"
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

// refuseWithoutPool refuses VMs of a group whose pool no host has.
func (p *Problem) refuseWithoutPool(g state.Group, reasons []allocator.HostReason) allocator.Admission {
	all := map[string]bool{}
	for _, r := range reasons {
		maps.Copy(all, keysOf(p.pools[r.Host]))
	}
	return allocator.Admission{NeverFits: true, Reasons: reasons,
		Summary: fmt.Sprintf("no host has the storage pool %s of group %s; hosts have %s", g.Disk.Pool, g.Name, textOf(all)),
		Advice:  []string{fmt.Sprintf("start pool %s on a host (virsh pool-start %s; agents look once a minute), or name one that hosts have", g.Disk.Pool, g.Disk.Pool)}}
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
