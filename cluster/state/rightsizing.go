package state

// RightsizingMode says what is done with estimates of what VMs need.
type RightsizingMode string

// Modes of rightsizing.
const (
	RightsizingOff    RightsizingMode = "off"    // nothing: all needs are those declared
	RightsizingShadow RightsizingMode = "shadow" // it is shown what would be done
	RightsizingOn     RightsizingMode = "on"
)

// Needs of a VC: where they come from.
const (
	NeedsDeclared  = "declared"
	NeedsEstimated = "estimated"
)

// How bold estimates are.
const (
	Conservative = "conservative"
	Balanced     = "balanced"
	Aggressive   = "aggressive"
)

// RightsizingSettings say whose needs are estimated, and what is done with that. A zero field stands for its default: see WithDefaults.
type RightsizingSettings struct {
	Mode           RightsizingMode `json:"mode,omitempty"`
	Needs          string          `json:"needs,omitempty"`          // of a VC that says nothing
	Aggressiveness string          `json:"aggressiveness,omitempty"` // of a VC that says nothing
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

// AggressivenessOf of the estimates for a VC.
func (x RightsizingSettings) AggressivenessOf(vc *VC) string {
	if vc.Aggressiveness != "" {
		return vc.Aggressiveness
	}
	return x.WithDefaults().Aggressiveness
}

// Need of one VM, cores: what was estimated, or else declared.
func (g Group) Need() float64 {
	if g.Estimated > 0 {
		return min(g.Estimated, g.CPU)
	}
	return g.CPU
}

// Due is the balloon target of a VM of the group, bytes.
func (v VM) Due(g Group) int64 {
	if v.Target > 0 {
		return min(v.Target, g.Memory)
	}
	return g.Memory
}

// Rightsize sets estimated needs and balloon targets, all of them or none. It is checked again when applied: limits
// of the hosts, floors, and whether who shall have less still agrees to it.
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
