package agent

import (
	"math"
	"time"

	"evenkeel/forecast"
)

// Estimate is what a host forecasts of one of its VMs.
type Estimate struct {
	VM          string
	Generation  uint64
	Until       time.Time // end of the last step that was measured
	CPU, Memory Ahead     // cores; bytes
}

// Ahead is what is forecast of one resource of a VM for the next AheadSteps steps, one figure each; empty: nothing is.
type Ahead struct {
	Mean      []float64 `json:",omitempty"`
	Deviation []float64 `json:",omitempty"` // standard, of the value itself
	Trusted   bool      `json:",omitempty"`
	Reason    string    `json:",omitempty"` // why it is not trusted
}

// AheadSteps is how many steps of a forecast a host tells.
const AheadSteps = forecast.Horizon

// Guest is what a guest reports of its memory, and how it takes what is asked of it.
type Guest struct {
	// Available is what it could take into use without swapping, Unused what holds nothing: bytes, hypervisor.Unknown where
	// it does not tell.
	Available, Unused int64
	SwapIn            float64 // bytes per second since the sample before
	MajorFaults       float64 // per second, likewise
	Pressed           string  `json:",omitempty"` // why the host holds it to be short of memory now; "" = it is not
	Follows           bool    `json:",omitempty"` // it did as it was told when its balloon was last set
}

// ahead is a forecast as it is told: no more digits than it has.
func ahead(f forecast.Forecast, unit float64) Ahead {
	out := Ahead{Trusted: f.Trusted, Reason: f.Reason}
	for _, p := range f.Ahead {
		mean, deviation := p.Mean, math.Sqrt(max(0, p.Variance))
		if math.IsNaN(mean+deviation) || math.IsInf(mean+deviation, 0) {
			return Ahead{Reason: "what is forecast is no number"}
		}
		out.Mean = append(out.Mean, math.Round(mean/unit)*unit)
		out.Deviation = append(out.Deviation, math.Ceil(deviation/unit)*unit)
	}
	return out
}
