package trace

import (
	"fmt"
	"math"
	"os"
	"strings"
	"testing"
	"testing/fstest"
	"time"
)

func at(m fstest.MapFS, name string) Source { return Source{m, name} }

func ptr(s Source) *Source { return &s }

// describe gives requests as a text, which tests compare.
func describe(all []Request) string {
	var b strings.Builder
	for _, q := range all {
		fmt.Fprintf(&b, "%s batch %d at %g start %g run %g", q.Name, q.Batch, q.Submit, q.Start, q.Run)
		if q.Censored {
			b.WriteString("+")
		}
		fmt.Fprintf(&b, ": %g cores %g MiB %g GPUs\n", q.CPU, q.Memory/(1<<20), q.GPUs)
	}
	return b.String()
}

const (
	azureSizes = "1,0.75 a\n2,3.5 g\n"
	azureBins  = "0 0\n300 1\n600 1\n900 2\n"
)

func TestLoadAzure(t *testing.T) {
	in := files("arrivals", "300 g,|,a,a,|\n\n900 a,|,g,\n1200 a,|,\n1500\n", "sizes", azureSizes, "bins", azureBins, "lives", "300 U0,|,U1,C2,|\n900 C1,|,U2,\n1200 U0,|,\n")
	got, err := LoadAzure(Options{}, AzureFiles{Arrivals: at(in, "arrivals"), Flavours: at(in, "sizes"), Lifetimes: ptr(at(in, "lives")), Bins: ptr(at(in, "bins"))})
	if err != nil {
		t.Fatal(err)
	}
	want := ` batch 0 at 300 start NaN run 0: 2 cores 3584 MiB 0 GPUs
 batch 1 at 300 start NaN run 450: 1 cores 768 MiB 0 GPUs
 batch 1 at 300 start NaN run 900+: 1 cores 768 MiB 0 GPUs
 batch 2 at 900 start NaN run 450+: 1 cores 768 MiB 0 GPUs
 batch 3 at 900 start NaN run 900: 2 cores 3584 MiB 0 GPUs
 batch 4 at 1200 start NaN run 0: 1 cores 768 MiB 0 GPUs
`
	if describe(got) != want {
		t.Errorf("got\n%swant\n%s", describe(got), want)
	}
	got, err = LoadAzure(Options{}, AzureFiles{Arrivals: at(in, "arrivals"), Flavours: at(in, "sizes")})
	if err != nil || len(got) != 6 || !math.IsNaN(got[0].Run) {
		t.Errorf("without lifetimes: %v, %s", err, describe(got))
	}
}

func TestLoadAzureRefuses(t *testing.T) {
	for _, c := range []struct {
		name, arrivals, sizes, lives, bins string
		o                                  Options
		want                               string
	}{
		{"a flavour that is none", "300 z,|\n", azureSizes, "", "", Options{}, `arrivals: line 1: there is no flavour "z"`},
		{"no time", "x a,|\n", azureSizes, "", "", Options{}, `line 1: time: "x" is not a number`},
		{"time goes back", "300 a\n300 a\n", azureSizes, "", "", Options{}, "line 2: 300 s after 300 s"},
		{"a hole", "300 a,,a\n", azureSizes, "", "", Options{}, "nothing between two commas"},
		{"a flavour without a name", "300 a\n", "1,2\n", "", "", Options{}, `sizes: line 1: "1,2" is not like cores,GB name`},
		{"a flavour twice", "300 a\n", azureSizes + "1,1 a\n", "", "", Options{}, `line 3: flavour "a" is there twice`},
		{"cores that are none", "300 a\n", "-1,1 a\n", "", "", Options{}, "cores: \"-1\" is no amount"},
		{"too few lifetimes", "300 a,a\n", azureSizes, "300 U0\n", azureBins, Options{}, "lifetimes of 1 VMs, 2 arrived"},
		{"too many lifetimes", "300 a\n", azureSizes, "300 U0,U0\n", azureBins, Options{}, "VM 2 at 300 s of batch 0 is not among the arrivals"},
		{"lifetimes of others", "300 a\n", azureSizes, "600 U0\n", azureBins, Options{}, "VM 1 at 600 s"},
		{"a lifetime that is none", "300 a\n", azureSizes, "300 X0\n", azureBins, Options{}, `"X0" is no lifetime`},
		{"a bin that is none", "300 a\n", azureSizes, "300 U9\n", azureBins, Options{}, `there is no bin "9"`},
		{"bins that are none", "300 a\n", azureSizes, "300 U0\n", "0 x\n", Options{}, `bins: line 1: "x" is no bin`},
		{"too many", "300 a,a,a\n", azureSizes, "", "", Options{MaxLength: 2}, "more than 2 VMs"},
		{"too large", "300 a,a,a,a,a,a,a,a,a,a,a,a\n", azureSizes, "", "", Options{MaxFileBytes: 20}, "larger than the bound"},
		{"lifetimes without bins", "300 a\n", azureSizes, "300 U0\n", "", Options{}, "no use without each other"},
	} {
		t.Run(c.name, func(t *testing.T) {
			in := files("arrivals", c.arrivals, "sizes", c.sizes, "lives", c.lives, "bins", c.bins)
			f := AzureFiles{Arrivals: at(in, "arrivals"), Flavours: at(in, "sizes")}
			if c.lives != "" {
				f.Lifetimes = ptr(at(in, "lives"))
			}
			if c.bins != "" {
				f.Bins = ptr(at(in, "bins"))
			}
			if got, err := LoadAzure(c.o, f); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want %q in it (%d requests)", err, c.want, len(got))
			}
		})
	}
}

const (
	podsHeader  = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time\n"
	nodesHeader = "sn,cpu_milli,memory_mib,gpu,model\n"
	tasksHeader = "id,submission_time,duration,cpu_count,cpu_capacity,mem_capacity\n"
	fragsHeader = "id,duration,cpu_usage\n"
)

func TestLoadOpenB(t *testing.T) {
	in := files("pods.csv", podsHeader+"p2,6000,12288,1,460,,LS,Running,50,90,60\np1,12000,16384,8,1000,V100M32|A10,LS,Running,0,100,0\np3,500,1024,0,0,,BE,Pending,70,80,\n",
		"nodes.csv", nodesHeader+"n1,32000,262144,0,\nn2,96500,1024,8,V100M32\n")
	pods, nodes, err := LoadOpenB(Options{}, ptr(at(in, "pods.csv")), ptr(at(in, "nodes.csv")))
	if err != nil {
		t.Fatal(err)
	}
	want := `p1 batch -1 at 0 start 0 run 100: 12 cores 16384 MiB 8 GPUs
p2 batch -1 at 50 start 60 run 30: 6 cores 12288 MiB 0.46 GPUs
p3 batch -1 at 70 start NaN run NaN: 0.5 cores 1024 MiB 0 GPUs
`
	if describe(pods) != want {
		t.Errorf("got\n%swant\n%s", describe(pods), want)
	}
	if want := "[{n1 32 2.74877906944e+11 0} {n2 96.5 1.073741824e+09 8}]"; fmt.Sprint(nodes) != want {
		t.Errorf("nodes %v, want %s", nodes, want)
	}
	for _, c := range []struct{ name, pods, nodes, want string }{
		{"no header", "", nodesHeader, "pods: no header"},
		{"no column", "name\n", nodesHeader, `pods: no column "cpu_milli" in the header`},
		{"too few fields", podsHeader + "p,1\n", nodesHeader, "wrong number of fields"},
		{"no CPU", podsHeader + "p,,1,0,0,,LS,Running,0,1,0\n", nodesHeader, `line 2: cpu_milli: "" is no amount`},
		{"gone before it came", podsHeader + "p,1,1,0,0,,LS,Running,5,1,\n", nodesHeader, `pod "p": created at 5`},
		{"placed after it went", podsHeader + "p,1,1,0,0,,LS,Running,0,1,2\n", nodesHeader, `pod "p": created at 0`},
		{"a pod twice", podsHeader + "p,1,1,0,0,,LS,Running,0,1,0\np,1,1,0,0,,LS,Running,0,1,0\n", nodesHeader, `line 3: pod "p" is there twice`},
		{"a node twice", podsHeader, nodesHeader + "n,1,1,0,\nn,1,1,0,\n", `line 3: node "n" is there twice`},
		{"half a GPU", podsHeader, nodesHeader + "n,1,1,0.5,\n", `line 2: gpu: "0.5" is no number of GPUs`},
	} {
		in := files("pods", c.pods, "nodes", c.nodes)
		if _, _, err := LoadOpenB(Options{}, ptr(at(in, "pods")), ptr(at(in, "nodes"))); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want %q in it", c.name, err, c.want)
		}
	}
}

func TestLoadSURF(t *testing.T) {
	in := files("tasks", tasksHeader+"8,1665093660000,60000,16,33600,100000\n7,1665093600000,90000,16,33600,100000\n9,1665093660000,1000,16,33600,100000\n",
		"frags", fragsHeader+"7,30000,42\n8,30000,1\n7,30000,\n7,30000,21.5\n8,30000,2\n")
	jobs, series, err := LoadSURF(Options{}, at(in, "tasks"), at(in, "frags"))
	if err != nil {
		t.Fatal(err)
	}
	want := `7 batch -1 at 0 start NaN run 90: NaN cores NaN MiB 0 GPUs
8 batch -1 at 60 start NaN run 60: NaN cores NaN MiB 0 GPUs
9 batch -1 at 60 start NaN run 1: NaN cores NaN MiB 0 GPUs
`
	if describe(jobs) != want {
		t.Errorf("got\n%swant\n%s", describe(jobs), want)
	}
	if len(series) != 2 || series[0].VM != "7" || fmt.Sprint(series[0].Values) != "[42 NaN 21.5]" || fmt.Sprint(series[1].Values) != "[1 2]" ||
		series[0].Step != 30*time.Second || !series[1].Start.Equal(time.Date(2022, 10, 6, 22, 1, 0, 0, time.UTC)) {
		t.Errorf("series %+v", series)
	}
	for _, c := range []struct{ name, tasks, frags, want string }{
		{"a job twice", tasksHeader + "7,0,1,1,1,1\n7,0,1,1,1,1\n", fragsHeader, `line 3: job "7" is there twice`},
		{"a fragment of no job", tasksHeader + "7,0,1,1,1,1\n", fragsHeader + "8,30000,1\n", `line 2: a fragment of job "8"`},
		{"fragments of two lengths", tasksHeader + "7,0,1,1,1,1\n", fragsHeader + "7,30000,1\n7,60000,1\n", "a fragment of 60000 ms, the first has 30000"},
		{"fragments of no length", tasksHeader + "7,0,1,1,1,1\n", fragsHeader + "7,0,1\n", "a fragment of 0 ms"},
		{"no number", tasksHeader + "7,0,1,1,1,1\n", fragsHeader + "7,30000,much\n", `"much" is not a number`},
		{"no time", tasksHeader + "7,,1,1,1,1\n", fragsHeader, `submission_time: "" is no amount`},
	} {
		in := files("tasks", c.tasks, "frags", c.frags)
		if _, _, err := LoadSURF(Options{}, at(in, "tasks"), at(in, "frags")); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want %q in it", c.name, err, c.want)
		}
	}
}

// sound says what is wrong with requests, whatever they were read from.
func sound(all []Request) error {
	for i, q := range all {
		if !(q.Submit >= 0 && q.Submit <= 1e15) || q.Start < q.Submit || q.Run < 0 || q.CPU < 0 || q.Memory < 0 || q.GPUs < 0 || math.IsInf(q.Run+q.CPU+q.Memory+q.GPUs, 0) {
			return fmt.Errorf("%+v", q)
		}
		if i > 0 && q.Submit < all[i-1].Submit {
			return fmt.Errorf("%+v after %+v", q, all[i-1])
		}
	}
	return nil
}

var fuzzBounds = Options{MaxFileBytes: 1 << 14, MaxTotalBytes: 1 << 15, MaxLength: 1000, MaxValues: 2000}

func FuzzLoadAzure(f *testing.F) {
	f.Add("300 g,|,a,a,|\n900 a,|\n", azureSizes, "300 U0,|,U1,C2,|\n900 C1,|\n", azureBins)
	f.Add("0 a\n1e3 a,|,|,\n", "1e999,1 a\n", "", "")
	f.Fuzz(func(t *testing.T, arrivals, sizes, lives, bins string) {
		in := files("a", arrivals, "s", sizes, "l", lives, "b", bins)
		for _, files := range []AzureFiles{{at(in, "a"), at(in, "s"), nil, nil}, {at(in, "a"), at(in, "s"), ptr(at(in, "l")), ptr(at(in, "b"))}} {
			all, err := LoadAzure(fuzzBounds, files)
			if err != nil {
				continue
			}
			if err := sound(all); err != nil || len(all) > fuzzBounds.MaxLength {
				t.Fatalf("%d requests: %v", len(all), err)
			}
		}
	})
}

func FuzzLoadOpenB(f *testing.F) {
	f.Add(podsHeader+"p2,6000,12288,1,460,,LS,Running,50,90,60\np3,500,1024,0,0,,BE,Pending,70,80,\n", nodesHeader+"n1,32000,262144,0,\n")
	f.Add(podsHeader+"\"p,2\",6e3,0x10,1,460,,LS,Running,5_0,90,60\n", "sn,cpu_milli,memory_mib,gpu\nn,1,1,65535\n")
	f.Fuzz(func(t *testing.T, pods, nodes string) {
		in := files("p", pods, "n", nodes)
		all, machines, err := LoadOpenB(fuzzBounds, ptr(at(in, "p")), ptr(at(in, "n")))
		if err != nil {
			return
		}
		if err := sound(all); err != nil || len(all) > fuzzBounds.MaxLength {
			t.Fatalf("%d requests: %v", len(all), err)
		}
		for _, m := range machines {
			if !(m.CPU >= 0 && m.Memory >= 0 && m.GPUs >= 0) || math.IsInf(m.CPU+m.Memory, 0) {
				t.Fatalf("%+v", m)
			}
		}
	})
}

func FuzzLoadSURF(f *testing.F) {
	f.Add(tasksHeader+"8,1665093660000,60000,16,33600,100000\n7,1665093600000,90000,16,33600,100000\n", fragsHeader+"7,30000,42\n8,30000,1\n7,30000,\n")
	f.Fuzz(func(t *testing.T, tasks, frags string) {
		in := files("t", tasks, "f", frags)
		all, series, err := LoadSURF(fuzzBounds, at(in, "t"), at(in, "f"))
		if err != nil {
			return
		}
		if err := sound(all); err != nil || len(series) > len(all) {
			t.Fatalf("%d requests: %v", len(all), err)
		}
		for _, s := range series {
			if len(s.Values) == 0 || len(s.Values) > fuzzBounds.MaxLength || s.Step < time.Second {
				t.Fatalf("%+v", s)
			}
		}
	})
}

// The files as published, where these name folders that have them.
func TestPublishedRequests(t *testing.T) {
	if dir := os.Getenv("EVENKEEL_AZURE2017"); dir != "" {
		in := os.DirFS(dir)
		for _, c := range []struct {
			f    AzureFiles
			want int
		}{
			{AzureFiles{Arrivals: Source{in, "v1.train.txt.gz"}, Flavours: Source{in, "flav_map.txt"}}, 1200998},
			{AzureFiles{Source{in, "v1.dev.txt.gz"}, Source{in, "flav_map.txt"}, &Source{in, "v1.dev.c2100000.txt.gz"}, &Source{in, "v1.interval_map.txt"}}, 259159},
		} {
			all, err := LoadAzure(Options{MaxLength: 2 << 20}, c.f)
			if err != nil || len(all) != c.want {
				t.Errorf("%s: %d VMs, want %d: %v", c.f.Arrivals.Name, len(all), c.want, err)
			}
		}
	}
	if dir := os.Getenv("EVENKEEL_OPENB"); dir != "" {
		in := os.DirFS(dir)
		pods, nodes, err := LoadOpenB(Options{}, &Source{in, "openb_pod_list_default.csv"}, &Source{in, "openb_node_list_all_node.csv"})
		if err != nil || len(pods) != 8152 || len(nodes) != 1523 {
			t.Errorf("%d pods, %d nodes: %v", len(pods), len(nodes), err)
		}
	}
	if dir := os.Getenv("EVENKEEL_SURF"); dir != "" {
		in := os.DirFS(dir)
		jobs, series, err := LoadSURF(Options{}, Source{in, "surf_week_tasks.csv.gz"}, Source{in, "surf_week_fragments.csv.gz"})
		values := 0
		for _, s := range series {
			values += len(s.Values)
		}
		if err != nil || len(jobs) != 6295 || values != 2323475 {
			t.Errorf("%d jobs, %d series of %d values: %v", len(jobs), len(series), values, err)
		}
	}
}
