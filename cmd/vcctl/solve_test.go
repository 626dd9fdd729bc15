package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/urfave/cli/v2"

	"evenkeel/allocator/solvefile"
)

// runSolver runs `vcctl solve` with the arguments and returns its output, the
// message on its error and its exit status.
func runSolver(t testing.TB, stdin io.Reader, args ...string) (out, message string, status int) {
	t.Helper()
	var stdout bytes.Buffer
	app := &cli.App{
		Name: "vcctl", Commands: []*cli.Command{solveCommand()},
		Reader: stdin, Writer: &stdout, ErrWriter: io.Discard,
		ExitErrHandler: func(*cli.Context, error) {},
	}
	err := app.Run(append([]string{"vcctl", "solve"}, args...))
	if err == nil {
		return stdout.String(), "", 0
	}
	var exit cli.ExitCoder
	if !errors.As(err, &exit) {
		t.Fatalf("solve %q: %v is no exit status", args, err)
	}
	return stdout.String(), err.Error(), exit.ExitCode()
}

// solved is an answer as it is written.
type solved struct {
	Name, Algorithm, Status            string
	MinYield, AverageYield, UpperBound float64
	MovedBytes, ElapsedSeconds         float64
	Error                              string
	Placements                         []struct {
		VirtualCluster string
		Task           int
		Host           string
		CPU            float64
	}
}

func decodeAnswers(t testing.TB, out string) []solved {
	t.Helper()
	var answers []solved
	for line := range strings.Lines(out) {
		d := json.NewDecoder(strings.NewReader(line))
		d.DisallowUnknownFields()
		var a solved
		if err := d.Decode(&a); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		var fields map[string]json.RawMessage
		if err := json.Unmarshal([]byte(line), &fields); err != nil {
			t.Fatal(err)
		}
		for _, f := range []string{"name", "algorithm", "status", "minYield", "averageYield", "upperBound", "movedBytes", "elapsedSeconds", "placements"} {
			if len(fields[f]) == 0 || string(fields[f]) == "null" {
				t.Errorf("%q has no %s", line, f)
			}
		}
		answers = append(answers, a)
	}
	return answers
}

const (
	threeOnTwo = `{"name":"three","hosts":[{"name":"h1","cpu":1,"memory":1},{"name":"h2","cpu":1,"memory":1}],"virtualClusters":[{"name":"j","count":3,"cpu":0.6,"memory":0.1}]}`
	tooLarge   = `{"name":"large","hosts":[{"name":"h1","cpu":1,"memory":1}],"virtualClusters":[{"name":"j","cpu":0.6,"memory":1.1}]}`
	// misled: memory 0.5+0.3+0.2 and 0.4+0.4+0.2 fills two hosts, but not if the largest VMs are placed first.
	misled = `{"name":"misled","hosts":[{"name":"h1","cpu":1,"memory":1},{"name":"h2","cpu":1,"memory":1}],"virtualClusters":[
		{"name":"a","cpu":0,"memory":0.5},{"name":"b","count":2,"cpu":0,"memory":0.4},{"name":"c","cpu":0,"memory":0.3},{"name":"d","count":2,"cpu":0,"memory":0.2}]}`
)

func TestSolveStatuses(t *testing.T) {
	for name, c := range map[string]struct {
		in     string
		args   []string
		status string
		exit   int
		lowest float64
		bound  float64
		places int
	}{
		"optimal":                {in: threeOnTwo, status: "optimal", lowest: 0.5 / 0.6, bound: 0.5 / 0.6, places: 3},
		"infeasible":             {in: tooLarge, status: "infeasible", exit: 3},
		"failed":                 {in: misled, args: []string{"--algorithm", "mcb8"}, status: "failed", exit: 3, bound: 1},
		"best does not fail":     {in: misled, status: "optimal", lowest: 1, bound: 1, places: 6},
		"exact":                  {in: misled, args: []string{"--algorithm", "exact"}, status: "optimal", lowest: 1, bound: 1, places: 6},
		"bound":                  {in: threeOnTwo, args: []string{"--algorithm", "lp"}, status: "bound", bound: 1},
		"bound, infeasible":      {in: tooLarge, args: []string{"--algorithm", "lp"}, status: "infeasible", exit: 3},
		"bound below 1":          {in: strings.Replace(threeOnTwo, "0.6", "0.8", 1), args: []string{"--algorithm=lp"}, status: "bound", bound: 2 / 2.4},
		"nothing to place":       {in: `{"hosts":[{"name":"h","cpu":1,"memory":1}],"virtualClusters":[]}`, status: "optimal", lowest: 1, bound: 1},
		"effort, seed and limit": {in: threeOnTwo, args: []string{"--effort", "9", "--seed", "-1", "--time-limit", "100ms"}, status: "optimal", lowest: 0.5 / 0.6, bound: 0.5 / 0.6, places: 3},
	} {
		t.Run(name, func(t *testing.T) {
			out, message, exit := runSolver(t, strings.NewReader(c.in), c.args...)
			if exit != c.exit || message != "" {
				t.Fatalf("exit %d, message %q", exit, message)
			}
			a := decodeAnswers(t, out)
			if len(a) != 1 {
				t.Fatalf("output %q", out)
			}
			near := func(x, y float64) bool { return x >= y-1e-9 && x <= y+1e-9 }
			if a[0].Status != c.status || !near(a[0].MinYield, c.lowest) || !near(a[0].UpperBound, c.bound) || len(a[0].Placements) != c.places {
				t.Errorf("got %+v", a[0])
			}
		})
	}
}

// Groups of one virtual cluster count as one in the mean.
func TestSolveCluster(t *testing.T) {
	in := `{"hosts":[{"name":"h1","cpu":1,"memory":1},{"name":"h2","cpu":1,"memory":1}],"virtualClusters":[
		{"name":"big","cpu":2,"memory":1,"cluster":"vc"},{"name":"small","cpu":1,"memory":1,"cluster":"vc"}]}`
	out, _, _ := runSolver(t, strings.NewReader(in))
	if a := decodeAnswers(t, out)[0]; a.MinYield != 0.5 || a.AverageYield != 0.5 {
		t.Errorf("yields %v, %v; want 0.5, 0.5", a.MinYield, a.AverageYield)
	}
	out, _, _ = runSolver(t, strings.NewReader(strings.ReplaceAll(in, `,"cluster":"vc"`, "")))
	if a := decodeAnswers(t, out)[0]; a.MinYield != 0.5 || a.AverageYield != 0.75 {
		t.Errorf("yields %v, %v; want 0.5, 0.75", a.MinYield, a.AverageYield)
	}
}

func TestSolveWrongUsage(t *testing.T) {
	file := filepath.Join(t.TempDir(), "in.json")
	if err := os.WriteFile(file, []byte(threeOnTwo), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		args []string
		in   string
		want string
	}{
		"unknown algorithm":  {args: []string{"--algorithm", "bset"}, want: `unknown algorithm "bset" (known: best, exact, mcb8, `},
		"unknown flag":       {args: []string{"--fast"}, want: "fast"},
		"flag after FILE":    {args: []string{file, "--batch"}, want: "one FILE at most"},
		"flag in FILE place": {args: []string{"--", "--batch"}, want: "unknown flag --batch"},
		"two files":          {args: []string{file, file}, want: "one FILE at most"},
		"no such file":       {args: []string{file + "x"}, want: "no such file"},
		"a folder":           {args: []string{filepath.Dir(file)}, want: "is a directory"},
		"time limit":         {args: []string{"--time-limit", "0s"}, want: "--time-limit must be greater than 0"},
		"no duration":        {args: []string{"--time-limit", "100"}, want: "100"},
		"effort":             {args: []string{"--effort", "-1"}, want: "--effort must be greater than 0"},
		"seed":               {args: []string{"--seed", "x"}, want: "x"},
		"half a JSON":        {args: []string{"-"}, in: `{"name":"x","hosts":[{"na`, want: "ends too early"},
		"two objects":        {in: threeOnTwo + threeOnTwo, want: "text after the end"},
		"current":            {args: []string{"--algorithm", "mcb8"}, in: strings.Replace(tooLarge, `"cpu":0.6`, `"cpu":0.6,"current":["h1"]`, 1), want: "algorithm mcb8 does not take current"},
		"move budget":        {args: []string{"--algorithm", "lp"}, in: strings.Replace(tooLarge, `{`, `{"maxMigrationBytes":0,`, 1), want: "algorithm lp does not take maxMigrationBytes"},
		"least yield and affinity": {args: []string{"--algorithm", "mcb8"}, in: strings.Replace(tooLarge, `"cpu":0.6`, `"cpu":0.6,"minYield":0.5,"affinity":{"spread":"host"}`, 1),
			want: "algorithm mcb8 does not take minYield, affinity"},
	} {
		t.Run(name, func(t *testing.T) {
			out, message, exit := runSolver(t, strings.NewReader(c.in), c.args...)
			if exit != 2 || out != "" || !strings.Contains(message, c.want) {
				t.Errorf("exit %d, message %q, output %q; want 2 and %q", exit, message, out, c.want)
			}
		})
	}
	if out, message, exit := runSolver(t, nil, file); exit != 0 || len(decodeAnswers(t, out)) != 1 {
		t.Errorf("from a file: exit %d, %q, %q", exit, message, out)
	}
}

func TestSolveBatch(t *testing.T) {
	lines := []string{
		strings.ReplaceAll(threeOnTwo, "\n", ""),
		`{"name":"bad","hosts":1}`,
		"",
		strings.ReplaceAll(strings.ReplaceAll(misled, "\n", ""), "\t", ""),
		strings.Replace(tooLarge, `"cpu":0.6`, `"cpu":0.6,"current":[null]`, 1),
		`{"half":`,
		tooLarge + "\r",
	}
	want := []string{"three optimal", "bad invalid", " invalid", "misled optimal", "large infeasible", " invalid", "large infeasible"}
	for _, end := range []string{"", "\n"} {
		out, message, exit := runSolver(t, strings.NewReader(strings.Join(lines, "\n")+end), "--batch")
		if exit != 2 || message != "solve: 3 bad lines" {
			t.Errorf("exit %d, message %q", exit, message)
		}
		answers := decodeAnswers(t, out)
		if len(answers) != len(want) {
			t.Fatalf("%d answers to %d lines:\n%s", len(answers), len(lines), out)
		}
		for i, a := range answers {
			if got := a.Name + " " + a.Status; got != want[i] || (a.Error != "") != (a.Status == "invalid") {
				t.Errorf("line %d: %s (%s), want %s", i, got, a.Error, want[i])
			}
		}
	}
	// Lines without a placement are no failure of a batch.
	if out, message, exit := runSolver(t, strings.NewReader(tooLarge+"\n"+tooLarge+"\n"), "--batch"); exit != 0 || len(decodeAnswers(t, out)) != 2 {
		t.Errorf("exit %d, message %q, output %q", exit, message, out)
	}
	if out, _, exit := runSolver(t, strings.NewReader(""), "--batch"); exit != 0 || out != "" {
		t.Errorf("an empty batch: exit %d, output %q", exit, out)
	}
}

// An answer comes before the next line is asked for.
func TestSolveBatchAnswersAtOnce(t *testing.T) {
	inRead, inWrite := io.Pipe()
	outRead, outWrite := io.Pipe()
	app := &cli.App{
		Name: "vcctl", Commands: []*cli.Command{solveCommand()}, Reader: inRead, Writer: outWrite,
		ExitErrHandler: func(*cli.Context, error) {},
	}
	done := make(chan error, 1)
	go func() {
		done <- app.Run([]string{"vcctl", "solve", "--batch", "-"})
		_ = outWrite.Close()
	}()
	d := json.NewDecoder(outRead)
	for range 3 {
		if _, err := io.WriteString(inWrite, threeOnTwo+"\n"); err != nil {
			t.Fatal(err)
		}
		var a solved
		if err := d.Decode(&a); err != nil || a.Status != "optimal" {
			t.Fatalf("%+v, %v", a, err)
		}
	}
	_ = inWrite.Close()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// Of a line that is too long no more than the limit is kept, and the next line
// is read from its beginning.
func TestReadLine(t *testing.T) {
	in := bufio.NewReaderSize(strings.NewReader(strings.Repeat("x", 50)+"\n"+strings.Repeat("y", 20)+"\n\nlast"), 16)
	for _, want := range []string{strings.Repeat("x", 21), strings.Repeat("y", 20), "", "last"} {
		if line, err := readLine(in, 20); err != nil || string(line) != want {
			t.Errorf("line %q, error %v; want %q", line, err, want)
		}
	}
	if line, err := readLine(in, 20); err != io.EOF {
		t.Errorf("after the end: %q, %v", line, err)
	}
	if r := solvers[0].answer(make([]byte, maxInstance+1), settings{}); r.Status != solvefile.Invalid || r.Error != "larger than 256 MiB" {
		t.Errorf("got %+v", r)
	}
}

// The worked example in the guide is what the command prints.
func TestSolveGuide(t *testing.T) {
	guide, err := os.ReadFile("../../docs/explanation/yield.md")
	if err != nil {
		t.Fatal(err)
	}
	parts := strings.Split(string(guide), "```")
	if len(parts) != 5 {
		t.Fatalf("the guide has %d code fences, want an input and an output", len(parts)-1)
	}
	in, want := strings.TrimPrefix(parts[1], "json"), strings.TrimPrefix(parts[3], "json")
	out, _, exit := runSolver(t, strings.NewReader(in), "--algorithm", "mcb8")
	a, b := decodeAnswers(t, out), decodeAnswers(t, strings.ReplaceAll(want, "\n", ""))
	a[0].ElapsedSeconds = b[0].ElapsedSeconds
	if exit != 0 || fmt.Sprint(a) != fmt.Sprint(b) {
		t.Errorf("exit %d; the guide says\n%+v\nthe command\n%+v", exit, b, a)
	}
}

// The reference has every flag, every algorithm and every status.
func TestSolveReference(t *testing.T) {
	text, err := os.ReadFile("../../docs/reference/solver.md")
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"| `optimal` |", "| `feasible` |", "| `infeasible` |", "| `failed` |", "| `timeout` |", "| `bound` |", "| `invalid` |"}
	for _, f := range solveCommand().Flags {
		want = append(want, "| `--"+f.Names()[0])
	}
	for i := range solvers {
		name := solvers[i].name
		if strings.HasPrefix(name, "mcb") && name > "mcb1" && name < "mcb7" {
			continue // `mcb1` to `mcb7`
		}
		want = append(want, "`"+name+"`")
	}
	for _, w := range want {
		if !strings.Contains(string(text), w) {
			t.Errorf("docs/reference/solver.md has no %s", w)
		}
	}
}

// TestSolvePaperInstances checks every printed answer to instances of the
// paper's small kind against its input, from the contract alone.
func TestSolvePaperInstances(t *testing.T) {
	for _, algorithm := range []string{"mcb8", "best", "exact"} {
		t.Run(algorithm, func(t *testing.T) { solvePaperInstances(t, algorithm) })
	}
}

func solvePaperInstances(t *testing.T, algorithm string) {
	in := paperBatch(300)
	args := []string{"--batch", "--algorithm", algorithm, "--effort", "100000"}
	out, message, exit := runSolver(t, strings.NewReader(in), args...)
	if exit != 0 {
		t.Fatalf("exit %d: %s", exit, message)
	}
	again, _, _ := runSolver(t, strings.NewReader(in), args...)
	answers, second := decodeAnswers(t, out), decodeAnswers(t, again)
	statuses := map[string]int{}
	i := 0
	for line := range strings.Lines(in) {
		checkAnswer(t, algorithm, line, answers[i])
		second[i].ElapsedSeconds = answers[i].ElapsedSeconds
		if fmt.Sprint(second[i]) != fmt.Sprint(answers[i]) {
			t.Errorf("two answers to one line: %+v, %+v", answers[i], second[i])
		}
		statuses[answers[i].Status]++
		i++
	}
	t.Log(statuses)
	if statuses["optimal"] == 0 || statuses["feasible"] == 0 && algorithm == "mcb8" {
		t.Errorf("statuses %v: the instances are too easy or too hard to show anything", statuses)
	}
}

func checkAnswer(t *testing.T, algorithm, line string, a solved) {
	t.Helper()
	type amount struct {
		Name        string
		CPU, Memory float64
	}
	var in struct {
		Name                   string
		Hosts, VirtualClusters []amount
	}
	if err := json.Unmarshal([]byte(line), &in); err != nil {
		t.Fatal(err)
	}
	if a.Name != in.Name || a.Algorithm != algorithm || a.MovedBytes != 0 {
		t.Errorf("got %+v for %s", a, line)
	}
	if a.Status == "infeasible" || a.Status == "failed" {
		if len(a.Placements) != 0 || a.MinYield != 0 || a.AverageYield != 0 {
			t.Errorf("%s: %+v", in.Name, a)
		}
		return
	}
	hosts, vms := map[string]amount{}, map[string]amount{}
	total, need := 0.0, 0.0
	for _, h := range in.Hosts {
		hosts[h.Name] = h
		total += h.CPU
	}
	for _, vm := range in.VirtualClusters {
		vms[vm.Name] = vm
		need += vm.CPU
	}
	lowest, sum := 1.0, 0.0
	used := map[string]amount{}
	seen := map[string]bool{}
	for _, p := range a.Placements {
		vm, ok := vms[p.VirtualCluster]
		if !ok || p.Task != 0 || seen[vm.Name] || p.CPU > vm.CPU {
			t.Errorf("%s: placement %+v", in.Name, p)
		}
		seen[vm.Name] = true
		u := used[p.Host]
		used[p.Host] = amount{CPU: u.CPU + p.CPU, Memory: u.Memory + vm.Memory}
		y := 1.0
		if vm.CPU > 0 {
			y = p.CPU / vm.CPU
		}
		lowest = min(lowest, y)
		sum += y
	}
	for name, u := range used {
		h, ok := hosts[name]
		if !ok || u.CPU > h.CPU*(1+1e-9) || u.Memory > h.Memory*(1+1e-9) {
			t.Errorf("%s: host %s %+v uses %+v", in.Name, name, h, u)
		}
	}
	mean := sum / float64(len(vms))
	if len(seen) != len(vms) || lowest < a.MinYield-1e-12 || lowest > a.MinYield+1e-12 || mean < a.AverageYield-1e-9 || mean > a.AverageYield+1e-9 {
		t.Errorf("%s: yields %v, %v of %d VMs; got %+v", in.Name, lowest, mean, len(seen), a)
	}
	if a.UpperBound > min(1, total/need)+1e-12 || a.UpperBound < a.MinYield || (a.Status == "optimal") != (a.MinYield >= a.UpperBound-1e-9) {
		t.Errorf("%s: bound %v of %v, yield %v, %s", in.Name, a.UpperBound, total/need, a.MinYield, a.Status)
	}
}

// paperBatch is n instances of 4 hosts and 12 tasks, drawn as in sec. 4.1 of
// the paper, one per line.
func paperBatch(n int) string {
	r := rand.New(rand.NewPCG(5, 6))
	draw := func(mean, cv float64) float64 {
		for {
			if x := mean + mean*cv*r.NormFloat64(); x >= 0 && x <= 1 {
				return x
			}
		}
	}
	var b strings.Builder
	for i := range n {
		slack := 0.1 + 0.1*float64(i%9)
		cvs := [...]float64{0.25, 0.75}
		cvCPU, cvMemory := cvs[i%2], cvs[i/2%2]
		fmt.Fprintf(&b, `{"name":"i%d","hosts":[`, i)
		for j := range 4 {
			fmt.Fprintf(&b, `%s{"name":"h%d","cpu":1,"memory":1}`, comma(j), j)
		}
		b.WriteString(`],"virtualClusters":[`)
		for k := range 12 {
			fmt.Fprintf(&b, `%s{"name":"j%d","cpu":%v,"memory":%v}`, comma(k), k, draw(0.5, cvCPU), draw(4*(1-slack)/12, cvMemory))
		}
		b.WriteString("]}\n")
	}
	return b.String()
}

func comma(i int) string {
	if i == 0 {
		return ""
	}
	return ","
}

// BenchmarkSolveBatch: 1,000 small instances of the paper per run, reading and
// writing included.
func BenchmarkSolveBatch(b *testing.B) {
	in := paperBatch(1000)
	b.ReportAllocs()
	for b.Loop() {
		if _, message, exit := runSolver(b, strings.NewReader(in), "--batch"); exit != 0 {
			b.Fatal(message)
		}
	}
}

// The flag stands above the file, and algorithms that know no policy refuse both.
func TestSolvePlacement(t *testing.T) {
	const in = `{%s"hosts": [{"name": "a", "cpu": 4, "memory": 4}, {"name": "b", "cpu": 4, "memory": 4}], "virtualClusters": [{"name": "x", "count": 2, "cpu": 1, "memory": 1}]}`
	for _, c := range []struct {
		file   string
		args   []string
		hosts  int
		status int
	}{
		{``, []string{"--placement", "spread"}, 2, 0},
		{``, []string{"--placement", "pack"}, 1, 0},
		{`"placement": "pack", `, nil, 1, 0},
		{`"placement": "pack", `, []string{"--placement", "spread"}, 2, 0},
		{`"placement": "pack", `, []string{"--algorithm", "exact"}, 1, 0},
		{`"placement": "heap", `, nil, 0, 2},
		{``, []string{"--placement", "heap"}, 0, 2},
		{``, []string{"--placement", "pack", "--algorithm", "mcb8"}, 0, 2},
		{`"placement": "pack", `, []string{"--algorithm", "mcb8"}, 0, 2},
	} {
		out, message, status := runSolver(t, strings.NewReader(fmt.Sprintf(in, c.file)), c.args...)
		if status != c.status {
			t.Errorf("%q %q: status %d: %s", c.file, c.args, status, message)
		}
		if status != 0 {
			continue
		}
		on := map[string]bool{}
		for _, p := range decodeAnswers(t, out)[0].Placements {
			on[p.Host] = true
		}
		if len(on) != c.hosts {
			t.Errorf("%q %q: on %d hosts, want %d", c.file, c.args, len(on), c.hosts)
		}
	}
}
