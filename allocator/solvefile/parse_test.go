package solvefile_test

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"evenkeel/allocator/solvefile"
)

const whole = `{"name": "x", "hosts": [{"name": "h1", "cpu": 1.0, "memory": 2}, {"name": "h2", "cpu": 1e1, "memory": 0.5}],
 "virtualClusters": [
  {"name": "j1", "count": 2, "cpu": 0.5, "memory": 0.25, "current": ["h2", null], "minYield": 0.5, "priority": -3,
   "labels": {"app": "render"}, "affinity": {"spread": "host", "require": ["disk=ssd"], "prefer": ["host:h1"], "avoid": ["vc:j2"]}},
  {"name": "j2", "cpu": 0, "memory": 0, "cluster": "c"}],
 "maxMigrationBytes": 0}`

func TestParseWhole(t *testing.T) {
	half, none := 0.5, 0.0
	want := &solvefile.Instance{
		Name:  "x",
		Hosts: []solvefile.Host{{Name: "h1", CPU: 1, Memory: 2}, {Name: "h2", CPU: 10, Memory: 0.5}},
		VirtualClusters: []solvefile.VirtualCluster{
			{Name: "j1", Count: 2, CPU: 0.5, Memory: 0.25, Current: []int{1, -1}, MinYield: &half, Priority: -3,
				Labels:   map[string]string{"app": "render"},
				Affinity: &solvefile.Affinity{Spread: "host", Require: []string{"disk=ssd"}, Prefer: []string{"host:h1"}, Avoid: []string{"vc:j2"}}},
			{Name: "j2", Cluster: "c", Count: 1},
		},
		MaxMigrationBytes: &none,
	}
	got, err := solvefile.Parse([]byte(whole))
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	if o := got.Options(); !reflect.DeepEqual(o, []string{"current", "maxMigrationBytes", "minYield", "affinity"}) {
		t.Errorf("options %v", o)
	}
	// The order of the fields is free: hosts may come last.
	turned := `{"virtualClusters":[{"current":["h"],"name":"j","cpu":1,"memory":1}],"hosts":[{"name":"h","cpu":1,"memory":1}]}`
	if got, err := solvefile.Parse([]byte(turned)); err != nil || got.VirtualClusters[0].Current[0] != 0 {
		t.Errorf("hosts last: %+v, %v", got, err)
	}
}

func TestParseRefuses(t *testing.T) {
	host := `{"name":"h","cpu":1,"memory":1}`
	vc := func(fields string) string {
		return `{"name":"x","hosts":[` + host + `],"virtualClusters":[{"name":"j","cpu":1,"memory":1` + fields + `}]}`
	}
	hosts := func(hosts string) string { return `{"hosts":[` + hosts + `],"virtualClusters":[]}` }
	for in, want := range map[string]string{
		``:                                       "ends too early",
		`   `:                                    "ends too early",
		`{"name":"x","hosts":[{"name":"h"`:       "ends too early",
		`[]`:                                     "must be an object, is an array",
		`null`:                                   "must be an object, is null",
		`{"name":1}`:                             "name: must be a string, is the number 1",
		`{}`:                                     "hosts: at least one is needed",
		`{"hosts":[]}`:                           "hosts: at least one is needed",
		`{"hosts":[` + host + `]}`:               "virtualClusters: is missing",
		`{"hosts":{}}`:                           "hosts: must be an array, is an object",
		`{"name":"x","extra":1}`:                 `"extra": unknown field`,
		`{"Name":"x"}`:                           `"Name": unknown field`,
		`{"name":"x","name":"y"}`:                `"name": given twice`,
		hosts(host) + `}`:                        "text after the end",
		hosts(host) + hosts(host):                "text after the end",
		hosts(host + `,` + host):                 `hosts[1].name: "h" is given twice`,
		hosts(host + `,`):                        "not JSON",
		hosts(`{"name":"h","cpu":0,"memory":1}`): "hosts[0].cpu: must be greater than 0",
		hosts(`{"name":"h","cpu":1,"memory":-1}`):                         "hosts[0].memory: -1 is negative",
		hosts(`{"name":"h","cpu":1e999,"memory":1}`):                      "hosts[0].cpu: \"1e999\" is not a finite number",
		hosts(`{"name":"h","cpu":1e300,"memory":1}`):                      "hosts[0].cpu: 1e+300 is out of range",
		hosts(`{"name":"h","cpu":NaN,"memory":1}`):                        "hosts[0].cpu: not JSON",
		hosts(`{"name":"h","cpu":"1","memory":1}`):                        "hosts[0].cpu: must be a number, is a string",
		hosts(`{"name":"h","cpu":null,"memory":1}`):                       "hosts[0].cpu: must be a number, is null",
		hosts(`{"name":"","cpu":1,"memory":1}`):                           "hosts[0].name: must not be empty",
		hosts(`{"cpu":1,"memory":1}`):                                     "hosts[0].name: is missing",
		hosts(`{"name":"h","memory":1}`):                                  "hosts[0].cpu: is missing",
		hosts(`{"name":"h","cpu":1}`):                                     "hosts[0].memory: is missing",
		hosts(`{"name":"h","cpu":1,"memory":1,"x":1}`):                    `hosts[0]: "x": unknown field`,
		vc(`,"count":0`):                                                  "virtualClusters[0].count: 0 is not a whole number in 1..1000000",
		vc(`,"count":1.5`):                                                "virtualClusters[0].count: 1.5 is not a whole number",
		vc(`,"count":1000001`):                                            "is not a whole number in 1..1000000",
		vc(`,"count":1e300`):                                              "is not a whole number",
		vc(`,"cpu":2`):                                                    `virtualClusters[0]: "cpu": given twice`,
		vc(`,"minYield":1.1`):                                             "virtualClusters[0].minYield: 1.1 is not in 0..1",
		vc(`,"cluster":""`):                                               "virtualClusters[0].cluster: must not be empty",
		vc(`,"current":["g"]`):                                            `virtualClusters[0].current[0]: there is no host "g"`,
		vc(`,"current":["h","h"]`):                                        "virtualClusters[0].current: has 2 entries for 1 VMs",
		vc(`,"current":[1]`):                                              "virtualClusters[0].current[0]: must be the name of a host or null",
		vc(`,"labels":{"a":1}`):                                           "virtualClusters[0].labels.a: must be a string",
		vc(`,"affinity":{"near":"h"}`):                                    `virtualClusters[0].affinity: "near": unknown field`,
		vc(`,"affinity":{"require":["a",2]}`):                             "virtualClusters[0].affinity.require[1]: must be a string",
		vc(`,"priority":0.5`):                                             "virtualClusters[0].priority: 0.5 is not a whole number",
		vc(`},{"name":"j","cpu":1,"memory":1`):                            `virtualClusters[1].name: "j" is given twice`,
		"{\"name\":\"\xff\"}":                                             "not valid UTF-8",
		vc(`,"labels":{` + strings.TrimSuffix(manyFields(65), ",") + `}`): "virtualClusters[0].labels: more than 64 fields",
		manyTasks(11):                                                     "virtualClusters[10].count: more than 10000000 VMs in sum",
	} {
		_, err := solvefile.Parse([]byte(in))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.120s\n error %v\n want  %s", in, err, want)
		}
	}
}

func manyFields(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, `"l%d":"v",`, i)
	}
	return b.String()
}

func manyTasks(entries int) string {
	var b strings.Builder
	b.WriteString(`{"hosts":[{"name":"h","cpu":1,"memory":1}],"virtualClusters":[`)
	for i := range entries {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, `{"name":"j%d","count":1000000,"cpu":0,"memory":0}`, i)
	}
	b.WriteString("]}")
	return b.String()
}

// A bad instance keeps its name, wherever in the object it stands.
func TestParseKeepsTheName(t *testing.T) {
	for _, in := range []string{`{"name":"x","hosts":1}`, `{"hosts":1,"name":"x"}`} {
		if got, err := solvefile.Parse([]byte(in)); err == nil || got.Name != "x" {
			t.Errorf("%s: name %q, error %v", in, got.Name, err)
		}
	}
}

func TestEncode(t *testing.T) {
	in := &solvefile.Instance{
		Hosts:           []solvefile.Host{{Name: `h"1`}, {Name: "<2>"}},
		VirtualClusters: []solvefile.VirtualCluster{{Name: "j"}, {Name: "k"}},
	}
	for _, c := range []struct {
		result solvefile.Result
		want   string
	}{
		{
			solvefile.Result{Name: "a\nb", Algorithm: "mcb8", Status: solvefile.Optimal, MinYield: 0.5, AverageYield: 0.75, UpperBound: 0.5,
				ElapsedSeconds: 4e-5, Instance: in, Hosts: [][]int{{0, 1}, {1}}, CPU: []float64{0.25, 0}},
			`{"name":"a\nb","algorithm":"mcb8","status":"optimal","minYield":0.5,"averageYield":0.75,"upperBound":0.5,"movedBytes":0,"elapsedSeconds":4e-05,` +
				`"placements":[{"virtualCluster":"j","task":0,"host":"h\"1","cpu":0.25},{"virtualCluster":"j","task":1,"host":"<2>","cpu":0.25},{"virtualCluster":"k","task":0,"host":"<2>","cpu":0}]}`,
		},
		{
			solvefile.Result{Algorithm: "lp", Status: solvefile.Invalid, Error: "bad"},
			`{"name":"","algorithm":"lp","status":"invalid","minYield":0,"averageYield":0,"upperBound":0,"movedBytes":0,"elapsedSeconds":0,"error":"bad","placements":[]}`,
		},
	} {
		var got strings.Builder
		if err := c.result.Encode(func(b []byte) error { got.Write(b); return nil }); err != nil {
			t.Fatal(err)
		}
		if got.String() != c.want+"\n" {
			t.Errorf("got  %swant %s", got.String(), c.want)
		}
		if !json.Valid([]byte(got.String())) {
			t.Error("not JSON")
		}
	}
}

// FuzzSolveInput: no input breaks the parser, and what it takes is JSON that a
// lenient reader reads the same way and that the allocator finds well-formed.
func FuzzSolveInput(f *testing.F) {
	f.Add([]byte(whole))
	f.Add([]byte(`{"name":"x","hosts":[{"name":"h","cpu":1e-3,"memory":1E2}],"virtualClusters":[]}`))
	f.Add([]byte(`{"hosts":[{"name":"h","cpu":1,"memory":1}],"virtualClusters":[{"name":"j","cpu":-0,"memory":1,"count":1e2}]} `))
	f.Add([]byte(`{"name":"\ud800","hosts":[{"name":"h","cpu":1,"memory":1},{"name":"h","cpu":1,"memory":1}],"virtualClusters":[{}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		in, err := solvefile.Parse(data)
		if err != nil {
			return
		}
		var lenient struct {
			Name  string
			Hosts []struct {
				Name        string
				CPU, Memory float64
			}
			VirtualClusters []struct {
				Name        string
				Count       *float64
				CPU, Memory float64
				Cluster     string
			}
		}
		if err := json.Unmarshal(data, &lenient); err != nil {
			t.Fatalf("%q was taken, but: %v", data, err)
		}
		same := in.Name == lenient.Name && len(in.Hosts) == len(lenient.Hosts) && len(in.VirtualClusters) == len(lenient.VirtualClusters)
		for j := 0; same && j < len(in.Hosts); j++ {
			same = in.Hosts[j] == solvefile.Host(lenient.Hosts[j])
		}
		for i := 0; same && i < len(in.VirtualClusters); i++ {
			vc, l := in.VirtualClusters[i], lenient.VirtualClusters[i]
			same = vc.Name == l.Name && vc.CPU == l.CPU && vc.Memory == l.Memory && vc.Cluster == l.Cluster &&
				(l.Count == nil && vc.Count == 1 || l.Count != nil && *l.Count == float64(vc.Count))
		}
		if !same {
			t.Fatalf("%q read as %+v, leniently %+v", data, in, lenient)
		}
		if err := in.Problem().Validate(); err != nil {
			t.Fatalf("%q was taken, but: %v", data, err)
		}
	})
}
