//go:build !linux

package dfrs

// processorTime is not known here.
func processorTime(work func()) float64 {
	work()
	return 0
}
