// Package forecast says what a series of measured use will be next, and how sure that is.
//
// A Model learns one series value by value and predicts the next ones as distributions. A Mixture is the Model
// of production: it scores its experts on what really came, and mixes them by that score (science: Pace, sec.
// III; Ha, sec. III). The subpackages periodic and skyline are about runs of jobs that come again.
//
// It takes values and returns values. It never reads a clock, never does I/O, and never decides what a VM gets.
package forecast
