// Package ets holds exponential smoothing as state-space models: what R's forecast::ets fits (Hyndman, Koehler, Ord and
// Snyder, Forecasting with Exponential Smoothing, 2008, chapters 2, 5 and 6).
//
// A Spec names the model: additive or multiplicative errors; no trend, an additive or a multiplicative one, damped or
// not; no season, an additive or a multiplicative one. Fit finds parameters and initial states by maximum
// likelihood, Model.Update takes the next value without a refit, Model.Forecast gives means and variances.
//
// It calculates, and nothing else: no I/O, no clock, no randomness but from a seed that the caller gives.
package ets
