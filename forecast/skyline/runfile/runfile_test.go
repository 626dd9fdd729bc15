package runfile

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
)

func TestParse(t *testing.T) {
	runs, err := Parse([]byte("{\"run\": \"r1\", \"step\": 5, \"usage\": [0, 1, 7.5]}\n\n {\"usage\":[-0],\"run\":\"r2\",\"step\":5.0} \r\n"))
	if err != nil || len(runs) != 2 || runs[0].Name != "r1" || runs[1].Step != 5 || !slices.Equal(runs[0].Usage, []float64{0, 1, 7.5}) || math.Signbit(runs[1].Usage[0]) {
		t.Errorf("%+v, %v", runs, err)
	}
}

func TestParseThrottled(t *testing.T) {
	runs, err := Parse([]byte(`{"throttled":[2,0,2],"run":"r1","step":5,"usage":[1,2,3,4]}
{"run":"r2","step":5,"usage":[1],"throttled":[]}`))
	if err != nil || !slices.Equal(runs[0].Throttled, []bool{true, false, true, false}) || runs[1].Throttled != nil {
		t.Errorf("%+v, %v", runs, err)
	}
}

func TestParseRefuses(t *testing.T) {
	line := func(fields string) string { return "{" + fields + "}" }
	good := `"run":"r","step":5,"usage":[1]`
	numbered := func(runs, steps int) string {
		var b strings.Builder
		for i := range runs {
			fmt.Fprintf(&b, "{\"run\":\"%d\",\"step\":5,\"usage\":[1%s]}\n", i, strings.Repeat(",1", steps-1))
		}
		return b.String()
	}
	for text, want := range map[string]string{
		"":                             "there is no run",
		" \n\n":                        "there is no run",
		"x":                            "line 1: not a JSON object",
		"[1]":                          "not a JSON object",
		"null":                         "not a JSON object",
		line(good) + "\n" + line(good): `line 2: run "r" stands in line 1, too`,
		line(good) + " {}":             "text after the end",
		line(good)[:20]:                "not JSON at byte",
		line(good + `,"Step":5`):       `unknown field "Step": known are`,
		line(good + `,"step":5`):       `field "step" stands twice`,
		line(`"run":"r","step":5`):     "usage is missing",
		line(`"step":5,"usage":[1]`):   "run is missing",
		line(`"run":"r","usage":[1]`):  "step is missing",
		line(`"run":""`):               "run must be a name",
		line(`"run":1`):                "run must be a name",
		line(`"step":0`):               "step must be",
		line(`"step":"5"`):             "step must be",
		line(`"step":1e300`):           "step must be",
		line(`"usage":5`):              "usage must be an array",
		line(`"usage":[]`):             "usage has no step",
		line(`"usage":[1,-1]`):         "usage[1] must be",
		line(`"usage":[null]`):         "usage[0] must be",
		line(`"usage":[[1]]`):          "usage[0] must be",
		line(`"usage":[1e999]`):        "not JSON at byte",
		line(`"usage":[NaN]`):          "not JSON at byte",
		line(`"run":"` + "\xff" + `"`): "not valid UTF-8",

		line(good + `,"throttled":1`):                          "throttled must be an array",
		line(good + `,"throttled":[0.5]`):                      "whole numbers",
		line(good + `,"throttled":[-1]`):                       "throttled[0] must be",
		line(good + `,"throttled":[1]`):                        "throttled has step 1, and usage has 1 steps",
		strings.Repeat(" ", MaxFile+1):                         "longer than 16 MiB",
		numbered(1, MaxSteps+1):                                "usage has more than 10000 steps",
		numbered(MaxRuns+1, 1):                                 "line 10001: more than 10000 runs",
		numbered(21, MaxSteps):                                 "line 21: 21 runs of up to 10000 steps are more",
		line(good) + "\n" + `{"run":"s","step":6,"usage":[1]}`: "line 2: step is 6 s, that of the runs before 5 s",
	} {
		if _, err := Parse([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.60q: error %v, want %q", text, err, want)
		}
	}
}

// FuzzRuns: what is read holds to the bounds.
func FuzzRuns(f *testing.F) {
	for _, s := range []string{`{"run":"r","step":5,"usage":[0,1,7.5]}`, "{}\n{", `{"usage":[1e18,1e-300],"run":"\u0000","step":0.1}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		runs, err := Parse(data)
		if err == nil && len(runs) == 0 {
			t.Fatal("neither a run nor an error")
		}
		for _, r := range runs {
			if r.Name == "" || !(r.Step > 0) || r.Step != runs[0].Step || len(r.Usage) == 0 {
				t.Fatalf("%+v", r)
			}
			for _, v := range r.Usage {
				if !(v >= 0 && v <= MaxUsage) {
					t.Fatalf("%+v", r)
				}
			}
		}
	})
}
