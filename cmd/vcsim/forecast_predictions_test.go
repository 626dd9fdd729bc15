package main

import (
	"bytes"
	"context"
	"encoding/csv"
	"io"
	"math"
	"os"
	"slices"
	"strconv"
	"testing"

	"evenkeel/sim/trace"
)

// What the file has is what was scored: its errors add up to those of the scores.
func TestForecastPredictions(t *testing.T) {
	for _, jobs := range []int{1, 3} {
		o := madeUpOptions(madeUp(t))
		o.jobs, o.score.Every = jobs, 2
		var file bytes.Buffer
		o.predictions = newPredictionFile(&file)
		all, err := trace.Load(trace.Options{}, trace.Source{FS: os.DirFS(o.data[0]), Name: "."})
		if err != nil {
			t.Fatal(err)
		}
		results, _, err := o.run(context.Background(), io.Discard, all.Series)
		if err != nil {
			t.Fatal(err)
		}
		want, rows := 0.0, 0
		for _, r := range results {
			for _, m := range r.Models {
				want, rows = want+m.Total().AbsError, rows+m.Total().N
			}
		}
		lines, err := csv.NewReader(&file).ReadAll()
		if err != nil || len(lines) != rows+1 || rows == 0 {
			t.Fatalf("%d lines for %d predictions: %v", len(lines), rows, err)
		}
		column := func(name string) int { return slices.Index(lines[0], name) }
		got := 0.0
		for _, line := range lines[1:] {
			came, _ := strconv.ParseFloat(line[column("came")], 64)
			median, _ := strconv.ParseFloat(line[column("q0.5")], 64)
			origin, _ := strconv.Atoi(line[column("origin")])
			step, _ := strconv.Atoi(line[column("step")])
			if step <= origin || step > origin+o.score.Steps {
				t.Fatalf("step %d is predicted after %d", step, origin)
			}
			got += math.Abs(came - median)
		}
		if math.Abs(got-want) > 1e-6*want {
			t.Errorf("%d jobs: errors of %v in the file, %v scored", jobs, got, want)
		}
	}
}
