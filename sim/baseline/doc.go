// Package baseline holds forecasts that cost next to nothing and that others use: the last value, the peak of a window, a
// decaying histogram, exponential smoothing. Any cleverer model must beat them.
//
// Production uses none of them: vcsim scores them beside the models of package forecast. They take values and return
// values; they never read a clock and never do I/O.
package baseline
