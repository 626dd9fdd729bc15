package skyline

// Options are the weights of the fit.
type Options struct {
	// Alpha is the weight of over-allocation, in [0, 1]; 1-Alpha that of under-allocation.
	Alpha float64
	// Beta is the weight of the anti-lazy term: a share of V, the optimum without that term, if BetaOfV, else a plain
	// number in the unit of the usage. Not below 0.
	Beta    float64
	BetaOfV bool
	// Debts: what a step falls short of can be made up by later steps (CPU). Without, each step stands alone (memory).
	Debts bool
	// Censored marks steps in which a run was held back: it needed at least what it used there. By run, then step; nil
	// or shorter than the runs: not censored.
	Censored [][]bool
}

// Model is a fitted skyline.
type Model struct {
	Skyline   []float64 // by step, in the unit of the usage
	Objective float64   // Alpha*Over + (1-Alpha)*Under + Weight*Eps
	Over      float64   // A_o: mean over-allocation of a run, summed over its steps
	Under     float64   // A_u: mean debt of a run at its end; without debts, the mean shortfall summed over its steps
	Eps       float64   // mean share of a run's work that falls short in its own step
	Weight    float64   // of Eps: Beta, or Beta*V
	Gap       float64   // (Objective - a proven lower bound) / Objective
}
