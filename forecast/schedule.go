package forecast

// schedule says when what is dear to fit is fitted again. The phase, any number, one per series, moves it, so that
// thousands of series that began in the same minute are not fitted in the same minute.
type schedule struct {
	phase       int
	fresh       int // steps from a fit that succeeded to the next
	retry       int // steps between tries until one has
	minMeasured int // values measured before the first
}

// due says whether a model is to be fitted after n steps of which seen were measured.
func (s schedule) due(n, seen int, fitted bool) bool {
	every := s.retry
	if fitted {
		every = s.fresh
	}
	return seen >= s.minMeasured && (n+s.phase)%every == 0
}
