package main

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/urfave/cli/v2"

	"evenkeel/sim/replay"
	"evenkeel/sim/trace"
	"evenkeel/sim/workload"
)

var workloadKinds = []string{"pace", "lublin", "swf", "azure", "openb", "google", "bitbrains", "planetlab", "recurring"}

// workloadHelp is what --workload takes.
const workloadHelp = `Workloads. An application is what is admitted as a whole, a virtual cluster; its components are VMs.
  pace        drawn: batch applications, rigid and elastic, as Pace et al. 2018 state them, as many per host and day as theirs
  lublin      drawn: parallel jobs of the Lublin-Feitelson model on as many nodes as there are hosts (11 at least), needs as Stillwell et al. 2012
  swf         a log of a parallel machine in the standard workload format: each job an application, with a component of one core per processor
  azure       VM arrivals of Azure's trace of 2017: files of arrivals and of flavours, and of lifetimes and their bins (else lives are drawn)
  openb       pods of Alibaba's trace of 2023, each an application; with the file of nodes their hosts, unless --hosts is given
  google      VM-days of Google's trace of 2011: use of CPU and memory; sizes are drawn
  bitbrains   VMs of Bitbrains: size and use of CPU and memory as measured
  planetlab   VM-days of PlanetLab: use of CPU; sizes and memory are drawn
  recurring   days of VMs of google or bitbrains as runs of daily jobs with deadlines, five minutes played in one; learned from are the first two thirds
              of the days, at least 8. Beside them VMs come one by one, as of --arrivals poisson. --periodic: so much of the load is of jobs
VMs of google, bitbrains and planetlab are there from their first measurement to their last; --arrivals poisson lets VMs like them come and go, each from a random
time of its record on. With --clock record all of them, copies too, use at each time what was used then: VMs that peaked together do. What lublin, swf, azure
and openb use of what they ask for is drawn (of VMs as Cortez et al. 2017 state of Azure's; of jobs as for pace), all of it (--use full), or as in --use FILE.
--load: of azure and openb so many are drawn from the record; gaps between jobs are stretched; of measured VMs there are fewer, or copies.`

// record is what is played of files, or drawn, in place of pace's workload.
type record struct {
	kind        string
	cut         workload.Cut
	hosts       []replay.Host
	until       float64 // seconds; 0: as the kind has it
	use         []string
	sums        []string // of all that was read
	series, did []trace.Series
	log         trace.Log
	requests    []trace.Request
	recurring   workload.Recurring
	notes       []string // of what was read
}

func (r *record) jobs() bool { return r.kind == "lublin" || r.kind == "swf" }

// measured says whether use is in the record.
func (r *record) measured() bool { return slices.Contains(measuredKinds, r.kind) }

var measuredKinds = []string{"google", "bitbrains", "planetlab", "recurring"}

// identity is all that a workload depends on, the seed apart.
func (r *record) identity() string {
	of := fmt.Sprintf("%s %+v %v %v %v %v", r.kind, r.cut, r.hosts, r.until, r.use, r.sums)
	if r.kind == "recurring" {
		of += fmt.Sprintf(" %+v", r.recurring)
	}
	return of
}

// recordOf reads what the flags name.
func recordOf(c *cli.Context, kind string, memory float64) (*record, error) {
	const day = 86400
	r := &record{kind: kind, until: c.Float64("until") * day, use: c.StringSlice("use"), cut: workload.Cut{From: c.Float64("from") * day, Span: c.Float64("days") * day,
		Load: c.Float64("load"), Apps: c.Int("apps"), Poisson: c.String("arrivals") == "poisson", Life: c.Duration("life").Seconds(),
		ByClock: c.String("clock") == "record"}}
	if r.recurring.Part = c.Float64("periodic"); kind == "recurring" {
		r.cut.Poisson = true
		if r.cut.Load == 0 {
			r.cut.Load = 1
		}
	}
	files := c.StringSlice("trace")
	if err := r.checkFlags(c, files); err != nil {
		return nil, err
	}
	if err := r.read(files); err != nil {
		return nil, err
	}
	if err := r.readUse(); err != nil {
		return nil, err
	}
	r.equip(c, memory)
	for _, h := range r.hosts {
		r.cut.Hosts = append(r.cut.Hosts, workload.Room(h))
	}
	return r, nil
}

// checkFlags checks that the flags fit each other and the kind of the record.
func (r *record) checkFlags(c *cli.Context, files []string) error {
	if err := r.checkArrivals(c); err != nil {
		return err
	}
	switch {
	case c.Bool("rigid"):
		return fmt.Errorf("--rigid: %s has no elastic components", r.kind)
	case c.IsSet("sampled"):
		return fmt.Errorf("--sampled: only pace draws how fast memory changes, not %s", r.kind)
	case r.kind == "lublin" && len(files) > 0:
		return errors.New("--trace: lublin is drawn")
	case r.kind == "lublin" && (c.IsSet("days") || c.IsSet("from")):
		return errors.New("--days, --from: lublin has so many --apps, and takes as long as they do")
	case r.kind != "lublin" && len(files) == 0:
		return fmt.Errorf("--trace FILE: which files hold the %s record?", r.kind)
	case r.measured() && c.IsSet("use"):
		return fmt.Errorf("--use: %s has use of its own", r.kind)
	case len(r.use) == 0:
		return errors.New("--use: drawn, full or files")
	}
	return nil
}

// checkArrivals checks when applications come, and by which clock they use what they do.
func (r *record) checkArrivals(c *cli.Context) error {
	switch arrivals := c.String("arrivals"); {
	case arrivals != "recorded" && arrivals != "poisson":
		return fmt.Errorf("--arrivals %s: must be recorded or poisson", arrivals)
	case c.String("clock") != "own" && c.String("clock") != "record":
		return fmt.Errorf("--clock %s: must be own or record", c.String("clock"))
	case r.cut.ByClock && (!r.measured() || r.kind == "recurring"):
		return errors.New("--clock record: google, bitbrains and planetlab are played by the clock of their records, and no others")
	case (r.cut.Poisson || r.cut.Life > 0) && !r.measured():
		return fmt.Errorf("--arrivals and --life: %s has arrivals and lives", r.kind)
	case r.cut.Life > 0 && !r.cut.Poisson:
		return errors.New("--life: only Poisson arrivals have one")
	case r.kind == "recurring" && (c.IsSet("arrivals") || c.IsSet("from") || c.IsSet("apps")):
		return errors.New("--arrivals, --from, --apps: recurring has Poisson arrivals beside its jobs, learns from the first days, and has a load")
	case r.kind != "recurring" && c.IsSet("periodic"):
		return fmt.Errorf("--periodic: %s has no periodic jobs", r.kind)
	case !(r.recurring.Part > 0 && r.recurring.Part < 1):
		return errors.New("--periodic: must be above 0 and below 1")
	}
	return nil
}

// readUse reads the files that say what is used where the record does not.
func (r *record) readUse() error {
	use := r.use[0]
	if r.measured() || use == "drawn" || use == "full" {
		if len(r.use) > 1 {
			return fmt.Errorf("--use %s stands alone", use)
		}
		return nil
	}
	d, err := trace.Load(trace.Options{}, sources(r.use)...)
	if err != nil {
		return fmt.Errorf("--use: %w", err)
	}
	r.did = d.Series
	return r.sum(r.use)
}

// equip says which hosts there are: those of the record where no others are asked for.
func (r *record) equip(c *cli.Context, memory float64) {
	n, cores := c.Int("hosts"), c.Float64("cores")
	if len(r.hosts) > 0 && !c.IsSet("hosts") && !c.IsSet("cores") && !c.IsSet("memory") {
		return
	}
	if r.kind == "swf" && !c.IsSet("hosts") && r.log.Processors+r.log.Nodes > 0 {
		n = max(1, int(math.Ceil(float64(max(r.log.Processors, r.log.Nodes))/cores)))
	}
	r.hosts = slices.Repeat([]replay.Host{{CPU: cores, Memory: memory}}, n)
}

func source(file string) trace.Source {
	return trace.Source{FS: os.DirFS(filepath.Dir(file)), Name: filepath.Base(file)}
}

func sources(files []string) (all []trace.Source) {
	for _, f := range files {
		all = append(all, source(f))
	}
	return all
}

// sum notes which files were read.
func (r *record) sum(files []string) error {
	for _, name := range files {
		err := filepath.WalkDir(name, func(path string, d os.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			f, err := os.Open(path)
			if err != nil {
				return err
			}
			defer f.Close()
			h := sha256.New()
			if _, err := io.Copy(h, f); err != nil {
				return err
			}
			r.sums = append(r.sums, fmt.Sprintf("%x", h.Sum(nil)[:8]))
			return nil
		})
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

// read reads the files of a record.
func (r *record) read(files []string) (err error) {
	o := trace.Options{MaxLength: 1 << 22}
	switch r.kind {
	case "lublin":
		return nil
	case "swf":
		if len(files) != 1 {
			return errors.New("--trace: swf is one file")
		}
		if r.log, err = trace.LoadSWF(o, source(files[0])); err != nil {
			return err
		}
		r.notes = r.log.Notes
	case "azure":
		if r.requests, err = readAzure(o, files); err != nil {
			return err
		}
	case "openb":
		if err = r.readOpenB(o, files); err != nil {
			return err
		}
	default:
		format := map[string]trace.Format{"google": trace.Google2011, "bitbrains": trace.Bitbrains, "planetlab": trace.PlanetLab}[r.kind]
		d, err := trace.Load(trace.Options{Format: format}, sources(files)...)
		if err != nil {
			return err
		}
		r.series = d.Series
		if n := len(d.Notes); n > 0 {
			r.notes = append(r.notes, fmt.Sprintf("%d notes of files that were left out or mended, the first: %s", n, d.Notes[0]))
		}
	}
	return r.sum(files)
}

// readAzure distinguishes the files by their first lines.
func readAzure(o trace.Options, files []string) ([]trace.Request, error) {
	var a trace.AzureFiles
	roles := map[string]trace.Source{}
	for _, f := range files {
		line, err := firstLine(f)
		if err != nil {
			return nil, err
		}
		role := azureRole(line)
		if role == "" {
			return nil, fmt.Errorf("%s: neither arrivals, flavours, lifetimes nor their bins", f)
		}
		if _, twice := roles[role]; twice {
			return nil, fmt.Errorf("%s: there are %s already", f, role)
		}
		roles[role] = source(f)
	}
	var ok [2]bool
	a.Arrivals, ok[0] = roles["arrivals"]
	a.Flavours, ok[1] = roles["flavours"]
	if !ok[0] || !ok[1] {
		return nil, errors.New("--trace: azure wants a file of arrivals and one of flavours, and may have lifetimes and their bins")
	}
	if s, ok := roles["lifetimes"]; ok {
		a.Lifetimes = &s
	}
	if s, ok := roles["bins"]; ok {
		a.Bins = &s
	}
	return trace.LoadAzure(o, a)
}

// azureRole is what a file is that begins with that line: "1,1.75 b", "0 0", "300 g,|,..." or "300 U4,|,...".
func azureRole(line string) string {
	when, list, _ := strings.Cut(strings.TrimSpace(line), " ")
	if cores, gb, ok := strings.Cut(when, ","); ok && numeric(cores) && numeric(gb) && list != "" {
		return "flavours"
	}
	if !numeric(when) || list == "" {
		return ""
	}
	if numeric(strings.TrimSpace(list)) {
		return "bins"
	}
	for _, arg := range strings.Split(list, ",") {
		switch arg = strings.TrimSpace(arg); {
		case arg == "|" || arg == "":
		case len(arg) > 1 && (arg[0] == 'U' || arg[0] == 'C') && numeric(arg[1:]):
			return "lifetimes"
		default:
			return "arrivals"
		}
	}
	return ""
}

func numeric(s string) bool {
	v, err := strconv.ParseFloat(s, 64)
	return err == nil && v >= 0
}

func (r *record) readOpenB(o trace.Options, files []string) error {
	var pods, nodes *trace.Source
	for _, f := range files {
		line, err := firstLine(f)
		if err != nil {
			return err
		}
		s := source(f)
		into := &pods
		if strings.HasPrefix(line, "sn,") {
			into = &nodes
		}
		if *into != nil {
			return fmt.Errorf("%s: there is another such file already", f)
		}
		*into = &s
	}
	if pods == nil {
		return errors.New("--trace: openb wants the file of pods, and may have that of nodes")
	}
	requests, machines, err := trace.LoadOpenB(o, pods, nodes)
	if err != nil {
		return err
	}
	r.requests = requests
	for _, m := range machines {
		r.hosts = append(r.hosts, replay.Host{CPU: m.CPU, Memory: m.Memory})
	}
	return nil
}

// firstLine of a file, packed or not, as much of it as matters.
func firstLine(file string) (string, error) {
	f, err := os.Open(file)
	if err != nil {
		return "", err
	}
	defer f.Close()
	b := bufio.NewReader(f)
	in := io.Reader(b)
	if head, _ := b.Peek(2); bytes.Equal(head, []byte{0x1f, 0x8b}) {
		if in, err = gzip.NewReader(b); err != nil {
			return "", fmt.Errorf("%s: %w", file, err)
		}
	}
	head := make([]byte, 4096)
	n, err := io.ReadFull(in, head)
	if err != nil && err != io.EOF && err != io.ErrUnexpectedEOF {
		return "", fmt.Errorf("%s: %w", file, err)
	}
	line, _, _ := strings.Cut(string(head[:n]), "\n")
	return line, nil
}

// uses are what is used of what is asked for.
func (r *record) uses(seed uint64) (*workload.Uses, error) {
	switch {
	case r.did != nil:
		return workload.MeasuredUses(r.did, seed)
	case r.use[0] == "full":
		return workload.FullUse(), nil
	case r.jobs():
		return workload.BatchUses(seed), nil
	}
	return workload.ServiceUses(seed), nil
}

// lublinJobs are drawn where no number is given.
const lublinJobs = 1000

// draw makes the workload.
func (r *record) draw(seed uint64) (*playing, error) {
	cut := r.cut
	cut.Seed = seed
	p := &playing{hosts: r.hosts, until: r.until, endless: r.measured() && !cut.Poisson}
	u, err := r.uses(seed)
	if err != nil {
		return nil, err
	}
	var span float64
	var notes []string
	switch r.kind {
	case "lublin":
		n := cut.Apps
		if n == 0 {
			n = lublinJobs
		}
		jobs, err := workload.NewLublin(len(r.hosts)).Draw(seed, n)
		if err != nil {
			return nil, err
		}
		workload.DrawNeeds(seed, jobs)
		p.w, span, notes, err = workload.ParallelJobs(jobs, u, cut)
		if err != nil {
			return nil, err
		}
	case "swf":
		p.w, span, notes, err = workload.ParallelLog(r.log.Jobs, u, cut)
	case "azure", "openb":
		p.w, span, notes, err = workload.Requested(r.requests, u, cut)
	case "recurring":
		p.w, span, notes, err = workload.Recurrent(r.series, r.recurring, cut)
	default:
		p.w, span, notes, err = workload.Measured(r.series, cut)
	}
	if err != nil {
		return nil, fmt.Errorf("--workload %s: %w", r.kind, err)
	}
	if p.until == 0 {
		p.until = span
		if r.jobs() {
			p.until = 4 * span
		}
	}
	p.notes = append(slices.Clone(r.notes), notes...)
	switch {
	case r.measured():
	case r.did != nil:
		p.notes = append(p.notes, fmt.Sprintf("what is used is as that of %d series of --use; where these have no memory it is drawn", len(r.did)))
	case r.use[0] == "full":
		p.notes = append(p.notes, "all that is asked for is used, all the time")
	default:
		p.notes = append(p.notes, "what is used is drawn: the record has only what was asked for")
	}
	p.notes = append(p.notes, fmt.Sprintf("%d applications arrive in %.3g days; the run ends after %.3g", len(p.w.Apps), span/86400, p.until/86400))
	return p, nil
}
