package morpheus

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"evenkeel/forecast/periodic"
	"evenkeel/sim/batch"
)

// FigureNames are those that a study has, in the paper's order.
var FigureNames = []string{"9a", "9b", "9c", "9d", "10a", "10b", "12", "causes"}

// alphas of the sweep.
var alphas = []float64{0.001, 0.01, 0.05, 0.1, 0.25, 0.5}

const (
	paperAlpha = 0.01
	paperBeta  = 0.1
	// surestAlpha leaves nothing undone of a thousand runs or fewer: it costs more than all that lies idle for it.
	surestAlpha = 0.001

	servingName  = "serving " // and the chance
	borrowedName = "serving 0.003"
	borrowedRow  = "a chance of 0.3%, borrowed"
)

// Study is one drawn month, and what was learned of it.
type Study struct {
	Options  Options
	jobs     []Job
	learned  []contract
	fits     map[string][][]float64 // skylines by contract, by name
	peers    []periodic.Peer
	byOwners outcome
}

// NewStudy draws a month, and learns periods and deadlines.
func NewStudy(o Options) (*Study, error) {
	jobs, err := Draw(o)
	if err != nil {
		return nil, err
	}
	s := &Study{Options: o, jobs: jobs, fits: map[string][][]float64{}}
	for i := range jobs {
		if c, reason := learn(&jobs[i], o.train()); reason == "" {
			s.learned = append(s.learned, c)
		}
	}
	if len(s.learned) == 0 {
		return nil, fmt.Errorf("none of %d jobs has a deadline", o.Jobs)
	}
	s.peers = peers(s.learned)
	s.byOwners = byUsers(s.learned, 1)
	return s, nil
}

// Figure makes the table of one figure.
func (s *Study) Figure(name string) (*Table, error) {
	make, known := map[string]func() (*Table, error){
		"9a": s.slacks, "9b": s.provisioning, "9c": s.misses, "9d": s.clusters, "10a": s.parts, "10b": s.reprovisioning, "12": s.scenario, "causes": s.causesOf,
	}[name]
	if !known {
		return nil, fmt.Errorf("there is no figure %q", name)
	}
	t, err := make()
	if err != nil {
		return nil, fmt.Errorf("figure %s, seed %d: %w", name, s.Options.Seed, err)
	}
	t.Figure = name
	return t, nil
}

// skylines of all contracts by name: an alpha, beta=0 (alpha 1%), mean, max, p95, serving and a chance.
func (s *Study) skylines(name string) ([][]float64, error) {
	if out := s.fits[name]; out != nil {
		return out, nil
	}
	var out [][]float64
	for i := range s.learned {
		v, err := s.skyline(&s.learned[i], name)
		if err != nil {
			return nil, err
		}
		out = append(out, v)
	}
	s.fits[name] = out
	return out, nil
}

func (s *Study) skyline(c *contract, name string) ([]float64, error) {
	if chance, ok := strings.CutPrefix(name, servingName); ok {
		x, err := strconv.ParseFloat(chance, 64)
		if err != nil {
			return nil, err
		}
		return c.serving(s.peers, x)
	}
	return c.skyline(name)
}

// skyline that needs no other job.
func (c *contract) skyline(name string) ([]float64, error) {
	switch name {
	case "mean":
		return c.mean(), nil
	case "max":
		return c.quantile(1), nil
	case "p95":
		return c.quantile(0.95), nil
	case "beta=0":
		return c.fitted(paperAlpha, 0)
	}
	alpha, err := strconv.ParseFloat(name, 64)
	if err != nil {
		return nil, err
	}
	return c.fitted(alpha, paperBeta)
}

// alphaNamed is the name of a fit's skylines, and percentOf how rows name it.
func alphaNamed(alpha float64) string { return strconv.FormatFloat(alpha, 'g', -1, 64) }
func percentOf(alpha float64) string {
	return strconv.FormatFloat(math.Round(1e6*alpha)/1e4, 'g', -1, 64) + "%"
}

// plan places the skylines of that name.
func (s *Study) plan(name string, how placement) (*plan, error) {
	skylines, err := s.skylines(name)
	if err != nil {
		return nil, err
	}
	return place(s.learned, skylines, how)
}

// userPlan has what owners ask for, scaled, for as long as their runs take with it.
func (s *Study) userPlan(scale float64, how placement) (*plan, error) {
	skylines := make([][]float64, len(s.learned))
	for i := range s.learned {
		skylines[i] = s.learned[i].userSkyline(scale)
	}
	return place(s.learned, skylines, how)
}

// usersWith are the users' runs with provisioning that is scaled so that all of it is so many container-minutes.
func (s *Study) usersWith(reserved float64) (outcome, float64) {
	low, high := 0.0, 1.0
	for byUsers(s.learned, high).Reserved < reserved && high < 64 {
		high *= 2
	}
	for range 24 {
		if middle := (low + high) / 2; byUsers(s.learned, middle).Reserved > reserved {
			high = middle
		} else {
			low = middle
		}
	}
	return byUsers(s.learned, low), low
}

// slacks is figure 9a: how often a run could be repeated between its end and its deadline; and for how many jobs there is one.
func (s *Study) slacks() (*Table, error) {
	t := &Table{Title: "Slack over length of jobs with a deadline", Columns: []Column{{Name: "value", Digits: 2}}}
	var all []float64
	twice, once, runs, of := 0.0, 0.0, 0, 0
	for i := range s.learned {
		c := &s.learned[i]
		all = append(all, c.slack)
		runs += len(c.job.Runs)
		if c.slack >= 1 {
			once++
		}
		if c.slack >= 2 {
			twice++
		}
	}
	for i := range s.jobs {
		of += len(s.jobs[i].Runs)
	}
	slices.Sort(all)
	n := float64(len(all))
	for _, q := range []float64{0.1, 0.25, 0.5, 0.75, 0.9} {
		t.row(fmt.Sprintf("%g%% of the jobs have at most", 100*q), quantile(all, q))
	}
	t.row("share of jobs with slack for two runs or more", twice/n)
	t.row("share of jobs with slack for one run or more", once/n)
	t.row("share of jobs with a deadline", n/float64(len(s.jobs)))
	t.row("share of runs with a deadline", float64(runs)/float64(of))
	return t, nil
}

// provisioning is figure 9b: what is provisioned over what is used.
func (s *Study) provisioning() (*Table, error) {
	t := &Table{Title: "Provisioned over used, in container-minutes of the runs that are played"}
	quantiles := []float64{0.1, 0.25, 0.5, 0.75, 0.9}
	for _, q := range quantiles {
		t.Columns = append(t.Columns, Column{Name: fmt.Sprintf("p%g", 100*q), Digits: 2})
	}
	t.Columns = append(t.Columns, Column{Name: "all", Digits: 2}, Column{Name: "within 25% of 1", Percent: true})
	enter := func(name string, o outcome) {
		sorted := slices.Sorted(slices.Values(o.ratios))
		var v []float64
		for _, q := range quantiles {
			v = append(v, quantile(sorted, q))
		}
		near := 0.0
		for _, r := range sorted {
			if math.Abs(r-1) <= 0.25 {
				near++
			}
		}
		t.row(name, append(v, o.Reserved/o.Used, near/float64(len(sorted)))...)
	}
	enter("users", s.byOwners)
	for _, alpha := range alphas {
		p, err := s.plan(alphaNamed(alpha), lowCost)
		if err != nil {
			return nil, err
		}
		enter("alpha "+percentOf(alpha), p.onlyReserved(s.learned))
	}
	for _, name := range []string{borrowedName, "mean", "p95", "max"} {
		p, err := s.plan(name, lowCost)
		if err != nil {
			return nil, err
		}
		if name == borrowedName {
			name = borrowedRow
		}
		enter(name, p.onlyReserved(s.learned))
	}
	return t, nil
}

const (
	byOwnersRow = "users"
	equalRow    = "users, at the utilization of alpha 1%"
	missedName  = "missed"
	runsName    = "of all runs"
)

// missColumns are the misses, and how many times fewer they are than users'.
func missColumns() []Column {
	return []Column{
		{Name: missedName, Percent: true, Digits: 2}, {Name: runsName, Percent: true, Digits: 2}, {Name: "unavoidable", Percent: true, Digits: 2},
		{Name: "provisioned/used", Digits: 2},
		{Name: "users' over it", Digits: 1, Over: missedName, Under: missedName, Base: byOwnersRow},
		{Name: "equal utilization over it", Digits: 1, Over: missedName, Under: missedName, Base: equalRow},
		{Name: "the same, of all runs", Digits: 1, Over: runsName, Under: runsName, Base: equalRow},
		{Name: "promised", Percent: true, Digits: 2}, {Name: "needed more", Percent: true, Digits: 2},
	}
}

func (t *Table) enterMisses(name string, o outcome, more ...float64) {
	used := math.NaN()
	if o.Reserved > 0 {
		used = o.Reserved / o.Used
	}
	ratios := []float64{math.NaN(), math.NaN(), math.NaN()}
	t.row(name, append(append([]float64{o.missShare(), float64(o.Missed) / float64(o.Runs), float64(o.Hopeless) / float64(o.Runs), used}, ratios...), more...)...)
}

// misses is figure 9c: the worst case, in which each run has what is reserved and nothing else.
func (s *Study) misses() (*Table, error) {
	t := &Table{Title: "Deadlines missed with nothing but what is reserved", Columns: missColumns()}
	paper, err := s.plan(alphaNamed(paperAlpha), lowCost)
	if err != nil {
		return nil, err
	}
	t.enterMisses(byOwnersRow, s.byOwners)
	equal, _ := s.usersWith(paper.onlyReserved(s.learned).Reserved)
	t.enterMisses(equalRow, equal)
	t.enterMisses("clairvoyant", s.clairvoyant())
	for _, alpha := range alphas {
		p, err := s.plan(alphaNamed(alpha), lowCost)
		if err != nil {
			return nil, err
		}
		t.enterMisses("alpha "+percentOf(alpha), p.onlyReserved(s.learned))
	}
	for _, chance := range chances {
		promises, skylines := s.promised(chance)
		p, err := place(s.learned, skylines, lowCost)
		if err != nil {
			return nil, err
		}
		promised, more := s.kept(promises)
		t.enterMisses("a chance of "+percentOf(chance), p.onlyReserved(s.learned), promised, more)
	}
	for _, chance := range borrowedChances {
		p, err := s.plan(servingName+alphaNamed(chance), lowCost)
		if err != nil {
			return nil, err
		}
		o := p.onlyReserved(s.learned)
		t.enterMisses("a chance of "+percentOf(chance)+", borrowed", o, s.servedChance(chance), s.avoidable(&o))
	}
	for _, row := range []struct {
		name, skylines string
		how            placement
	}{
		{"alpha 1%, beta 0", "beta=0", lowCost}, {"alpha 1%, not aligned", alphaNamed(paperAlpha), unaligned},
		{"mean", "mean", lowCost}, {"p95", "p95", lowCost}, {"p95, align-right", "p95", alignRight}, {"max", "max", lowCost},
	} {
		p, err := s.plan(row.skylines, row.how)
		if err != nil {
			return nil, err
		}
		t.enterMisses(row.name, p.onlyReserved(s.learned))
	}
	return t, nil
}

// clusters is figure 9d: how large a cluster must be, and what it is used for.
func (s *Study) clusters() (*Table, error) {
	t := &Table{Title: "The least cluster that has room for all reservations, and misses on it", Columns: []Column{
		{Name: "cluster", Percent: true, Digits: 1}, {Name: "reserved, of it", Percent: true, Digits: 1}, {Name: "provisioned/used", Digits: 2}, {Name: missedName, Percent: true, Digits: 2},
		{Name: "re-provisioned: missed", Percent: true, Digits: 2}, {Name: "late runs only: missed", Percent: true, Digits: 2}}}
	own, err := s.userPlan(1, atArrival)
	if err != nil {
		return nil, err
	}
	enter := func(name string, p *plan, o outcome) {
		values := []float64{p.peak / own.peak, p.meanReserved() / p.peak, o.Reserved / o.Used, o.missShare()}
		if o.Cluster > 0 { // in slots
			for _, r := range []rules{asInPaper(), forLateRuns()} {
				again := p.reprovisioned(s.learned, p.peak, r)
				values = append(values, again.missShare())
			}
		}
		t.row(name, values...)
	}
	enter(byOwnersRow, own, s.byOwners)
	paper, err := s.plan(alphaNamed(paperAlpha), lowCost)
	if err != nil {
		return nil, err
	}
	equal, scale := s.usersWith(paper.onlyReserved(s.learned).Reserved)
	scaled, err := s.userPlan(scale, atArrival)
	if err != nil {
		return nil, err
	}
	enter(equalRow, scaled, equal)
	for _, row := range []struct {
		name, skylines string
		how            placement
	}{
		{"alpha 1%", alphaNamed(paperAlpha), lowCost}, {borrowedRow, borrowedName, lowCost}, {"alpha 1%, beta 0", "beta=0", lowCost}, {"alpha 1%, not aligned", alphaNamed(paperAlpha), unaligned},
		{"alpha 1%, align-right", alphaNamed(paperAlpha), alignRight}, {"alpha 1%, at arrival", alphaNamed(paperAlpha), atArrival},
		{"mean, align-right", "mean", alignRight}, {"p95, align-right", "p95", alignRight}, {"max, align-right", "max", alignRight}, {"p95", "p95", lowCost},
	} {
		p, err := s.plan(row.skylines, row.how)
		if err != nil {
			return nil, err
		}
		enter(row.name, p, p.onlyReserved(s.learned))
	}
	for _, alpha := range []float64{paperAlpha, smallAlpha} {
		p, err := s.plan(alphaNamed(alpha), lowCost)
		if err != nil {
			return nil, err
		}
		if alpha != paperAlpha {
			enter("alpha "+percentOf(alpha), p, p.onlyReserved(s.learned))
		}
		if err := s.withoutAgenda(t, p.peak, own.peak, fmt.Sprintf("on the cluster of alpha %s: ", percentOf(alpha))); err != nil {
			return nil, err
		}
	}
	return t, nil
}

// smallAlpha has a small cluster in figure 9d.
const smallAlpha = 0.25

// withoutAgenda enters what becomes of all runs on a cluster of so many containers without an agenda; unit is a cluster of 100%.
func (s *Study) withoutAgenda(t *Table, cluster, unit float64, where string) error {
	enter := func(name string, o outcome) {
		t.row(where+name, cluster/unit, math.NaN(), math.NaN(), o.missShare())
	}
	enter("equal shares", fairly(s.learned, cluster, nil))
	enter("equal shares, ad-hoc work", fairly(s.learned, cluster, newAdHoc(s.Options.Seed, cluster)))
	for _, users := range []bool{true, false} {
		o, err := s.easy(int(cluster), users)
		if err != nil {
			return err
		}
		enter(map[bool]string{true: "EASY, with the users' containers", false: "EASY, with the p95 of the peak"}[users], o)
	}
	return nil
}

// meanReserved is the mean of what is reserved over the day.
func (p *plan) meanReserved() (containers float64) {
	for minute := range Day {
		containers += p.reserved(minute) / Day
	}
	return containers
}

// easy queues all runs under EASY on so many containers: each asks for what its owner does, or for the 95th percentile of past peaks, and EASY knows how long it
// takes with that.
func (s *Study) easy(cluster int, users bool) (outcome, error) {
	var jobs []batch.Job
	all := arrivals(s.learned)
	for _, a := range all {
		c := &s.learned[a.contract]
		asks := c.userScaled(1)
		if !users {
			var peaks []float64
			for _, past := range c.past {
				peaks = append(peaks, slices.Max(past))
			}
			slices.Sort(peaks)
			asks = max(1, math.Ceil(quantile(peaks, 0.95)))
		}
		asks = min(asks, float64(cluster))
		end, _ := alone(&Run{Usage: a.usage}, math.MaxInt32, func(int) float64 { return asks })
		jobs = append(jobs, batch.Job{Submit: 60 * float64(a.begin), Run: 60 * float64(end), Tasks: int(asks), CPU: 1, Memory: 1})
	}
	result, err := batch.Run(batch.Cluster{Nodes: cluster}, jobs, batch.EASY())
	if err != nil {
		return outcome{}, err
	}
	missed := make([][]bool, len(s.learned))
	for i := range missed {
		missed[i] = make([]bool, len(s.learned[i].future))
	}
	for i, a := range all {
		missed[a.contract][a.run] = result.Jobs[i].End > 60*float64(a.due)+done
	}
	o := outcome{Cluster: float64(cluster)}
	for i := range s.learned {
		o.count(&s.learned[i], missed[i], 0, 0)
	}
	return o, nil
}
