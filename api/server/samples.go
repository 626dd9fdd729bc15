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
	"evenkeel/cluster/control"
	"evenkeel/cluster/history"
)

// resolutions by their names in the API.
var resolutions = map[string]history.Resolution{"raw": history.Raw, "1m": history.Minute, "5m": history.FiveMinutes, "1h": history.Hour}

func (s *Server) registerSamples(api huma.API) {
	get(api, "getVMSamples", "/v1/vms/{name}/samples", tagVM, "What a VM used",
		"Measured every ten seconds by its host, which keeps it in four resolutions: raw for an hour, 1m for six hours, 5m for two days, 1h for thirty days. It goes along when "+
			"the VM moves. Read from the host: 503 while that does not answer.",
		func(ctx context.Context, in *struct {
			NameParam
			ReadParams
			Resource   string `query:"resource" enum:"cpu,memory" default:"cpu"`
			Resolution string `query:"resolution" enum:"raw,1m,5m,1h" default:"1m" doc:"raw: steps of ten seconds."`
			Since      string `query:"since" maxLength:"64" doc:"Only steps that end after that: a time (RFC 3339), or how long ago (30m, 6h)."`
		}) (*answerOf[v1.Samples], error) {
			since, err := sinceOf(in.Since, time.Now())
			if err != nil {
				return nil, err
			}
			if _, err := s.view(ctx, in.Consistency); err != nil {
				return nil, err
			}
			h, _, vm, err := s.cluster.History(ctx, in.Name)
			if err != nil {
				return nil, s.fail(ctx, unreachable(err))
			}
			res := resolutions[in.Resolution]
			out := &answerOf[v1.Samples]{Body: v1.Samples{VM: vm.Name, Host: vm.Host, Resource: in.Resource, Unit: "cores", Resolution: in.Resolution,
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
	var u *control.Unreachable
	if !errors.As(err, &u) {
		return err
	}
	p := newProblem(http.StatusServiceUnavailable, v1.ProblemUnavailable, u.Error())
	p.retry = true
	return p
}
