package trace

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"fmt"
	"io/fs"
	"math"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"
)

const bitbrainsHeader = "Timestamp [ms];\tCPU cores;\tCPU capacity provisioned [MHZ];\tCPU usage [MHZ];\tCPU usage [%];\tMemory capacity provisioned [KB];\tMemory usage [KB];\tDisk read throughput [KB/s]\n"

// bitbrainsRows are rows of a VM: time, cores, CPU used, memory used.
func bitbrainsRows(rows ...[4]float64) string {
	var b strings.Builder
	b.WriteString(bitbrainsHeader)
	for _, r := range rows {
		fmt.Fprintf(&b, "%.0f;\t%.0f;\t%.1f;\t%g;\t1.0;\t%.1f;\t%g;\t0.0\n", r[0], r[1], 2600*r[1], r[2], 1e6*r[1], r[3])
	}
	return b.String()
}

func files(pairs ...string) fstest.MapFS {
	m := fstest.MapFS{}
	for i := 0; i < len(pairs); i += 2 {
		m[pairs[i]] = &fstest.MapFile{Data: []byte(pairs[i+1])}
	}
	return m
}

func packed(t testing.TB, pairs ...string) string {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	w := tar.NewWriter(z)
	for i := 0; i < len(pairs); i += 2 {
		h := &tar.Header{Name: pairs[i], Mode: 0o644, Size: int64(len(pairs[i+1])), Typeflag: tar.TypeReg}
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(pairs[i+1])); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// text of a series: what a test compares.
func text(s Series) string {
	return fmt.Sprintf("%s %s %s step %s start %s limit %v: %v", s.Set, s.VM, s.Resource, s.Step, s.Start.UTC().Format("0102-15:04:05"), s.Limit, s.Values)
}

func TestLoad(t *testing.T) {
	nan := math.NaN()
	googleDays := func(cpu, memory float64, n int) string { return strings.Repeat(fmt.Sprintf("%g %g\n", cpu, memory), n) }
	for _, c := range []struct {
		name  string
		in    fstest.MapFS
		from  string
		o     Options
		want  []string
		notes []string // parts of them
	}{
		{name: "bitbrains: a clock that drifts, a gap, a VM that was off, rows out of order",
			in: files("7.csv", bitbrainsRows([4]float64{1372629804, 1, 10, 500}, [4]float64{1372630405, 1, 12, 510}, [4]float64{1372630104, 1, 11, 505},
				[4]float64{1372631306, 2, 13, 520}, [4]float64{1372631606, 0, 99, 999}, [4]float64{1372631906, 1, 14, 530})),
			from: "7.csv",
			want: []string{
				"bitbrains 7 cpu step 5m0s start 0630-22:03:24 limit 5200: [10 11 12 NaN NaN 13 NaN 14]",
				"bitbrains 7 memory step 5m0s start 0630-22:03:24 limit 2e+06: [500 505 510 NaN NaN 520 NaN 530]"}},
		{name: "bitbrains: times in milliseconds, as the header says, and columns in another order",
			in:   files("a/b.csv", "Timestamp [ms];Memory usage [KB];CPU cores;CPU capacity provisioned [MHZ];CPU usage [MHZ];Memory capacity provisioned [KB]\n1372629804000;5;1;100;7;50\n1372630104000;;1;100;-8;50\n"),
			from: "a",
			want: []string{
				"bitbrains a/b cpu step 5m0s start 0630-22:03:24 limit 100: [7 NaN]",
				"bitbrains a/b memory step 5m0s start 0630-22:03:24 limit 50: [5 NaN]"}},
		{name: "bitbrains: files of several machines, of no machine and of one row are left out",
			in: files("20.csv", bitbrainsRows([4]float64{1000, 1, 1, 1}, [4]float64{1000, 1, 2, 2}, [4]float64{1300, 1, 1, 1}, [4]float64{1310, 1, 5, 1}, [4]float64{1600, 1, 5, 1}),
				"21.csv", bitbrainsRows([4]float64{1000, 0, 1, 1}, [4]float64{1300, 0, 2, 2}),
				"22.csv", bitbrainsRows([4]float64{1000, 1, 1, 1}),
				"23.csv", bitbrainsRows([4]float64{1000, 1, 1, 1}, [4]float64{1300, 1, 2, 2})),
			from: ".", o: Options{},
			want: []string{
				"bitbrains 23 cpu step 5m0s start 0101-00:16:40 limit 2600: [1 2]",
				"bitbrains 23 memory step 5m0s start 0101-00:16:40 limit 1e+06: [1 2]"},
			notes: []string{"20.csv: left out, 2 of 5 rows repeat a time", "21.csv: left out, the VM was never on", "22.csv: left out, 1 rows of one time"}},
		{name: "google: days of a job are one series, a day that is missing is a gap, an archive may hold what is no trace",
			in:   files("gcd.tar.gz", packed(t, "GCD_VMs/README", "days\n", "GCD_VMs/vm_12_3", googleDays(3, 30, 288), "GCD_VMs/vm_12_1", googleDays(1, 10, 287), "GCD_VMs/._vm_12_1", "x")),
			from: "gcd.tar.gz",
			want: []string{
				"google2011 12 cpu step 5m0s start 0501-00:00:00 limit NaN: " + fmt.Sprint(slices.Concat(slices.Repeat([]float64{1}, 287), slices.Repeat([]float64{nan}, 289), slices.Repeat([]float64{3}, 288))),
				"google2011 12 memory step 5m0s start 0501-00:00:00 limit NaN: " + fmt.Sprint(slices.Concat(slices.Repeat([]float64{10}, 287), slices.Repeat([]float64{nan}, 289), slices.Repeat([]float64{30}, 288)))},
			notes: []string{"README: passed over", "vm_12_1: 287 rows of 288"}},
		{name: "planetlab: a folder is a day, names have spaces",
			in:   files("20110303/node a_slice", " 24\n34\n\n100\n", "20110306/node a_slice", "1\n", "20110306/.hidden", "1\n"),
			from: ".",
			want: []string{
				"planetlab 20110303/node a_slice cpu step 5m0s start 0303-00:00:00 limit 100: [24 34 100]",
				"planetlab 20110306/node a_slice cpu step 5m0s start 0306-00:00:00 limit 100: [1]"}},
		{name: "planetlab: one folder alone", in: files("20110303/x", "5\n6\n"), from: "20110303",
			want: []string{"planetlab 20110303/x cpu step 5m0s start 0303-00:00:00 limit 100: [5 6]"}},
		{name: "nab: a value that is missing and one that comes twice",
			in:   files("nab/SOURCE.txt", "about\n", "nab/rds.csv", "timestamp,value\r\n2014-02-14 14:30:00,0.5\r\n2014-02-14 14:35:00,0.25\r\n2014-02-14 14:35:00,9\r\n2014-02-14 14:45:00,1\r\n"),
			from: "nab",
			want: []string{"nab rds cpu step 5m0s start 0214-14:30:00 limit 100: [0.5 0.25 NaN 1]"}, notes: []string{"SOURCE.txt: passed over", "1 rows repeat"}},
		{name: "a format that is said: integers in two columns", in: files("f", "1 2\n3 4\n"), from: "f", o: Options{Format: Google2011},
			want: []string{
				"google2011 f cpu step 5m0s start 0501-00:00:00 limit NaN: " + fmt.Sprint(append([]float64{1, 3}, slices.Repeat([]float64{nan}, 286)...)),
				"google2011 f memory step 5m0s start 0501-00:00:00 limit NaN: " + fmt.Sprint(append([]float64{2, 4}, slices.Repeat([]float64{nan}, 286)...))},
			notes: []string{"2 rows of 288"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			d, err := Load(c.o, Source{c.in, c.from})
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, s := range d.Series {
				got = append(got, text(s))
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(c.want, "\n"))
			}
			if len(d.Notes) != len(c.notes) {
				t.Errorf("notes %q, want %q", d.Notes, c.notes)
			}
			for i := range min(len(d.Notes), len(c.notes)) {
				if !strings.Contains(d.Notes[i], c.notes[i]) {
					t.Errorf("note %q, want %q in it", d.Notes[i], c.notes[i])
				}
			}
		})
	}
}

func TestLoadRefuses(t *testing.T) {
	two := bitbrainsRows([4]float64{1000, 1, 1, 1}, [4]float64{1300, 1, 2, 2})
	for _, c := range []struct {
		name string
		in   fstest.MapFS
		from []string
		o    Options
		want string
	}{
		{"a file that is not there", files(), []string{"x"}, Options{}, "x: file does not exist"},
		{"a file of no known format", files("x", "hello\n"), []string{"x"}, Options{}, "x: in none of the known formats"},
		{"a folder of nothing", files("d/x", "hello\n"), []string{"d"}, Options{}, "no series in what was read: d/x: passed over"},
		{"no sources", files(), nil, Options{}, "no files to read series from"},
		{"no such format", files("x", "1\n"), []string{"x"}, Options{Format: "excel"}, `format "excel" is not one of [bitbrains nab google2011 planetlab]`},
		{"numbers that are no series", files("d/bins", "3\n10 10 10\n", "d/jobs", "1 2\n1 2 3\n"), []string{"d"}, Options{}, "no series in what was read: d/bins: passed over, in none of the known formats; d/jobs: passed over"},
		{"no number", files("x", "1\n\ntwo\n"), []string{"x"}, Options{Format: PlanetLab}, `x: line 3: "two" is not a number`},
		{"a column too few", files("x.csv", bitbrainsHeader+"1000;1;2\n"), []string{"x.csv"}, Options{}, "x.csv: line 2: 3 columns, expected at least 7"},
		{"a header without a column", files("x.csv", "Timestamp [ms];CPU cores\n1;2\n"), []string{"x.csv"}, Options{}, `line 1: no column "CPU capacity provisioned [MHZ]" in the header`},
		{"no time", files("x.csv", bitbrainsHeader+"NaN;1;2;3;4;5;6\n"), []string{"x.csv"}, Options{}, "line 2: a row without a time"},
		{"a time that is none", files("x.csv", "timestamp,value\nnoon,1\n"), []string{"x.csv"}, Options{}, `line 2: time "noon" is not like 2006-01-02 15:04:05`},
		{"a day of too many rows", files("vm_1_1", strings.Repeat("1 2\n", 289)), []string{"vm_1_1"}, Options{}, "line 289: more than the 288 rows of a day"},
		{"a day that is none", files("vm_1_x", "1 2\n"), []string{"vm_1_x"}, Options{}, `"x" is not a day of 1 to 31`},
		{"a day twice", files("a/vm_1_1", "1 2\n", "b/vm_1_1", "1 2\n"), []string{"a", "b"}, Options{}, "day 1 of job 1 is there twice"},
		{"a file twice", files("1.csv", two), []string{"1.csv", "1.csv"}, Options{}, "cpu of VM 1 is there twice in set bitbrains"},
		{"a time far off", files("1.csv", bitbrainsRows([4]float64{1000, 1, 1, 1}, [4]float64{1300, 1, 2, 2}, [4]float64{1600, 1, 2, 2}, [4]float64{9e10, 1, 2, 2})), []string{"1.csv"}, Options{}, "more than 1048576 places of 300 s"},
		{"a file too large", files("x", strings.Repeat("1\n", 100)), []string{"x"}, Options{MaxFileBytes: 150}, "x: larger than the bound on bytes"},
		{"files too large together", files("d/x", strings.Repeat("1\n", 100), "d/y", strings.Repeat("1\n", 100)), []string{"d"}, Options{MaxTotalBytes: 300}, "d/y: larger than the bound on bytes"},
		{"a series too long", files("x", strings.Repeat("1\n", 100)), []string{"x"}, Options{MaxLength: 99}, "line 100: more than 99 rows"},
		{"too many values", files("d/x", strings.Repeat("1\n", 100), "d/y", strings.Repeat("1\n", 100)), []string{"d"}, Options{MaxValues: 150}, "more than 150 values in all"},
		{"a line too long", files("x", "1\n"+strings.Repeat("1", 1<<17)), []string{"x"}, Options{}, "x: bufio.Scanner: token too long"},
		{"an archive cut off", files("x.tar.gz", packed(t, "a", strings.Repeat("1\n", 100))[:60]), []string{"x.tar.gz"}, Options{}, "x.tar.gz: a: unexpected EOF"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var sources []Source
			for _, f := range c.from {
				sources = append(sources, Source{c.in, f})
			}
			d, err := Load(c.o, sources...)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want %q in it (%d series)", err, c.want, len(d.Series))
			}
		})
	}
}

// The bound on all bytes holds for what an archive has that is passed over, too.
func TestLoadBoundsWhatIsPassedOver(t *testing.T) {
	in := files("x.tar.gz", packed(t, ".junk", strings.Repeat("\x00", 1<<16), "a", "1\n2\n"))
	if _, err := Load(Options{MaxTotalBytes: 1 << 15}, Source{in, "x.tar.gz"}); err == nil || !strings.Contains(err.Error(), "larger than the bound") {
		t.Errorf("error %v", err)
	}
}

func FuzzLoad(f *testing.F) {
	f.Add([]byte(bitbrainsRows([4]float64{1000, 1, 1, 1}, [4]float64{1300, 1, 2, 2}, [4]float64{1301, 1, 2, 2}, [4]float64{2500, 1, 2, 2})), uint8(0))
	f.Add([]byte("timestamp,value\n2014-02-14 14:30:00,0.5\n2014-02-14 14:35:00,\n2014-02-15 14:30:00,1e999\n"), uint8(0))
	f.Add([]byte("1.5 2\n-3 4\n"), uint8(0))
	f.Add([]byte("1\n2\n"), uint8(0))
	f.Add([]byte("1\n2\n"), uint8(2))
	f.Add([]byte(packed(f, "d/20110303/a", "1\n2\n", "vm_3_4", "1 2\n", "vm_3_9", "1 2\n")), uint8(0))
	f.Fuzz(func(t *testing.T, raw []byte, format uint8) {
		o := Options{MaxFileBytes: 1 << 16, MaxTotalBytes: 1 << 18, MaxLength: 10000, MaxValues: 40000}
		if n := int(format) % (len(formats) + 1); n > 0 {
			o.Format = formats[n-1].name
		}
		d, err := Load(o, Source{fs.FS(fstest.MapFS{"d/vm_7_8": &fstest.MapFile{Data: raw}}), "d"})
		if err != nil {
			return
		}
		total := 0
		for i, s := range d.Series {
			total += len(s.Values)
			if len(s.Values) == 0 || len(s.Values) > o.MaxLength || total > o.MaxValues || s.Step < time.Second || s.VM == "" || s.Set == "" {
				t.Fatalf("%+v", s)
			}
			if i > 0 && key(d.Series[i-1]) >= key(s) {
				t.Fatalf("%q after %q", key(s), key(d.Series[i-1]))
			}
			for _, v := range s.Values {
				if v < 0 || math.IsInf(v, 0) {
					t.Fatalf("value %v in %+v", v, s)
				}
			}
		}
	})
}
