package state

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
)

// Settings are the defaults and limits of the cluster.
type Settings struct {
	MinYield  float64 `json:"minYield"`        // least yield of a VC that names none
	OnFull    OnFull  `json:"onFull"`          // for a VC that names none
	Image     string  `json:"image,omitempty"` // for a group that names neither image nor boot
	Pool      string  `json:"pool"`            // storage pool for a disk that names none
	MinMemory int64   `json:"minMemory"`       // least memory of a VM, bytes
	MaxVMs    int     `json:"maxVMs"`          // most VMs of one VC
	// Placement says which placement is taken of those with equal yields; "": Spread.
	Placement Placement `json:"placement,omitempty"`
	// SharedPools are storage pools that hold the same disks on every host.
	SharedPools []string `json:"sharedPools,omitempty"`
	// Networks and Pools are what VC files may name: NAME for all tenants, NAME=TENANT for one. Empty: see MayName.
	Networks    []string            `json:"networks,omitempty"`
	Pools       []string            `json:"pools,omitempty"`
	Moves       MoveSettings        `json:"moves,omitzero"`
	Rightsizing RightsizingSettings `json:"rightsizing,omitzero"`
	Periodic    PeriodicSettings    `json:"periodic,omitzero"`
}

// Placement says which placement is taken of those with equal yields.
type Placement string

const (
	Spread Placement = "spread" // the largest least headroom on hosts
	Pack   Placement = "pack"   // whole hosts stay free
)

// DefaultSettings returns the settings of a cluster that no operator has changed.
func DefaultSettings() Settings {
	return Settings{MinYield: 0.5, OnFull: Queue, Image: "tiny", Pool: "default", MinMemory: 64 << 20, MaxVMs: 4096, Placement: Spread, Periodic: PeriodicSettings{Reprovision: DefaultReprovision}}
}

// DefaultNetwork is the network that every tenant may name, unless the settings give it to some.
const DefaultNetwork = "default"

// MayName says whether a VC of a tenant may name a network, or a pool. An entry NAME opens it to all tenants, NAME=TENANT to one. A
// name without an entry is open to all if it is standard; else only to the default tenant, and only if there are no entries at all.
func MayName(entries []string, tenant, name, standard string) bool {
	listed := false
	for _, e := range entries {
		of, only, restricted := strings.Cut(e, "=")
		if of != name {
			continue
		}
		listed = true
		if !restricted || only == tenant {
			return true
		}
	}
	return !listed && (name == standard || tenant == DefaultTenant && len(entries) == 0)
}

// OpenTo returns the names for which MayName says yes, in order; nil: any name.
func OpenTo(entries []string, tenant, standard string) []string {
	if tenant == DefaultTenant && len(entries) == 0 {
		return nil
	}
	out := []string{}
	for _, e := range append([]string{standard}, entries...) {
		if name, _, _ := strings.Cut(e, "="); MayName(entries, tenant, name, standard) {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// since is the version of the format that knows all that is set.
func (b SettingsPut) since() int {
	if len(b.Settings.Networks)+len(b.Settings.Pools) > 0 {
		return tenantsSince
	}
	if b.Settings.Periodic != (PeriodicSettings{}) { // any of it: a server of version 1 reads no field that it does not know
		return periodicSince
	}
	return 0
}

// SettingsPut replaces the cluster's settings.
type SettingsPut struct {
	Settings Settings `json:"settings"`
	Version  uint64   `json:"version"` // Meta.SettingsIndex that they were made on
}

func (w *writer) settings(b *SettingsPut) error {
	m, ok := w.read().Meta()
	if !ok {
		return fmt.Errorf("cluster: %w", ErrNotFound)
	}
	if m.SettingsIndex != b.Version {
		return fmt.Errorf("settings changed at index %d: %w", m.SettingsIndex, ErrConflict)
	}
	m.Settings, m.SettingsIndex = b.Settings, w.index
	w.put(tMeta, &m)
	w.event("settings-changed", "cluster", m.ID, "the cluster's settings were changed")
	return nil
}

// Check says what is wrong with settings.
func (b SettingsPut) Check() error { return b.valid() }

func (b *SettingsPut) valid() error {
	s := b.Settings
	switch {
	case s.MinYield < 0 || s.MinYield > 1 || s.OnFull != Queue && s.OnFull != Reject || !isMemory(s.MinMemory) || s.MaxVMs < 0:
		return fmt.Errorf("settings: minimum yield %v, on full %q, %d bytes, %d VMs: %w", s.MinYield, s.OnFull, s.MinMemory, s.MaxVMs, ErrInvalid)
	case !validEntries(s.Networks) || !validEntries(s.Pools):
		return fmt.Errorf("settings: networks %q, pools %q: must be NAME or NAME=TENANT: %w", s.Networks, s.Pools, ErrInvalid)
	case !(s.Periodic.Reprovision >= 0 && s.Periodic.Reprovision <= 1):
		return fmt.Errorf("settings: periodic: reprovision %v: %w", s.Periodic.Reprovision, ErrInvalid)
	case s.Placement != "" && s.Placement != Spread && s.Placement != Pack:
		return fmt.Errorf("settings: placement %q: %w", s.Placement, ErrInvalid)
	}
	if err := s.Moves.valid(); err != nil {
		return err
	}
	return s.Rightsizing.valid()
}

func (m MoveSettings) valid() error {
	const longest = Millis(365 * 24 * time.Hour / time.Millisecond)
	for _, d := range []Millis{m.Period, m.MinResidency, m.CoolDown, m.StabilizationWindow, m.Deadline} {
		if d < 0 || d > longest {
			return fmt.Errorf("settings: moves: %d ms: %w", d, ErrInvalid)
		}
	}
	switch {
	case m.Mode != "" && m.Mode != MovesAuto && m.Mode != MovesPropose && m.Mode != MovesOff:
		return fmt.Errorf("settings: moves: mode %q: %w", m.Mode, ErrInvalid)
	case m.MinGain < 0 || m.IdleBelow < 0 || math.IsNaN(m.MinGain) || math.IsNaN(m.IdleBelow):
		return fmt.Errorf("settings: moves: least gain %v, idle below %v: %w", m.MinGain, m.IdleBelow, ErrInvalid)
	case !isMemory(m.MaxBytes) || !isMemory(m.Bandwidth) || m.PerHost < 0 || m.Total < 0:
		return fmt.Errorf("settings: moves: %d bytes, %d bytes per second, %d per host, %d in all: %w", m.MaxBytes, m.Bandwidth, m.PerHost, m.Total, ErrInvalid)
	}
	return nil
}

func validEntries(entries []string) bool {
	for _, e := range entries {
		name, tenant, of := strings.Cut(e, "=")
		if name == "" || of && !ValidTenantName(tenant) {
			return false
		}
	}
	return len(entries) <= maxEntries
}

// maxEntries bounds the entries for networks, and those for pools.
const maxEntries = 256
