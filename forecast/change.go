package forecast

// changeTest says whether what was stated of a series no longer applies, because the series has changed. It is a cumulative sum (Page 1954)
// of logarithms: how much likelier each value is if 95% intervals one step ahead contain half of the values than if they contain 95%. A
// value far outside counts for two. The sum passes its limit after two values outside in a row, or one far outside. It is below the limit
// again after at most seven values inside.
type changeTest float32

const (
	changeInside  = -0.642 // log(0.5/0.95)
	changeOutside = 2.303  // log(0.5/0.05)
	changeLimit   = 4
	changeMax     = 8   // evidence of values long ago must not outweigh that of now
	changeFar     = 0.5 // outside the 99% interval by more than this part of its width is far
)

// add takes a value, and what was stated of it one step before.
func (c *changeTest) add(stated *[levels]float32, y float64) {
	z, step := float32(y), float32(changeInside)
	if z < stated[1] || z > stated[levels-2] {
		step = changeOutside
		if far := changeFar * (stated[levels-1] - stated[0]); z < stated[0]-far || z > stated[levels-1]+far {
			step *= 2
		}
	}
	*c = max(0, min(changeMax, *c+changeTest(step)))
}

// changed says whether forecasts of the series cannot be relied on now.
func (c changeTest) changed() bool { return c > changeLimit }

func (c *changeTest) archive(a *archive) {
	x := []float32{float32(*c)}
	a.singles(x, false)
	*c = changeTest(x[0])
	a.require(x[0] >= 0 && x[0] <= changeMax, "evidence of a change that no values give")
}
