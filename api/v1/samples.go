package v1

import "time"

// Resources that VMs are measured by.
const (
	ResourceCPU    = "cpu"
	ResourceMemory = "memory"
)

// Samples is what a VM used of a resource, step by step.
type Samples struct {
	VM          string       `json:"vm" doc:"Its name."`
	Host        string       `json:"host" doc:"The host that keeps the figures."`
	Resource    string       `json:"resource" enum:"cpu,memory"`
	Unit        string       `json:"unit" enum:"cores,bytes"`
	Resolution  string       `json:"resolution" enum:"raw,1m,5m,1h"`
	StepSeconds int          `json:"stepSeconds" doc:"How long a step is."`
	KeptSeconds int          `json:"keptSeconds" doc:"How far back steps of this resolution are kept."`
	Items       []SampleStep `json:"items" doc:"Oldest first. A step in which nothing was measured is missing; the last may not have ended."`
}

// SampleStep is what was measured in one step.
type SampleStep struct {
	At        time.Time `json:"at" doc:"When the step began, by the clock of the host."`
	Mean      float64   `json:"mean" doc:"CPU: cores that its virtual CPUs used. Memory: bytes that it used, its balloon less what its guest reports as available; where the guest reports nothing, the host's memory that it held."`
	Max       float64   `json:"max" doc:"The largest mean of ten seconds."`
	Samples   int       `json:"samples" doc:"Measurements in it, one for ten seconds."`
	Cap       *float64  `json:"cap,omitempty" doc:"CPU: cores that it was held to at the end; 0: not at all."`
	Throttled *float64  `json:"throttled,omitempty" doc:"CPU: share of the time in which a virtual CPU was held back by the cap, 0 to 1; left out where the host does not tell."`
	Censored  *float64  `json:"censored,omitempty" doc:"CPU: share of its measurements in which the cap held it back: it would have used more than was measured."`
	Balloon   *float64  `json:"balloon,omitempty" doc:"Memory: bytes that it had, the size of its balloon."`
}
