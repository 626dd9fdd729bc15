package moves_test

import (
	"slices"
	"strings"
	"testing"

	"evenkeel/cluster/scheduler/moves"
	"evenkeel/hypervisor"
)

const noCA = "/etc/pki/CA/cacert.pem is missing"

func here(why string) hypervisor.Obstacle  { return hypervisor.Obstacle{Why: why, Here: true} }
func there(why string) hypervisor.Obstacle { return hypervisor.Obstacle{Why: why} }

// Equal causes are named once, over the hosts that send and those that are not reached.
func TestSumOfRoutes(t *testing.T) {
	const see = " (see docs/how-to/set-up-live-migration.md)"
	for _, tc := range []struct {
		name   string
		routes moves.Routes
		want   []string
	}{
		{"nothing", moves.Routes{}, nil},
		{"one host, a file", moves.Routes{"h1": {"": here(noCA)}}, []string{"h1 cannot send VMs: " + noCA + " on h1" + see}},
		{"a file on several", moves.Routes{"h1": {"": here(noCA)}, "h2": {"": here(noCA)}}, []string{"h1, h2 cannot send VMs: " + noCA + " on h1, h2" + see}},
		{"two causes", moves.Routes{"h1": {"": here(noCA)}, "h2": {"": here("expired")}},
			[]string{"h1 cannot send VMs: " + noCA + " on h1" + see, "h2 cannot send VMs: expired on h2" + see}},
		{"one way", moves.Routes{"h1": {"h2": there("refused")}}, []string{"h1 cannot send VMs to h2: refused" + see}},
		{"one host that no host reaches", moves.Routes{"h1": {"h3": there("refused")}, "h2": {"h3": there("refused")}},
			[]string{"h1, h2 cannot send VMs to h3: refused" + see}},
		{"one host that reaches no host", moves.Routes{"h1": {"h2": there("no answer"), "h3": there("no answer")}},
			[]string{"h1 cannot send VMs to h2, h3: no answer" + see}},
		{"a file for one way only", moves.Routes{"h1": {"h2": here(noCA)}}, []string{"h1 cannot send VMs to h2: " + noCA + " on h1" + see}},
	} {
		var got []string
		for _, n := range tc.routes.Sum() {
			got = append(got, n.String())
		}
		if !slices.Equal(got, tc.want) {
			t.Errorf("%s:\n%s\nwant\n%s", tc.name, strings.Join(got, "\n"), strings.Join(tc.want, "\n"))
		}
	}
}
