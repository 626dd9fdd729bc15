// Package solvefile reads the problems that the offline solver takes and writes
// its answers: one JSON object each.
//
// Reading is strict: an unknown or repeated field, a repeated name, a number
// out of range, text after the object or invalid UTF-8 is an error that names
// the field. The package turns bytes into values and values into bytes. It
// never opens a file and never solves anything.
package solvefile
