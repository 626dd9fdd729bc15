package morpheus

// clairvoyant knows what each run will use, and reserves it: only hopeless runs miss. No reservation, and no re-provisioning, can do better.
func (s *Study) clairvoyant() outcome {
	o := outcome{}
	for i := range s.learned {
		c := &s.learned[i]
		missed, used := make([]bool, len(c.future)), 0.0
		for k := range c.future {
			missed[k] = c.hopeless(&c.future[k])
			used += c.future[k].work()
		}
		o.count(c, missed, used, used)
	}
	return o
}

// cause is why a run missed its deadline in its slot.
type cause int

const (
	byFate     cause = iota // it would have with all it asks for
	byFewRuns               // it has more work than the slot, and its job has too few past runs for a hundredth of them
	byMoreWork              // it has more work than the slot
	byInputs                // it would have ended if its inputs had been there from the start of the period on
	byLateWork              // its work comes when the slot has too little left
	causes
)

// why a run missed its deadline in a slot that it had nothing but.
func (c *contract) why(r *Run, s *slot) cause {
	switch {
	case c.hopeless(r):
		return byFate
	case r.work() > s.sum() && paperAlpha*float64(len(c.past)+1) < 1:
		return byFewRuns
	case r.work() > s.sum():
		return byMoreWork
	}
	early := *r
	early.Inputs = 0
	if _, inTime := alone(&early, c.due, s.at); inTime {
		return byInputs
	}
	return byLateWork
}

// causesOf says why runs missed with nothing but what is reserved, as means over jobs.
func (s *Study) causesOf() (*Table, error) {
	t := &Table{Title: "Why deadlines are missed with nothing but what is reserved", Columns: []Column{{Name: missedName, Percent: true, Digits: 2}, {Name: "unavoidable", Percent: true, Digits: 2},
		{Name: "more work than reserved, few past runs", Percent: true, Digits: 2}, {Name: "the same, enough past runs", Percent: true, Digits: 2},
		{Name: "late inputs", Percent: true, Digits: 2}, {Name: "work that comes too late", Percent: true, Digits: 2}}}
	for _, row := range []struct {
		name, skylines string
		how            placement
	}{{"alpha 1%", alphaNamed(paperAlpha), lowCost}, {borrowedRow, borrowedName, lowCost}, {"p95, align-right", "p95", alignRight}, {"max", "max", lowCost}} {
		p, err := s.plan(row.skylines, row.how)
		if err != nil {
			return nil, err
		}
		shares := make([]float64, 1+causes)
		for i := range s.learned {
			c := &s.learned[i]
			part := 1 / float64(len(s.learned)) / float64(max(1, len(c.future)))
			for k := range c.future {
				if r := &c.future[k]; !inTime(r, c, &p.slots[i]) {
					shares[0] += part
					shares[1+c.why(r, &p.slots[i])] += part
				}
			}
		}
		t.row(row.name, shares...)
	}
	return t, nil
}

func inTime(r *Run, c *contract, s *slot) bool {
	_, ok := alone(r, c.due, s.at)
	return ok
}
