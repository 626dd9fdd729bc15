package server

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"evenkeel/api/v1"
	"evenkeel/cluster/state"
)

type settingsAnswer struct {
	ETag string `header:"ETag" doc:"Version of the settings."`
	Body v1.ClusterSettings
}

func (s *Server) registerSettings(api huma.API) {
	get(api, route{"getSettings", "/v1/cluster/settings", tagCluster, "Get the cluster's settings", "Defaults of virtual clusters, when VMs move, and whose needs are estimated. What was never set is shown as its default."},
		func(ctx context.Context, in *struct{ ReadParams }) (*settingsAnswer, error) {
			v, err := s.view(ctx, in.Consistency)
			if err != nil {
				return nil, err
			}
			meta, _ := v.Meta()
			return settingsOf(meta), nil
		})
	change(api, http.MethodPatch, route{"changeSettings", "/v1/cluster/settings", tagCluster, "Change the cluster's settings",
		"What is left out stays. A value of 0 or 0s brings a default back, where there is one. Answers with all settings; in a dry run, as they would be."}, http.StatusOK, v1.SettingsPatch{},
		func(ctx context.Context, in *struct {
			ChangeParams
			IfMatch string `header:"If-Match" maxLength:"64" doc:"The ETag that the settings must have; 412 if they have another."`
			JSONBody
		}) (*settingsAnswer, error) {
			q, err := parse(in.JSONBody, v1.ParseSettings)
			if err != nil {
				return nil, err
			}
			call, err := CallParams{ChangeParams: in.ChangeParams, IfMatch: in.IfMatch}.call()
			if err != nil {
				return nil, err
			}
			bounded, cancel := context.WithTimeout(ctx, requestTimeout)
			defer cancel()
			after, err := s.cluster.Settings(bounded, func(to *state.Settings) error { return patchSettings(to, q) }, call)
			if err != nil {
				return nil, s.fail(ctx, err)
			}
			if in.DryRun {
				return &settingsAnswer{Body: settings(after)}, nil
			}
			v, err := s.cluster.View(bounded, true) // what was just done is known here
			if err != nil {
				return nil, s.fail(ctx, err)
			}
			meta, _ := v.Meta()
			return settingsOf(meta), nil
		})
}

// patchSettings puts what a request names into settings.
func patchSettings(to *state.Settings, q v1.SettingsPatch) error {
	take(&to.MinYield, q.MinYield)
	take(&to.Image, q.Image)
	take(&to.Pool, q.Pool)
	take(&to.MaxVMs, q.MaxVMs)
	take(&to.SharedPools, q.SharedPools)
	if q.OnFull != nil {
		to.OnFull = state.OnFull(*q.OnFull)
	}
	if q.MinMemory != nil {
		to.MinMemory = int64(*q.MinMemory)
	}
	patchRightsizing(&to.Rightsizing, q.Rightsizing)
	if q.Moves == nil {
		return nil
	}
	m, p := &to.Moves, q.Moves
	take(&m.MinGain, p.MinGain)
	take(&m.IdleBelow, p.IdleBelow)
	take(&m.PerHost, p.PerHost)
	take(&m.Total, p.Total)
	take(&m.AutoConverge, p.AutoConverge)
	take(&m.PostCopy, p.PostCopy)
	take(&m.CopyStorage, p.CopyStorage)
	take(&m.OnJoin, p.OnJoin)
	if p.Mode != nil {
		m.Mode = state.MoveMode(*p.Mode)
	}
	for _, size := range []struct {
		to   *int64
		from *v1.Size
	}{{&m.MaxBytes, p.MaxBytes}, {&m.Bandwidth, p.Bandwidth}} {
		if size.from != nil {
			*size.to = int64(*size.from)
		}
	}
	for _, d := range []struct {
		name string
		to   *state.Millis
		from *string
	}{{"period", &m.Period, p.Period}, {"minResidency", &m.MinResidency, p.MinResidency}, {"coolDown", &m.CoolDown, p.CoolDown}, {"stabilizationWindow", &m.StabilizationWindow, p.StabilizationWindow}, {"deadline", &m.Deadline, p.Deadline}} {
		if d.from == nil {
			continue
		}
		v, err := v1.ParseDuration(*d.from)
		if err != nil {
			return invalidParameter("body", "moves."+d.name, *d.from, "%v", err)
		}
		*d.to = state.Millis(v.Milliseconds())
	}
	return nil
}

// take a value that was given.
func take[T any](to *T, from *T) {
	if from != nil {
		*to = *from
	}
}

func settingsOf(meta state.Meta) *settingsAnswer {
	out := &settingsAnswer{Body: settings(meta.Settings)}
	if meta.SettingsIndex > 0 { // they were changed since the cluster was made
		out.ETag = etag(meta.SettingsIndex)
	}
	return out
}

func settings(s state.Settings) v1.ClusterSettings {
	m, x := s.Moves.WithDefaults(), s.Rightsizing.WithDefaults()
	text := func(d state.Millis) string { return v1.FormatDuration(d.Duration()) }
	return v1.ClusterSettings{
		MinYield: s.MinYield, OnFull: string(s.OnFull), Image: s.Image, Pool: s.Pool, MinMemory: v1.Size(s.MinMemory), MaxVMs: s.MaxVMs,
		SharedPools: append([]string{}, s.SharedPools...),
		Moves: v1.MoveSettings{
			Mode: string(m.Mode), Period: text(m.Period), MinResidency: text(m.MinResidency), CoolDown: text(m.CoolDown), StabilizationWindow: text(m.StabilizationWindow), MinGain: m.MinGain,
			IdleBelow: m.IdleBelow, MaxBytes: v1.Size(m.MaxBytes), Budget: v1.Size(m.Budget()), PerHost: m.PerHost, Total: m.Total, Bandwidth: v1.Size(m.Bandwidth),
			AutoConverge: m.AutoConverge, PostCopy: m.PostCopy, CopyStorage: m.CopyStorage, Deadline: text(m.Deadline), OnJoin: m.OnJoin,
		},
		Rightsizing: v1.RightsizingSettings{Mode: string(x.Mode), Needs: x.Needs, Aggressiveness: x.Aggressiveness},
	}
}
