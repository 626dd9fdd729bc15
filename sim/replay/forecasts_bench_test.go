package replay

import (
	"math/rand/v2"
	"syscall"
	"testing"

	"evenkeel/forecast"
	"evenkeel/sim/workload"
)

// BenchmarkForecasts plays one host for some hours as the paper's prototype forecasts.
func BenchmarkForecasts(b *testing.B) {
	for _, kind := range []struct {
		name string
		new  func() func(phase int) forecast.Model
		k2   float64
	}{{"arima10", FewARIMA, 0}, {"gp10", FewGP, 3}} {
		b.Run(kind.name, func(b *testing.B) {
			p := workload.PaceDefault.Scaled(1, 75, 0.25)
			w, err := p.Draw(rand.New(rand.NewPCG(1, 0)))
			if err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			before := processor(b)
			asked := 0
			for b.Loop() {
				s := &Rightsizing{Label: kind.name, Foresight: &Models{Kind: kind.name, New: kind.new}, Buffer: forecast.Buffer{K1: 0.05, K2: kind.k2}, Yield: 1, Trust: 3, How: Enforcement{Capped: true}}
				s.Options.MinAge = 600
				c := &counted{Foresight: s.Foresight}
				s.Foresight = c
				r, err := Run(w, []Host{{p.CPU, p.Memory}}, s, Options{})
				if err != nil {
					b.Fatal(err)
				}
				asked += c.asked
				b.ReportMetric(r.Turnaround.Mean, "turnaround-s")
			}
			b.ReportMetric((processor(b)-before)/float64(asked), "cpu-us/component-minute")
		})
	}
}

// counted is a foresight of which it is known how often it was asked.
type counted struct {
	Foresight
	asked int
}

func (c *counted) Ahead(at *Cluster, s int32) (cpu, memory []forecast.Prediction) {
	c.asked++
	return c.Foresight.Ahead(at, s)
}

// processor is the processor time that this process has used, in microseconds: unlike the time on the clock it does not count what other work on the machine took.
func processor(b *testing.B) float64 {
	var use syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &use); err != nil {
		b.Fatal(err)
	}
	return float64(use.Utime.Sec+use.Stime.Sec)*1e6 + float64(use.Utime.Usec+use.Stime.Usec)
}
