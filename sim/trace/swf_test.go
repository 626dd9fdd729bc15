package trace

import (
	"bytes"
	"compress/gzip"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"
)

func zipped(t *testing.T, text string) string {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	if _, err := z.Write([]byte(text)); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func loadSWF(t *testing.T, o Options, text string) (Log, error) {
	t.Helper()
	return LoadSWF(o, Source{fstest.MapFS{"a.swf": &fstest.MapFile{Data: []byte(text)}}, "a.swf"})
}

func TestSWF(t *testing.T) {
	text := `; Version: 2.2
; Computer: Toy
; UnixStartTime: 843480031
; MaxNodes: 4
; MaxProcs: 8
; Note: a: b
  2  30  5 100  4 -1 512  4 200 1024 1 1 1 -1 -1 -1 -1 -1
  1  10 -1  60.5 -1 -1 -1  2  -1 2048 0 1 1 -1 -1 -1 -1 -1
  3  40  5  -1  4 -1  -1  4 200 -1 5 1 1 -1 -1 -1 -1 -1
  4  41  5  10 -1 -1  -1 -1 200 -1 1 1 1 -1 -1 -1 -1 -1
  5  30  0   0  1
`
	for _, packing := range []string{"plain", "gz"} {
		data := text
		if packing == "gz" {
			data = zipped(t, text)
		}
		l, err := loadSWF(t, Options{}, data)
		if err != nil {
			t.Fatal(packing, err)
		}
		want := []ParallelJob{
			{Number: 1, Submit: 10, Wait: -1, Run: 60.5, Processors: 2, Memory: 2048 * 1024, Status: 0},
			{Number: 2, Submit: 30, Wait: 5, Run: 100, Processors: 4, Requested: 200, Memory: 512 * 1024, Status: 1},
			{Number: 5, Submit: 30, Run: 0, Processors: 1, Status: -1},
		}
		if !slices.Equal(l.Jobs, want) {
			t.Errorf("%s: %+v\nwanted %+v", packing, l.Jobs, want)
		}
		if l.Computer != "Toy" || l.Nodes != 4 || l.Processors != 8 || !l.Start.Equal(time.Date(1996, 9, 23, 12, 0, 31, 0, time.UTC)) {
			t.Errorf("%s: header %+v", packing, l)
		}
		notes := []string{"1 jobs with no run time left out", "1 jobs with no number of processors left out"}
		if !slices.Equal(l.Notes, notes) {
			t.Errorf("%s: notes %q", packing, l.Notes)
		}
	}
}

func TestSWFRefused(t *testing.T) {
	job := "1 0 0 1 1\n"
	for _, c := range []struct {
		text, want string
		o          Options
	}{
		{"; nothing\n", "no jobs", Options{}},
		{"1 2 3 4\n", "4 fields", Options{}},
		{strings.Repeat("1 ", 19) + "\n", "19 fields", Options{}},
		{"1 2 x 4 5\n", `field 3: "x"`, Options{}},
		{"1 2 3 NaN 5\n", `field 4: "NaN"`, Options{}},
		{"1 2 3 1e99 5\n", `field 4: "1e99"`, Options{}},
		{job + job + job, "more than 2 jobs", Options{MaxLength: 2}},
		{job + job + job, "larger than", Options{MaxFileBytes: 10}},
		{"\x1f\x8bno", "a.swf", Options{}},
	} {
		if _, err := loadSWF(t, c.o, c.text); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: %v, wanted %q", c.text, err, c.want)
		}
	}
}

func FuzzSWF(f *testing.F) {
	f.Add([]byte("; MaxNodes: 4\n1 0 0 1 1 -1 -1 1 1 1 1 1 1 1 1 1 1 1\n2 -1 0 1 1\n"))
	f.Add([]byte(";UnixStartTime: 99999999999999999999\n1 1e14 0 0.1 16777217\n"))
	f.Add([]byte("1 0x1p-2 +0 1_0 1\n"))
	f.Fuzz(func(t *testing.T, raw []byte) {
		l, err := LoadSWF(Options{MaxFileBytes: 1 << 16, MaxLength: 100}, Source{fstest.MapFS{"a": &fstest.MapFile{Data: raw}}, "a"})
		if err != nil {
			return
		}
		if len(l.Jobs) == 0 || len(l.Jobs) > 100 || l.Nodes < 0 || l.Processors < 0 {
			t.Fatalf("%+v", l)
		}
		for i, j := range l.Jobs {
			if !(j.Run >= 0 && j.Submit >= 0 && j.Memory >= 0 && j.Requested >= 0) || j.Processors < 1 || math.IsInf(j.Run+j.Submit+j.Memory, 0) {
				t.Fatalf("%+v", j)
			}
			if i > 0 && j.Submit < l.Jobs[i-1].Submit {
				t.Fatalf("%+v after %+v", j, l.Jobs[i-1])
			}
		}
	})
}

// Logs as published, where EVENKEEL_SWF names a folder that has them.
func TestSWFPublished(t *testing.T) {
	dir := os.Getenv("EVENKEEL_SWF")
	if dir == "" {
		t.Skip("EVENKEEL_SWF names no folder with logs in the standard workload format")
	}
	names, _ := filepath.Glob(filepath.Join(dir, "*.swf*"))
	if len(names) == 0 {
		t.Fatalf("no logs in %s", dir)
	}
	for _, name := range names {
		l, err := LoadSWF(Options{}, Source{os.DirFS(dir), filepath.Base(name)})
		if err != nil {
			t.Error(err)
			continue
		}
		memory, work, last := 0, 0.0, l.Jobs[len(l.Jobs)-1].Submit
		for _, j := range l.Jobs {
			if j.Memory > 0 {
				memory++
			}
			work += j.Run * float64(j.Processors)
			if l.Processors > 0 && j.Processors > l.Processors {
				t.Errorf("%s: job %d has %d of %d processors", name, j.Number, j.Processors, l.Processors)
			}
		}
		t.Logf("%s (%s): %d jobs, %.0f days, %d processors, %d with memory, load %.2f, %q", filepath.Base(name), l.Computer,
			len(l.Jobs), last/86400, l.Processors, memory, work/float64(max(1, l.Processors))/last, l.Notes)
	}
}
