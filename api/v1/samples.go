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
	Resource    string       `json:"resource" enum:"cpu,memory" doc:"What was measured."`
	Unit        string       `json:"unit" enum:"cores,bytes" doc:"Unit of all values: cores of cpu, bytes of memory."`
	Resolution  string       `json:"resolution" enum:"raw,1m,5m,1h" doc:"How fine the steps are."`
	StepSeconds int          `json:"stepSeconds" doc:"How long a step is."`
	KeptSeconds int          `json:"keptSeconds" doc:"How far back steps of this resolution are kept."`
	Items       []SampleStep `json:"items" doc:"Oldest first. A step in which nothing was measured is missing; the last may not have ended."`
}

// Forecast is what a VM will use of a resource, by what its host measured, and how good such forecasts of it have been.
type Forecast struct {
	VM          string    `json:"vm" doc:"Its name."`
	Host        string    `json:"host" doc:"The host that keeps the forecast."`
	Resource    string    `json:"resource" enum:"cpu,memory" doc:"What is forecast."`
	Unit        string    `json:"unit" enum:"cores,bytes" doc:"Unit of all values: cores of cpu, bytes of memory."`
	StepSeconds int       `json:"stepSeconds" doc:"How long a step is."`
	Until       time.Time `json:"until,omitzero" doc:"The end of the last step that was measured; left out if none was."`
	Trusted     bool      `json:"trusted" doc:"Whether decisions may rest on it. If not, what was declared counts, or what the VM uses once it was measured for 15 minutes."`
	Reason      string    `json:"reason,omitempty" doc:"Why it is not trusted."`
	Declared    float64   `json:"declared" doc:"What the tenant declared that it needs."`
	Need        float64   `json:"need" doc:"What it is taken to need: the most that is forecast of the next ten steps with its buffer, however many steps are asked for, at most what was declared; what was declared, where the forecast is not trusted."`
	Buffer      float64   `json:"buffer" doc:"The buffer of that step of the ten that needs most: by the aggressiveness of its virtual cluster, balanced is 5% of what was declared and three standard deviations; 0 where nothing is forecast."`

	Items  []ForecastStep  `json:"items" doc:"The steps after until, in order; empty while too little was measured."`
	Models []ForecastModel `json:"models" doc:"The mixture of all models first: what is stated in the end."`
}

// ForecastStep is what one step will bring.
type ForecastStep struct {
	At    time.Time  `json:"at" doc:"When it begins."`
	Mean  float64    `json:"mean" doc:"Expected value, in the unit of the forecast."`
	Sd    float64    `json:"sd" doc:"Standard deviation of the value."`
	Int50 [2]float64 `json:"int50" doc:"The value is within with a probability of 50%."`
	Int80 [2]float64 `json:"int80" doc:"The same with 80%."`
	Int95 [2]float64 `json:"int95" doc:"The same with 95%."`
	Int99 [2]float64 `json:"int99" doc:"The same with 99%."`
}

// ForecastModel is how good one model has been on this VM, and how much it has to say.
type ForecastModel struct {
	Name     string                `json:"name" doc:"Name of the model."`
	Share    float64               `json:"share" doc:"Its part in the mixture now, 0 to 1; 1 of the mixture itself."`
	Horizons []ForecastCalibration `json:"horizons" doc:"How good it has been, by horizon."`
}

// ForecastCalibration is how good forecasts of one horizon have been. Old ones fade: one of 200 steps ago counts a third.
type ForecastCalibration struct {
	Steps   int     `json:"steps" doc:"How many steps ahead."`
	Values  float64 `json:"values" doc:"How many values it rests on, faded ones in part."`
	Pinball float64 `json:"pinball" doc:"Mean pinball loss over the quantiles, in the unit of the resource."`
	In50    float64 `json:"in50" doc:"Share of the values that came within the interval of 50%."`
	In80    float64 `json:"in80" doc:"The same of the interval of 80%."`
	In95    float64 `json:"in95" doc:"The same of the interval of 95%."`
	In99    float64 `json:"in99" doc:"The same of the interval of 99%."`
	Above   float64 `json:"above" doc:"Share of the values above the upper end of the interval of 95%."`
}

// SampleStep is what was measured in one step.
type SampleStep struct {
	At        time.Time `json:"at" doc:"When the step began, by the clock of the host."`
	Mean      float64   `json:"mean" doc:"CPU: cores that its virtual CPUs used. Memory: bytes that it used, its balloon less what its guest reports as available; where the guest reports nothing, the host's memory that it held."`
	Max       float64   `json:"max" doc:"The largest mean of ten seconds."`
	Samples   int       `json:"samples" doc:"Measurements in it, one for ten seconds."`
	Cap       *float64  `json:"cap,omitempty" doc:"CPU: cores that it was held to at the end; 0: not at all."`
	Throttled *float64  `json:"throttled,omitempty" doc:"CPU: share of the time in which a virtual CPU was held back by the cap, 0 to 1; left out where the host does not report it."`
	Censored  *float64  `json:"censored,omitempty" doc:"CPU: share of its measurements in which the cap held it back: it would have used more than was measured."`
	Balloon   *float64  `json:"balloon,omitempty" doc:"Memory: bytes that it had, the size of its balloon."`
}
