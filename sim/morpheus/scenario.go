package morpheus

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
)

// Figure 12: 275 nodes of 8 cores, a container of 1 core each.
const (
	testbed      = 275 * 8
	queryPeriod  = 60
	playedHours  = 8
	delayedHour  = 4
	testbedShare = 0.7 // of the testbed that queries reserve on average, assumed
	maxQueries   = 200
)

// query is a class of TPC-H queries: Q12 takes 4 to 7 minutes on up to 2,500 containers; the mean peak is assumed.
var query = class{1, 300, 400}

// delays by hand, in minutes. The paper does not say how long its was.
var delays = []int{5, 15}

// queries draws hourly jobs until they reserve their share of the testbed, and returns those that have room.
func (s *Study) queries() (contracts []contract, skylines [][]float64, p *plan, err error) {
	rng := rand.New(rand.NewPCG(s.Options.Seed, 0x7470636800))
	for i := range maxQueries {
		j := Job{Name: fmt.Sprintf("query-%02d", i), Period: queryPeriod}
		if rng.Float64() >= fullHour {
			j.Phase = rng.IntN(queryPeriod)
		}
		j.draw(rng, s.Options, query, 0, 0)
		c, reason := learn(&j, s.Options.train())
		if reason != "" {
			continue
		}
		skyline, err := c.fitted(paperAlpha, paperBeta)
		if err != nil {
			return nil, nil, nil, err
		}
		more, fits := append(contracts, c), append(skylines, skyline)
		q, err := place(more, fits, lowCost)
		if err != nil {
			return nil, nil, nil, err
		}
		if q.peak > testbed {
			continue
		}
		contracts, skylines, p = more, fits, q
		if p.meanReserved() >= testbedShare*testbed {
			break
		}
	}
	if p == nil {
		return nil, nil, nil, fmt.Errorf("none of %d queries has room on %d containers", maxQueries, testbed)
	}
	return contracts, skylines, p, nil
}

// playedWith are contracts with the runs of some hours, one of which was delayed by hand.
func playedWith(contracts []contract, delayed, minutes int) []contract {
	out := slices.Clone(contracts)
	for i := range out {
		out[i].future = slices.Clone(out[i].future[:min(len(out[i].future), playedHours*60/queryPeriod)])
	}
	out[delayed].future[delayedHour].Inputs += float64(minutes)
	return out
}

// scenario is figure 12: hourly queries on the testbed beside ad-hoc work that asks for three quarters of it. Each query is delayed once, in a play of its own.
func (s *Study) scenario() (*Table, error) {
	t := &Table{Title: "Hourly queries on 2,200 containers beside ad-hoc work, each delayed once by hand", Columns: []Column{
		{Name: "delayed runs in time", Percent: true, Digits: 1}, {Name: "other runs missed", Percent: true, Digits: 2}, {Name: "granted, of what is reserved", Percent: true, Digits: 2},
		{Name: "used by queries", Percent: true, Digits: 1}, {Name: "by ad-hoc work", Percent: true, Digits: 1}, {Name: "delayed, not hopeless", Digits: 1}}}
	contracts, _, p, err := s.queries()
	if err != nil {
		return nil, err
	}
	none := asInPaper()
	none.MaxShare = 0
	for _, minutes := range delays {
		for _, row := range []struct {
			name   string
			shares func(others *adHoc, granted *float64) sharing
		}{
			{"agenda, re-provisioned", func(others *adHoc, granted *float64) sharing {
				return beside(p.inSlots(testbed, asInPaper(), granted), testbed, others)
			}},
			{"agenda, late runs only", func(others *adHoc, granted *float64) sharing {
				return beside(p.inSlots(testbed, forLateRuns(), granted), testbed, others)
			}},
			{"agenda alone", func(others *adHoc, granted *float64) sharing {
				return beside(p.inSlots(testbed, none, granted), testbed, others)
			}},
			{"equal shares", func(others *adHoc, _ *float64) sharing { return equalShares(testbed, others) }},
		} {
			var sum delayedOutcome
			for q := range contracts {
				sum.play(playedWith(contracts, q, minutes), q, newAdHoc(s.Options.Seed+uint64(q), testbed), row.shares)
			}
			sum.row(t, fmt.Sprintf("%s, %d min late", row.name, minutes), p)
		}
	}
	return t, nil
}

// delayedOutcome is what came of all plays of a row.
type delayedOutcome struct {
	plays, possible, inTime int // delayed runs; those that could be in time with all they ask for; those that were
	others, missed          int // runs that were not delayed
	granted, used, adHoc    float64
}

func (d *delayedOutcome) play(contracts []contract, delayed int, others *adHoc, shares func(*adHoc, *float64) sharing) {
	missed := together(contracts, shares(others, &d.granted))
	d.plays++
	for i := range contracts {
		c := &contracts[i]
		for k, late := range missed[i] {
			r := &c.future[k]
			d.used += r.work()
			switch {
			case i != delayed || k != delayedHour:
				d.others++
				if late {
					d.missed++
				}
			case c.hopeless(r):
			default:
				d.possible++
				if !late {
					d.inTime++
				}
			}
		}
	}
	d.adHoc += others.used
}

func (d *delayedOutcome) row(t *Table, name string, p *plan) {
	all := testbed * 60 * playedHours * float64(d.plays)
	inTime := math.NaN()
	if d.possible > 0 {
		inTime = float64(d.inTime) / float64(d.possible)
	}
	t.row(name, inTime, float64(d.missed)/float64(d.others), d.granted/(p.meanReserved()*60*playedHours*float64(d.plays)), d.used/all, d.adHoc/all, float64(d.possible))
}
