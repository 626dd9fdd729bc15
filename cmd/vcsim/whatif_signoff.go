package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
	"github.com/urfave/cli/v2"

	"evenkeel/api/v1"
	"evenkeel/forecast/periodic"
	"evenkeel/sim/replay"
	"evenkeel/sim/signoff"
)

const signOffHelp = `
With --sign-off: what if the periodic jobs had been signed off?

  vcsim whatif --sign-off --runs runs.jsonl history.json
  vcsim whatif --sign-off --runs runs.jsonl --miss 0.05 --deadline 'render-#=2h' -o json history.json

RUNS has the past runs, one JSON object a line, as 'vcctl periodic find' reads them, with what they used:

  {"name": "render-2026-03-28", "begin": "2026-03-28T02:00:07Z", "end": "2026-03-28T03:10:00Z", "deadline": "2h", "count": 4, "cpu": 2, "memory": 8589934592,
   "step": 300, "usage": [1.5, 7.9, 3], "memoryUsage": [4e9, 9e9, 9e9]}

count, cpu (cores) and memory (bytes) are what each run's VMs declared, usage and memoryUsage what all of them used together in each step of so many seconds.
deadline is after the begin of the period; without one it follows from inputs and read, the times of the last write to a run's inputs and of the first read of its
outputs, or from a job that follows at a steady time. Virtual clusters of the history whose VMs have ended are runs, too; those that run are there all the time, with the
memory they declared and the most CPU they used.

Each job's first runs (70%, and 8 at least) are learned from. Its slot is reserved on the hosts of the history beside what runs there, with a host for each VM. The
other runs are played in the slots; a late run gets more where its hosts have room.

How to read the table
  DUE        deadline after the begin of the period, and where it comes from. MISS: the chance that is promised that a run needs more than is reserved.
  LATE BEFORE, IN SLOTS  runs that missed the deadline as it was, and in their slots, of those that were played.
  CORE-H, GIB-H  declared, reserved with what late runs got beyond, and used, by the runs that were played.
  SLOT       from and to, after the begin of the period, and the hosts.
A job without a slot stays as it was; below the table stands why, and what alone would have let it in.`

func signOffFlags() []cli.Flag {
	return []cli.Flag{
		&cli.BoolFlag{Name: "sign-off", Usage: "what would have been if the periodic jobs had been signed off"},
		&cli.StringFlag{Name: "runs", Usage: "`RUNS` of the past, beside those of the history (- reads standard input)"},
		&cli.StringFlag{Name: "zone", Usage: "time `ZONE` on whose clock daily and weekly jobs go, of the IANA database", Value: "UTC"},
		&cli.Float64Flag{Name: "miss", Usage: "`CHANCE` that a run needs more than is reserved for it", Value: 0.05},
		&cli.Float64Flag{Name: "min-yield", Usage: "least `YIELD` of a run: with 0.5 it may have half of the CPU it needs, for twice as long", Value: 1},
		&cli.StringSliceFlag{Name: "deadline", Usage: "`JOB=DURATION` after the begin of its period, such as render-#=2h; wins over what was declared or found"},
	}
}

// signOffAlone refuses flags of the other question.
func signOffAlone(c *cli.Context) error {
	others := []string{"settings", "more", "seed", "no-moves", "max-bytes"}
	own := []string{"runs", "zone", "miss", "min-yield", "deadline"}
	if c.Bool("sign-off") {
		for _, name := range others {
			if c.IsSet(name) {
				return fmt.Errorf("--%s: --sign-off plays slots and no settings: leave one of them out", name)
			}
		}
		return nil
	}
	for _, name := range own {
		if c.IsSet(name) {
			return fmt.Errorf("--%s is for --sign-off: add that", name)
		}
	}
	return nil
}

func signOff(c *cli.Context) error {
	report, notes, err := signedOff(c)
	if err != nil {
		return cli.Exit("what if periodic jobs were signed off: "+err.Error(), 2)
	}
	for _, n := range notes {
		fmt.Fprintln(c.App.ErrWriter, "vcsim:", n)
	}
	if c.String("output") == "json" {
		e := json.NewEncoder(c.App.Writer)
		e.SetIndent("", "  ")
		return e.Encode(report)
	}
	return signOffTable(c.App.Writer, report)
}

func signedOff(c *cli.Context) (*signoff.Report, []string, error) {
	o := signoff.Options{Miss: c.Float64("miss"), MinYield: c.Float64("min-yield"), Deadlines: map[string]time.Duration{}}
	switch {
	case c.NArg() != 1:
		return nil, nil, errors.New("one FILE is wanted, as 'vcctl cluster history FILE' writes it")
	case c.String("output") != "table" && c.String("output") != "json":
		return nil, nil, fmt.Errorf("-o %s: must be table or json", c.String("output"))
	case c.Int("add") < 0 || c.Int("add") > 10_000:
		return nil, nil, fmt.Errorf("--add %d: must be from 0 to 10,000", c.Int("add"))
	}
	for _, text := range c.StringSlice("deadline") {
		at := strings.LastIndexByte(text, '=')
		d, err := time.ParseDuration(text[at+1:])
		if at < 1 || err != nil || d <= 0 {
			return nil, nil, fmt.Errorf("--deadline %q: must be JOB=DURATION, such as render-#=2h", text)
		}
		o.Deadlines[text[:at]] = d
	}
	var err error
	if o.Zone, err = time.LoadLocation(c.String("zone")); err != nil || o.Zone == time.Local {
		return nil, nil, fmt.Errorf("--zone %q is not a time zone of the IANA database, such as Europe/Berlin", c.String("zone"))
	}
	if err := o.Validate(); err != nil {
		return nil, nil, err
	}
	h, machines, err := readHistory(c)
	if err != nil {
		return nil, nil, err
	}
	runs, err := runsOf(c)
	if err != nil {
		return nil, nil, err
	}
	p := standing{h: h}
	for _, vc := range h.VirtualClusters {
		p.add(vc)
	}
	runs = append(runs, p.runs...)
	residents, notes := p.beside(runs, o.Zone)
	report, err := signoff.Play(runs, signOffHosts(h, machines, c.StringSlice("without")), residents, o)
	return report, notes, err
}

// runsOf reads --runs.
func runsOf(c *cli.Context) ([]periodic.Recorded, error) {
	name := c.String("runs")
	if name == "" {
		return nil, nil
	}
	in := c.App.Reader
	if name != "-" {
		f, err := os.Open(name)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		in = f
	}
	data, err := io.ReadAll(io.LimitReader(in, periodic.MaxFile+1))
	if err != nil {
		return nil, fmt.Errorf("--runs %s: %w", name, err)
	}
	runs, err := periodic.ParseRecorded(data)
	if err != nil {
		return nil, fmt.Errorf("--runs %s: %w", name, err)
	}
	return runs, nil
}

// signOffHosts names the hosts that stay, and those that are added.
func signOffHosts(h v1.ClusterHistory, sizes []replay.Host, without []string) (out []signoff.Host) {
	var names []string
	for _, x := range h.Hosts {
		if !slices.Contains(without, x.Name) {
			names = append(names, x.Name)
		}
	}
	for i := range sizes {
		name := fmt.Sprintf("added-%d", i-len(names)+1)
		if i < len(names) {
			name = names[i]
		}
		out = append(out, signoff.Host{Name: name, CPU: sizes[i].CPU, Memory: sizes[i].Memory})
	}
	return out
}

// standing parts the virtual clusters of a history into runs that have ended, and those that run.
type standing struct {
	h       v1.ClusterHistory
	runs    []periodic.Recorded
	running []v1.HistoryVirtualCluster
	cut     int // runs that began before the history
}

func (p *standing) add(vc v1.HistoryVirtualCluster) {
	step := time.Duration(p.h.StepSeconds) * time.Second
	r := periodic.Recorded{Run: periodic.Run{Name: vc.Name, Begin: vc.CreatedAt}, Step: step.Seconds()}
	first, last := p.h.Steps, -1
	cpu, memory := make([]float64, p.h.Steps), make([]float64, p.h.Steps)
	for _, g := range vc.Groups {
		for _, vm := range g.VMs {
			r.Count++
			r.CPU, r.Memory = r.CPU+g.CPU, r.Memory+g.Memory
			for k := range p.h.Steps {
				if vm.CPU[k] != nil {
					first, last = min(first, k), max(last, k)
					cpu[k] += *vm.CPU[k]
				}
				if vm.Memory[k] != nil {
					memory[k] += *vm.Memory[k]
				}
			}
		}
	}
	switch {
	case last < 0 || last >= p.h.Steps-2: // a step may not have been measured yet
		p.running = append(p.running, vc)
		return
	case vc.CreatedAt.Before(p.h.From):
		p.cut++
		return
	}
	r.CPU, r.Memory = r.CPU/float64(r.Count), r.Memory/float64(r.Count)
	r.Started, r.End = p.h.From.Add(time.Duration(first)*step), p.h.From.Add(time.Duration(last+1)*step)
	r.Usage, r.MemoryUsage = cpu[first:last+1], memory[first:last+1]
	p.runs = append(p.runs, r)
}

// beside are the VMs that are there all the time: not those of a job, which run in its slot.
func (p *standing) beside(runs []periodic.Recorded, zone *time.Location) (out []signoff.Resident, notes []string) {
	names := map[string]bool{}
	var plain []periodic.Run
	for _, r := range runs {
		plain = append(plain, r.Run)
	}
	for _, j := range periodic.Jobs(plain, zone) {
		names[j.Name] = true
	}
	ofJobs := 0
	for _, vc := range p.running {
		if names[vc.Name] || names[periodic.Template(vc.Name)] {
			ofJobs++
			continue
		}
		for _, g := range vc.Groups {
			for _, vm := range g.VMs {
				peak, known := 0.0, false
				for _, v := range vm.CPU {
					if v != nil {
						peak, known = max(peak, *v), true
					}
				}
				if !known {
					peak = g.CPU
				}
				out = append(out, signoff.Resident{Name: vm.Name, Count: 1, CPU: math.Min(peak, g.CPU), Memory: g.Memory})
			}
		}
	}
	if ofJobs > 0 {
		notes = append(notes, fmt.Sprintf("%d virtual clusters that run are of periodic jobs: they count in their slots only", ofJobs))
	}
	if p.cut > 0 {
		notes = append(notes, fmt.Sprintf("%d virtual clusters were created before the history begins and have ended: they count as no run", p.cut))
	}
	return out, notes
}

func signOffTable(w io.Writer, r *signoff.Report) error {
	t := table.NewWriter()
	t.SetStyle(table.StyleLight)
	t.Style().Format.Footer = text.FormatDefault
	t.AppendHeader(table.Row{"job", "period", "due", "learned", "miss", "late before", "in slots", "core-h declared", "reserved", "used", "gib-h declared", "reserved", "used", "slot", "hosts"})
	var all signoff.Job
	signed := 0
	for i := range r.Jobs {
		j := &r.Jobs[i]
		due, miss, slot, hosts := "-", "-", "refused", ""
		if j.Deadline > 0 {
			due = fmt.Sprintf("%s %s", short(j.Deadline), j.Source)
		}
		if j.Miss > 0 {
			miss = fmt.Sprintf("%.1f%%", 100*j.Miss)
		}
		if j.Slot != nil {
			signed++
			slot, hosts = fmt.Sprintf("%s to %s", short(j.Slot.Start), short(j.Slot.End)), hostCounts(j.Slot.Hosts)
		}
		t.AppendRow(append(append(table.Row{j.Name, short(j.Period), due, j.Learned, miss}, amountsOf(j)...), slot, hosts))
		sum(&all, j)
	}
	t.AppendFooter(append(table.Row{"all", "", "", all.Learned, ""}, amountsOf(&all)...))
	fmt.Fprintf(w, "%d of %d jobs have a slot; %d runs are learned from, %d are played, %d of which could not be in time\n", signed, len(r.Jobs), all.Learned, all.Played, all.Unavoidable)
	fmt.Fprintln(w, t.Render())
	fmt.Fprintf(w, "The fullest step of the agenda is %.0f%% reserved. What has a slot and what runs all the time need %s as declared, %s in the agenda; there are %d.\n",
		100*r.PeakShare, hostsNeeded(r.HostsDeclared), hostsNeeded(r.HostsReserved), r.Hosts)
	for i := range r.Jobs {
		if x := r.Jobs[i].Refusal; x != nil {
			at := ""
			if x.At != nil {
				at = fmt.Sprintf(", at %s of the agenda", short(*x.At))
			}
			fits := "nothing that was tried would fit"
			if len(x.Changes) > 0 {
				fits = "would fit: " + strings.Join(x.Changes, "; or ")
			}
			fmt.Fprintf(w, "%s: %s%s; %s\n", r.Jobs[i].Name, x.Reason, at, fits)
		}
	}
	return nil
}

func amountsOf(j *signoff.Job) table.Row {
	of := func(n int) string { return fmt.Sprintf("%d of %d", n, j.Played) }
	amount := func(v float64) string {
		if v == 0 {
			return "-"
		}
		return fmt.Sprintf("%.1f", v)
	}
	return table.Row{of(j.MissedBefore), of(j.MissedAfter), amount(j.Before.CoreHours), amount(j.After.CoreHours), amount(j.Used.CoreHours),
		amount(j.Before.GiBHours), amount(j.After.GiBHours), amount(j.Used.GiBHours)}
}

func sum(all, j *signoff.Job) {
	all.Learned, all.Played, all.Unavoidable = all.Learned+j.Learned, all.Played+j.Played, all.Unavoidable+j.Unavoidable
	all.MissedBefore, all.MissedAfter = all.MissedBefore+j.MissedBefore, all.MissedAfter+j.MissedAfter
	for _, x := range []struct{ to, from *signoff.CoresAndBytes }{{&all.Before, &j.Before}, {&all.After, &j.After}, {&all.Used, &j.Used}} {
		x.to.CoreHours, x.to.GiBHours = x.to.CoreHours+x.from.CoreHours, x.to.GiBHours+x.from.GiBHours
	}
}

// short is a duration without what is zero behind its hours or minutes.
func short(seconds float64) string {
	d := (time.Duration(seconds) * time.Second).String()
	if strings.HasSuffix(d, "m0s") {
		d = strings.TrimSuffix(d, "0s")
	}
	if strings.HasSuffix(d, "h0m") {
		d = strings.TrimSuffix(d, "0m")
	}
	return d
}

// hostCounts says how many VMs each host has.
func hostCounts(hosts []string) string {
	var out []string
	for _, h := range slices.Compact(slices.Sorted(slices.Values(hosts))) {
		n := 0
		for _, x := range hosts {
			if x == h {
				n++
			}
		}
		if n == 1 {
			out = append(out, h)
		} else {
			out = append(out, fmt.Sprintf("%s (%d)", h, n))
		}
	}
	return strings.Join(out, ", ")
}

func hostsNeeded(n int) string {
	switch n {
	case 0:
		return "more than four times as many hosts (or a VM fits none)"
	case 1:
		return "1 host"
	}
	return fmt.Sprintf("%d hosts", n)
}
