package leader

import (
	"fmt"
	"math"
	"regexp"
	"slices"
	"strings"

	"evenkeel/cluster/state"
)

// Bounds of what a VC may ask for. They keep nonsense out; state.Settings has what a site allows.
const (
	maxCPU       = 1024.0  // cores of one VM's need
	maxVCPUs     = 1024    // of one VM
	maxMemory    = 1 << 46 // bytes of one VM: 64 TiB
	maxGroups    = 64
	maxPriority  = 1_000_000
	maxCloudInit = 64 << 10 // bytes of each document
	maxCmdline   = 2048
	maxLabels    = 64
	maxTerms     = 64    // of each list of an affinity
	minCPU       = 0.001 // cores; a host's scheduler cannot give less
)

var (
	dnsLabel  = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`)
	imageName = regexp.MustCompile(`^[a-zA-Z0-9][-._a-zA-Z0-9]{0,126}$`)
	netName   = regexp.MustCompile(`^(bridge:)?[a-zA-Z0-9][-._a-zA-Z0-9]{0,62}$`)
	labelKey  = regexp.MustCompile(`^[a-zA-Z0-9]([-._/a-zA-Z0-9]{0,61}[a-zA-Z0-9])?$`)
	labelVal  = regexp.MustCompile(`^([a-zA-Z0-9]([-._a-zA-Z0-9]{0,61}[a-zA-Z0-9])?)?$`)
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

// complete checks a VC as a user wrote it and fills in the defaults.
func complete(s *state.Snapshot, set state.Settings, vc state.VC) (state.VC, error) {
	var f faults
	if !dnsLabel.MatchString(vc.Name) {
		f.add("name", clip(vc.Name), "must be a DNS label: lower-case letters, digits and '-', 1 to 63 of them, no '-' at the ends")
	}
	switch {
	case !finite(vc.MinYield) || vc.MinYield > 1:
		f.add("minYield", vc.MinYield, "must be a number from 0 to 1")
	case vc.MinYield < 0:
		vc.MinYield = set.MinYield
	}
	oneOf(&f, "onFull", (*string)(&vc.OnFull), string(set.OnFull), string(state.Queue), string(state.Reject))
	oneOf(&f, "onHostLoss", &vc.OnHostLoss, state.KeepOnLoss, state.KeepOnLoss, state.RestartOnLoss)
	oneOf(&f, "needs", &vc.Needs, "", state.NeedsDeclared, state.NeedsEstimated)
	oneOf(&f, "aggressiveness", &vc.Aggressiveness, "", state.Conservative, state.Balanced, state.Aggressive)
	if vc.Priority < -maxPriority || vc.Priority > maxPriority {
		f.add("priority", vc.Priority, "must be from %d to %d", -maxPriority, maxPriority)
	}
	if len(vc.Groups) == 0 || len(vc.Groups) > maxGroups {
		f.add("groups", len(vc.Groups), "must be 1 to %d groups", maxGroups)
	}
	groups := append([]state.Group(nil), vc.Groups...)
	seen := map[string]bool{}
	for i := range groups {
		at := fmt.Sprintf("groups[%d].", i)
		g := &groups[i]
		if !dnsLabel.MatchString(g.Name) {
			f.add(at+"name", clip(g.Name), "must be a DNS label: lower-case letters, digits and '-', 1 to 63 of them")
		} else if seen[g.Name] {
			f.add(at+"name", g.Name, "is the name of an earlier group too")
		}
		seen[g.Name] = true
		if g.VCPUs == 0 && finite(g.CPU) && g.CPU > 0 && g.CPU <= maxCPU {
			g.VCPUs = int(math.Ceil(g.CPU))
		}
		if g.MemoryMin == 0 {
			g.MemoryMin = g.Memory
		}
		oneOf(&f, at+"role", &g.Role, "core", "core", "elastic")
		checkSize(&f, at, set, *g)
		checkBoot(&f, at, s, set, g)
		checkRest(&f, at, s, set, g)
		checkAffinity(&f, at+"affinity.", s, vc.Name, g.Affinity)
	}
	vc.Groups = groups
	checkRestart(&f, s, set, vc)
	if len(f) == 0 && total(vc) > set.MaxVMs {
		f.add("groups", total(vc), "have %d VMs together, more than the %d that a virtual cluster may have", total(vc), set.MaxVMs)
	}
	return vc, f.err()
}

func oneOf(f *faults, field string, value *string, standard string, allowed ...string) {
	if *value == "" {
		*value = standard
		return
	}
	for _, a := range allowed {
		if *value == a {
			return
		}
	}
	f.add(field, clip(*value), "must be %s", strings.Join(allowed, " or "))
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

// checkBoot checks the images: each must be in the catalogue, of the right kind, and by name.
func checkBoot(f *faults, at string, s *state.Snapshot, set state.Settings, g *state.Group) {
	has := g.Boot.Kernel != "" || g.Boot.Initrd != "" || g.Boot.Cmdline != ""
	switch {
	case has && g.Image != "":
		f.add(at+"image", g.Image, "give either image or boot, not both")
		return
	case has && g.Boot.Kernel == "":
		f.add(at+"boot.kernel", "", "boot needs a kernel")
		return
	case !has && g.Image == "" && set.Image == "":
		f.add(at+"image", "", "is needed: the cluster has no default image (vcctl image list shows the catalogue)")
		return
	case !has && g.Image == "":
		g.Image = set.Image
	}
	checkImage(f, at+"image", s, g.Image, state.DiskImage, state.KernelImage)
	checkImage(f, at+"boot.kernel", s, g.Boot.Kernel, state.KernelImage)
	checkImage(f, at+"boot.initrd", s, g.Boot.Initrd, state.InitrdImage)
	checkCmdline(f, at+"boot.cmdline", g.Boot.Cmdline)
}

func checkCmdline(f *faults, field, cmdline string) {
	if len(cmdline) > maxCmdline || strings.ContainsFunc(cmdline, func(r rune) bool { return r < ' ' || r == 0x7f }) {
		f.add(field, clip(cmdline), "must be one line of at most %d characters", maxCmdline)
	}
}

func checkImage(f *faults, field string, s *state.Snapshot, name string, kinds ...state.ImageKind) {
	if name == "" {
		return
	}
	if !imageName.MatchString(name) {
		f.add(field, clip(name), "must be the name of an image in the catalogue, never a path (vcctl image list shows them)")
		return
	}
	img, ok := s.Image(name)
	if !ok {
		f.add(field, name, "no image of that name in the catalogue (vcctl image list shows them)")
		return
	}
	for _, k := range kinds {
		if img.Kind == k {
			return
		}
	}
	f.add(field, name, "is a %s image", img.Kind)
}

func checkRest(f *faults, at string, s *state.Snapshot, set state.Settings, g *state.Group) {
	if g.Disk.Size < 0 || g.Disk.Size > maxMemory {
		f.add(at+"disk.size", g.Disk.Size, "must be from 0 to %d TiB", maxMemory>>40)
	}
	// An overlay can be larger than its base; a smaller one would cut off the end of the guest's file system.
	if img, ok := s.Image(g.Image); ok && g.Disk.Size > 0 && g.Disk.Size < img.DiskSize {
		f.add(at+"disk.size", g.Disk.Size, "is less than the %d bytes of image %s", img.DiskSize, img.Name)
	}
	if g.Disk.Pool == "" {
		g.Disk.Pool = set.Pool
	} else if !imageName.MatchString(g.Disk.Pool) {
		f.add(at+"disk.pool", clip(g.Disk.Pool), "must be the name of a storage pool, never a path")
	}
	if g.Network != "" && !netName.MatchString(g.Network) {
		f.add(at+"network", clip(g.Network), "must be the name of a libvirt network, or bridge:NAME")
	}
	for _, d := range []struct{ field, text string }{{"userData", g.CloudInit.UserData}, {"metaData", g.CloudInit.MetaData}, {"networkConfig", g.CloudInit.NetworkConfig}} {
		if len(d.text) > maxCloudInit {
			f.add(at+"cloudInit."+d.field, nil, "is %d bytes, more than %d", len(d.text), maxCloudInit)
		}
	}
	if len(g.Labels) > maxLabels {
		f.add(at+"labels", len(g.Labels), "are more than %d", maxLabels)
	}
	for k, v := range g.Labels {
		if !labelKey.MatchString(k) || !labelVal.MatchString(v) {
			f.add(at+"labels", clip(k), "must be letters, digits and - . _ (and / in names), at most 63")
			return
		}
	}
}

// checkAffinity checks that what a rule names exists when the rule is written. If it is deleted later, the rule's name matches
// nothing from then on.
func checkAffinity(f *faults, at string, s *state.Snapshot, own string, a state.Affinity) {
	if a.Spread != "" && a.Spread != "host" {
		f.add(at+"spread", clip(a.Spread), "must be host, or left out")
	}
	required := map[string]bool{}
	for _, list := range []struct {
		field string
		terms []string
	}{{"require", a.Require}, {"prefer", a.Prefer}, {"avoid", a.Avoid}} {
		if len(list.terms) > maxTerms {
			f.add(at+list.field, len(list.terms), "are more than %d", maxTerms)
			continue
		}
		for i, term := range list.terms {
			field := fmt.Sprintf("%s%s[%d]", at, list.field, i)
			if text := termFault(s, own, term); text != "" {
				f.add(field, clip(term), "%s", text)
			}
			switch list.field {
			case "require":
				required[term] = true
			case "avoid":
				if required[term] {
					f.add(field, clip(term), "is required as well: no host could satisfy both")
				}
			}
		}
	}
}

func termFault(s *state.Snapshot, own, term string) string {
	if name, ok := strings.CutPrefix(term, "host:"); ok {
		if _, known := s.Host(name); !known {
			return "there is no host " + clip(name) + " (vcctl host list shows them)"
		}
		return ""
	}
	if name, ok := strings.CutPrefix(term, "vc:"); ok {
		if _, known := s.VCNamed(name); !known && name != own {
			return "there is no virtual cluster " + clip(name) + " (vcctl vc list shows them)"
		}
		return ""
	}
	if key, value, ok := strings.Cut(term, "="); !ok || !labelKey.MatchString(key) || !labelVal.MatchString(value) {
		return "must be label=value, host:NAME or vc:NAME"
	}
	return ""
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
			f.add(fmt.Sprintf("groups[%d].disk", i), g.Disk.Pool, "is on one host, in pool %q: with onHostLoss: restart it must be ephemeral, or in a shared pool%s", g.Disk.Pool, sharedText(set))
		}
	}
}

func sharedText(set state.Settings) string {
	if len(set.SharedPools) == 0 {
		return " (sharedPools in the servers' configuration names none)"
	}
	return ": " + strings.Join(set.SharedPools, ", ")
}
