package replay

// Deadlines is what came of applications that have one, and of all others. Those whose deadline lies after the end of the run count in neither.
type Deadlines struct {
	Runs   int       `json:"runs"`
	Missed int       `json:"missed"` // they had not ended by then
	Late   Spread    `json:"late"`   // seconds, of those that ended after it
	Killed int       `json:"killed"` // of the missed ones: memory ran out for them
	Others OtherWork `json:"others"`
}

// OtherWork is what came of applications without a deadline. CPU-hours are those asked for, over the time that each takes at full speed.
type OtherWork struct {
	Apps         int     `json:"applications"`
	Started      int     `json:"started"`
	Ended        int     `json:"ended"`
	CoreHours    float64 `json:"coreHours"`
	StartedHours float64 `json:"startedCoreHours"`
	EndedHours   float64 `json:"endedCoreHours"`
	Wait         Spread  `json:"wait"` // seconds to the first start; of those that did not start, to the end of the run
}

// deadlines is nil where no application has one.
func (c *Cluster) deadlines() *Deadlines {
	d, any := &Deadlines{}, false
	var late, wait []float64
	for i := range c.Workload.Apps {
		a := &c.Workload.Apps[i]
		end := c.end[i]
		if a.Due > 0 {
			any = true
			if c.o.Until > 0 && a.Due > c.o.Until {
				continue
			}
			d.Runs++
			if end >= 0 && end <= a.Due {
				continue
			}
			d.Missed++
			if c.Failures[i] > 0 {
				d.Killed++
			}
			if end >= 0 {
				late = append(late, end-a.Due)
			}
			continue
		}
		o := &d.Others
		hours := 0.0
		for _, g := range c.Workload.Of(i) {
			hours += g.CPU * float64(g.Count) * a.Work / 3600
		}
		o.Apps++
		o.CoreHours += hours
		from := c.start[i]
		if from >= 0 {
			o.Started++
			o.StartedHours += hours
		} else {
			from = max(c.Now, a.Arrival)
		}
		if end >= 0 {
			o.Ended++
			o.EndedHours += hours
		}
		wait = append(wait, from-a.Arrival)
	}
	if !any {
		return nil
	}
	d.Late, d.Others.Wait = SpreadOf(late), SpreadOf(wait)
	return d
}
