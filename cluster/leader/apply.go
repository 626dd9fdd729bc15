package leader

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"evenkeel/cluster/scheduler/admission"
	"evenkeel/cluster/scheduler/placement"
	"evenkeel/cluster/state"
)

// Apply is a request to make a VC what a file says.
type Apply struct {
	Verb    string // apply (default), edit, rollback
	Restart bool   // running VMs that must restart for it may
	Force   bool   // overwrite what others changed since the last file
	// Base is the id of the version that the file was made of. It is compared with that version, or with a newer file of its author. "": it is not known.
	Base   string `json:",omitempty"`
	author state.Author
	// OfTenant: the caller is of the VC's tenant. The caller neither sees nor writes rules that name hosts: groups keep those that they
	// have. A priority may be at most that which the tenant may give, or that which the VC has.
	OfTenant bool
	// KeepCloudInit: the caller does not see cloud-init data; a group without it in the file keeps what it has.
	KeepCloudInit bool
	// Create: a VC that is not there is created.
	Create bool
}

// Apply creates a VC, or changes the one that there is: all or nothing, as one decision. spec is as the user wrote it. VMs that the
// change does not concern run on.
func (c *Service) Apply(ctx context.Context, spec state.VC, how Apply, call Call) (Result, error) {
	body := struct {
		Spec state.VC
		How  Apply
	}{spec, how}
	return c.apply(ctx, spec.Name, body, how, call, asked{
		spec: func(*state.Snapshot, state.VC) (state.VCSpec, error) { return state.SpecOf(spec), nil },
		create: func(s *state.Snapshot, global bool) (admission.Answer, bool, error) {
			return c.create(ctx, how.Verb, spec, call, s, global)
		},
	})
}

// Rollback makes a VC what one of its versions says; number 0 is the one before the newest when it is decided.
func (c *Service) Rollback(ctx context.Context, name string, number int, how Apply, call Call) (Result, error) {
	how.Verb, how.Force, how.Create = "rollback", true, false
	body := struct {
		Version int
		How     Apply
	}{number, how}
	return c.apply(ctx, name, body, how, call, asked{spec: func(s *state.Snapshot, vc state.VC) (state.VCSpec, error) { return versionOf(s, vc, number) }})
}

// asked is what a request asks of a VC, by the state that it is decided on.
type asked struct {
	spec   func(s *state.Snapshot, vc state.VC) (state.VCSpec, error)
	create decider // of a VC that is not there; nil: it must be
}

// apply makes the VC of that name what is asked. body identifies the request.
func (c *Service) apply(ctx context.Context, name string, body any, how Apply, call Call, q asked) (Result, error) {
	var fields []FieldChange
	how.author = authorOf(ctx)
	r, err := c.change(ctx, how.Verb, name, body, call, func(s *state.Snapshot, global bool) (admission.Answer, bool, error) {
		fields = nil
		if _, there := s.VCNamed(name); !there && how.Create {
			return q.create(s, global)
		}
		vc, err := existing(s, name, call)
		if err != nil {
			return admission.Answer{}, true, err
		}
		spec, err := q.spec(s, vc)
		if err != nil {
			return admission.Answer{}, true, err
		}
		ch, err := changeOf(s, vc, spec, how)
		if err != nil {
			return admission.Answer{}, true, err
		}
		fields = ch.fields
		if !ch.differs {
			return admission.Answer{Unchanged: &vc}, true, nil
		}
		if err := s.CheckGrowth(how.Verb, &ch.next); err != nil {
			return admission.Answer{}, true, err
		}
		if !global {
			return admission.Answer{}, false, nil
		}
		a := admission.Change(s, ch.next, how.Verb, ch.restart, c.current.Load().ask())
		recordVersion(ctx, s, &a, ch.version(how.Verb))
		return a, false, nil
	})
	r.Fields = fields
	return r, err
}

// versionOf a VC is the spec of its version of that number; 0 is the one before the newest.
func versionOf(s *state.Snapshot, vc state.VC, number int) (state.VCSpec, error) {
	versions := s.VersionsOf(vc.ID)
	if number == 0 && len(versions) > 1 {
		number = versions[len(versions)-2].Number
	}
	at := slices.IndexFunc(versions, func(v state.VCVersion) bool { return v.Number == number })
	if at < 0 {
		text := "has no version before the newest"
		if number != 0 {
			text = fmt.Sprintf("has no version %d (any more); vcctl vc history %s shows them", number, vc.Name)
		}
		return state.VCSpec{}, &Invalid{Fields: []FieldError{{Field: "version", Text: "virtual cluster " + vc.Name + " " + text, Value: number}}}
	}
	return versions[at].Spec, nil
}

// change of a VC to another spec.
type change struct {
	next    state.VC        // the row
	spec    state.VCSpec    // as it is written from now on
	file    state.VCSpec    // as the request has it
	fields  []FieldChange   // what differs, and what of others was kept
	restart map[string]bool // running VMs that must restart, by id
	differs bool
}

// version returns the version to record. If changes of others were merged into the file, File has the file as it came: the next file is
// compared with that.
func (ch *change) version(verb string) state.VersionPut {
	put := state.VersionPut{Verb: verb, Applied: verb == "apply", Spec: ch.spec}
	if put.Applied && len(differences(&ch.file, &ch.spec)) > 0 {
		put.File = &ch.file
	}
	return put
}

// changeOf returns what changes if a VC becomes what a spec says, and refuses what cannot be.
func changeOf(s *state.Snapshot, vc state.VC, mine state.VCSpec, how Apply) (*change, error) {
	if vc.Goal == state.GoalDelete {
		return nil, &Busy{"virtual cluster " + vc.Name + " is being deleted"}
	}
	now, base := s.Written(vc, how.Base, how.author)
	if how.Verb != "apply" {
		base = nil
	}
	if how.KeepCloudInit {
		mine = mine.Clone()
		for i := range mine.Groups {
			if old := groupOf(&now, mine.Groups[i].Name); old != nil && mine.Groups[i].CloudInit == (state.CloudInit{}) {
				mine.Groups[i].CloudInit = old.CloudInit
			}
		}
	}
	merging := merge
	if how.OfTenant {
		merging = mergeOfTenant
	}
	merged, kept, err := merging(base, now, mine, how.Force)
	if err != nil {
		return nil, err
	}
	if how.OfTenant {
		if err := priorityAllowed(s, vc, merged.Priority); err != nil {
			return nil, err
		}
		mine = withHostTerms(mine, now)
	}
	ch := &change{spec: merged, file: mine, fields: differences(&now, &merged), restart: map[string]bool{}}
	if ch.differs = len(ch.fields) > 0; !ch.differs {
		ch.fields = kept
		return ch, nil
	}
	if err := busy(s, vc); err != nil {
		return nil, err
	}
	meta, _ := s.Meta()
	next := keepDefaults(vc, now, merged)
	if how.OfTenant { // rules that name hosts were checked when they were written; what they name may be gone
		next = withHostTerms(next, state.VCSpec{})
	}
	full, err := complete(s, meta.Settings, next.On(vc))
	if err != nil {
		return nil, err
	}
	if how.OfTenant {
		full.Groups = withHostTerms(state.VCSpec{Groups: full.Groups}, now).Groups
	}
	if ch.next, err = withRemoved(s, vc, full); err != nil {
		return nil, err
	}
	if err := vmNamesFree(s, ch.next); err != nil {
		return nil, err
	}
	if err := ch.assess(s, vc, how); err != nil {
		return nil, err
	}
	ch.fields = append(ch.fields, kept...)
	if len(ch.restart) > 0 && !how.Restart {
		return nil, ch.needsRestart()
	}
	return ch, nil
}

// mergeOfTenant is merge for a caller that does not see rules that name hosts. Such rules conflict with nothing, and groups keep
// theirs.
func mergeOfTenant(base *state.VCSpec, now, mine state.VCSpec, force bool) (out state.VCSpec, kept []FieldChange, err error) {
	without := func(s state.VCSpec) state.VCSpec { return withHostTerms(s, state.VCSpec{}) }
	if base != nil {
		bare := without(*base)
		base = &bare
	}
	out, kept, err = merge(base, without(now), without(mine), force)
	return withHostTerms(out, now), kept, err
}

// priorityAllowed refuses a priority that a VC neither has nor may get from its tenant.
func priorityAllowed(s *state.Snapshot, vc state.VC, priority int) error {
	name, _ := state.SplitName(vc.Name)
	if t, _ := s.Tenant(name); priority > max(t.MaxPriority, vc.Priority) {
		return &Invalid{Fields: []FieldError{{Field: "priority", Text: fmt.Sprintf("must be at most %d in this tenant", t.MaxPriority), Value: priority}}}
	}
	return nil
}

// withHostTerms returns spec with the host rules of from in the place of its own: each group gets those of the group of its name.
func withHostTerms(spec, from state.VCSpec) state.VCSpec {
	spec = spec.Clone()
	for i := range spec.Groups {
		a, has := &spec.Groups[i].Affinity, state.Affinity{}
		if old := groupOf(&from, spec.Groups[i].Name); old != nil {
			has = old.Affinity
		}
		for _, terms := range []struct{ to, from *[]string }{{&a.Require, &has.Require}, {&a.Prefer, &has.Prefer}, {&a.Avoid, &has.Avoid}} {
			*terms.to = slices.DeleteFunc(slices.Clone(*terms.to), ofHost)
			for _, term := range *terms.from {
				if ofHost(term) {
					*terms.to = append(*terms.to, term)
				}
			}
		}
	}
	return spec
}

func ofHost(term string) bool { return strings.HasPrefix(term, "host:") }

// keepDefaults keeps defaults: a field that neither the spec in force nor the next one gives stays as the row has it. The cluster's
// defaults may have changed since.
func keepDefaults(vc state.VC, now, next state.VCSpec) state.VCSpec {
	next = next.Clone()
	if now.MinYield < 0 && next.MinYield < 0 {
		next.MinYield = vc.MinYield
	}
	if now.OnFull == "" && next.OnFull == "" {
		next.OnFull = vc.OnFull
	}
	for i := range next.Groups {
		g := &next.Groups[i]
		was, row := groupOf(&now, g.Name), vc.SharedGroup(g.Name)
		if was == nil || row == nil {
			continue
		}
		none := func(g *state.Group) bool { return g.Image == "" && g.Boot == (state.Boot{}) }
		if none(was) && none(g) {
			g.Image = row.Image
		}
		if was.Disk.Pool == "" && g.Disk.Pool == "" {
			g.Disk.Pool = row.Disk.Pool
		}
	}
	return next
}

// withRemoved returns the next row with the allocations and estimates that groups have, and with the groups that the spec removes.
// Those stay, with a count of 0, until their VMs are gone.
func withRemoved(s *state.Snapshot, vc, next state.VC) (state.VC, error) {
	next.Groups = slices.Clone(next.Groups)
	for i := range next.Groups {
		g := &next.Groups[i]
		row := vc.SharedGroup(g.Name)
		switch {
		case row == nil:
		case row.Count == 0:
			return next, &Busy{fmt.Sprintf("group %s of virtual cluster %s is still being removed; try again when its VMs are gone", g.Name, vc.Name)}
		default:
			g.Allocation, g.Estimated = row.Allocation, row.Estimated
			if g.CPU != row.CPU {
				g.Estimated = 0
			}
		}
	}
	there := map[string]bool{}
	for _, vm := range s.VMsOf(vc.ID) {
		there[vm.Group] = true
	}
	for _, g := range vc.Groups {
		if next.SharedGroup(g.Name) == nil && there[g.Name] {
			g.Count = 0
			next.Groups = append(next.Groups, g)
		}
	}
	return next, nil
}

// needsRestart refuses a change whose request lets no VM restart.
func (ch *change) needsRestart() error {
	e := &NeedsRestart{VMs: len(ch.restart)}
	for _, f := range ch.fields {
		for _, vm := range f.VMs {
			e.Fields = append(e.Fields, FieldError{Field: f.Field, Text: "VM " + vm.VM + " " + vm.Why})
		}
	}
	return e
}

// NeedsRestart says that a change needs running VMs to restart, which its request does not allow.
type NeedsRestart struct {
	VMs    int
	Fields []FieldError
}

// Error implements error.
func (e *NeedsRestart) Error() string {
	return fmt.Sprintf("%d VMs would have to restart, which needs --restart; the others run on. Or stop the virtual cluster first: it takes the change when it starts", e.VMs)
}

// assess finds what each change takes of the VMs that there are, and refuses what none of them can take.
func (ch *change) assess(s *state.Snapshot, vc state.VC, how Apply) error {
	var bad faults
	misplaced := placement.Misplaced(s, ch.next)
	if how.OfTenant {
		for id := range misplaced { // a tenant does not see hosts and the rules of others
			misplaced[id] = "as its rules have it"
		}
	}
	before := placement.Misplaced(s, vc)
	for i := range ch.next.Groups {
		g := &ch.next.Groups[i]
		old := vc.SharedGroup(g.Name)
		if old == nil || g.Count == 0 {
			continue
		}
		vms := slices.DeleteFunc(s.VMsOf(vc.ID), func(vm state.VM) bool { return vm.Group != g.Name || vm.Goal == state.GoalDelete })
		slices.SortFunc(vms, func(a, b state.VM) int { return a.Task - b.Task })
		vms = vms[:min(len(vms), g.Count)] // VMs beyond the count are removed
		if len(vms) == 0 {
			continue
		}
		t := touch{s: s, old: old, next: g, vms: vms}
		t.disks(&bad)
		for k := range ch.fields {
			f := &ch.fields[k]
			if name, ok := strings.CutPrefix(f.Field, "groups["+g.Name+"]."); ok {
				t.field(f, name, vc, misplaced, before, &bad)
				for _, vm := range f.VMs {
					ch.restart[t.idOf(vm.VM)] = true
				}
			}
		}
	}
	return bad.err()
}

// touch is what a change of a group means for the VMs of it that stay.
type touch struct {
	s         *state.Snapshot
	old, next *state.Group
	vms       []state.VM
}

func (t *touch) idOf(name string) string {
	at := slices.IndexFunc(t.vms, func(vm state.VM) bool { return vm.Name == name })
	return t.vms[at].ID
}

// disks refuses changes that would leave a disk that there is behind, or make another VM of it.
func (t *touch) disks(bad *faults) {
	at := "groups[" + t.next.Name + "]."
	const way = "; add a group of another name that has it, and remove this one: the disks of its VMs go with it"
	had, has := placement.HasDisk(t.s, *t.old), placement.HasDisk(t.s, *t.next)
	kept := had && !t.old.Disk.Ephemeral
	sameBoot := t.old.Image == t.next.Image && t.old.Boot == t.next.Boot
	switch {
	case kept && !sameBoot:
		bad.add(at+"image", t.next.Image, "the disks of its VMs were made from image %s and are kept%s", t.old.Image, way)
	case had != has:
		bad.add(at+"disk", "", "VMs that exist can neither get a disk nor lose theirs%s", way)
	case had && t.old.Disk.Ephemeral != t.next.Disk.Ephemeral:
		bad.add(at+"disk.ephemeral", t.next.Disk.Ephemeral, "the disks of VMs that exist stay what they are%s", way)
	case t.old.Disk.Pool != t.next.Disk.Pool && (had || t.old.CloudInit != (state.CloudInit{})):
		bad.add(at+"disk.pool", t.next.Disk.Pool, "the disks of its VMs lie in pool %s%s", t.old.Disk.Pool, way)
	case kept && t.old.Disk.Size != t.next.Disk.Size:
		bad.add(at+"disk.size", t.next.Disk.Size, "the disks of VMs that exist keep their size%s", way)
	}
	if !had && t.old.CloudInit != (state.CloudInit{}) && t.next.CloudInit == (state.CloudInit{}) {
		bad.add(at+"cloudInit", "", `VMs without a disk cannot lose their cloud-init data; give userData: "#cloud-config\n" instead`)
	}
}

// field sets what a change of a field takes. Fields that are not named here hold at once.
func (t *touch) field(f *FieldChange, name string, vc state.VC, misplaced, before map[string]string, bad *faults) {
	every := func(why string) {
		f.Effect = EffectRestart
		for _, vm := range t.vms {
			if vm.ConsumesResources() && vm.Goal == state.GoalRun {
				f.VMs = append(f.VMs, VMEffect{vm.Name, why})
			}
		}
		if len(f.VMs) == 0 {
			f.Effect = EffectStart
		}
	}
	beyond := func(over func(vm state.VM) string) {
		for _, vm := range t.vms {
			if why := over(vm); why != "" && vm.ConsumesResources() && vm.Goal == state.GoalRun {
				f.Effect, f.VMs = EffectRestart, append(f.VMs, VMEffect{vm.Name, why})
			}
		}
	}
	switch {
	case name == "cpu":
		beyond(func(vm state.VM) string {
			if t.next.CPU <= float64(vm.VCPUs) {
				return ""
			}
			return fmt.Sprintf("runs with %d vCPUs and cannot use more", vm.VCPUs)
		})
	case name == "vcpus":
		f.Effect = EffectStart // fewer are taken at the next start
		beyond(func(vm state.VM) string {
			if t.next.VCPUs <= vm.VCPUs {
				return ""
			}
			return fmt.Sprintf("runs with %d vCPUs", vm.VCPUs)
		})
	case name == "memory":
		beyond(func(vm state.VM) string {
			if t.next.Memory <= vm.BootMemory {
				return ""
			}
			return fmt.Sprintf("was started with %s and cannot grow beyond", bytesText(vm.BootMemory))
		})
	case name == "image" && t.old.Image != t.next.Image, name == "boot" && t.old.Boot != t.next.Boot:
		every("boots another image")
	case name == "disk.size" && t.old.Disk.Size != t.next.Disk.Size:
		every("gets its disk when it starts")
	case name == "network":
		every("is connected when it starts")
	case strings.HasPrefix(name, "cloudInit."):
		every("reads its cloud-init data when it starts")
	case strings.HasPrefix(name, "affinity.") || name == "labels":
		t.rules(f, vc, misplaced, before, bad)
	}
}

// rules sets what a change of rules takes: a VM that is where it may not be must restart elsewhere.
func (t *touch) rules(f *FieldChange, vc state.VC, misplaced, before map[string]string, bad *faults) {
	for _, vm := range t.vms {
		why := misplaced[vm.ID]
		switch {
		case why == "" || before[vm.ID] != "" || vc.Goal != state.GoalRun:
		case placement.KeepsPlace(t.s, *t.next):
			bad.add(f.Field, "", "VM %s may not be where it is, %s; its disk lies there: leave the rule out, or add a group of another name that has it", vm.Name, why)
		default:
			f.Effect, f.VMs = EffectRestart, append(f.VMs, VMEffect{vm.Name, "may not be " + why})
		}
	}
}
