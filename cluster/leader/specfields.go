package leader

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"evenkeel/cluster/state"
)

// A specField is one field of a spec, for comparing and merging. Two values are equal if their texts are; "" is a field that was left
// out.
type specField[T any] struct {
	name string
	text func(*T) string
	set  func(to, from *T)
}

// vcFields are the fields of a spec besides its groups.
var vcFields = []specField[state.VCSpec]{
	{"minYield", func(s *state.VCSpec) string {
		if s.MinYield < 0 {
			return ""
		}
		return exact(s.MinYield)
	}, func(to, from *state.VCSpec) { to.MinYield = from.MinYield }},
	{"onFull", func(s *state.VCSpec) string { return string(s.OnFull) }, func(to, from *state.VCSpec) { to.OnFull = from.OnFull }},
	{"onHostLoss", func(s *state.VCSpec) string { return s.OnHostLoss }, func(to, from *state.VCSpec) { to.OnHostLoss = from.OnHostLoss }},
	{"needs", func(s *state.VCSpec) string { return s.Needs }, func(to, from *state.VCSpec) { to.Needs = from.Needs }},
	{"aggressiveness", func(s *state.VCSpec) string { return s.Aggressiveness }, func(to, from *state.VCSpec) { to.Aggressiveness = from.Aggressiveness }},
	{"periodic.name", func(s *state.VCSpec) string { return s.Periodic.Name }, func(to, from *state.VCSpec) { to.Periodic.Name = from.Periodic.Name }},
	{"periodic.deadline", func(s *state.VCSpec) string { return secondsText(s.Periodic.Deadline) }, func(to, from *state.VCSpec) { to.Periodic.Deadline = from.Periodic.Deadline }},
	{"duration", func(s *state.VCSpec) string { return secondsText(s.Duration) }, func(to, from *state.VCSpec) { to.Duration = from.Duration }},
	{"priority", func(s *state.VCSpec) string { return strconv.Itoa(s.Priority) }, func(to, from *state.VCSpec) { to.Priority = from.Priority }},
}

// groupFields are the fields of a group in a spec.
var groupFields = []specField[state.Group]{
	{"count", func(g *state.Group) string { return strconv.Itoa(g.Count) }, func(to, from *state.Group) { to.Count = from.Count }},
	{"cpu", func(g *state.Group) string { return exact(g.CPU) }, func(to, from *state.Group) { to.CPU = from.CPU }},
	{"vcpus", func(g *state.Group) string { return unset(g.VCPUs) }, func(to, from *state.Group) { to.VCPUs = from.VCPUs }},
	{"memory", func(g *state.Group) string { return bytesText(g.Memory) }, func(to, from *state.Group) { to.Memory = from.Memory }},
	{"memoryMin", func(g *state.Group) string { return bytesText(g.MemoryMin) }, func(to, from *state.Group) { to.MemoryMin = from.MemoryMin }},
	{"role", func(g *state.Group) string { return g.Role }, func(to, from *state.Group) { to.Role = from.Role }},
	{"image", func(g *state.Group) string { return g.Image }, func(to, from *state.Group) { to.Image = from.Image }},
	{"boot", func(g *state.Group) string {
		return strings.TrimSpace(strings.Join([]string{g.Boot.Kernel, g.Boot.Initrd, g.Boot.Cmdline}, " "))
	}, func(to, from *state.Group) { to.Boot = from.Boot }},
	{"disk.size", func(g *state.Group) string { return bytesText(g.Disk.Size) }, func(to, from *state.Group) { to.Disk.Size = from.Disk.Size }},
	{"disk.pool", func(g *state.Group) string { return g.Disk.Pool }, func(to, from *state.Group) { to.Disk.Pool = from.Disk.Pool }},
	{"disk.ephemeral", func(g *state.Group) string { return onlyTrue(g.Disk.Ephemeral) }, func(to, from *state.Group) { to.Disk.Ephemeral = from.Disk.Ephemeral }},
	{"network", func(g *state.Group) string { return g.Network }, func(to, from *state.Group) { to.Network = from.Network }},
	{"cloudInit.userData", func(g *state.Group) string { return g.CloudInit.UserData }, func(to, from *state.Group) { to.CloudInit.UserData = from.CloudInit.UserData }},
	{"cloudInit.metaData", func(g *state.Group) string { return g.CloudInit.MetaData }, func(to, from *state.Group) { to.CloudInit.MetaData = from.CloudInit.MetaData }},
	{"cloudInit.networkConfig", func(g *state.Group) string { return g.CloudInit.NetworkConfig }, func(to, from *state.Group) { to.CloudInit.NetworkConfig = from.CloudInit.NetworkConfig }},
	{labelsField, func(g *state.Group) string { return labelsText(g.Labels) }, func(to, from *state.Group) { to.Labels = from.Labels }},
	{"affinity.spread", func(g *state.Group) string { return g.Affinity.Spread }, func(to, from *state.Group) { to.Affinity.Spread = from.Affinity.Spread }},
	{"affinity.require", func(g *state.Group) string { return termsText(g.Affinity.Require) }, func(to, from *state.Group) { to.Affinity.Require = from.Affinity.Require }},
	{"affinity.prefer", func(g *state.Group) string { return termsText(g.Affinity.Prefer) }, func(to, from *state.Group) { to.Affinity.Prefer = from.Affinity.Prefer }},
	{"affinity.avoid", func(g *state.Group) string { return termsText(g.Affinity.Avoid) }, func(to, from *state.Group) { to.Affinity.Avoid = from.Affinity.Avoid }},
}

// labelsField is the name of the labels of a group. A merge takes them one by one: see mergeLabels.
const labelsField = "labels"

// secret says whether the values of a field are not shown: they may hold passwords.
func secret(field string) bool { return strings.Contains(field, "cloudInit.") }

func exact(x float64) string { return strconv.FormatFloat(x, 'g', -1, 64) }

func secondsText(n int64) string {
	if n == 0 {
		return ""
	}
	return (time.Duration(n) * time.Second).String()
}

func unset(n int) string {
	if n == 0 {
		return ""
	}
	return strconv.Itoa(n)
}

func onlyTrue(on bool) string {
	if on {
		return "true"
	}
	return ""
}

func bytesText(n int64) string {
	switch {
	case n == 0:
		return ""
	case n%(1<<30) == 0:
		return fmt.Sprintf("%dGiB", n>>30)
	case n%(1<<20) == 0:
		return fmt.Sprintf("%dMiB", n>>20)
	}
	return strconv.FormatInt(n, 10)
}

func labelsText(labels map[string]string) string {
	var out []string
	for _, name := range slices.Sorted(maps.Keys(labels)) {
		out = append(out, name+"="+labels[name])
	}
	return strings.Join(out, " ")
}

// termsText is the same for the same terms in any order.
func termsText(terms []string) string {
	return strings.Join(slices.Sorted(slices.Values(terms)), " ")
}

// groupOf returns the group of that name, nil if there is none.
func groupOf(s *state.VCSpec, name string) *state.Group {
	for i := range s.Groups {
		if s.Groups[i].Name == name {
			return &s.Groups[i]
		}
	}
	return nil
}

// FieldChange is one field of a VC that differs from what is asked for.
type FieldChange struct {
	Field    string // as in "groups[worker].cpu"; "groups[worker]" is the group as a whole
	From, To string // "" = left out
	Effect   string // what putting it into force takes: see the constants
	VMs      []VMEffect
}

// VMEffect is what a change takes of one VM.
type VMEffect struct{ VM, Why string }

// What putting a change into force takes.
const (
	EffectNow     = "now"     // it holds at once, VMs run on
	EffectRestart = "restart" // running VMs must restart
	EffectStart   = "start"   // VMs take it when they start next
	EffectKept    = "kept"    // another changed it since the last file, and this file does not: it stays
)

// Differences between two specs, field by field.
func Differences(from, to state.VCSpec) []FieldChange { return differences(&from, &to) }

// differences between two specs, field by field.
func differences(from, to *state.VCSpec) []FieldChange {
	var out []FieldChange
	for _, f := range vcFields {
		if a, b := f.text(from), f.text(to); a != b {
			out = append(out, FieldChange{Field: f.name, From: a, To: b, Effect: EffectNow})
		}
	}
	for i := range from.Groups {
		old := &from.Groups[i]
		at := "groups[" + old.Name + "]"
		next := groupOf(to, old.Name)
		if next == nil {
			out = append(out, FieldChange{Field: at, From: groupText(old), Effect: EffectNow})
			continue
		}
		for _, f := range groupFields {
			if a, b := f.text(old), f.text(next); a != b {
				out = append(out, shown(FieldChange{Field: at + "." + f.name, From: a, To: b, Effect: EffectNow}))
			}
		}
	}
	for i := range to.Groups {
		if g := &to.Groups[i]; groupOf(from, g.Name) == nil {
			out = append(out, FieldChange{Field: "groups[" + g.Name + "]", To: groupText(g), Effect: EffectNow})
		}
	}
	return out
}

// shown is a change without what may hold passwords.
func shown(c FieldChange) FieldChange {
	if secret(c.Field) {
		for _, v := range []*string{&c.From, &c.To} {
			if *v != "" {
				*v = fmt.Sprintf("%d bytes", len(*v))
			}
		}
	}
	return c
}

func groupText(g *state.Group) string {
	return fmt.Sprintf("%s of %s cores and %s", state.VMs(g.Count), exact(g.CPU), bytesText(g.Memory))
}
