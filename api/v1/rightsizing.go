package v1

import "time"

// RightsizingSettings say whose needs are estimated, and what is done with that.
type RightsizingSettings struct {
	Mode           string   `json:"mode" enum:"off,shadow,on" doc:"on: VMs get what they are expected to need, where their virtual clusters agree to it. shadow: the leader only shows what it would do. off: every VM has what was declared."`
	Needs          string   `json:"needs" enum:"declared,estimated" doc:"For a virtual cluster that names none."`
	Aggressiveness string   `json:"aggressiveness" enum:"conservative,balanced,aggressive" doc:"How small the buffer beside a forecast is; for a virtual cluster that names none."`
	DisabledStages []string `json:"disabledStages" nullable:"false" enum:"forecast,margin,availability,reserve,emergency" doc:"Stages of rightsizing that are switched off; the others are on."`
}

// RightsizingPatch changes settings of rightsizing; what is left out stays.
type RightsizingPatch struct {
	Mode           *string   `json:"mode,omitempty" enum:"off,shadow,on" doc:"Give VMs what they are expected to need, only show it, or give every VM what was declared."`
	Needs          *string   `json:"needs,omitempty" enum:"declared,estimated" doc:"For a virtual cluster that names none."`
	Aggressiveness *string   `json:"aggressiveness,omitempty" enum:"conservative,balanced,aggressive" doc:"For a virtual cluster that names none."`
	DisabledStages *[]string `json:"disabledStages,omitempty" maxItems:"5" enum:"forecast,margin,availability,reserve,emergency" doc:"Stages of rightsizing to switch off; none: all are on."`
}

// Rightsizing is what was reclaimed of what was declared, or in the shadow what would be.
type Rightsizing struct {
	Mode           string             `json:"mode" enum:"off,shadow,on" doc:"off: needs are as declared. shadow: estimates are shown and not in force. on: they are in force."`
	Needs          string             `json:"needs" doc:"For a virtual cluster that names none."`
	Aggressiveness string             `json:"aggressiveness" doc:"For a virtual cluster that names none."`
	Stages         []RightsizingStage `json:"stages" nullable:"false" doc:"Stages of rightsizing, in the order in which they act."`
	EvaluatedAt    time.Time          `json:"evaluatedAt,omitzero" doc:"Last look at what VMs need; left out: none since this server began to lead."`
	Reclaimed      Resources          `json:"reclaimed" doc:"By that look, of what was declared; in the shadow what would be."`
	VMs            []RightsizedVM     `json:"vms" nullable:"false" doc:"VMs whose needs are estimated; in the shadow all that run."`
	Waiting        []string           `json:"waiting" nullable:"false" doc:"VMs that were preempted and start again once there is room."`
	Admission      Admission          `json:"admission" doc:"By what new VMs are placed where needs are estimated."`
	Hours          []RightsizingHour  `json:"hours" nullable:"false" doc:"The last seven days of them at most, oldest first; what a leader that died saw in its last ten minutes may be missing."`
}

// RightsizingStage is a stage of rightsizing, and what it does now.
type RightsizingStage struct {
	Stage  string    `json:"stage" enum:"forecast,margin,availability,reserve,emergency" doc:"Name of the stage."`
	On     bool      `json:"on" doc:"False where rightsizing.disabledStages names it."`
	Effect Resources `json:"effect" doc:"In all of the cluster. forecast: reclaimed of what was declared. margin, availability: kept from new VMs. reserve: memory kept free beyond what one VM of each host may take back. emergency: memory that guests under memory pressure have beyond the leader's targets."`
}

// RightsizedVM is what one VM is given.
type RightsizedVM struct {
	VM             string  `json:"vm" doc:"Name of the VM."`
	VirtualCluster string  `json:"virtualCluster" doc:"Name of its virtual cluster."`
	Host           string  `json:"host" doc:"Name of its host."`
	CPU            float64 `json:"cpu" doc:"Declared, cores."`
	Need           float64 `json:"need" doc:"Estimated for each VM of its group, cores; in the shadow it is not in force."`
	Memory         Size    `json:"memory" doc:"Declared, bytes."`
	Balloon        Size    `json:"balloon" doc:"Target of its balloon, bytes; in the shadow it is not in force."`
	UnderPressure  bool    `json:"underPressure,omitempty" doc:"It is short of memory now."`
	ShortCPU       float64 `json:"shortCPU,omitempty" doc:"Cores that it uses beyond what it would have been given; where that is in force, that it is held back by."`
	ShortMemory    Size    `json:"shortMemory,omitempty" doc:"Bytes that it uses beyond what it would have been given."`
	Excluded       bool    `json:"excluded,omitempty" doc:"Its memory is left alone: see reason."`
	Reason         string  `json:"reason" doc:"Why it is given that."`
}

// RightsizingHour is what rightsizing did in an hour. VM-minutes count each VM for each minute.
type RightsizingHour struct {
	From        time.Time `json:"from" doc:"When the hour began."`
	Mode        string    `json:"mode" enum:"shadow,on" doc:"What rightsizing did then."`
	Minutes     float64   `json:"minutes" doc:"That were looked at."`
	Reclaimed   Resources `json:"reclaimed" doc:"On average."`
	VMMinutes   float64   `json:"vmMinutes" doc:"VM-minutes that were looked at."`
	ShortCPU    float64   `json:"shortCPUMinutes" doc:"VM-minutes in which CPU would have been held back, or was."`
	ShortMemory float64   `json:"shortMemoryMinutes" doc:"VM-minutes in which memory would have been short, or was."`
	WorstCPU    float64   `json:"worstCPU" doc:"Cores by which a VM was short at the worst."`
	WorstMemory Size      `json:"worstMemory" doc:"Bytes, likewise."`
	WorstVM     string    `json:"worstVM,omitempty" doc:"The VM that was short by most."`
	Preempted   int       `json:"preempted" doc:"VMs that were preempted."`
}

// Admission is by what new VMs are placed beside VMs whose needs are estimated.
type Admission struct {
	InForce bool           `json:"inForce" doc:"False in the shadow, where it is only shown, and where rightsizing is off."`
	Quality *float64       `json:"quality,omitempty" doc:"Share of the looks at VMs in the last period at which a VM had the CPU and the memory that it could use, or in the shadow would have; left out: not known yet."`
	Target  float64        `json:"target" doc:"Quality above which the factors fall; below it they rise where it falls."`
	Margins []Margin       `json:"margins" nullable:"false" doc:"One for each aggressiveness; none where rightsizing is off."`
	Hosts   []HostHeadroom `json:"hosts" nullable:"false" doc:"What each host has for new VMs."`
}

// Margin is by what factor an estimated need counts where new VMs are placed, up to what was declared.
type Margin struct {
	Aggressiveness string  `json:"aggressiveness" enum:"conservative,balanced,aggressive" doc:"Of which virtual clusters it is."`
	Factor         float64 `json:"factor" doc:"Now (P)."`
	Start          float64 `json:"start" doc:"As rightsizing is switched on, and with a new leader."`
	Min            float64 `json:"min" doc:"The smallest that the factor becomes."`
	Max            float64 `json:"max" doc:"The largest that the factor becomes."`
	K1             float64 `json:"k1" doc:"Share of what was declared that a VM is given beside what is forecast."`
	K2             float64 `json:"k2" doc:"Standard deviations of the forecast of memory that it is given beside that."`
}

// HostHeadroom is what a host has for new VMs. CPU is at the least yields that all accept: a VM takes its need times its least yield of it.
type HostHeadroom struct {
	Host      string            `json:"host" doc:"Name of the host."`
	Needs     Resources         `json:"needs" doc:"What VMs with estimated needs are thought to need there."`
	CountAs   Resources         `json:"countAs" doc:"What that counts as where new VMs are placed."`
	Estimated Resources         `json:"estimated" doc:"Room for new VMs if estimates are right."`
	Headroom  Resources         `json:"headroom" doc:"Room for new VMs: never more than that."`
	Available *HostAvailability `json:"available,omitempty" doc:"What the host itself holds to be available; left out where it reported none."`
	Ignored   string            `json:"ignored,omitempty" doc:"Why what the host itself says counts for nothing."`
}

// HostAvailability is what a host itself measures to be available for new VMs: the lower of its allowance less what VMs use, and of its capacity less what it
// estimates to be in use.
type HostAvailability struct {
	CPU     float64   `json:"cpu" doc:"Cores; 0 where it is overloaded."`
	Memory  Size      `json:"memory" doc:"Bytes; 0 where it is overloaded."`
	Used    Resources `json:"used" doc:"By its VMs, in its last step: CPU on average, memory at most."`
	HeardAt time.Time `json:"heardAt" doc:"When the host reported it."`
	Ignored string    `json:"ignored,omitempty" doc:"Why it counts for nothing: it is too old."`
}
