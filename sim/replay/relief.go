package replay

// evictForMemory frees memory on a host whose components use more than there is. It evicts elastic components first, of the last application in order
// the youngest; then whole applications, the last in order first.
func evictForMemory(c *Cluster, host int32) {
	for {
		gets, victim := 0.0, int32(-1)
		for s := c.FirstOn(host); s >= 0; s = c.NextOn(s) {
			_, memory := c.Truth(s) // use now, which its host measures; no forecast
			gets += memory
			if victim < 0 || before(c, victim, s) {
				victim = s
			}
		}
		if gets <= c.Hosts[host].Memory || victim < 0 {
			return
		}
		c.Preempt(victim)
	}
}

// before says whether b is evicted before a is.
func before(c *Cluster, a, b int32) bool {
	if c.Core[a] != c.Core[b] {
		return c.Core[a]
	}
	if ra, rb := c.Rank(c.App[a]), c.Rank(c.App[b]); ra != rb {
		return ra < rb
	}
	return c.Since[a] < c.Since[b]
}
