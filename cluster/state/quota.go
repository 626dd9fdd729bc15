package state

import (
	"errors"
	"fmt"
	"slices"
)

// QuotaKey names what is limited.
type QuotaKey string

// The keys of quotas. A virtual cluster counts with what its groups ask for from its creation until it is gone, also while it waits or
// is stopped. VMs of a removed group count until they are gone. The second copy of a VM during a migration does not count.
const (
	QuotaCPU       QuotaKey = "cpu"            // cores, the sum of the needs that were declared
	QuotaMemory    QuotaKey = "memory"         // bytes
	QuotaVMs       QuotaKey = "vms"            // VMs
	QuotaVCs       QuotaKey = "vcs"            // virtual clusters
	QuotaDisk      QuotaKey = "disk"           // bytes of disks that virtual clusters name, or of their images, and of the files of the images that the tenant owns
	QuotaImages    QuotaKey = "images"         // images that the tenant owns
	QuotaNetworks  QuotaKey = "networks"       // networks that the tenant owns
	QuotaTokens    QuotaKey = "tokens"         // tokens of the API
	QuotaQueued    QuotaKey = "queued"         // virtual clusters that wait
	QuotaCloudInit QuotaKey = "cloudInitBytes" // bytes of cloud-init data
	QuotaPeriodic  QuotaKey = "periodicJobs"   // periodic jobs that are signed off
)

// QuotaKeys returns all keys, in the order in which they are shown.
func QuotaKeys() []QuotaKey {
	return []QuotaKey{QuotaCPU, QuotaMemory, QuotaVMs, QuotaVCs, QuotaDisk, QuotaImages, QuotaNetworks, QuotaTokens, QuotaQueued, QuotaCloudInit, QuotaPeriodic}
}

// Limit is a limit in the unit of its key. 0 allows nothing.
type Limit float64

// Unlimited is the limit that allows everything.
const Unlimited Limit = -1

// QuotaDefaults is the name of the row that has the limits of tenants that set none of their own, DefaultTenant apart. It is no
// tenant.
const QuotaDefaults = "*"

// cpuSlack is by how much a sum of cores may exceed its limit by rounding, as a part of the limit. The other sums are whole numbers.
const cpuSlack = 1e-9

// Use is what a tenant uses of what is limited.
type Use map[QuotaKey]float64

// QuotaError says that a request exceeds a quota.
type QuotaError struct {
	Tenant             string
	Key                QuotaKey
	Limit, Used, Asked float64 // Asked is what the request adds
}

// ErrQuota is what every QuotaError is.
var ErrQuota = errors.New("over quota")

// Error implements error.
func (e *QuotaError) Error() string {
	return fmt.Sprintf("tenant %s: quota %s: limit %s, used %s, asked for %s more", e.Tenant, e.Key, e.Key.Text(e.Limit), e.Key.Text(e.Used), e.Key.Text(e.Asked))
}

// Is makes it an ErrQuota.
func (e *QuotaError) Is(target error) bool { return target == ErrQuota }

// Bytes says whether the unit of a key is bytes.
func (k QuotaKey) Bytes() bool { return k == QuotaMemory || k == QuotaDisk || k == QuotaCloudInit }

// Text writes a value of a key with its unit.
func (k QuotaKey) Text(v float64) string {
	switch {
	case k == QuotaCPU:
		return fmt.Sprintf("%.6g cores", v)
	case k.Bytes() && v >= 1<<20:
		return fmt.Sprintf("%.6g MiB", v/(1<<20))
	case k.Bytes():
		return fmt.Sprintf("%.0f bytes", v)
	}
	return fmt.Sprintf("%.0f", v)
}

// LimitOf returns the limit of a tenant that is in force for a key, and where it was set: its name, QuotaDefaults or "" for no
// limit that was ever set.
func (s *Snapshot) LimitOf(tenant string, key QuotaKey) (limit Limit, from string) {
	rows := []string{tenant, QuotaDefaults}
	if tenant == DefaultTenant {
		rows = rows[:1]
	}
	for _, name := range rows {
		if t, ok := peek[Tenant](s, tTenants, "id", name); ok {
			if limit, set := t.Quota[key]; set {
				return limit, name
			}
		}
	}
	return Unlimited, ""
}

// UseOf sums up what a tenant uses now.
func (s *Snapshot) UseOf(tenant string) Use {
	use := Use{}
	s.EachVCOf(tenant, func(vc *VC) bool {
		s.addUse(use, vc)
		return true
	})
	s.eachImageOf(tenant, func(img *Image) { addImageUse(use, img) })
	use[QuotaTokens] = float64(s.tokensOf(tenant))
	s.eachSignedOff(tenant, func(*PeriodicJob) { use[QuotaPeriodic]++ })
	return use
}

func (s *Snapshot) addUse(use Use, vc *VC) {
	use[QuotaVCs]++
	if vc.Goal == GoalRun && !vc.Admitted {
		use[QuotaQueued]++
	}
	for i := range vc.Groups {
		g := &vc.Groups[i]
		n := float64(g.Count)
		if g.Count == 0 { // it is removed: see sweepGroups
			n = float64(s.vmsOfGroup(vc.ID, g.Name))
		}
		use[QuotaVMs] += n
		use[QuotaCPU] += n * g.CPU
		use[QuotaMemory] += n * float64(g.Memory)
		use[QuotaDisk] += n * float64(s.diskOf(g))
		if g.Count == 0 { // it was removed
			continue
		}
		use[QuotaCloudInit] += float64(len(g.CloudInit.UserData) + len(g.CloudInit.MetaData) + len(g.CloudInit.NetworkConfig))
	}
}

func (s *Snapshot) vmsOfGroup(vc, group string) (n int) {
	for _, vm := range s.VMsOf(vc) {
		if vm.Group == group {
			n++
		}
	}
	return n
}

// diskOf is the size of the disk of each VM of a group, bytes.
func (s *Snapshot) diskOf(g *Group) int64 {
	if g.Disk.Size > 0 {
		return g.Disk.Size
	}
	img, _ := peek[Image](s, tImages, "id", g.Image)
	if img == nil || img.Kind != DiskImage {
		return 0
	}
	return img.DiskSize
}

// CheckQuota says which quota of its tenant the next row of a VC exceeds; nil if none. Only what grows is checked, so that a tenant
// over a limit that was lowered can still make everything smaller.
func (s *Snapshot) CheckQuota(next *VC) error {
	tenant, _ := SplitName(next.Name)
	if !slices.ContainsFunc(QuotaKeys(), func(key QuotaKey) bool { limit, _ := s.LimitOf(tenant, key); return limit != Unlimited }) {
		return nil
	}
	more, before := Use{}, Use{}
	s.addUse(more, next)
	if old, ok := s.SharedVC(next.ID); ok {
		s.addUse(before, old)
	}
	for key, was := range before {
		more[key] -= was
	}
	return s.checkUse(tenant, s.UseOf(tenant), more)
}

func (s *Snapshot) checkUse(tenant string, used, more Use) error {
	for _, key := range QuotaKeys() {
		limit, _ := s.LimitOf(tenant, key)
		allowed := float64(limit)
		if key == QuotaCPU {
			allowed *= 1 + cpuSlack
		}
		if limit != Unlimited && more[key] > 0 && used[key]+more[key] > allowed {
			return &QuotaError{Tenant: tenant, Key: key, Limit: float64(limit), Used: used[key], Asked: more[key]}
		}
	}
	return nil
}

// CheckGrowth checks that the tenant of a VC is active, and its quotas, for an operation of that kind that makes next of the VC.
// The leader asks it before it plans, and every server when the plan is applied: two plans that were made at the same time may
// exceed a quota together. What the cluster does of itself, such as to queue a VC again, has no operation and is not checked.
func (s *Snapshot) CheckGrowth(kind string, next *VC) error {
	if kind != "create" && kind != "start" && !ChangesSpec(kind) {
		return nil
	}
	name, _ := SplitName(next.Name)
	switch t, ok := s.Tenant(name); {
	case !ok:
		return fmt.Errorf("tenant %s: %w", name, ErrNotFound)
	case t.Suspended:
		return fmt.Errorf("tenant %s is %w", name, ErrSuspended)
	}
	return s.CheckQuota(next)
}

// ErrSuspended: the tenant is suspended.
var ErrSuspended = errors.New("suspended")
