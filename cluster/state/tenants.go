package state

import (
	"cmp"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"
)

// DefaultTenant has what belongs to no other tenant. It is always there, with or without a row.
const DefaultTenant = "default"

// tenantsSince is the version of the format that brought tenants.
const tenantsSince = 2

// Names of virtual clusters and VMs are full names: those of the default tenant are plain, those of another tenant begin with its
// name and a slash. No part of a name has a slash, so that a full name belongs to one tenant.
const tenantSeparator = "/"

// FullName returns the full name of the object that a tenant calls name. If name has a slash no object has the result, but it still
// belongs to that tenant.
func FullName(tenant, name string) string {
	if (tenant == DefaultTenant || tenant == "") && !strings.Contains(name, tenantSeparator) {
		return name
	}
	tenant = cmp.Or(tenant, DefaultTenant)
	return tenant + tenantSeparator + name
}

// SplitName returns the tenant that a full name belongs to, and its name there.
func SplitName(full string) (tenant, name string) {
	if tenant, name, ok := strings.Cut(full, tenantSeparator); ok {
		return tenant, name
	}
	return DefaultTenant, full
}

// Tenant is a user, or a group of users, that owns virtual clusters. The row of DefaultTenant is made with the first other tenant and
// stays. From then on a server that does not know tenants cannot join.
type Tenant struct {
	Name        string            `json:"name"`
	DisplayName string            `json:"displayName,omitempty"`
	Labels      map[string]string `json:"labels,omitempty"`
	// Suspended: its tokens are refused, and nothing of it is created, started or changed, be it to less. What runs goes on.
	Suspended bool `json:"suspended,omitempty"`
	// MaxPriority is the highest priority that its own tokens may give a VC.
	MaxPriority int `json:"maxPriority,omitempty"`
	// Quota has the limits that are set; a key that is not there has the limit of QuotaDefaults.
	Quota map[QuotaKey]Limit `json:"quota,omitempty"`
	// Salt makes the ETags that the tenant sees: they do not show the index of the log. It is secret.
	Salt string `json:"salt"`

	CreatedAt   time.Time `json:"createdAt"`
	CreateIndex uint64    `json:"createIndex"`
	ModifyIndex uint64    `json:"modifyIndex"` // last change that was asked for
	// Events is how many events about what it owns there were: the number of the newest, for the tenant.
	Events uint64 `json:"events,omitempty"`
}

// TenantPut makes a tenant or changes it. Only what a user chooses is taken from the row, and the salt of a new one. Version is
// the ModifyIndex that the row must have, 0 for one that must not exist.
type TenantPut struct {
	Tenant  Tenant `json:"tenant"`
	Version uint64 `json:"version,omitempty"`
	By      string `json:"by,omitempty"` // the caller, as audit.Actor writes it
}

// TenantDrop deletes a tenant that owns nothing, with the roles that are bound in it.
type TenantDrop struct {
	Name string `json:"name"`
	By   string `json:"by,omitempty"`
}

// Limits of tenants.
const (
	MaxTenants      = 1000 // rows
	maxDisplayName  = 200  // bytes
	maxTenantLabels = 32
)

// TenantNameRule says what names of tenants are valid.
const TenantNameRule = "must be a DNS label: a to z, 0 to 9 and, inside, hyphens, at most 63"

var tenantNameForm = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`)

// ValidTenantName says whether a name keeps TenantNameRule.
func ValidTenantName(name string) bool { return tenantNameForm.MatchString(name) }

func (b *TenantPut) valid() error {
	t := &b.Tenant
	refuse := func(field, text string) error {
		return fmt.Errorf("tenant %q: %s %s: %w", t.Name, field, text, ErrInvalid)
	}
	switch {
	case t.Name != QuotaDefaults && !ValidTenantName(t.Name):
		return refuse("name", TenantNameRule)
	case len(t.DisplayName) > maxDisplayName || !isPrintable(t.DisplayName):
		return refuse("displayName", fmt.Sprintf("must be at most %d printable ASCII characters", maxDisplayName))
	case len(t.Labels) > maxTenantLabels:
		return refuse("labels", fmt.Sprintf("are more than %d", maxTenantLabels))
	case t.Salt == "":
		return refuse("salt", "is needed")
	case len(b.By) > maxMadeBy || !isPrintable(b.By):
		return refuse("by", "must be at most 200 printable ASCII characters")
	}
	for key, limit := range t.Quota {
		if !slices.Contains(QuotaKeys(), key) {
			return refuse("quota", fmt.Sprintf("key %q is not known", key))
		}
		if limit != Unlimited && !(limit >= 0 && limit <= maxVMMemory) {
			return refuse("quota", fmt.Sprintf("%s %v must be from 0 to %d, or %d for unlimited", key, limit, int64(maxVMMemory), int64(Unlimited)))
		}
	}
	return nil
}

func (b *TenantDrop) valid() error {
	if len(b.By) > maxMadeBy || !isPrintable(b.By) {
		return fmt.Errorf("tenant %q: by must be at most 200 printable ASCII characters: %w", b.Name, ErrInvalid)
	}
	return check("tenant", b.Name, "name", b.Name)
}

// Tenants returns the tenants in order of their names, the default one included.
func (s *Snapshot) Tenants() []Tenant {
	rows := slices.DeleteFunc(all[Tenant](s, tTenants, "id"), func(t Tenant) bool { return t.Name == QuotaDefaults })
	if _, there := slices.BinarySearchFunc(rows, DefaultTenant, func(t Tenant, name string) int { return strings.Compare(t.Name, name) }); !there {
		t, _ := s.Tenant(DefaultTenant)
		rows = append(rows, t)
		slices.SortFunc(rows, func(a, b Tenant) int { return strings.Compare(a.Name, b.Name) })
	}
	return rows
}

// Tenant returns the tenant of that name. The default one is always there.
func (s *Snapshot) Tenant(name string) (Tenant, bool) {
	if t, ok := first[Tenant](s, tTenants, "id", name); ok && name != QuotaDefaults {
		return t, true
	}
	return Tenant{Name: DefaultTenant}, name == DefaultTenant
}

// SuspendedTenants returns the names of those that are suspended, in order.
func (s *Snapshot) SuspendedTenants() (names []string) {
	each(s, func(t *Tenant) bool {
		if t.Suspended {
			names = append(names, t.Name)
		}
		return true
	}, tTenants, "id")
	return names
}

// QuotaDefaults is the row of that name.
func (s *Snapshot) QuotaDefaults() Tenant {
	t, ok := first[Tenant](s, tTenants, "id", QuotaDefaults)
	if !ok {
		return Tenant{Name: QuotaDefaults}
	}
	return t
}

// EachVCOf is EachVC for those of a tenant.
func (s *Snapshot) EachVCOf(tenant string, f func(*VC) bool) {
	if tenant != DefaultTenant {
		each(s, f, tVCs, "name_prefix", tenant+tenantSeparator)
		return
	}
	s.EachVC(func(vc *VC) bool {
		of, _ := SplitName(vc.Name)
		return of != DefaultTenant || f(vc)
	})
}

// HasTenants says whether a tenant was ever made.
func (s *Snapshot) HasTenants() bool {
	_, any := final[Tenant](s, tTenants, "id")
	return any
}

// CheckTenantPut says why a tenant cannot be made or changed; nil if it can.
func (s *Snapshot) CheckTenantPut(b TenantPut) error {
	if err := b.valid(); err != nil {
		return err
	}
	old, there := first[Tenant](s, tTenants, "id", b.Tenant.Name)
	implicit := b.Tenant.Name == DefaultTenant || b.Tenant.Name == QuotaDefaults
	switch {
	case b.Version == 0 && there, b.Version == 0 && b.Tenant.Name == DefaultTenant && s.HasTenants():
		return fmt.Errorf("tenant %s exists already: %w", b.Tenant.Name, ErrConflict)
	case b.Version != 0 && !there:
		return fmt.Errorf("tenant %s: %w", b.Tenant.Name, ErrNotFound)
	case b.Version != 0 && old.ModifyIndex != b.Version:
		return fmt.Errorf("tenant %s changed at index %d: %w", b.Tenant.Name, old.ModifyIndex, ErrConflict)
	case b.Tenant.Suspended && implicit:
		return fmt.Errorf("tenant %s cannot be suspended: %w", b.Tenant.Name, ErrInvalid)
	}
	if n := len(all[Tenant](s, tTenants, "id")); !there && n >= MaxTenants {
		return fmt.Errorf("there are %d tenants already, and no more than %d are kept: %w", n, MaxTenants, ErrConflict)
	}
	return nil
}

// CheckTenantDrop says why a tenant cannot be deleted; nil if it can.
func (s *Snapshot) CheckTenantDrop(name string) error {
	if name == DefaultTenant {
		return fmt.Errorf("tenant %s is always there: %w", name, ErrInUse)
	}
	if _, ok := s.Tenant(name); !ok {
		return fmt.Errorf("tenant %s: %w", name, ErrNotFound)
	}
	vcs, tokens := 0, s.tokensOf(name)
	s.EachVCOf(name, func(*VC) bool { vcs++; return true })
	images := 0
	s.eachImageOf(name, func(*Image) { images++ })
	if vcs+tokens+images > 0 {
		return fmt.Errorf("tenant %s owns %d virtual clusters, %d tokens and %d images; delete and revoke them first: %w", name, vcs, tokens, images, ErrInUse)
	}
	return nil
}

func (w *writer) tenantPut(b *TenantPut) error {
	s := w.read()
	if err := s.CheckTenantPut(*b); err != nil {
		return err
	}
	t := b.Tenant
	t.CreatedAt, t.CreateIndex, t.Events = w.at, w.index, 0
	kind, verb := "tenant-created", "made"
	if old, ok := first[Tenant](s, tTenants, "id", t.Name); ok {
		t.CreatedAt, t.CreateIndex, t.Events, t.Salt = old.CreatedAt, old.CreateIndex, old.Events, old.Salt
		kind, verb = "tenant-changed", "changed"
	}
	t.ModifyIndex = w.index
	t.Labels, t.Quota = maps.Clone(t.Labels), maps.Clone(t.Quota)
	if !s.HasTenants() && t.Name != DefaultTenant {
		w.put(tTenants, &Tenant{Name: DefaultTenant, Salt: t.Salt + DefaultTenant, CreatedAt: w.at, CreateIndex: w.index, ModifyIndex: w.index})
	}
	w.put(tTenants, &t)
	text := verb
	if t.Name == QuotaDefaults {
		text = "the quotas of tenants that have none of their own were changed"
	}
	if t.Suspended {
		text += ", suspended"
	}
	w.event(kind, "tenant", t.Name, "%s%s", text, askedBy(b.By))
	return nil
}

func (w *writer) tenantDrop(b *TenantDrop) error {
	if err := w.read().CheckTenantDrop(b.Name); err != nil {
		return err
	}
	t, _ := w.read().Tenant(b.Name)
	w.drop(tTenants, &t)
	w.dropPeriodicOf(t.Name)
	w.dropBindings(all[RoleBinding](w.read(), tRoleBindings, "tenant", t.Name))
	w.event("tenant-deleted", "tenant", t.Name, "deleted%s", askedBy(b.By))
	return nil
}

// tenantsSince puts the present rows of tenants into a saved state: their quotas, and whether they are suspended. The saved state may
// have objects of a tenant that was deleted since, and made again under the same name. The new tenant must not get those. It is
// suspended if there is a virtual cluster or an image of the old one, whose runs and jobs are dropped.
func (w *writer) tenantsSince(now *Snapshot) {
	for _, t := range all[Tenant](now, tTenants, "id") {
		saved, _ := first[Tenant](w.read(), tTenants, "id", t.Name)
		t.Events = saved.Events // of the events that the saved state has
		if another := saved.CreateIndex != t.CreateIndex; another && t.Name != DefaultTenant && t.Name != QuotaDefaults {
			t.Events = 0
			w.read().EachVCOf(t.Name, func(*VC) bool { t.Suspended = true; return false })
			w.read().eachImageOf(t.Name, func(*Image) { t.Suspended = true })
			w.dropPeriodicOf(t.Name)
		}
		w.put(tTenants, &t)
	}
}

// OwnerOf returns the tenant that an event belongs to; "" for those of the cluster. It is decided by what the event is about, and
// an object that is not listed here is the cluster's.
func (e Event) OwnerOf() string {
	switch {
	case e.Kind == "vm-unmanaged": // its name is an id that the state does not know: its owner is not known
	case e.Object == "vc", e.Object == "vm", e.Object == "job":
		tenant, _ := SplitName(e.Name)
		return tenant
	}
	return ""
}

// numberForTenant gives an event its number for the tenant that it belongs to.
func (w *writer) numberForTenant(e *Event) {
	owner := e.OwnerOf()
	if owner == "" {
		return
	}
	if t, ok := first[Tenant](w.read(), tTenants, "id", owner); ok {
		t.Events++
		e.TenantSeq = t.Events
		w.put(tTenants, &t)
	}
}

// refuseOlderServer refuses a server that does not know what the state has: tenants, settings for them, role bindings, revocations,
// orders to single VMs, or periodic work.
func (w *writer) refuseOlderServer(m Member) error {
	meta, _ := w.read().Meta()
	put := SettingsPut{Settings: meta.Settings}
	put.Settings.Periodic = PeriodicSettings{} // dropPeriodic drops it when such a server joins
	knows := w.read()
	if m.Server && m.Format > 0 && m.Format < tenantsSince && (knows.HasTenants() || put.since() > m.Format || knows.HasRoleBindings() || len(knows.Revocations()) > 0) {
		return fmt.Errorf("server %s does not know tenants or role bindings, which this cluster has; upgrade it first: %w", m.Name, ErrConflict)
	}
	if m.Server && m.Format > 0 && m.Format < vmOrdersSince && w.read().hasVMOrders() {
		return fmt.Errorf("server %s does not know orders to single VMs, which this cluster has; upgrade it first: %w", m.Name, ErrConflict)
	}
	if m.Server && m.Format > 0 && m.Format < periodicSince && w.read().hasPeriodic() {
		return fmt.Errorf("server %s does not know periodic work, which this cluster has; upgrade it first: %w", m.Name, ErrConflict)
	}
	return nil
}
