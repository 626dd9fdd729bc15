package v1

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
)

// ClusterSettings are the defaults and limits of the cluster.
type ClusterSettings struct {
	MinYield    float64             `json:"minYield" doc:"Least yield of a virtual cluster that names none."`
	OnFull      string              `json:"onFull" doc:"For a virtual cluster that names none: queue or reject."`
	Image       string              `json:"image,omitempty" doc:"For a group that names neither image nor boot."`
	Pool        string              `json:"pool" doc:"Storage pool for a disk that names none."`
	MinMemory   Size                `json:"minMemory" doc:"Least memory of a VM, bytes."`
	MaxVMs      int                 `json:"maxVMs" doc:"Most VMs of one virtual cluster."`
	Placement   string              `json:"placement,omitempty" enum:"spread,pack" doc:"Of placements with equal yields, spread takes the one with the largest least headroom on hosts, pack the one that leaves most hosts without VMs."`
	SharedPools []string            `json:"sharedPools" nullable:"false" doc:"Storage pools that hold the same disks on every host."`
	Networks    []string            `json:"networks" nullable:"false" doc:"Networks and bridges that VC files may name: NAME for all tenants, NAME=TENANT for one. Empty: all for the default tenant, the network default for others."`
	Pools       []string            `json:"pools" nullable:"false" doc:"Storage pools that VC files may name: NAME for all tenants, NAME=TENANT for one. Empty: all for the default tenant, the cluster's default pool for others."`
	Moves       MoveSettings        `json:"moves,omitzero" doc:"When VMs move by live migration, and how."`
	Rightsizing RightsizingSettings `json:"rightsizing,omitzero" doc:"Whose needs are estimated, and what is done with that."`
	Periodic    PeriodicSettings    `json:"periodic" doc:"What runs of periodic jobs that were signed off are sure of."`
}

// PeriodicSettings say what runs of periodic jobs that were signed off are sure of.
type PeriodicSettings struct {
	Reprovision float64 `json:"reprovision" doc:"Largest share of the cluster's CPU that late runs may have beyond what is reserved for them. 0: none has more, and while it runs each is sure of its minYield alone."`
}

// MoveSettings say when VMs move by live migration, and how.
type MoveSettings struct {
	Mode                string  `json:"mode" enum:"auto,propose,off" doc:"auto: plans that are worth it are carried out. propose: they wait for an operator to apply them. off: the leader makes none by itself."`
	Period              string  `json:"period" doc:"Time between evaluations of a cluster in which nothing changed, as a Go duration." example:"10m"`
	MinResidency        string  `json:"minResidency" doc:"Minimum residency: a re-balance that the leader makes by itself does not move a VM again for this time, as a Go duration." example:"10m"`
	CoolDown            string  `json:"coolDown" doc:"Time after a re-balance before the leader plans the next, as a Go duration." example:"30m"`
	StabilizationWindow string  `json:"stabilizationWindow" doc:"Stabilization window: for this time VMs must have had too little and hosts have been unchanged, as a Go duration." example:"30s"`
	MinGain             float64 `json:"minGain" doc:"Least gain of a plan, as a fraction of the minimum yield: 0.1 is a tenth."`
	IdleBelow           float64 `json:"idleBelow" doc:"The leader plans no re-balance by itself while VMs need less than this fraction of the cluster's CPU, 0 to 1."`
	MaxBytes            Size    `json:"maxBytes" doc:"Most bytes that one plan may send, unless the request names another bound; 0: what one migration sends in a period."`
	Budget              Size    `json:"budget" doc:"What maxBytes comes to: itself, or where it is 0 what the bandwidth and the period make of it. Read only."`
	PerHost             int     `json:"perHost" doc:"Most migrations at a time that one host takes part in."`
	Total               int     `json:"total" doc:"Most migrations at a time in the cluster; 0: 8, or one for every four hosts if that is more."`
	Bandwidth           Size    `json:"bandwidth" doc:"Most bytes per second that one migration may send; 0: no limit, and predictions assume 125 MB/s."`
	AutoConverge        bool    `json:"autoConverge" doc:"Guests that change memory faster than it can be sent are slowed down."`
	PostCopy            bool    `json:"postCopy" doc:"Guests may be handed over before all their memory is there, if what is left fits the budget."`
	CopyStorage         bool    `json:"copyStorage" doc:"VMs whose disks lie on one host move with their disks, whose bytes count."`
	Deadline            string  `json:"deadline" doc:"Time after which a migration is aborted, as a Go duration." example:"10m"`
	OnJoin              bool    `json:"onJoin" doc:"Look for a better placement at once when a host joins or comes back."`
}

// SettingsPatch changes settings; what is left out stays. A setting is a field of it, of ClusterSettings and of state.Settings, under one name:
// the names that people write, validation, the API, vcctl and the reference follow from these.
type SettingsPatch struct {
	MinYield    *float64          `json:"minYield,omitempty" minimum:"0" maximum:"1" doc:"Least yield of a virtual cluster that names none."`
	OnFull      *string           `json:"onFull,omitempty" enum:"queue,reject" doc:"For a virtual cluster that names none."`
	Image       *string           `json:"image,omitempty" maxLength:"127" doc:"For a group that names neither image nor boot; empty: it has to name one."`
	Pool        *string           `json:"pool,omitempty" maxLength:"127" doc:"Storage pool for a disk that names none."`
	MinMemory   *Size             `json:"minMemory,omitempty" doc:"Least memory of a VM, bytes or a size with a unit."`
	MaxVMs      *int              `json:"maxVMs,omitempty" minimum:"1" maximum:"1048576" doc:"Most VMs of one virtual cluster."`
	Placement   *string           `json:"placement,omitempty" enum:"spread,pack" doc:"Of placements with equal yields: the largest least headroom on hosts, or whole hosts that stay free. VMs that run are not moved for it."`
	SharedPools *[]string         `json:"sharedPools,omitempty" maxItems:"64" doc:"Storage pools that hold the same disks on every host."`
	Networks    *[]string         `json:"networks,omitempty" maxItems:"256" doc:"Networks and bridges that VC files may name: NAME for all tenants, NAME=TENANT for one. With an entry, all others are closed."`
	Pools       *[]string         `json:"pools,omitempty" maxItems:"256" doc:"Storage pools that VC files may name: NAME for all tenants, NAME=TENANT for one. With an entry, all others but the default pool are closed."`
	Moves       *MovePatch        `json:"moves,omitempty" doc:"When VMs move by live migration, and how."`
	Rightsizing *RightsizingPatch `json:"rightsizing,omitempty" doc:"Whose needs are estimated, and what is done with that."`
	Periodic    *PeriodicPatch    `json:"periodic,omitempty" doc:"What runs of periodic jobs that were signed off are sure of."`
}

// PeriodicPatch changes what runs of periodic jobs are sure of.
type PeriodicPatch struct {
	Reprovision *float64 `json:"reprovision,omitempty" minimum:"0" maximum:"1" doc:"Largest share of the cluster's CPU that late runs may have beyond what is reserved for them; 0: none."`
}

// MovePatch changes settings of moves; what is left out stays.
type MovePatch struct {
	Mode                *string  `json:"mode,omitempty" enum:"auto,propose,off" doc:"Carry plans out, only propose them, or make none unless asked."`
	Period              *string  `json:"period,omitempty" text:"duration" doc:"Time between evaluations of a cluster in which nothing changed, as a Go duration; here and below, 0s is the default."`
	MinResidency        *string  `json:"minResidency,omitempty" text:"duration" doc:"Minimum residency: a re-balance that the leader makes by itself does not move a VM again for this time, as a Go duration."`
	CoolDown            *string  `json:"coolDown,omitempty" text:"duration" doc:"Time after a re-balance before the leader plans the next, as a Go duration."`
	StabilizationWindow *string  `json:"stabilizationWindow,omitempty" text:"duration" doc:"Stabilization window: for this time VMs must have had too little and hosts have been unchanged, as a Go duration."`
	MinGain             *float64 `json:"minGain,omitempty" minimum:"0" maximum:"10" doc:"Least gain of a plan, as a fraction of the minimum yield; 0: the default."`
	IdleBelow           *float64 `json:"idleBelow,omitempty" minimum:"0" maximum:"1" doc:"The leader plans no re-balance by itself while VMs need less than this fraction of the cluster's CPU."`
	MaxBytes            *Size    `json:"maxBytes,omitempty" zero:"true" doc:"Most bytes that one plan may send, bytes or a size with a unit; 0: what one migration sends in a period."`
	PerHost             *int     `json:"perHost,omitempty" minimum:"1" maximum:"64" doc:"Most migrations at a time that one host takes part in."`
	Total               *int     `json:"total,omitempty" minimum:"0" maximum:"4096" doc:"Most migrations at a time in the cluster; 0: 8, or one for every four hosts if that is more."`
	Bandwidth           *Size    `json:"bandwidth,omitempty" zero:"true" doc:"Most bytes per second that one migration may send, bytes or a size with a unit; 0: no limit."`
	AutoConverge        *bool    `json:"autoConverge,omitempty" doc:"Slow guests down that change memory faster than it can be sent."`
	PostCopy            *bool    `json:"postCopy,omitempty" doc:"Hand guests over before all their memory is there, where that fits the budget. A network that fails at the hand-over can then leave a VM running twice."`
	CopyStorage         *bool    `json:"copyStorage,omitempty" doc:"Move VMs whose disks lie on one host with their disks, whose bytes count."`
	Deadline            *string  `json:"deadline,omitempty" text:"duration" doc:"Time after which a migration is aborted, as a Go duration; 0s: the default."`
	OnJoin              *bool    `json:"onJoin,omitempty" doc:"Look for a better placement when a host joins or comes back."`
}

func (s *SettingsPatch) check(fault func(field, format string, args ...any)) {
	if *s == (SettingsPatch{}) {
		fault("settings", "nothing to change: give at least one setting")
	}
	for name, nothing := range map[string]bool{"moves": s.Moves != nil && *s.Moves == MovePatch{}, "rightsizing": s.Rightsizing != nil && *s.Rightsizing == RightsizingPatch{},
		"periodic": s.Periodic != nil && *s.Periodic == PeriodicPatch{}} {
		if nothing {
			fault(name, "nothing to change")
		}
	}
}

// ParseSettings reads a change of settings from JSON. Its errors are *Invalid.
func ParseSettings(doc []byte) (SettingsPatch, error) { return decode[SettingsPatch](jsonTree(doc)) }

// settingKeys are the settings by the names that people write, with the types of their values.
var settingKeys = func() map[string]reflect.Type {
	out := map[string]reflect.Type{}
	var add func(prefix string, of reflect.Type)
	add = func(prefix string, of reflect.Type) {
		for f := range of.Fields() {
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			if t := f.Type.Elem(); t.Kind() == reflect.Struct {
				add(prefix+name+".", t)
			} else {
				out[prefix+name] = t
			}
		}
	}
	add("", reflect.TypeFor[SettingsPatch]())
	return out
}()

// SettingKeys are the names of all settings, in order.
func SettingKeys() []string { return slices.Sorted(maps.Keys(settingKeys)) }

// ParseSettingPairs reads settings written as KEY=VALUE: moves.period=5m. Its errors are *Invalid.
func ParseSettingPairs(pairs []string) (SettingsPatch, error) {
	r := &reader{}
	top, nested := map[string]json.RawMessage{}, map[string]map[string]json.RawMessage{}
	for _, pair := range pairs {
		key, value, ok := strings.Cut(pair, "=")
		is, known := settingKeys[key]
		switch {
		case !ok:
			r.fault(nil, clip(pair, 60), "write a setting as KEY=VALUE")
			continue
		case !known:
			r.fault(nil, clip(key, 60), "unknown setting%s", r.nearest(key, SettingKeys()))
			continue
		}
		into, name := top, key
		if of, inner, nests := strings.Cut(key, "."); nests {
			if nested[of] == nil {
				nested[of] = map[string]json.RawMessage{}
			}
			into, name = nested[of], inner
		}
		if into[name] != nil {
			r.fault(nil, key, "given twice")
			continue
		}
		switch {
		case is.Kind() == reflect.Slice:
			list := []string{}
			if value != "" {
				list = strings.Split(value, ",")
			}
			into[name], _ = json.Marshal(list) // text always can be
		case is.Kind() != reflect.String && is != reflect.TypeFor[Size]() && json.Valid([]byte(value)):
			into[name] = json.RawMessage(value)
		default:
			into[name], _ = json.Marshal(value)
		}
	}
	if err := r.err(); err != nil {
		return SettingsPatch{}, err
	}
	for of, settings := range nested {
		inner, err := json.Marshal(settings)
		if err != nil {
			return SettingsPatch{}, fmt.Errorf("settings: %w", err)
		}
		top[of] = inner
	}
	doc, err := json.Marshal(top)
	if err != nil {
		return SettingsPatch{}, fmt.Errorf("settings: %w", err)
	}
	patch, err := ParseSettings(doc)
	var invalid *Invalid
	if errors.As(err, &invalid) {
		for i := range invalid.Fields {
			invalid.Fields[i].Line = 0 // the user wrote no document that has lines
		}
	}
	return patch, err
}
