package forecast

import "math"

const (
	capShare       = 0.95 // use of this share of its cap and more shows that the cap binds
	restShare      = 0.9  // of a need that use is taken to be, once it is known
	throttledShare = 0.01 // of the time; less is a burst within a period, at any cap
	capGrowth      = 2
	minCapGrowth   = 0.25 // cores
	capDecline     = DampingFactor
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

// Censored estimates what CPU a VM needs from its use under a cap, which follows the estimate.
//
// Where the cap binds, the need is twice the cap, or 0.25 cores above it if that is more: never less than was thought
// before, never above the vCPUs. With the cap following, the need doubles at each sample until the cap no longer binds, so
// a load that has tripled is below the cap by the third. Where the cap does not follow, because the host is full, use shows
// nothing new, and the estimate stays at twice what is granted, or at what it was.
//
// Where it does not bind, the need is the use over 0.9: at once if that is more than was thought, else an eighth of the way at
// each sample. A cap at this need is used to 90%, less than the 95% at which it would count as binding: a
// load that stays the same is not taken for a hidden one again and again. For the same reason a cap below the estimate
// should leave out no more than 5% of it.
//
// It is a building block of what will set caps. No daemon calls it yet.
type Censored struct {
	vcpus float64
	need  float64 // NaN before the first sample
}

// NewCensored is an estimate that has seen nothing, for a VM of that many vCPUs: it cannot use more. Not above 0
// counts as no bound.
func NewCensored(vcpus float64) *Censored {
	if !(vcpus > 0) {
		vcpus = math.Inf(1)
	}
	return &Censored{vcpus: vcpus, need: math.NaN()}
}

// Observe takes a sample and returns the need in cores, NaN until something was measured, and whether the need is a guess upwards
// because the cap bound. At a cap of all vCPUs it never does: there is nothing to hide.
func (c *Censored) Observe(u CappedUse) (need float64, censored bool) {
	censored = u.Censored() && u.Cap < c.vcpus
	switch {
	case censored:
		c.need = c.above(max(capGrowth*u.Cap, u.Cap+minCapGrowth))
	case u.Used >= 0 && !math.IsInf(u.Used, 1):
		rest := min(u.Used/restShare, c.vcpus)
		if !(c.need > rest) { // also the first
			c.need = rest
		} else {
			c.need -= capDecline * (c.need - rest)
		}
	}
	return c.need, censored
}

// above is need, but no less than what was thought before and no more than the vCPUs.
func (c *Censored) above(need float64) float64 {
	if c.need > need {
		need = c.need
	}
	return min(need, c.vcpus)
}
