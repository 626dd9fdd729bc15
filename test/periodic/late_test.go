package periodic_test

import (
	"context"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"evenkeel/api/v1"
	"evenkeel/test/daemon"
	"evenkeel/test/lab"
)

var (
	training = flag.Int("training", 8, "runs of each job before it is signed off; below 8 its period and CPU are given instead of learned")
	with     = flag.Duration("with", time.Hour, "how long to play with grants for late runs")
	without  = flag.Duration("without", time.Hour, "how long to play without")
)

const (
	mib      = 1 << 20
	cores    = 1.4 // of the host that VMs may have
	period   = 3 * time.Minute
	need     = 0.35              // cores that a run declares, and so the most that it has
	minYield = 0.4               // of a run
	work     = 16.0              // core-seconds of a run, beyond the boot of its guest
	deadline = 160 * time.Second // after the start of a period
	late     = 25 * time.Second  // after which the delayed run arrives
	idle     = 40 * time.Second  // for which it then does nothing
	others   = 6                 // VMs of other work, each of which would use need
	othersMY = 0.15              // minYield of these
)

// offsets are when the jobs' periods begin. Slots of 90 seconds that begin there overlap by pairs.
var offsets = []time.Duration{0, 30 * time.Second, 90 * time.Second, 2 * time.Minute}

func TestMain(m *testing.M) { os.Exit(daemon.Main(m)) }

// Figure 12: late runs meet their deadlines with re-provisioning, beside other work that takes all that it can get. Without it they do not.
func TestLateRunsMeetTheirDeadlines(t *testing.T) {
	lab.Real(t)
	if os.Getenv("EVENKEEL_LONG") != "1" {
		t.Skip("takes two and a half hours: set EVENKEEL_LONG=1, and see the package's flags for a shorter play")
	}
	p := newPlay(t)
	p.calibrate()

	p.phase("training", *training, nil)
	p.signOff()
	for i := range others {
		p.Done(p.Create(t.Context(), vc(fmt.Sprintf("other-%d", i), othersMY, "ek.burn=1 ek.beat=3600000", nil)))
	}
	delayed := func(k int) int { // the job whose run is delayed in a period; -1: none
		if k%2 == 0 {
			return -1
		}
		return k / 2 % len(offsets)
	}
	granted := p.phase("with", int(*with/period), delayed)
	none := 0.0
	if _, err := p.SetSettings(t.Context(), v1.SettingsPatch{Periodic: &v1.PeriodicPatch{Reprovision: &none}}); err != nil {
		t.Fatal(err)
	}
	bare := p.phase("without", int(*without/period), delayed)

	for _, r := range granted {
		if r.state != "met" {
			t.Errorf("with grants: %s", r)
		}
	}
	missed := 0
	for _, r := range bare {
		switch {
		case r.state == "missed" && r.delayed:
			missed++
		case r.state != "met" && !r.delayed:
			t.Logf("a run in time missed its deadline without grants: %s", r)
		}
	}
	if extra := p.extra(); extra <= 0 || len(bare) > 2*len(offsets) && missed == 0 {
		t.Errorf("the play proves nothing: grants gave %.3f core-hours, and without them %d delayed runs missed their deadlines", extra, missed)
	}
	p.summary("with grants", granted)
	p.summary("without", bare)
}

// vc of one VM that boots with such settings.
func vc(name string, minYield float64, settings string, job *v1.PeriodicSpec) v1.VirtualClusterSpec {
	return v1.VirtualClusterSpec{Name: name, MinYield: &minYield, Periodic: job, Groups: []v1.GroupSpec{{Name: "g", Count: 1, CPU: need, Memory: 96 * mib,
		Boot: &v1.Boot{Kernel: "tiny", Cmdline: lab.Guest{}.Cmdline(settings)}}}}
}

// calibrate measures how many units of work a guest does in a core-second.
func (p *play) calibrate() {
	p.t.Helper()
	p.Done(p.Create(p.t.Context(), vc("gauge", 1, "ek.burn=1 ek.beat=1000", nil)))
	ctx, cancel := context.WithTimeout(p.t.Context(), 5*time.Minute)
	defer cancel()
	var first, last beat
	p.follow(ctx, "gauge-g-0", func(b beat, _ func(string)) bool {
		if first.uptime == 0 && b.seq >= 3 {
			first = b
		}
		last = b
		return first.uptime > 0 && b.uptime-first.uptime >= 20*time.Second
	})
	p.units = float64(last.work-first.work) / ((last.uptime - first.uptime).Seconds() * need)
	if !(p.units > 0) {
		p.t.Fatalf("the gauge did no work: from %+v to %+v", first, last)
	}
	p.t.Logf("a guest does %.0f units of work in a core-second", p.units)
	p.Done(p.Delete(p.t.Context(), "gauge"))
}

// signOff accepts what the cluster proposes for each job, and waits until its next runs have hosts.
func (p *play) signOff() {
	p.t.Helper()
	for j := range offsets {
		q := v1.PeriodicRequest{}
		if *training < 8 {
			q = v1.PeriodicRequest{Rule: "FREQ=MINUTELY;INTERVAL=3", Start: p.begin.Add(offsets[j]).UTC().Format(v1.ClockForm), Length: "1m", Cores: need}
		}
		job, err := p.DecidePeriodic(p.t.Context(), "accept", jobName(j), q)
		if err != nil {
			p.t.Fatalf("sign off %s: %v", jobName(j), err)
		}
		p.t.Logf("%s", strings.Join(job.Lines, "; "))
	}
	for j := range offsets {
		p.Eventually(2*time.Minute, "the next runs of "+jobName(j)+" have hosts", func(ctx context.Context) (bool, error) {
			job, err := p.PeriodicJob(ctx, jobName(j), "")
			if err != nil {
				return false, err
			}
			ahead := 0
			for _, o := range job.Occurrences {
				if o.State == "degraded" {
					return false, fmt.Errorf("%s at %s is degraded: %s", jobName(j), o.Start, o.Text)
				}
				if o.State == "confirmed" || o.State == "re-confirmed" {
					ahead++
				}
			}
			return ahead >= 20, nil
		})
	}
}
