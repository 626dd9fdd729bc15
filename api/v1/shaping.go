package v1

import "time"

// ShapingSettings say whose needs are estimated, and what is done with that.
type ShapingSettings struct {
	Mode           string `json:"mode" enum:"off,shadow,on" doc:"on: VMs are given what they are expected to need, where their virtual clusters agree to it. shadow: it is only shown what would be. off: everybody has what was declared."`
	Needs          string `json:"needs" enum:"declared,estimated" doc:"Of a virtual cluster that says nothing."`
	Aggressiveness string `json:"aggressiveness" enum:"conservative,balanced,aggressive" doc:"How little is left beside a forecast; of a virtual cluster that says nothing."`
}

// ShapingPatch changes settings of shaping; what is left out stays.
type ShapingPatch struct {
	Mode           *string `json:"mode,omitempty" enum:"off,shadow,on" doc:"Give VMs what they are expected to need, only show it, or leave everybody what was declared."`
	Needs          *string `json:"needs,omitempty" enum:"declared,estimated" doc:"Of a virtual cluster that says nothing."`
	Aggressiveness *string `json:"aggressiveness,omitempty" enum:"conservative,balanced,aggressive" doc:"Of a virtual cluster that says nothing."`
}

// Shaping is what was reclaimed of what was declared, or in the shadow what would be.
type Shaping struct {
	Mode           string        `json:"mode" enum:"off,shadow,on"`
	Needs          string        `json:"needs" doc:"Of a virtual cluster that says nothing."`
	Aggressiveness string        `json:"aggressiveness" doc:"Of a virtual cluster that says nothing."`
	LookedAt       time.Time     `json:"lookedAt,omitzero" doc:"Last look at what VMs need; left out: none since this server began to lead."`
	Reclaimed      Resources     `json:"reclaimed" doc:"By that look, of what was declared; in the shadow what would be."`
	VMs            []ShapedVM    `json:"vms" nullable:"false" doc:"VMs whose needs are estimated; in the shadow all that run."`
	Waiting        []string      `json:"waiting" nullable:"false" doc:"VMs that were preempted and start again once there is room."`
	Hours          []ShapingHour `json:"hours" nullable:"false" doc:"The last seven days at most, since this server began to lead; oldest first."`
}

// ShapedVM is what one VM is given.
type ShapedVM struct {
	VM             string  `json:"vm"`
	VirtualCluster string  `json:"virtualCluster"`
	Host           string  `json:"host"`
	CPU            float64 `json:"cpu" doc:"Declared, cores."`
	Need           float64 `json:"need" doc:"Estimated for each VM of its group, cores; in the shadow it is not in force."`
	Memory         Size    `json:"memory" doc:"Declared, bytes."`
	Balloon        Size    `json:"balloon" doc:"Target of its balloon, bytes; in the shadow it is not in force."`
	Pressed        bool    `json:"pressed,omitempty" doc:"It is short of memory now."`
	ShortCPU       float64 `json:"shortCPU,omitempty" doc:"Cores that it uses beyond what it would have been given; where that is in force, that it is held back by."`
	ShortMemory    Size    `json:"shortMemory,omitempty" doc:"Bytes that it uses beyond what it would have been given."`
	LeftAlone      bool    `json:"leftAlone,omitempty" doc:"Its memory is left alone: see reason."`
	Reason         string  `json:"reason" doc:"Why it is given that."`
}

// ShapingHour is what shaping did in an hour. VM-minutes count each VM for each minute.
type ShapingHour struct {
	From        time.Time `json:"from"`
	Mode        string    `json:"mode" enum:"shadow,on"`
	Minutes     float64   `json:"minutes" doc:"That were looked at."`
	Reclaimed   Resources `json:"reclaimed" doc:"On average."`
	VMMinutes   float64   `json:"vmMinutes"`
	ShortCPU    float64   `json:"shortCPUMinutes" doc:"VM-minutes in which CPU would have been held back, or was."`
	ShortMemory float64   `json:"shortMemoryMinutes" doc:"VM-minutes in which memory would have been short, or was."`
	WorstCPU    float64   `json:"worstCPU" doc:"Cores by which a VM was short at the worst."`
	WorstMemory Size      `json:"worstMemory" doc:"Bytes, likewise."`
	WorstVM     string    `json:"worstVM,omitempty"`
	Preempted   int       `json:"preempted"`
}
