package main

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// threeHosts are two full hosts and an empty one; every move costs bytes.
const threeHosts = `"hosts":[{"name":"h1","cpu":1,"memory":4},{"name":"h2","cpu":1,"memory":4},{"name":"h3","cpu":1,"memory":4}]`

func TestSolveOptions(t *testing.T) {
	crowd := `"virtualClusters":[{"name":"a","count":3,"cpu":1,"memory":1,"current":["h1","h1","h1"]},{"name":"b","cpu":1,"memory":2,"current":["h2"]},{"name":"c","cpu":0.1,"memory":0.5,"current":[null]}]`
	for name, c := range map[string]struct {
		in     string
		status string
		exit   int
		lowest float64
		moved  float64
		hosts  string // "name/task@host" of all placements
	}{
		"nothing may move":            {in: threeHosts + `,"maxMigrationBytes":0,` + crowd, status: "optimal", lowest: 1. / 3, hosts: "a/0@h1 a/1@h1 a/2@h1 b/0@h2"},
		"one may move":                {in: threeHosts + `,"maxMigrationBytes":1,` + crowd, status: "optimal", lowest: 0.5, moved: 1},
		"a host is not had":           {in: threeHosts + `,"maxMigrationBytes":1.9,` + crowd, status: "optimal", lowest: 0.5, moved: 1},
		"least yields kept":           {in: threeHosts + `,"virtualClusters":[{"name":"a","count":2,"cpu":1,"memory":3,"minYield":0.9},{"name":"b","count":2,"cpu":1,"memory":2}]`, status: "optimal", lowest: 0.5},
		"least yields that cannot be": {in: threeHosts + `,"virtualClusters":[{"name":"a","count":4,"cpu":1,"memory":1,"minYield":0.6}]`, status: "infeasible", exit: 3},
		"spread":                      {in: threeHosts + `,"virtualClusters":[{"name":"a","count":3,"cpu":0.1,"memory":1,"affinity":{"spread":"host"}}]`, status: "optimal", lowest: 1},
		"spread too wide":             {in: threeHosts + `,"virtualClusters":[{"name":"a","count":4,"cpu":0.1,"memory":1,"affinity":{"spread":"host"}}]`, status: "infeasible", exit: 3},
		"require and avoid": {in: threeHosts + `,"virtualClusters":[{"name":"a","cpu":0.5,"memory":1,"affinity":{"require":["host:h3"]}},
			{"name":"b","cpu":0.5,"memory":1,"affinity":{"require":["app=x"],"avoid":["vc:a"]}},{"name":"c","cpu":0.2,"memory":1,"labels":{"app":"x"},"affinity":{"avoid":["host:h1"]}}]`,
			status: "optimal", lowest: 1, hosts: "a/0@h3 b/0@h2 c/0@h2"},
		"prefer": {in: threeHosts + `,"virtualClusters":[{"name":"a","count":2,"cpu":0.5,"memory":1,"affinity":{"prefer":["host:h2"]}}]`, status: "optimal", lowest: 1, hosts: "a/0@h2 a/1@h2"},
	} {
		t.Run(name, func(t *testing.T) {
			for _, algorithm := range []string{"best", "exact"} {
				out, message, exit := runSolver(t, strings.NewReader("{"+c.in+"}"), "--algorithm", algorithm)
				if exit != c.exit || message != "" {
					t.Fatalf("%s: exit %d, message %q", algorithm, exit, message)
				}
				a := decodeAnswers(t, out)[0]
				if a.Status != c.status || a.MinYield < c.lowest-1e-9 || a.MinYield > c.lowest+1e-9 || a.MovedBytes != c.moved {
					t.Errorf("%s: got %+v", algorithm, a)
				}
				var hosts []string
				for _, p := range a.Placements {
					hosts = append(hosts, fmt.Sprintf("%s/%d@%s", p.VirtualCluster, p.Task, p.Host))
				}
				if got := strings.Join(hosts, " "); !strings.HasPrefix(got, c.hosts) {
					t.Errorf("%s: placed %s, want %s", algorithm, got, c.hosts)
				}
			}
		})
	}
	for _, wrong := range []string{`{"spread":"rack"}`, `{"require":["host:h9"]}`, `{"avoid":["vc:missing"]}`, `{"prefer":["x"]}`} {
		in := "{" + threeHosts + `,"virtualClusters":[{"name":"a","cpu":1,"memory":1,"affinity":` + wrong + `}]}`
		if out, message, exit := runSolver(t, strings.NewReader(in)); exit != 2 || out != "" || !strings.Contains(message, "affinity") {
			t.Errorf("%s: exit %d, message %q, output %q", wrong, exit, message, out)
		}
	}
}

// A limit that has run out before the work begins still yields an answer, and
// none that is wrong.
func TestSolveTimeLimit(t *testing.T) {
	in := paperBatch(20)
	for _, limit := range []time.Duration{time.Nanosecond, 20 * time.Millisecond} {
		out, message, exit := runSolver(t, strings.NewReader(in), "--batch", "--time-limit", limit.String())
		if exit != 0 {
			t.Fatalf("%v: exit %d: %s", limit, exit, message)
		}
		i := 0
		for line := range strings.Lines(in) {
			a := decodeAnswers(t, out)[i]
			if a.Status != "timeout" {
				checkAnswer(t, "best", line, a)
			}
			i++
		}
	}
}
