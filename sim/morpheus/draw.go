package morpheus

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
)

// Day in minutes: the steps of the agenda, and a multiple of all periods.
const Day = 1440

// Options of a drawn month.
type Options struct {
	Seed uint64
	Jobs int
	Days int // at least minDays; 70% of them are learned from, as in sec. 9.1
	// Correlation of the logarithms of a job's peak and of what its owner asks for over it, in (-1, 1). Below 0 large jobs are under-provisioned more often.
	Correlation float64
}

const (
	trainShare = 0.7
	minDays    = 14
	maxJobs    = 10_000
	maxDays    = 90
)

// Validate reports what cannot be drawn.
func (o Options) Validate() error {
	if o.Jobs < 1 || o.Jobs > maxJobs || o.Days < minDays || o.Days > maxDays {
		return fmt.Errorf("draw periodic jobs: %d jobs of %d days, not 1 to %d of %d to %d", o.Jobs, o.Days, maxJobs, minDays, maxDays)
	}
	if !(o.Correlation > -1 && o.Correlation < 1) {
		return fmt.Errorf("draw periodic jobs: a correlation of %v, not between -1 and 1", o.Correlation)
	}
	return nil
}

// Train is how many days are learned from.
func (o Options) train() int { return int(math.Round(trainShare * float64(o.Days))) }

// Job is a periodic job with all its runs.
type Job struct {
	Name   string
	Period int // minutes, divides Day
	Phase  int // minute of the day at which a period starts
	Peak   int // containers that a typical run uses at its widest
	User   int // containers that its owner asks for
	Runs   []Run
}

// Run is one run, in its period.
type Run struct {
	Index  int       // of its period, from the first on
	Inputs float64   // minutes after the start of its period: the last write to its inputs
	Usage  []float64 // containers that it uses by minute from its start on, if it gets all it asks for
	Length float64   // minutes that it then takes
	Read   float64   // minutes after the start of its period: the first read of its outputs
}

// begin is the minute of its period in which the run can start.
func (r *Run) begin() int { return int(math.Ceil(r.Inputs)) }

// periods and their shares. Fig. 1b has these values and no numbers: the shares are assumed, most of them an hour and a day.
var periods = []struct {
	minutes int
	share   float64
}{{5, 0.03}, {15, 0.07}, {30, 0.06}, {60, 0.30}, {120, 0.03}, {180, 0.04}, {360, 0.05}, {720, 0.06}, {Day, 0.36}}

// class of jobs by size.
type class struct{ share, seconds, containers float64 }

// classes are the table of the Hadoop trace (sec. 9). Seconds and containers are means of a class.
var classes = []class{
	{0.07, 73, 1.5}, {0.15, 156, 19}, {0.006, 2778, 469},
	{0.398, 173, 2.6}, {0.1452, 605, 18}, {0.078, 1400, 88}, {0.04, 6300, 510}, {0.086, 24570, 1000},
	{0.0156, 7800, 400},
}

const (
	sizeSpread = 0.5 // of a job around the mean of its class: log-normal, assumed

	sizeMean      = 2.62 // of the logarithms of all peaks, by the classes and sizeSpread; TestCorrelatedAsks checks it
	sizeDeviation = 2.1

	fullHour = 0.6 // of the jobs start at a full hour; fig. 1c has no numbers, assumed

	// Slack over length is log-normal: a job could run twice or more within its slack in 69% of the cases (fig. 9a: almost 70%). The median is assumed.
	slackMedian = 4.0
	slackSpread = 1.4

	// Containers that owners ask for over the peak are log-normal: above 1 in 75% and above 10 in 20% of the cases (fig. 2a). The mean is 8.8.
	userMean   = 1.0249
	userSpread = 1.5189

	unsteadyInputs = 0.15 // of the jobs have inputs that come late at random, assumed
	lateInputs     = 0.04 // periods by which they do on average, exponential, assumed
	steadyRead     = 0.85 // of the jobs have outputs that are read at a fixed time, assumed; the others' are read at any time in half a period

	// Noise of runs, by the 13 runs of TPC-H Q12 (forecast/skyline/testdata/tpch-q12): one takes 1.4 times as long, the others' work spreads by 5%;
	// after each stage stragglers, a twentieth of the containers, run on for up to half of its length. TestNoise compares.
	slowShare     = 1.0 / 13
	slowLow       = 0.2
	slowHigh      = 0.5
	runSpread     = 0.045
	stageSpread   = 0.05
	stragglers    = 0.05
	maxStraggling = 0.5
)

// stage of a job: so many containers for so many minutes.
type stage struct {
	containers int
	minutes    float64
}

// Draw draws the jobs of some days.
func Draw(o Options) ([]Job, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	rng := rand.New(rand.NewPCG(o.Seed, 0x6d6f7270))
	jobs := make([]Job, o.Jobs)
	for i := range jobs {
		jobs[i] = drawJob(rng, o)
		jobs[i].Name = fmt.Sprintf("job-%03d", i)
	}
	return jobs, nil
}

// drawJob draws what kind of job it is, and then its runs.
func drawJob(rng *rand.Rand, o Options) Job {
	j := Job{Period: periods[pick(rng, len(periods), func(i int) float64 { return periods[i].share })].minutes}
	if rng.Float64() >= fullHour {
		j.Phase = rng.IntN(60)
	}
	j.Phase = (j.Phase + 60*rng.IntN(24)) % j.Period
	c := drawClass(rng)
	late := 0.0
	if rng.Float64() < unsteadyInputs {
		late = lateInputs * float64(j.Period)
	}
	unsteady := 0.0
	if rng.Float64() >= steadyRead {
		unsteady = float64(j.Period) / 2
	}
	j.draw(rng, o, c, late, unsteady)
	return j
}

func drawClass(rng *rand.Rand) class {
	return classes[pick(rng, len(classes), func(i int) float64 { return classes[i].share })]
}

// draw draws the size and the runs of a job of some class. Its inputs are late by late minutes on average, and its outputs are read up to unsteady minutes later than they could be.
func (j *Job) draw(rng *rand.Rand, o Options, c class, late, unsteady float64) {
	slack, minutes := drawLength(rng, j.Period, c.seconds/60)
	j.Peak = max(1, int(math.Round(c.containers*math.Exp(sizeSpread*rng.NormFloat64()))))
	size := (math.Log(float64(j.Peak)) - sizeMean) / sizeDeviation
	over := o.Correlation*size + math.Sqrt(1-o.Correlation*o.Correlation)*rng.NormFloat64()
	j.User = max(1, int(math.Round(float64(j.Peak)*math.Exp(userMean+userSpread*over))))
	stages := drawStages(rng, j.Peak, minutes)
	read := math.Ceil(1 + late*math.Ln2 + typicalLength(stages)*(1+slack))
	for at := range o.Days * Day / j.Period {
		r := Run{Index: at, Inputs: 0.5 + 0.1*math.Abs(rng.NormFloat64()) + late*rng.ExpFloat64()}
		r.Usage, r.Length = drawUse(rng, stages)
		r.Read = max(read+0.1*rng.ExpFloat64()+unsteady*rng.Float64(), r.Inputs+r.Length)
		j.Runs = append(j.Runs, r)
	}
}

// pick draws an index by shares.
func pick(rng *rand.Rand, n int, share func(int) float64) int {
	sum := 0.0
	for i := range n {
		sum += share(i)
	}
	at := sum * rng.Float64()
	for i := range n - 1 {
		if at -= share(i); at < 0 {
			return i
		}
	}
	return n - 1
}

// drawLength draws the slack of a job, in lengths, and its length, so that both fit the period. Slack that would leave less than a minute is drawn again.
func drawLength(rng *rand.Rand, period int, mean float64) (slack, minutes float64) {
	room := 0.95*float64(period) - 1
	for {
		slack = slackMedian * math.Exp(slackSpread*rng.NormFloat64())
		if longest := room / (1 + slack) / (1 + maxStraggling/2); longest >= 1 {
			return slack, min(longest, max(1, mean*math.Exp(sizeSpread*rng.NormFloat64())))
		}
	}
}

// drawStages parts a job into one to four stages, of which one has the peak. That there are so many, and how wide the others are, is assumed.
func drawStages(rng *rand.Rand, peak int, minutes float64) []stage {
	stages := make([]stage, 1+rng.IntN(4))
	widest, sum := rng.IntN(len(stages)), 0.0
	for i := range stages {
		stages[i] = stage{max(1, int(math.Round(float64(peak)*(0.1+0.8*rng.Float64())))), 0.2 + rng.Float64()}
		sum += stages[i].minutes
	}
	stages[widest].containers = peak
	for i := range stages {
		stages[i].minutes *= minutes / sum
	}
	return stages
}

// typicalLength of a run, stragglers included.
func typicalLength(stages []stage) (minutes float64) {
	for _, s := range stages {
		minutes += s.minutes * (1 + maxStraggling/2)
	}
	return minutes
}

// drawUse draws what a run uses by minute, and how long it takes.
func drawUse(rng *rand.Rand, stages []stage) (usage []float64, length float64) {
	slow := math.Exp(runSpread * rng.NormFloat64())
	if rng.Float64() < slowShare {
		slow *= math.Exp(slowLow + (slowHigh-slowLow)*rng.Float64())
	}
	straggling := maxStraggling * rng.Float64()
	add := func(containers, minutes float64) {
		for end := length + minutes; length < end-1e-9; {
			at := int(length + 1e-9)
			part := min(end, float64(at+1)) - length
			if at == len(usage) {
				usage = append(usage, 0)
			}
			usage[at] += containers * part
			length += part
		}
	}
	for _, s := range stages {
		minutes := s.minutes * slow * math.Exp(stageSpread*rng.NormFloat64())
		add(float64(s.containers), minutes)
		add(max(1, math.Ceil(stragglers*float64(s.containers))), minutes*straggling)
	}
	return usage, length
}

// split parts the runs of a job into those that are learned from and those that are played.
func (j *Job) split(train int) (past, future []Run) {
	at := slices.IndexFunc(j.Runs, func(r Run) bool { return r.Index*j.Period >= train*Day })
	if at < 0 {
		at = len(j.Runs)
	}
	return j.Runs[:at], j.Runs[at:]
}
