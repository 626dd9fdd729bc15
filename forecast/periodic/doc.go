// Package periodic finds jobs that come again and again among runs, with their periods and deadlines, and learns what the next
// run needs (Jyothi et al. 2016, Morpheus, sec. 4 and 5).
//
// It takes values and returns values. It never reads a clock, never does I/O, and never acts on what it found: an owner signs off.
package periodic
