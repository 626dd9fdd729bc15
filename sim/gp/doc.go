// Package gp predicts a series by Gaussian-process regression on its own history: the value that followed patterns
// like the latest one is what will follow it, and how far those values lay apart says how sure that is (Pace, Milios,
// Carra, Michiardi: Dynamic Resource Shaping for Compute Clusters, sec. III-A2, eq. 3-8; Rasmussen and Williams:
// Gaussian Processes for Machine Learning, 2006, GPML below).
//
// Regression is the mathematics: points, a kernel, the evidence (log marginal likelihood) of hyper-parameters with its
// analytic gradient, predictions. Forecaster makes patterns of a window of a series, finds the hyper-parameters of the
// greatest evidence, and predicts several steps ahead.
//
// Both are workspaces: their results depend on what a call hands in, and one Forecaster serves any number of
// series, one at a time. What a series has to keep is its window of values and its Hyper, a few numbers.
//
// The package never draws at random, never keeps what a caller hands in, and never panics on data: what it cannot
// use it refuses with an error. It is not safe for concurrent use.
package gp
