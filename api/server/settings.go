package server

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"reflect"

	"github.com/danielgtaylor/huma/v2"

	"evenkeel/api/v1"
	"evenkeel/cluster/state"
)

type settingsAnswer struct {
	ETag string `header:"ETag" doc:"Version of the settings; to a role of the cluster."`
	Body v1.ClusterSettings
}

func (s *Server) registerSettings(api huma.API) {
	get(api, route{"getSettings", "/v1/cluster/settings", tagCluster, "Get the cluster's settings", "Defaults of virtual clusters, when VMs move, and whose needs are estimated. What was never set is shown as its default. To a token of a tenant: those that bound its requests, and the networks and pools that it may name."},
		func(ctx context.Context, in *struct{ ReadParams }) (*settingsAnswer, error) {
			x, err := s.scoped(ctx, TenantParams{}, in.ReadParams)
			if err != nil {
				return nil, err
			}
			meta, _ := x.v.Meta()
			if x.restricted {
				return &settingsAnswer{Body: x.settings(meta.Settings)}, nil
			}
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
	return copySettings(reflect.ValueOf(to).Elem(), reflect.ValueOf(q))
}

// copySettings copies settings between two forms of them: the fields of the one that the other has under the same name. A
// nil pointer leaves the other's value as it is. Durations are text in the API, and milliseconds in the state.
func copySettings(to, from reflect.Value) error {
	for f, v := range from.Fields() {
		into := to.FieldByName(f.Name)
		if v.Kind() == reflect.Pointer {
			v = v.Elem() // of nil: not valid
		}
		if !v.IsValid() || !into.IsValid() {
			continue
		}
		switch x := v.Interface().(type) {
		case state.Millis:
			into.SetString(v1.FormatDuration(x.Duration()))
		case []string:
			into.Set(reflect.ValueOf(append([]string{}, x...)))
		default:
			switch {
			case v.Kind() == reflect.Struct:
				if err := copySettings(into, v); err != nil {
					return err
				}
			case into.Type() == reflect.TypeFor[state.Millis]():
				d, err := v1.ParseDuration(v.String())
				if err != nil {
					return fmt.Errorf("%s: %w", f.Name, err)
				}
				into.SetInt(d.Milliseconds())
			default:
				into.Set(v.Convert(into.Type()))
			}
		}
	}
	return nil
}

func settingsOf(meta state.Meta) *settingsAnswer {
	out := &settingsAnswer{Body: settings(meta.Settings)}
	if meta.SettingsIndex > 0 { // they were changed since the cluster was made
		out.ETag = etag(meta.SettingsIndex)
	}
	return out
}

func settings(s state.Settings) (out v1.ClusterSettings) {
	s.Moves, s.Rightsizing, s.Placement = s.Moves.WithDefaults(), s.Rightsizing.WithDefaults(), cmp.Or(s.Placement, state.Spread)
	if err := copySettings(reflect.ValueOf(&out).Elem(), reflect.ValueOf(s)); err != nil {
		panic("server: settings: " + err.Error()) // durations of the state are no text
	}
	out.Moves.Budget = v1.Size(s.Moves.Budget())
	return out
}
