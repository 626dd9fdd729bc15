package leader

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"evenkeel/cluster/scheduler/placement"
	"evenkeel/cluster/state"
)

// Bounds of one VM. They keep nonsense out; state.Settings has what a site allows.
const (
	maxCPU    = 1024.0 // cores
	maxVCPUs  = 1024
	maxMemory = 1 << 46 // bytes, of its memory and of its disk: 64 TiB
	minCPU    = 0.001   // cores; a host's scheduler cannot give less
	// MaxLabels of one group: that of a VC file (labels of v1.GroupSpec), also for what a merge makes of two.
	MaxLabels = 64
)

// faults collects the faults of a request.
type faults []FieldError

func (f *faults) add(field string, value any, format string, args ...any) {
	*f = append(*f, FieldError{Field: field, Text: fmt.Sprintf(format, args...), Value: value})
}

func (f faults) err() error {
	if len(f) == 0 {
		return nil
	}
	return &Invalid{Fields: f}
}

func finite(x float64) bool { return !math.IsNaN(x) && !math.IsInf(x, 0) }

func total(vc state.VC) int {
	n := 0
	for _, g := range vc.Groups {
		n += g.Count
	}
	return n
}

// complete fills in the defaults of a VC, and checks it against what the cluster has and allows. What the fields of a VC file may be,
// and what they have to do with each other, is checked where the file is read.
func complete(s *state.Snapshot, set state.Settings, vc state.VC) (state.VC, error) {
	var f faults
	if vc.MinYield < 0 {
		vc.MinYield = set.MinYield
	}
	vc.OnFull = cmp.Or(vc.OnFull, set.OnFull)
	vc.OnHostLoss = cmp.Or(vc.OnHostLoss, state.KeepOnLoss)
	groups := append([]state.Group(nil), vc.Groups...)
	for i := range groups {
		at := fmt.Sprintf("groups[%d].", i)
		g := &groups[i]
		g.VCPUs, g.MemoryMin = vcpusOf(*g), memoryMinOf(*g)
		g.Role = cmp.Or(g.Role, "core")
		g.Disk.Pool = cmp.Or(g.Disk.Pool, set.Pool)
		checkSize(&f, at, set, *g)
		checkBoot(&f, at, s, vc.Name, g)
		checkOpen(&f, at, s, set, vc.Name, *g)
		if g.Disk.Size > maxMemory {
			f.add(at+"disk.size", g.Disk.Size, "must be at most %d TiB", maxMemory>>40)
		}
		// An overlay can be larger than its base; a smaller one would cut off the end of the guest's file system.
		if img, ok := s.Image(g.Image); ok && g.Disk.Size > 0 && g.Disk.Size < img.DiskSize {
			f.add(at+"disk.size", g.Disk.Size, "is less than the %d bytes of image %s", img.DiskSize, img.Name)
		}
		checkAffinity(&f, at+"affinity.", s, vc.Name, g.Affinity)
	}
	vc.Groups = groups
	checkRestart(&f, s, set, vc)
	if len(f) == 0 && total(vc) > set.MaxVMs {
		f.add("groups", total(vc), "have %d VMs together, more than the %d that a virtual cluster may have", total(vc), set.MaxVMs)
	}
	return vc, f.err()
}

// checkOpen checks that the tenant of a VC may name the network and the pool of a group. What is another tenant's, and what does not
// exist, are answered alike.
func checkOpen(f *faults, at string, s *state.Snapshot, set state.Settings, name string, g state.Group) {
	tenant, _ := state.SplitName(name)
	if g.Network != "" && !state.MayName(set.Networks, tenant, g.Network, state.DefaultNetwork) {
		f.add(at+"network", g.Network, "is not open to this tenant; an operator can open it (the setting networks)")
	}
	if (placement.HasDisk(s, g) || g.Disk.Ephemeral) && !state.MayName(set.Pools, tenant, g.Disk.Pool, set.Pool) {
		f.add(at+"disk.pool", g.Disk.Pool, "is not open to this tenant; an operator can open it (the setting pools)")
	}
}

// checkSize checks the size of a group: its count and needs.
func checkSize(f *faults, at string, set state.Settings, g state.Group) {
	if g.Count < 1 || g.Count > set.MaxVMs {
		f.add(at+"count", g.Count, "must be from 1 to %d", set.MaxVMs)
	}
	switch {
	case !finite(g.CPU) || g.CPU < minCPU || g.CPU > maxCPU:
		f.add(at+"cpu", number(g.CPU), "must be a number of cores from %g to %g", minCPU, maxCPU)
	case g.VCPUs < 1 || g.VCPUs > maxVCPUs:
		f.add(at+"vcpus", g.VCPUs, "must be from 1 to %d", maxVCPUs)
	case g.CPU > float64(g.VCPUs):
		f.add(at+"vcpus", g.VCPUs, "cannot use %g cores: give at least %d vCPUs", g.CPU, int(math.Ceil(g.CPU)))
	}
	switch {
	case g.Memory < set.MinMemory || g.Memory > maxMemory:
		f.add(at+"memory", g.Memory, "must be from %d MiB to %d TiB", set.MinMemory>>20, maxMemory>>40)
	case g.MemoryMin < set.MinMemory || g.MemoryMin > g.Memory:
		f.add(at+"memoryMin", g.MemoryMin, "must be from %d MiB to the memory of the group", set.MinMemory>>20)
	}
}

// number keeps NaN and infinities out of what is encoded as JSON.
func number(x float64) any {
	if finite(x) {
		return x
	}
	return fmt.Sprint(x)
}

// checkBoot checks the images: each must be in the catalogue, and of the right kind.
func checkBoot(f *faults, at string, s *state.Snapshot, vc string, g *state.Group) {
	tenant, _ := state.SplitName(vc)
	if g.Boot == (state.Boot{}) && g.Image == "" {
		meta, _ := s.Meta()
		if g.Image = meta.Settings.Image; g.Image == "" {
			f.add(at+"image", "", "is needed: the cluster has no default image (vcctl image list shows the catalogue)")
			return
		}
		if _, known := s.ImageFor(tenant, g.Image); !known {
			f.add(at+"image", g.Image, "image %q (the cluster's default) is not in the catalogue: name one that is with image: NAME (vcctl image list shows them), or add it with vcctl image add", clip(g.Image))
			return
		}
	}
	known := func(name string) (state.Image, bool) { return s.ImageFor(tenant, name) }
	checkImage(f, at+"image", g.Image, known, state.DiskImage, state.KernelImage)
	checkImage(f, at+"boot.kernel", g.Boot.Kernel, known, state.KernelImage)
	checkImage(f, at+"boot.initrd", g.Boot.Initrd, known, state.InitrdImage)
}

// checkImage checks one name by what the tenant may name. What is another tenant's, and what does not exist, are answered alike.
func checkImage(f *faults, field, name string, known func(string) (state.Image, bool), kinds ...state.ImageKind) {
	if name == "" {
		return
	}
	img, ok := known(name)
	if !ok {
		f.add(field, name, "no image of that name in the catalogue (vcctl image list shows them)")
		return
	}
	if !slices.Contains(kinds, img.Kind) {
		f.add(field, name, "is a %s image", img.Kind)
	}
}

// checkAffinity checks that what a rule names exists when the rule is written. If it is deleted later, the rule's name matches
// nothing from then on.
func checkAffinity(f *faults, at string, s *state.Snapshot, own string, a state.Affinity) {
	for _, list := range []struct {
		field string
		terms []string
	}{{"require", a.Require}, {"prefer", a.Prefer}, {"avoid", a.Avoid}} {
		for i, term := range list.terms {
			kind, name, _ := strings.Cut(term, ":")
			text := ""
			if _, known := s.Host(name); kind == "host" && !known {
				text = "there is no host " + clip(name) + " (vcctl host list shows them)"
			}
			if _, known := s.VCNamed(name); kind == "vc" && !known && name != own {
				text = "there is no virtual cluster " + clip(name) + " (vcctl vc list shows them)"
			}
			if text != "" {
				f.add(fmt.Sprintf("%s%s[%d]", at, list.field, i), clip(term), "%s", text)
			}
		}
	}
}

func clip(s string) string {
	if len(s) > 80 {
		return s[:80] + "..."
	}
	return s
}

// checkRestart checks disks: VMs that are started on another host need a disk that is there, too, or none that outlives them.
func checkRestart(f *faults, s *state.Snapshot, set state.Settings, vc state.VC) {
	if !vc.Restartable() {
		return
	}
	for i, g := range vc.Groups {
		img, _ := s.Image(g.Image)
		if (g.Disk.Size > 0 || img.Kind == state.DiskImage) && !g.Disk.Ephemeral && !slices.Contains(set.SharedPools, g.Disk.Pool) {
			f.add(fmt.Sprintf("groups[%d].disk", i), g.Disk.Pool, "is on one host, in pool %q: with onHostLoss: restart it must be ephemeral, or in a shared pool%s", g.Disk.Pool, sharedText(set, vc.Name))
		}
	}
}

// sharedText names the shared pools that the tenant of a VC may name.
func sharedText(set state.Settings, vc string) string {
	tenant, _ := state.SplitName(vc)
	open := slices.DeleteFunc(slices.Clone(set.SharedPools), func(pool string) bool { return !state.MayName(set.Pools, tenant, pool, set.Pool) })
	if len(open) == 0 {
		return " (the setting sharedPools names none that this tenant may name)"
	}
	return ": " + strings.Join(open, ", ")
}
