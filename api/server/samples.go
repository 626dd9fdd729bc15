package server

import (
	"context"
	"errors"
	"math"
	"net/http"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"evenkeel/api/v1"
	"evenkeel/cluster/agent"
	"evenkeel/cluster/history"
	"evenkeel/cluster/leader"
	"evenkeel/cluster/state"
)

// resolutions by their names in the API.
var resolutions = map[string]history.Resolution{"raw": history.Raw, "1m": history.Minute, "5m": history.FiveMinutes, "1h": history.Hour}

func (s *Server) registerSamples(api huma.API) {
	get(api, route{"getVMSamples", "/v1/vms/{name}/samples", tagVM, "What a VM used",
		"Measured every ten seconds by its host, which keeps it in four resolutions: raw for an hour, 1m for six hours, 5m for two days, 1h for thirty days. It goes along when " +
			"the VM moves. Read from the host: 503 while that does not answer."},
		func(ctx context.Context, in *struct {
			NameParam
			TenantParams
			ReadParams
			Resource   string `query:"resource" enum:"cpu,memory" default:"cpu" doc:"CPU in cores, or memory in bytes."`
			Resolution string `query:"resolution" enum:"raw,1m,5m,1h" default:"1m" doc:"raw: steps of ten seconds."`
			Since      string `query:"since" maxLength:"64" doc:"Only steps that end after that: a time (RFC 3339), or how long ago (30m, 6h)."`
		}) (*answerOf[v1.Samples], error) {
			since, err := sinceOf(in.Since, time.Now())
			if err != nil {
				return nil, err
			}
			x, err := s.one(ctx, in.TenantParams, in.ReadParams)
			if err != nil {
				return nil, err
			}
			row, err := x.vm(in.Name)
			if err != nil {
				return nil, err
			}
			h, _, vm, err := s.cluster.History(ctx, row.ID)
			if err != nil {
				return nil, s.fail(ctx, unreachable(err))
			}
			name, host := x.placed(vm)
			res := resolutions[in.Resolution]
			out := &answerOf[v1.Samples]{Body: v1.Samples{VM: name, Host: host, Resource: in.Resource, Unit: "cores", Resolution: in.Resolution,
				StepSeconds: int(res.Step() / time.Second), KeptSeconds: int(res.Kept() / time.Second), Items: []v1.SampleStep{}}}
			if in.Resource == v1.ResourceMemory {
				out.Body.Unit = "bytes"
			}
			for _, b := range h.Buckets(res, since) {
				if step, ok := stepOf(b, in.Resource); ok {
					out.Body.Items = append(out.Body.Items, step)
				}
			}
			return out, nil
		})
}

func (s *Server) registerForecasts(api huma.API) {
	get(api, route{"getVMForecast", "/v1/vms/{name}/forecast", tagVM, "What a VM will use",
		"Forecast minute by minute by its host, from what it measured: a mixture of models, weighed by how good each has been on this VM, with intervals that are corrected by how " +
			"often they held. Read from the host: 503 while that does not answer."},
		func(ctx context.Context, in *struct {
			NameParam
			TenantParams
			ReadParams
			Resource string `query:"resource" enum:"cpu,memory" default:"cpu" doc:"CPU in cores, or memory in bytes."`
			Steps    int    `query:"steps" minimum:"1" maximum:"60" default:"10" doc:"How many minutes ahead."`
		}) (*answerOf[v1.Forecast], error) {
			x, err := s.one(ctx, in.TenantParams, in.ReadParams)
			if err != nil {
				return nil, err
			}
			row, err := x.vm(in.Name)
			if err != nil {
				return nil, err
			}
			f, need, vm, err := s.cluster.Forecast(ctx, row.ID, in.Resource, in.Steps)
			if err != nil {
				return nil, s.fail(ctx, unreachable(err))
			}
			out := forecastOf(f, need, vm)
			out.VM, out.Host = x.placed(vm)
			return &answerOf[v1.Forecast]{Body: out}, nil
		})
}

func forecastOf(f agent.VMForecast, need leader.Need, vm state.VM) v1.Forecast {
	// exact rounds to what the figures are worth: whole bytes, millionths of a core.
	exact, unit := short, "cores"
	if f.Resource == agent.ResourceMemory {
		exact, unit = math.Round, "bytes"
	}
	out := v1.Forecast{VM: vm.Name, Host: vm.Host, Resource: f.Resource, Unit: unit, StepSeconds: int(f.Step / time.Second), Until: f.Until, Trusted: f.Trusted, Reason: f.Reason,
		Declared: exact(need.Declared), Need: exact(need.Declared), Buffer: exact(need.Buffer), Items: []v1.ForecastStep{}, Models: []v1.ForecastModel{}}
	if f.Trusted {
		out.Need = exact(need.Forecast)
	}
	for i, p := range f.Ahead {
		within := func(low int) [2]float64 {
			return [2]float64{exact(p.Quantiles[low]), exact(p.Quantiles[len(p.Quantiles)-1-low])}
		}
		out.Items = append(out.Items, v1.ForecastStep{At: f.Until.Add(time.Duration(i) * f.Step), Mean: exact(p.Mean), Sd: exact(math.Sqrt(p.Variance)),
			Int50: within(4), Int80: within(3), Int95: within(1), Int99: within(0)}) // places in forecast.Levels
	}
	shares := map[string]float64{}
	for _, m := range f.Shares {
		shares[m.Model] = m.Share
	}
	for i, c := range f.Calibration {
		m := v1.ForecastModel{Name: c.Model, Share: math.Round(1e4*shares[c.Model]) / 1e4, Horizons: []v1.ForecastCalibration{}}
		if i == 0 && len(f.Ahead) > 0 {
			m.Share = 1
		}
		for _, h := range c.Horizons {
			m.Horizons = append(m.Horizons, v1.ForecastCalibration{Steps: h.Steps, Values: math.Round(h.Values), Pinball: exact(h.Pinball),
				In50: part(h.Coverage[0]), In80: part(h.Coverage[1]), In95: part(h.Coverage[2]), In99: part(h.Coverage[3]), Above: part(h.Above)})
		}
		out.Models = append(out.Models, m)
	}
	return out
}

// part is a share to four digits.
func part(v float64) float64 { return math.Round(1e4*v) / 1e4 }

// stepOf a bucket; false if nothing was measured of the resource.
func stepOf(b history.Bucket, resource string) (v1.SampleStep, bool) {
	if resource == v1.ResourceMemory {
		return v1.SampleStep{At: b.At, Mean: math.Round(b.Memory), Max: math.Round(b.MemoryMax), Samples: b.MemorySamples, Balloon: known(math.Round(b.Balloon))}, b.MemorySamples > 0
	}
	return v1.SampleStep{At: b.At, Mean: short(b.CPU), Max: short(b.CPUMax), Samples: b.CPUSamples, Cap: known(short(b.Cap)), Throttled: known(short(b.Throttled)),
		Censored: known(short(b.Censored))}, b.CPUSamples > 0
}

// short is a figure without the digits that a 32-bit float made of it has too many.
func short(v float64) float64 { return math.Round(v*1e6) / 1e6 }

// known is nil for what was not measured.
func known(v float64) *float64 {
	if math.IsNaN(v) {
		return nil
	}
	return &v
}

// sinceOf reads a time, or how long ago; "" is the beginning.
func sinceOf(text string, now time.Time) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	if at, err := time.Parse(time.RFC3339, text); err == nil {
		return at, nil
	}
	ago, err := time.ParseDuration(strings.TrimSpace(text))
	if err != nil || ago < 0 {
		return time.Time{}, invalidParameter("query", "since", text, "must be a time like 2026-03-01T12:00:00Z, or how long ago, like 30m")
	}
	return now.Add(-ago), nil
}

// unreachable makes a problem of a host that does not answer, and leaves other errors as they are.
func unreachable(err error) error {
	var u *leader.Unreachable
	if !errors.As(err, &u) {
		return err
	}
	p := newProblem(http.StatusServiceUnavailable, v1.ProblemUnavailable, u.Error())
	p.retry = true
	return p
}
