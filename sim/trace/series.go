package trace

import (
	"math"
	"time"
)

// Resource is what a series measures.
type Resource string

const (
	CPU    Resource = "cpu"
	Memory Resource = "memory"
)

// Series is what one VM used of one resource.
type Series struct {
	Set      string // the data set: the name of its format
	VM       string // unique within the set
	Resource Resource
	Step     time.Duration // from one value to the next
	Start    time.Time     // of the first value; zero where the files do not state it
	Values   []float64     // at least one; NaN was not measured. The unit is the format's.
	Limit    float64       // the most that the VM had, in the unit of the values; NaN is unknown. Some measured more.
}

// Measured counts the values that are not NaN.
func (s Series) Measured() int {
	n := 0
	for _, v := range s.Values {
		if !math.IsNaN(v) {
			n++
		}
	}
	return n
}
