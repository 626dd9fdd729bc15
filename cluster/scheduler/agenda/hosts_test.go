package agenda_test

import (
	"fmt"
	"testing"
	"time"

	"evenkeel/cluster/state"
	"evenkeel/test/scheduling"
)

// withOneLarge is a cluster with one host for large VMs, and many small ones.
func withOneLarge(t *testing.T, small int) *scheduling.Cluster {
	c := scheduling.NewCluster(t)
	c.Host("large", 4, 8*scheduling.GiB, state.Resources{})
	for i := range small {
		c.Host(fmt.Sprintf("small%d", i), 1, scheduling.GiB, state.Resources{})
	}
	return c
}

// large is a contract by a rule of one VM that only the large host can take.
func large(t *testing.T, rule string, length time.Duration, memory int64) state.SignOff {
	k := askedFor(t, rule, length)
	k.Groups[0].Count, k.Groups[0].CPU, k.Groups[0].Memory = 1, 1, memory
	return k
}

// However many hosts join, jobs that come again each minute or so keep theirs: the agenda's steps grow little by little, and the runs of one job in a step
// take the room of one.
func TestHostsThatJoinTakeNoReservations(t *testing.T) {
	between := large(t, "FREQ=MINUTELY", 20*time.Second, 4*scheduling.GiB)
	between.Arrival, between.Due = 30, between.Due+30
	for name, fine := range map[string]state.SignOff{
		"each minute":        large(t, "FREQ=MINUTELY", 20*time.Second, 4*scheduling.GiB),
		"between minutes":    between,
		"every five minutes": large(t, "FREQ=MINUTELY;INTERVAL=5", 200*time.Second, 4*scheduling.GiB),
	} {
		c := withOneLarge(t, 137)
		signed(t, c, "fine", fine)
		signed(t, c, "other", large(t, "FREQ=HOURLY", 10*time.Minute, 3*scheduling.GiB))
		untilRest(t, c, 20)
		for _, hosts := range []int{138, 139, 200, 300} {
			for i := len(c.Snapshot().Hosts()); i < hosts; i++ {
				c.Host(fmt.Sprintf("small%d", i), 1, scheduling.GiB, state.Resources{})
			}
			untilRest(t, c, 20)
			lost := 0
			for _, o := range c.Snapshot().Agenda() {
				if !o.Reserves() {
					lost++
				}
			}
			if n := len(c.Snapshot().Agenda()); lost > 0 || n < 150 {
				t.Errorf("%s, %d hosts: %d of %d occurrences have no hosts", name, hosts, lost, n)
			}
		}
	}
}

// Hosts that take no VMs do not count: a job keeps its fine steps, in which another one has room between its runs.
func TestClosedHostsDoNotCount(t *testing.T) {
	for _, cordoned := range []bool{true, false} {
		c := withOneLarge(t, 150)
		for i := range 20 {
			c.Must(state.KindHostCordon, state.HostCordon{Host: fmt.Sprintf("small%d", i), Cordoned: cordoned})
		}
		signed(t, c, "a", large(t, "FREQ=MINUTELY;INTERVAL=3", 50*time.Second, 5*scheduling.GiB))
		b := large(t, "FREQ=MINUTELY;INTERVAL=3", 50*time.Second, 5*scheduling.GiB)
		b.Arrival = 90
		b.Due += 90
		signed(t, c, "b", b)
		untilRest(t, c, 20)
		with := map[string]int{}
		for _, o := range c.Snapshot().Agenda() {
			if o.Reserves() {
				with[o.Job]++
			}
		}
		if with["a"] != 150 || (with["b"] >= 149) != cordoned {
			t.Errorf("20 of 151 hosts are cordoned: %v: %v have hosts", cordoned, with)
		}
	}
}
