package trace

import (
	"os"
	"testing"
	"time"
)

// The files as published, where EVENKEEL_TRACES names a folder that has them: any of them, in any folders below it.
func TestPublished(t *testing.T) {
	dir := os.Getenv("EVENKEEL_TRACES")
	if dir == "" {
		t.Skip("EVENKEEL_TRACES names no folder with published traces")
	}
	d, err := Load(Options{}, Source{os.DirFS(dir), "."})
	if err != nil {
		t.Fatal(err)
	}
	type sum struct{ series, values, measured int }
	sums := map[string]sum{}
	for _, s := range d.Series {
		k := s.Set + " " + string(s.Resource)
		sums[k] = sum{sums[k].series + 1, sums[k].values + len(s.Values), sums[k].measured + s.Measured()}
		if s.Step != 5*time.Minute {
			t.Errorf("%s of %s has a step of %s", s.Resource, s.VM, s.Step)
		}
		if s.Start.IsZero() || s.Start.Year() < 2011 || s.Start.Year() > 2015 {
			t.Errorf("%s of %s starts at %s", s.Resource, s.VM, s.Start)
		}
	}
	for k, s := range sums {
		t.Logf("%s: %d series, %d values, %d measured", k, s.series, s.values, s.measured)
	}
	t.Logf("%d notes", len(d.Notes))
}
