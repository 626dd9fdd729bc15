package server

import (
	"context"

	"github.com/danielgtaylor/huma/v2"

	"evenkeel/api/v1"
	"evenkeel/cluster/state"
)

type settingsAnswer struct {
	ETag string `header:"ETag" doc:"Version of the settings."`
	Body v1.ClusterSettings
}

func (s *Server) registerSettings(api huma.API) {
	get(api, "getSettings", "/v1/cluster/settings", tagCluster, "Get the cluster's settings", "Defaults of virtual clusters, and when VMs move. What was never set is shown as its default.",
		func(ctx context.Context, in *struct{ ReadParams }) (*settingsAnswer, error) {
			v, err := s.view(ctx, in.Consistency)
			if err != nil {
				return nil, err
			}
			meta, _ := v.Meta()
			return settingsOf(meta), nil
		})
}

func settingsOf(meta state.Meta) *settingsAnswer {
	return &settingsAnswer{ETag: etag(max(1, meta.SettingsIndex)), Body: settings(meta.Settings)}
}

func settings(s state.Settings) v1.ClusterSettings {
	m := s.Moves.WithDefaults()
	text := func(d state.Millis) string { return v1.FormatDuration(d.Duration()) }
	return v1.ClusterSettings{
		MinYield: s.MinYield, OnFull: string(s.OnFull), Image: s.Image, Pool: s.Pool, MinMemory: v1.Size(s.MinMemory), MaxVMs: s.MaxVMs,
		SharedPools: append([]string{}, s.SharedPools...),
		Moves: v1.MoveSettings{
			Mode: string(m.Mode), Period: text(m.Period), Grace: text(m.Grace), CoolDown: text(m.CoolDown), Hold: text(m.Hold), LeastGain: m.LeastGain,
			IdleBelow: m.IdleBelow, MaxBytes: v1.Size(m.MaxBytes), Budget: v1.Size(m.Budget()), PerHost: m.PerHost, Total: m.Total, Bandwidth: v1.Size(m.Bandwidth),
			AutoConverge: m.AutoConverge, PostCopy: m.PostCopy, Deadline: text(m.Deadline), OnJoin: m.OnJoin,
		},
	}
}
