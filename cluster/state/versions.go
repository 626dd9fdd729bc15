package state

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"
)

// versionsSince is the version of the format that brought versions of VCs.
const versionsSince = 2

// Limits of the versions of a VC that are kept.
const (
	MaxVersions     = 10
	maxVersionBytes = 1 << 20 // of all of them together, as JSON; the newest and the newest applied one are kept beyond it
)

// VCSpec is what a user asks of a VC, as written. A zero field, or a MinYield below 0, was left out by the user. Allocations and
// estimates of its groups are 0.
type VCSpec struct {
	MinYield       float64  `json:"minYield"`
	OnFull         OnFull   `json:"onFull,omitempty"`
	OnHostLoss     string   `json:"onHostLoss,omitempty"`
	Needs          string   `json:"needs,omitempty"`
	Aggressiveness string   `json:"aggressiveness,omitempty"`
	Priority       int      `json:"priority,omitempty"`
	Periodic       Periodic `json:"periodic,omitzero"`
	Duration       int64    `json:"duration,omitempty"`
	Groups         []Group  `json:"groups"`
}

// VCVersion is one version of what users asked of a VC.
type VCVersion struct {
	ID     string    `json:"id"` // of the VC, and the number in six digits or more: they sort by age
	VC     string    `json:"vc"` // id
	Number int       `json:"number"`
	Index  uint64    `json:"index"` // of the log
	At     time.Time `json:"at"`
	Verb   string    `json:"verb"` // create, apply, scale, edit, rollback
	By     string    `json:"by,omitempty"`
	// ByTenant is the tenant that By is of; "": the cluster.
	ByTenant string `json:"byTenant,omitempty"`
	// Applied: a user handed in a file. The next file is compared with the newest version of that kind.
	Applied bool `json:"applied,omitempty"`
	// File is the file as handed in, if Spec differs from it because Spec keeps changes of others; nil: Spec is the file.
	File *VCSpec `json:"file,omitempty"`
	Spec VCSpec  `json:"spec"`
}

// VersionPut adds a version with a plan. Number, index and time come when it is applied.
type VersionPut struct {
	Verb     string  `json:"verb"`
	By       string  `json:"by,omitempty"`
	ByTenant string  `json:"byTenant,omitempty"`
	Applied  bool    `json:"applied,omitempty"`
	File     *VCSpec `json:"file,omitempty"`
	Spec     VCSpec  `json:"spec"`
}

// KeepsVersions says whether all servers know versions of VCs.
func (s *Snapshot) KeepsVersions() bool { return s.Format() >= versionsSince }

// SpecOf is the spec of a VC of which no version is known: every field is given.
func SpecOf(vc VC) VCSpec {
	s := VCSpec{MinYield: vc.MinYield, OnFull: vc.OnFull, OnHostLoss: vc.OnHostLoss, Needs: vc.Needs, Aggressiveness: vc.Aggressiveness,
		Priority: vc.Priority, Periodic: vc.Periodic, Duration: vc.Duration, Groups: slices.Clone(vc.Groups)}
	s.Groups = slices.DeleteFunc(s.Groups, func(g Group) bool { return g.Count == 0 })
	for i := range s.Groups {
		s.Groups[i].Allocation, s.Groups[i].Estimated = 0, 0
	}
	return s
}

// Clone returns a copy whose groups can be changed; what is within them is shared.
func (s VCSpec) Clone() VCSpec {
	s.Groups = slices.Clone(s.Groups)
	return s
}

// On returns the row with the spec in the place of what was asked of the VC before.
func (s VCSpec) On(vc VC) VC {
	vc.MinYield, vc.OnFull, vc.OnHostLoss, vc.Needs, vc.Aggressiveness, vc.Priority = s.MinYield, s.OnFull, s.OnHostLoss, s.Needs, s.Aggressiveness, s.Priority
	vc.Periodic, vc.Duration = s.Periodic, s.Duration
	vc.Groups = slices.Clone(s.Groups)
	return vc
}

// VersionsOf returns the versions of a VC that are kept, oldest first.
func (s *Snapshot) VersionsOf(vc string) []VCVersion {
	out := all[VCVersion](s, tVersions, "vc", vc)
	slices.SortFunc(out, func(a, b VCVersion) int { return a.Number - b.Number })
	return out
}

// Author is who handed in a version: a user, of a tenant ("": of the cluster).
type Author struct {
	By, Tenant string
}

// Written returns the spec that is in force (now), and the spec with which a file of that author is compared (base). base is the
// version with the id seen, from which the file was made, or a newer file of the same author. If no kept version has that id, base is
// the newest file of any author. base is nil if none is kept.
func (s *Snapshot) Written(vc VC, seen string, author Author) (now VCSpec, base *VCSpec) {
	versions := s.VersionsOf(vc.ID)
	if len(versions) == 0 {
		return SpecOf(vc), nil
	}
	named := false
	for _, v := range versions {
		switch {
		case v.ID == seen:
			base, named = &v.Spec, true
		case v.Applied && (!named || author == Author{v.By, v.ByTenant}):
			base = cmp.Or(v.File, &v.Spec)
		}
	}
	return versions[len(versions)-1].Spec, base
}

// ChangesSpec says whether operations of a kind change what is asked of a VC that there is.
func ChangesSpec(kind string) bool {
	return slices.Contains([]string{"scale", "apply", "edit", "rollback"}, kind)
}

// changedSince says whether a later version changes a group that the operation changed. It says no unless the version of the operation
// and the one before it are kept.
func (s *Snapshot) changedSince(op Operation) bool {
	versions := s.VersionsOf(op.VC)
	at := slices.IndexFunc(versions, func(v VCVersion) bool { return v.Index == op.Index })
	if at < 1 {
		return false
	}
	before, asked, now := versions[at-1].Spec.groups(), versions[at].Spec.groups(), versions[len(versions)-1].Spec.groups()
	for _, name := range slices.Concat(slices.Collect(maps.Keys(before)), slices.Collect(maps.Keys(asked))) {
		if !reflect.DeepEqual(before[name], asked[name]) && !reflect.DeepEqual(asked[name], now[name]) {
			return true
		}
	}
	return false
}

// groups by their names. The zero Group is none.
func (s VCSpec) groups() map[string]Group {
	out := make(map[string]Group, len(s.Groups))
	for _, g := range s.Groups {
		out[g.Name] = g
	}
	return out
}

// addVersion adds a version of a VC, and drops those that are too many.
func (w *writer) addVersion(vc *VC, put VersionPut) {
	kept := w.read().VersionsOf(vc.ID)
	number := 1
	if len(kept) > 0 {
		number = kept[len(kept)-1].Number + 1
	}
	row := &VCVersion{ID: fmt.Sprintf("%s/%06d", vc.ID, number), VC: vc.ID, Number: number, Index: w.index, At: w.at, Verb: put.Verb, By: put.By, ByTenant: put.ByTenant, Applied: put.Applied, File: put.File, Spec: put.Spec}
	w.put(tVersions, row)
	for _, old := range superfluous(append(kept, *row)) {
		w.drop(tVersions, &old)
	}
}

// superfluous returns the versions to drop, of those of a VC in their order: the oldest beyond the limits. The newest and the newest
// applied one stay.
func superfluous(versions []VCVersion) []VCVersion {
	sizes, sum, applied := make([]int, len(versions)), 0, -1
	for i, v := range versions {
		b, err := json.Marshal(v)
		if err != nil {
			panic("state: a spec that was read cannot be written: " + err.Error())
		}
		sizes[i] = len(b)
		sum += len(b)
		if v.Applied {
			applied = i
		}
	}
	var out []VCVersion
	for i, v := range versions[:len(versions)-1] {
		if i != applied && (len(versions)-len(out) > MaxVersions || sum > maxVersionBytes) {
			out = append(out, v)
			sum -= sizes[i]
		}
	}
	return out
}

// dropVersions drops the versions of a VC that is gone.
func (w *writer) dropVersions(vc string) {
	for _, v := range w.read().VersionsOf(vc) {
		w.drop(tVersions, &v)
	}
}

// dropAllVersions drops what a server that does not know versions could not read.
func (w *writer) dropAllVersions() {
	for _, v := range all[VCVersion](w.read(), tVersions, "id") {
		w.drop(tVersions, &v)
	}
}

func (p *VersionPut) valid() error {
	if err := check("version", p.Verb, "verb", p.Verb); err != nil {
		return err
	}
	groups := p.Spec.Groups
	if p.File != nil {
		groups = slices.Concat(groups, p.File.Groups)
	}
	for _, g := range groups {
		if g.CPU < 0 || g.Count < 0 || !isMemory(g.Memory) || strings.ContainsRune(g.Name, 0) {
			return fmt.Errorf("version: group %q: need %v, %d VMs, %d bytes: %w", g.Name, g.CPU, g.Count, g.Memory, ErrInvalid)
		}
	}
	return nil
}

// since is the version of the format that brought what the plan has.
func (p Plan) since() int {
	switch {
	case p.Version != nil:
		return versionsSince
	case p.hasVMOrders():
		return vmOrdersSince
	case p.Job != "" || p.Occurrence != "" || p.VC != nil && (p.VC.Periodic != Periodic{} || p.VC.Duration != 0):
		return periodicSince
	}
	return 0
}

// sweepGroups drops the groups that were removed from a VC, once they have no VM left. Until then the row keeps them: it says which
// disks their VMs have.
func (w *writer) sweepGroups(id string) {
	vc, ok := w.read().VC(id)
	if !ok || w.version < versionsSince || !slices.ContainsFunc(vc.Groups, func(g Group) bool { return g.Count == 0 }) {
		return
	}
	there := map[string]bool{}
	for _, vm := range w.read().VMsOf(id) {
		there[vm.Group] = true
	}
	before := len(vc.Groups)
	vc.Groups = slices.DeleteFunc(slices.Clone(vc.Groups), func(g Group) bool { return g.Count == 0 && !there[g.Name] })
	if len(vc.Groups) < before {
		w.put(tVCs, &vc)
	}
}
