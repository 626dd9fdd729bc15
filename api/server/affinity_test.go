package server_test

import (
	"errors"
	"reflect"
	"strings"
	"testing"

	"evenkeel/api/client"
	"evenkeel/api/v1"
)

// Rules and labels come back as they were asked for, and a refusal names the rule.
func TestAffinity(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := start(t)
		spec := small("a", 1)
		spec.Groups[0].Labels = map[string]string{"app": "x"}
		spec.Groups[0].Affinity = &v1.Affinity{Spread: "host", Require: []string{"host:h1"}, Prefer: []string{"vc:a"}, Avoid: []string{"app=y"}}
		c.create(t, spec)
		vc, err := c.client(t).VirtualCluster(t.Context(), "a")
		must(t, err)
		if got := vc.Groups[0]; got.Labels["app"] != "x" || !reflect.DeepEqual(got.Affinity, spec.Groups[0].Affinity) {
			t.Errorf("labels %v, affinity %+v", got.Labels, got.Affinity)
		}
		other := small("b", 1)
		other.OnFull = "reject"
		other.Groups[0].Affinity = &v1.Affinity{Require: []string{"host:h1"}, Avoid: []string{"app=x"}}
		_, err = c.client(t).Create(t.Context(), other)
		var e *client.Error
		if !errors.As(err, &e) || e.Problem.Type != v1.ProblemRefused || len(e.Problem.Hosts) != 2 {
			t.Fatalf("beside what it avoids: %v", err)
		}
		for i, rule := range []string{"avoid app=x", "require host:h1"} {
			if h := e.Problem.Hosts[i]; h.Rule != rule || !strings.HasPrefix(h.Text, rule+": ") {
				t.Errorf("host %d: %+v, want the rule %s", i, h, rule)
			}
		}
	})
}
