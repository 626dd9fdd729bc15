package forecast

import "math"

const (
	capShare       = 0.95 // use of this share of its cap and more shows that the cap binds
	throttledShare = 0.01 // of the time; less is a burst within a period, at any cap
)

// CappedUse is what was measured of a VM's CPU over one sample.
type CappedUse struct {
	Used      float64 // cores, NaN if not measured
	Cap       float64 // cores, while the sample was taken; 0, NaN or infinite where there was none
	Throttled float64 // share of the time that the VM was kept waiting by its cap, 0 to 1; NaN if not known
}

// Censored says whether the cap hid what the VM would have used: it waited for 1% of the time or more, or used 95% of the cap or more.
func (u CappedUse) Censored() bool {
	capped := u.Cap > 0 && !math.IsInf(u.Cap, 1)
	return capped && (u.Throttled >= throttledShare || u.Used >= capShare*u.Cap)
}
