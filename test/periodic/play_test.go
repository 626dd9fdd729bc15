package periodic_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"evenkeel/api/v1"
	"evenkeel/test/daemon"
	"evenkeel/test/lab"
)

// play is vcd on a host of the lab, and the runs so far.
type play struct {
	*daemon.Daemon
	t     *testing.T
	begin time.Time // of the first period
	next  time.Time // of the first period of the next phase
	units float64   // of work in a core-second
	count int       // of runs
}

func newPlay(t *testing.T) *play {
	l := lab.New(t, lab.Options{})
	if err := l.Precede(); err != nil {
		t.Fatal(err)
	}
	return &play{t: t, Daemon: daemon.New(t, l.Host(1), "--allowance-cpu", fmt.Sprint(cores), "--forecast-step", "10s")}
}

// run is one run of a job.
type run struct {
	job           string
	name          string    // of its VC
	period        time.Time // start
	delayed       bool
	running, done time.Duration // after the start of the period: its guest began to work; its work was done
	state, text   string        // of its occurrence
}

func (r run) String() string {
	how := ""
	if r.delayed {
		how = ", delayed"
	}
	return fmt.Sprintf("%s of %s%s: works from %.0f s on, done at %.0f s of %.0f; %s %s", r.job, r.period.UTC().Format(time.TimeOnly), how, r.running.Seconds(), r.done.Seconds(),
		deadline.Seconds(), r.state, r.text)
}

func jobName(j int) string { return fmt.Sprintf("job-%c", 'a'+j) }

// phase plays so many periods. delayed names the job whose run is delayed in a period, -1 for none.
func (p *play) phase(name string, periods int, delayed func(k int) int) []run {
	p.t.Helper()
	now := time.Now()
	if p.begin.IsZero() {
		p.begin = now.Truncate(30 * time.Second).Add(time.Minute)
		p.next = p.begin
	}
	for p.next.Before(now.Add(20 * time.Second)) {
		p.next = p.next.Add(period)
	}
	p.t.Logf("%s: %d periods from %s on", name, periods, p.next.UTC().Format(time.TimeOnly))
	var (
		all  []run
		lock sync.Mutex
		wait sync.WaitGroup
	)
	for k := range periods {
		for j := range offsets {
			p.count++
			r := run{job: jobName(j), name: fmt.Sprintf("%s-%d", jobName(j), p.count), period: p.next.Add(time.Duration(k)*period + offsets[j]), delayed: delayed != nil && delayed(k) == j}
			wait.Go(func() {
				p.one(&r)
				lock.Lock()
				all = append(all, r)
				lock.Unlock()
				p.t.Logf("%s: %s", name, r)
			})
		}
	}
	wait.Wait()
	p.next = p.next.Add(time.Duration(periods) * period)
	slices.SortFunc(all, func(a, b run) int { return a.period.Compare(b.period) })
	if p.t.Failed() {
		p.t.FailNow()
	}
	return all
}

// one plays a run: it creates the VC, has its guest work, and deletes it when the work is done.
func (p *play) one(r *run) {
	arrives, works := r.period, time.Duration(0)
	if r.delayed {
		arrives, works = arrives.Add(late), late+idle
	}
	if !p.until(arrives) {
		return
	}
	// What takes longer than a period has missed its deadline, and must not disturb the next run.
	ctx, cancel := context.WithDeadline(p.t.Context(), r.period.Add(period-5*time.Second))
	defer cancel()
	res, err := p.Create(ctx, vc(r.name, minYield, "ek.beat=500", &v1.PeriodicSpec{Name: r.job, Deadline: deadline.String()}))
	if err != nil {
		p.t.Errorf("create %s: %v", r.name, err)
		return
	}
	if res.Operation == nil {
		p.t.Logf("%s waits: %+v", r.name, res)
	}
	p.follow(ctx, r.name+"-g-0", func(b beat, say func(string)) bool {
		if b.burners == 0 && time.Since(r.period) >= works {
			say("burn 1\n")
		}
		if b.burners > 0 && r.running == 0 {
			r.running = time.Since(r.period)
		}
		if float64(b.work) < work*p.units {
			return false
		}
		r.done = time.Since(r.period)
		return true
	})
	ctx, cancel = context.WithTimeout(p.t.Context(), 2*time.Minute)
	defer cancel()
	if _, err := p.Delete(ctx, r.name); err != nil {
		p.t.Errorf("delete %s: %v", r.name, err)
		return
	}
	p.outcome(ctx, r)
}

// outcome waits until the cluster has judged the run, and keeps the verdict. A job that is not signed off has none.
func (p *play) outcome(ctx context.Context, r *run) {
	for {
		job, err := p.PeriodicJob(ctx, r.job, "")
		if err == nil && job.State != "accepted" {
			return
		}
		for _, o := range job.Occurrences {
			if o.Period.Sub(r.period).Abs() < period/4 {
				r.state, r.text = o.State, o.Text
			}
		}
		if r.state == "met" || r.state == "missed" {
			return
		}
		if !p.until(time.Now().Add(2*time.Second)) || ctx.Err() != nil {
			r.text += fmt.Sprint(" ", err)
			return
		}
	}
}

// until waits for a time; false: the test ends before.
func (p *play) until(at time.Time) bool {
	select {
	case <-p.t.Context().Done():
		return false
	case <-time.After(time.Until(at)):
		return true
	}
}

// beat is what a guest says twice a second: see test/guest/README.md.
type beat struct {
	seq, work int64
	uptime    time.Duration
	burners   int64
}

// follow takes in a guest's beats until one is enough, or ctx ends. say types a line on its console.
func (p *play) follow(ctx context.Context, vm string, enough func(b beat, say func(string)) bool) {
	for ctx.Err() == nil {
		if c, err := p.Console(ctx, vm); err == nil {
			stop := context.AfterFunc(ctx, func() { _ = c.Close() })
			done := read(c, enough)
			stop()
			_ = c.Close()
			if done {
				return
			}
		}
		if !p.until(time.Now().Add(500 * time.Millisecond)) {
			return
		}
	}
}

func read(c io.ReadWriter, enough func(b beat, say func(string)) bool) bool {
	for lines := bufio.NewScanner(c); lines.Scan(); {
		if b, ok := parse(lines.Text()); ok && enough(b, func(line string) { _, _ = io.WriteString(c, line) }) {
			return true
		}
	}
	return false
}

// parse reads a line of a guest's console.
func parse(line string) (b beat, ok bool) {
	fields := strings.Fields(line)
	if len(fields) < 8 || fields[0] != "BEAT" {
		return b, false
	}
	b.seq, _ = strconv.ParseInt(fields[1], 10, 64)
	n := map[string]int64{}
	for _, f := range fields[2:] {
		key, value, _ := strings.Cut(f, "=")
		n[key], _ = strconv.ParseInt(value, 10, 64)
	}
	b.uptime, b.work, b.burners = time.Duration(n["uptime_ms"])*time.Millisecond, n["work"], n["burners"]
	return b, b.uptime > 0
}

func TestParseBeats(t *testing.T) {
	b, ok := parse("BEAT 7 uptime_ms=4200 work=33 touched=0 burners=1 memtotal_kb=80000 memavail_kb=60000")
	if !ok || b != (beat{7, 33, 4200 * time.Millisecond, 1}) {
		t.Errorf("%+v %v", b, ok)
	}
	for _, line := range []string{"", "OK burn 1", "BEAT 7", "BEAT 7 uptime_ms=0 work=33 touched=0 burners=1 memtotal_kb=1 memavail_kb=1"} {
		if b, ok := parse(line); ok {
			t.Errorf("%q is taken for %+v", line, b)
		}
	}
}

// extra is what grants gave all runs that are kept beyond their reservations, in core-hours.
func (p *play) extra() (sum float64) {
	for j := range offsets {
		job, err := p.PeriodicJob(p.t.Context(), jobName(j), "")
		if err != nil {
			p.t.Fatal(err)
		}
		for _, r := range job.History {
			sum += r.ExtraCoreHours
		}
	}
	return sum
}

// summary says how many runs met their deadlines, and when they were done.
func (p *play) summary(name string, all []run) {
	for _, delayed := range []bool{false, true} {
		met, n, latest := 0, 0, time.Duration(0)
		for _, r := range all {
			if r.delayed != delayed {
				continue
			}
			n++
			latest = max(latest, r.done)
			if r.state == "met" {
				met++
			}
		}
		p.t.Logf("%s, delayed %v: %d of %d met; the last one was done at %.0f s of %.0f", name, delayed, met, n, latest.Seconds(), deadline.Seconds())
	}
}
