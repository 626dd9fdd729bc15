package main

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/urfave/cli/v2"
)

// vcsimRun runs "vcsim run" with arguments.
func vcsimRun(args ...string) (out, output string, err error) {
	var o, e bytes.Buffer
	app := &cli.App{Name: "vcsim", Writer: &o, ErrWriter: &e, Commands: []*cli.Command{runCommand()}, ExitErrHandler: func(*cli.Context, error) {}}
	err = app.Run(spreadData(append([]string{"vcsim", "run"}, args...)))
	return o.String(), e.String(), err
}

// records writes a small record of each kind, and says how it is asked for.
func records(t *testing.T) map[string][]string {
	t.Helper()
	dir := t.TempDir()
	file := func(name, text string) string {
		name = filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return name
	}
	lines := func(n int, each func(i int) string) string {
		var b strings.Builder
		for i := range n {
			b.WriteString(each(i) + "\n")
		}
		return b.String()
	}
	swf := file("log.swf", "; MaxProcs: 16\n"+lines(40, func(i int) string {
		return fmt.Sprintf("%d %d 5 %d %d -1 -1 %d 900 -1 1 1 1 1 1 -1 -1 -1", i+1, i*120, 60+137*i%1500, 1+i*i%12, 1+i*i%12)
	}))
	arrivals := file("arrivals.txt", lines(20, func(i int) string { return fmt.Sprintf("%d a,b,|,c,|", 300*(i+1)) }))
	flavours := file("flavours.txt", "1,1.75 a\n2,3.5 b\n4,7 c\n")
	lifetimes := file("lifetimes.txt", lines(20, func(i int) string { return fmt.Sprintf("%d U0,U1,|,C2,|", 300*(i+1)) }))
	bins := file("bins.txt", "300 0\n600 0\n1800 1\n7200 2\n")
	pods := file("pods.csv", "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time\n"+lines(30, func(i int) string {
		return fmt.Sprintf("p%d,%d,2048,0,0,,LS,Succeeded,%d,%d,%d", i, 1000*(1+i%4), 100*i, 100*i+50+900*(i%5), 100*i+50)
	}))
	nodes := file("nodes.csv", "sn,cpu_milli,memory_mib,gpu,model\nn1,8000,16384,0,\nn2,16000,32768,0,\n")
	for vm := range 4 {
		file(fmt.Sprintf("bitbrains/%d.csv", vm), "Timestamp [ms];\tCPU cores;\tCPU capacity provisioned [MHZ];\tCPU usage [MHZ];\tCPU usage [%];\tMemory capacity provisioned [KB];\tMemory usage [KB];\tDisk read throughput [KB/s];\tDisk write throughput [KB/s];\tNetwork received throughput [KB/s];\tNetwork transmitted throughput [KB/s]\n"+
			lines(40, func(i int) string {
				return fmt.Sprintf("%d;\t2;\t5200.0;\t%d.0;\t1.0;\t4194304.0;\t%d.0;\t0.0;\t0.0;\t0.0;\t0.0", 1372630000+300*i, 300+500*((i+vm)%7), 500000+40000*((i*vm)%9))
			}))
		file(fmt.Sprintf("google/vm_%d_1", vm), lines(288, func(i int) string { return fmt.Sprintf("%d.5 %d.25", 10+(i+vm)%60, 20+vm) }))
		file(fmt.Sprintf("planetlab/20110303/node_%d", vm), lines(288, func(i int) string { return fmt.Sprint((i*7 + vm) % 100) }))
	}
	for vm := range 3 {
		for day := 1; day <= 10; day++ {
			file(fmt.Sprintf("recurring/vm_%d_%d", vm, day), lines(288, func(i int) string { return fmt.Sprintf("%d.5 %d.25", 10+(i/12+vm)%24+(day*7+vm)%5, 20+vm+day) }))
		}
	}
	return map[string][]string{
		"recurring": {"--trace", filepath.Join(dir, "recurring"), "--hosts", "2", "--cores", "8", "--memory", "64GiB", "--days", "1", "--load", "1.5"},
		"lublin":    {"--apps", "20", "--hosts", "16", "--cores", "4", "--memory", "16GiB", "--load", "0.9"},
		"swf":       {"--trace", swf, "--cores", "4", "--memory", "8GiB"},
		"azure":     {"--trace", arrivals, flavours, lifetimes, bins, "--hosts", "2", "--cores", "8", "--memory", "16GiB"},
		"openb":     {"--trace", pods, nodes},
		"bitbrains": {"--trace", filepath.Join(dir, "bitbrains"), "--hosts", "1", "--cores", "8", "--memory", "12GiB"},
		"google":    {"--trace", filepath.Join(dir, "google"), "--hosts", "1", "--cores", "8", "--memory", "64GiB", "--load", "2", "--arrivals", "poisson", "--life", "2h"},
		"planetlab": {"--trace", filepath.Join(dir, "planetlab"), "--hosts", "2", "--cores", "8", "--memory", "64GiB"},
	}
}

// Every kind of workload is played under every policy that can, and the same again is the same.
func TestRunWorkloads(t *testing.T) {
	all := "reservation,leastfit,oversub,flex,ha:0.125:1,morpheus,fcfs,easy,optimistic:persist,pessimistic:last,evenkeel:persist,declared"
	for kind, args := range records(t) {
		t.Run(kind, func(t *testing.T) {
			policies := all
			switch kind {
			case "bitbrains", "planetlab":
				policies = strings.Replace(policies, "fcfs,easy,", "", 1)
				if kind == "bitbrains" { // the mixture of production, too, where it is short
					policies = strings.Replace(policies, "evenkeel:persist", "evenkeel,balanced", 1)
				}
			case "lublin":
				policies = strings.Replace(policies, "pessimistic:last", "pessimistic:persist", 1)
			case "openb":
				policies = strings.Replace(policies, "ha:0.125:1,", "", 1)
			}
			args = append([]string{"--workload", kind, "--policy", policies, "--seed", "1,2"}, args...)
			out, output, err := vcsimRun(append(args, "-o", "csv")...)
			if err != nil {
				t.Fatal(err)
			}
			rows, err := csv.NewReader(strings.NewReader(out)).ReadAll()
			want := 1 + 2*(1+strings.Count(policies, ",")+1) // flex is two
			if err != nil || len(rows) != want {
				t.Fatalf("%d rows, not %d (%v): %s", len(rows), want, err, out)
			}
			for _, row := range rows[1:] {
				if row[0] != kind || row[5] == "0" {
					t.Errorf("nothing was started: %q", row)
				}
			}
			if !strings.Contains(output, "applications arrive in") {
				t.Errorf("said: %q", output)
			}
			if again, _, _ := vcsimRun(append(args, "-o", "csv")...); again != out {
				t.Error("the same again is not the same")
			}
			if drawn := strings.Contains(output, "drawn"); drawn != (kind != "bitbrains") {
				t.Errorf("what is drawn is to be said, and only that: %q", output)
			}
		})
	}
}

func TestRunUses(t *testing.T) {
	r := records(t)
	out := map[string]string{}
	for name, use := range map[string][]string{"drawn": nil, "full": {"--use", "full"}, "measured": {"--use", r["bitbrains"][1]}} {
		text, output, err := vcsimRun(slices.Concat([]string{"-w", "azure", "-p", "reservation", "-o", "csv"}, r["azure"], use)...)
		if err != nil {
			t.Fatal(err)
		}
		if out[text] != "" {
			t.Errorf("%s uses as much as %s", name, out[text])
		}
		out[text] = name
		if name == "full" && !strings.Contains(output, "all that is asked for is used") || name == "measured" && !strings.Contains(output, "8 series of --use") {
			t.Errorf("%s: %q", name, output)
		}
	}
}

// What cannot be played is refused before anything runs.
func TestRunRefuses(t *testing.T) {
	r := records(t)
	for _, c := range []struct {
		args []string
		want string
	}{
		{append([]string{"-w", "bitbrains", "-p", "reservation,easy"}, r["bitbrains"]...), "these VMs are there all along"},
		{append([]string{"-w", "openb", "-p", "ha"}, r["openb"]...), "not equal"},
		{append([]string{"-w", "lublin", "-p", "ha"}, r["lublin"]...), "would never start"},
		{[]string{"-p", "flex"}, "elastic components"},
		{[]string{"-p", "ha", "--rigid", "--cores", "4"}, "would never start"},
		{[]string{"-w", "tea"}, "must be pace"},
		{[]string{"-w", "swf"}, "which files"},
		{[]string{"-w", "lublin", "--trace", "x"}, "lublin is drawn"},
		{[]string{"--trace", "x"}, "pace draws all"},
		{[]string{"-w", "swf", "--trace", "nowhere"}, "no such file"},
		{append([]string{"-w", "bitbrains", "--use", "full"}, r["bitbrains"]...), "use of its own"},
		{append([]string{"-w", "azure", "--arrivals", "poisson"}, r["azure"]...), "has arrivals"},
		{append([]string{"-w", "azure", "--clock", "record"}, r["azure"]...), "by the clock of their records"},
		{append([]string{"-w", "google", "--clock", "wall"}, r["google"]...), "must be own or record"},
		{[]string{"--clock", "record"}, "pace draws all"},
		{append([]string{"-w", "azure", "--use", "drawn,full"}, r["azure"]...), "stands alone"},
		{append([]string{"-w", "openb", "--from", "400"}, r["openb"]...), "nothing is left"},
		{[]string{"-w", "azure", "--trace", r["azure"][1]}, "one of flavours"},
		{[]string{"-w", "azure", "--trace", r["openb"][1]}, "neither arrivals"},
		{[]string{"-w", "openb", "--trace", r["azure"][1]}, "no column"},
		{[]string{"--memory", "12GB"}, "not a size"},
		{[]string{"--sampled", "25h"}, "from 0 to a day"},
		{append([]string{"-w", "openb", "--sampled", "5m"}, r["openb"]...), "only pace"},
		{[]string{"--seed", "1,1"}, "each once"},
		{[]string{"-p", "oversub:0"}, "no number above 0"},
		{[]string{"-p", "fcfs:1"}, "no settings"},
		{[]string{"-p", "morpheus"}, "elastic components"},
		{append([]string{"-w", "recurring", "-p", "morpheus:1"}, r["recurring"]...), "below 1"},
		{append([]string{"-w", "recurring", "--from", "1"}, r["recurring"]...), "first days"},
		{append([]string{"-w", "recurring", "--periodic", "1"}, r["recurring"]...), "below 1"},
		{[]string{"-w", "recurring", "--trace", r["google"][1]}, "learned from"},
		{append([]string{"-w", "azure", "--periodic", "0.2"}, r["azure"]...), "no periodic jobs"},
		{[]string{"-p", "ha:0.1:2"}, "no more than all"},
	} {
		out, _, err := vcsimRun(append(c.args, "--keep", filepath.Join(t.TempDir(), "none"))...)
		var exit cli.ExitCoder
		if err == nil || !strings.Contains(err.Error(), c.want) || out != "" {
			t.Errorf("%q: %q, %v; wanted %q", c.args, out, err, c.want)
		} else if !asExit(err, &exit) || exit.ExitCode() != 2 {
			t.Errorf("%q: %v is not exit status 2", c.args, err)
		}
	}
}

// How fast memory changes is the workload's, and hard limits feel it.
func TestRunSampled(t *testing.T) {
	of := func(flags ...string) string {
		text, _, err := vcsimRun(append([]string{"--hosts", "1", "--apps", "40", "--days", "0.2", "-p", "pessimistic-hard:persist:0.05:0", "-o", "csv"}, flags...)...)
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	if fast, slow := of(), of("--sampled", "5m"); fast == slow || of("--sampled", "0s") != fast {
		t.Errorf("memory that changes every five minutes at most:\n%swhere it may change faster:\n%s", slow, fast)
	}
}

func asExit(err error, into *cli.ExitCoder) bool {
	e, ok := err.(cli.ExitCoder)
	*into = e
	return ok
}

// Runs of records are kept, by what the files hold.
func TestRecordsAreKept(t *testing.T) {
	r, keep := records(t), t.TempDir()
	args := slices.Concat([]string{"-w", "swf", "-p", "fcfs,easy", "-o", "csv", "--keep", keep}, r["swf"])
	first, _, err := vcsimRun(args...)
	if err != nil {
		t.Fatal(err)
	}
	files, _ := filepath.Glob(filepath.Join(keep, "run-*.json"))
	if len(files) != 2 {
		t.Fatalf("%d runs are kept", len(files))
	}
	for _, f := range files {
		if err := os.WriteFile(f, []byte(`{"policy":"kept"}`), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if out, _, err := vcsimRun(args...); err != nil || strings.Count(out, "kept") != 2 {
		t.Errorf("what was kept was not taken (%v): %s", err, out)
	}
	for _, other := range [][]string{{"--seed", "2"}, {"--load", "0.5"}, {"--use", "full"}, {"--cores", "8"}, {"--until", "3"}, {"--days", "0.02"}, {"--tick", "30s"}} {
		if out, _, err := vcsimRun(append(slices.Clone(args), other...)...); err != nil || strings.Contains(out, "kept") {
			t.Errorf("%q is another run (%v): %s", other, err, out)
		}
	}
	text, err := os.ReadFile(r["swf"][1])
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(r["swf"][1], append(text, "41 9999 5 60 1 -1 -1 1 900 -1 1 1 1 1 1 -1 -1 -1\n"...), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, _, err := vcsimRun(args...); err != nil || strings.Contains(out, "kept") || out == first {
		t.Errorf("the file has another job (%v): %s", err, out)
	}
}

func TestRunFormats(t *testing.T) {
	r, dir := records(t), t.TempDir()
	out, _, err := vcsimRun(slices.Concat([]string{"-w", "swf", "-p", "fcfs,easy", "-o", "json", "--seed", "3,4", "--svg", dir}, r["swf"])...)
	var results []struct {
		Workload, Policy string
		Seed             uint64
		PerApplication   []any
	}
	if err == nil {
		err = json.Unmarshal([]byte(out), &results)
	}
	if err != nil || len(results) != 4 || results[2].Seed != 4 || results[1].Policy != "easy" || results[0].Workload != "swf" || len(results[0].PerApplication) != 40 {
		t.Fatalf("%v: %+v", err, results)
	}
	stats, _ := filepath.Glob(filepath.Join(dir, "*.svg"))
	if len(stats) != 15 {
		t.Errorf("%d figures", len(stats))
	}
	for _, f := range stats {
		if b, err := os.ReadFile(f); err != nil || !bytes.Contains(b, []byte("easy")) || bytes.Contains(b, []byte("NaN")) {
			t.Errorf("%s: %v", f, err)
		}
	}
	out, _, err = vcsimRun(slices.Concat([]string{"-w", "swf", "-p", "fcfs", "-o", "apps", "--seed", "3,4"}, r["swf"])...)
	if err != nil || !strings.Contains(out, "fcfs@3,") || !strings.Contains(out, "fcfs@4,") {
		t.Errorf("applications of two seeds are to be distinct (%v)", err)
	}
}

// What is printed is in testdata/run; -rewrite writes it again.
func TestRunGolden(t *testing.T) {
	r := records(t)
	for name, args := range map[string][]string{
		"help":      {"--help"},
		"pace":      {"--hosts", "1", "--days", "0.05", "--apps", "12", "--policy", "reservation,pessimistic:persist,fcfs,easy"},
		"swf":       append([]string{"-w", "swf", "--policy", "reservation,leastfit,oversub,flex,ha:0.125:1,fcfs,easy,pace"}, r["swf"]...),
		"bitbrains": append([]string{"-w", "bitbrains", "--policy", "reservation,flexf,pessimistic:persist"}, r["bitbrains"]...),
		"recurring": append([]string{"-w", "recurring", "--policy", "reservation,leastfit,flexf,easy,morpheus"}, r["recurring"]...),
	} {
		out, output, err := vcsimRun(args...)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		file := filepath.Join("testdata", "run", name+".txt")
		if out = output + out; *rewrite {
			if err := os.WriteFile(file, []byte(out), 0o644); err != nil {
				t.Fatal(err)
			}
			continue
		}
		want, err := os.ReadFile(file)
		if err != nil || out != string(want) {
			t.Errorf("%s (%v): -rewrite if this is meant:\n%s", file, err, out)
		}
	}
}

// FuzzPolicyOn: any text for a policy gives a policy or an error.
func FuzzPolicyOn(f *testing.F) {
	for _, s := range []string{"reservation", "oversub:1.5", "flexf:1", "ha:0.2:0.8", "easy", "pessimistic:gp:0.05:3", "ha::", "oversub:NaN", "flexl:1e999", ":::", "ha:1e-300"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, spec string) {
		p, err := policyOn(spec, nil)
		if (p == nil) == (err == nil) {
			t.Fatalf("%q: %v, %v", spec, p, err)
		}
		if err == nil && p.Name() != spec {
			t.Fatalf("%q is called %q", spec, p.Name())
		}
	})
}

// FuzzAzureRole: a line matches at most one kind of Azure's files, and published lines match their own.
func FuzzAzureRole(f *testing.F) {
	for line, want := range map[string]string{"1,1.75 b": "flavours", "300 0": "bins", "300 g,|,b,b,|": "arrivals", "300 |,U4,C10,|": "lifetimes", "": "", "name,cpu": "", "300 ": ""} {
		if got := azureRole(line); got != want {
			f.Errorf("%q is %q, not %q", line, got, want)
		}
		f.Add(line)
	}
	f.Fuzz(func(t *testing.T, line string) {
		if role := azureRole(line); !slices.Contains([]string{"", "flavours", "bins", "arrivals", "lifetimes"}, role) {
			t.Fatalf("%q is %q", line, role)
		}
	})
}
