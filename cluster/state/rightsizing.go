package state

import "slices"

// RightsizingMode says what is done with estimates of needs.
type RightsizingMode string

// Modes of rightsizing.
const (
	RightsizingOff    RightsizingMode = "off"    // nothing: all needs are those declared
	RightsizingShadow RightsizingMode = "shadow" // it is shown what would be done
	RightsizingOn     RightsizingMode = "on"
)

// Sources of a VC's needs.
const (
	NeedsDeclared  = "declared"
	NeedsEstimated = "estimated"
)

// How aggressive estimates are.
const (
	Conservative = "conservative"
	Balanced     = "balanced"
	Aggressive   = "aggressive"
)

// Stages of rightsizing, by the names under which RightsizingSettings.DisabledStages switches them off.
const (
	StageForecast     = "forecast"     // VMs get what their forecasts say; off: what was declared
	StageMargin       = "margin"       // estimated needs of VMs that run count more where new ones are placed
	StageAvailability = "availability" // no host takes more new VMs than it reports to be available
	StageReserve      = "reserve"      // hosts keep a quarter free of what all VMs may take back, besides what one VM may
	StageEmergency    = "emergency"    // hosts give guests under memory pressure more without asking
)

// Stages of rightsizing in the order in which they act.
var Stages = [...]string{StageForecast, StageMargin, StageAvailability, StageReserve, StageEmergency}

// RightsizingSettings say which VCs' needs are estimated, and what is done with the estimates. A zero field stands for its
// default: see WithDefaults.
type RightsizingSettings struct {
	Mode           RightsizingMode `json:"mode,omitempty"`
	Needs          string          `json:"needs,omitempty"`          // of a VC that does not set them
	Aggressiveness string          `json:"aggressiveness,omitempty"` // of a VC that does not set it
	DisabledStages []string        `json:"disabledStages,omitempty"` // of Stages; all others are on
}

// WithDefaults fills in what is not set.
func (x RightsizingSettings) WithDefaults() RightsizingSettings {
	set(&x.Mode, RightsizingShadow)
	set(&x.Needs, NeedsDeclared)
	set(&x.Aggressiveness, Balanced)
	return x
}

// Estimates says whether the needs of a VC are to be estimated, whatever the mode.
func (x RightsizingSettings) Estimates(vc *VC) bool {
	needs := vc.Needs
	if needs == "" {
		needs = x.WithDefaults().Needs
	}
	return needs == NeedsEstimated
}

// AggressivenessOf returns the aggressiveness of the estimates for a VC.
func (x RightsizingSettings) AggressivenessOf(vc *VC) string {
	if vc.Aggressiveness != "" {
		return vc.Aggressiveness
	}
	return x.WithDefaults().Aggressiveness
}

// Runs says whether a stage is on.
func (x RightsizingSettings) Runs(stage string) bool {
	return !slices.Contains(x.DisabledStages, stage)
}

// Need is the need of one VM, cores: the estimated one, if there is one, else the declared one.
func (g Group) Need() float64 {
	if g.Estimated > 0 {
		return min(g.Estimated, g.CPU)
	}
	return g.CPU
}

// Due is the balloon target of a VM of the group, bytes.
func (v VM) Due(g Group) int64 { return v.due(&g) }

func (v *VM) due(g *Group) int64 {
	if v.Target > 0 {
		return min(v.Target, g.Memory)
	}
	return g.Memory
}

// Rightsize sets estimated needs and balloon targets, all of them or none. Apply checks it again: the limits of the hosts, the
// floors, and whether each VC that shall have less still allows it.
type Rightsize struct {
	Basis   uint64      `json:"basis"` // log index of the snapshot it was made on
	Needs   []GroupNeed `json:"needs,omitempty"`
	Targets []VMTarget  `json:"targets,omitempty"`
	Text    string      `json:"text,omitempty"` // for the event; "" = none
}

// GroupNeed is the need of each VM of a group.
type GroupNeed struct {
	VC    string  `json:"vc"` // id
	Group string  `json:"group"`
	CPU   float64 `json:"cpu"` // cores; 0 = as declared
}

// VMTarget is the balloon target of a VM.
type VMTarget struct {
	VM         string `json:"vm"`
	Generation uint64 `json:"generation"`
	Memory     int64  `json:"memory"` // bytes; 0 = as declared
}

// Empty says that nothing would change.
func (b Rightsize) Empty() bool { return len(b.Needs)+len(b.Targets) == 0 }
