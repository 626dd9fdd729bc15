// Package forecast says what a series of measured use will be next, and how sure that is.
//
// A Model learns one series value by value and predicts the next ones as distributions. The subpackages hold the
// mathematics (ARIMA, Gaussian processes), this package makes Models of them, scores all of
// them on what really came, and mixes them by that score (science: Pace, sec. III; Ha, sec. III).
//
// It takes values and returns values. It never reads a clock, never does I/O, and never decides what a VM gets.
package forecast
