package main

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/urfave/cli/v2"

	"evenkeel/api/v1"
	"evenkeel/cluster/state"
	"evenkeel/sim/replay"
	"evenkeel/sim/workload"
)

func runCommand() *cli.Command {
	return &cli.Command{
		Name:      "run",
		Usage:     "play a workload on simulated hosts under several policies, side by side",
		UsageText: "vcsim run [--workload KIND] [--trace FILE...] --policy NAME... [--hosts N --cores C --memory SIZE] [--days D] [--seed S...]",
		Description: `A workload is drawn, or taken from what others recorded, and played under each policy: when what arrives can start, what it gets, what it is short
of, who has to go. Decisions are those of the production allocator and forecasts; hosts are simulated. Equal flags and files give equal results to the
last byte.

  vcsim run --policy reservation,optimistic,pessimistic
  vcsim run --policy reservation,pessimistic:last:0.05:3,evenkeel --hosts 4 --days 3
  vcsim run --workload bitbrains --trace rnd-2013-07.tar.gz --hosts 8 --load 1.2 --policy reservation,flex,ha,evenkeel
  vcsim run --workload recurring --trace google2011.tar.gz --load 1.2 --policy reservation,flexf,easy,morpheus
  vcsim run --workload swf --trace KTH-SP2.swf.gz --policy fcfs,easy,reservation,evenkeel --seed 1,2,3 --svg plots

` + workloadHelp + `
With --keep DIR each run that ends is written down there, and not run again: what was broken off goes on.

How to read the table (-o json has more, -o series hour by hour, -o apps each application). With several seeds: means over them. -: there is no such
figure, for none ended, or none started.
  STARTED      applications that were started. ENDED: and that ended before the run did; only they have a turnaround and a stretch.
  TURNAROUND   from arrival to end, mean. WAIT: to the first start. STRETCH: turnaround over the time it would have taken at full speed, median.
  SLACK        allocated and not used, of what was asked for. Lower is better, down to where something fails.
  FAILED       applications that lost their work because memory ran out, at least once; HURT: or a part of it. REQUEUED: because the policy took it all back.
  QOS          share of component-minutes that got the CPU they wanted, or their request.
  USED         of all hosts' CPU and memory, mean over time.
  YIELD        least of all applications, and mean: CPU they got over CPU they would have used.
  MOVED        bytes of memory sent by live migration.
  THRASH       work that was thrown away, of all that was done.
Where applications have deadlines (recurring):
  MISSED       of the deadlines until the end of the run. OTHERS: applications without one that were started, and that ended; CORE-H: the core-hours that
               those that ended had asked for; WAIT: their wait, mean, of those that did not start to the end of the run.
` + "\n" + policyHelp,
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "workload", Aliases: []string{"w"}, Usage: "`" + strings.Join(workloadKinds, "|") + "`", Value: "pace"},
			&cli.StringSliceFlag{Name: "trace", Usage: "the record that is played, `FILE`, a folder, archive or file; several may follow each other"},
			&cli.StringSliceFlag{Name: "use", Usage: "what is used where the record does not say: `drawn|full|FILE`, files as those of bitbrains, google and planetlab", Value: cli.NewStringSlice("drawn")},
			&cli.StringSliceFlag{Name: "policy", Aliases: []string{"p"}, Usage: "`NAMES`, with commas between", Value: cli.NewStringSlice("reservation", "optimistic", "pessimistic")},
			&cli.IntFlag{Name: "hosts", Usage: "`N` equal hosts (swf, openb: default as in the record)", Value: 10},
			&cli.Float64Flag{Name: "cores", Usage: "`C` of each host", Value: 32},
			&cli.StringFlag{Name: "memory", Usage: "`SIZE` of each host's memory (default 128 GB)"},
			&cli.Float64Flag{Name: "days", Usage: "`D` in which all arrive (pace), or that are played of the record (0: pace 10, others at most 7)"},
			&cli.Float64Flag{Name: "from", Usage: "the record from day `D` on"},
			&cli.Float64Flag{Name: "until", Usage: "the run ends after `D` days (0: pace when all is done; jobs likewise, but at most after four times the days played; others after these)"},
			&cli.IntFlag{Name: "apps", Usage: "`N` applications, whatever the load (0: as the load says; pace: as many per host and day as the paper; lublin: 1000)"},
			&cli.Float64Flag{Name: "load", Usage: "`X` times as much is asked for as there is (0: pace 1.3, others as recorded)"},
			&cli.StringFlag{Name: "clock", Usage: "VMs go through their records each from a time of its own on, or all at the time that it is: `own|record`", Value: "own"},
			&cli.StringFlag{Name: "arrivals", Usage: "of VMs of which only use is known: `recorded|poisson`", Value: "recorded"},
			&cli.DurationFlag{Name: "life", Usage: "with Poisson arrivals lives are `TIME` on average (0: an eighth of the days)"},
			&cli.Float64Flag{Name: "periodic", Usage: "recurring: this `PART` of the load is of periodic jobs", Value: 0.5},
			&cli.BoolFlag{Name: "rigid", Usage: "pace: no application has elastic components"},
			&cli.DurationFlag{Name: "sampled", Usage: "pace: memory use changes every `TIME` at most, as a trace with such samples can show (0: all of its shape passes in each life)"},
			&cli.StringSliceFlag{Name: "seed", Usage: "`S` of all that is drawn; several, with commas between, are played one after the other", Value: cli.NewStringSlice("1")},
			&cli.DurationFlag{Name: "tick", Usage: "measure and shape every `TIME` (0: a minute; where use is in steps of five minutes, five)"},
			&cli.StringFlag{Name: "keep", Usage: "keep each run's result in `DIR`, and take it from there"},
			&cli.StringFlag{Name: "svg", Usage: "draw the figures into `DIR`"},
			&cli.StringFlag{Name: "output", Aliases: []string{"o"}, Usage: "`table|json|csv|series|apps`", Value: "table"},
		},
		Action: func(c *cli.Context) error {
			o, seeds, err := runOptionsOf(c)
			if err != nil {
				return cli.Exit(err.Error(), 2)
			}
			ctx, stop := signal.NotifyContext(c.Context, os.Interrupt, syscall.SIGTERM)
			defer stop()
			return o.side(ctx, c, seeds)
		},
	}
}

// runOptions are the workload and the policies of a run, and where its results are kept.
type runOptions struct {
	pace     workload.Pace
	record   *record // nil: pace
	policies []string
	seed     uint64
	tick     float64
	keep     string
}

// playing is a workload and what it is played on.
type playing struct {
	w       *workload.Workload
	hosts   []replay.Host
	until   float64 // seconds; 0: when all is done
	endless bool    // VMs that are there all along
	notes   []string
}

func runOptionsOf(c *cli.Context) (runOptions, []uint64, error) {
	o := runOptions{policies: namedPolicies(c.StringSlice("policy")), tick: c.Duration("tick").Seconds(), keep: c.String("keep")}
	memory := v1.Size(workload.PaceDefault.Memory)
	if text := c.String("memory"); text != "" {
		var err error
		if memory, err = v1.ParseSize(text); err != nil {
			return o, nil, fmt.Errorf("--memory: %w", err)
		}
	}
	seeds, err := seedsOf(c.StringSlice("seed"))
	if err != nil {
		return o, nil, err
	}
	if err := checkRunFlags(c, memory); err != nil {
		return o, nil, err
	}
	if kind := c.String("workload"); kind == "pace" {
		o.pace, err = paceOfFlags(c, memory)
	} else {
		o.record, err = recordOf(c, kind, float64(memory))
	}
	if err != nil {
		return o, nil, err
	}
	if o.tick == 0 {
		o.tick = 60
		if o.record != nil && !o.record.jobs() && o.record.kind != "recurring" {
			o.tick = 300
		}
	}
	for _, p := range o.policies {
		if _, err := o.policy(p, nil); err != nil {
			return o, nil, err
		}
	}
	return o, seeds, nil
}

// checkRunFlags checks the flags that every workload has.
func checkRunFlags(c *cli.Context, memory v1.Size) error {
	kind, hosts, apps, cores, load := c.String("workload"), c.Int("hosts"), c.Int("apps"), c.Float64("cores"), c.Float64("load")
	tick := c.Duration("tick").Seconds()
	switch {
	case c.Args().Present():
		return fmt.Errorf("%q: which flag is it for?", c.Args().First())
	case !slices.Contains(workloadKinds, kind):
		return fmt.Errorf("--workload %s: must be %s", kind, strings.Join(workloadKinds, ", "))
	case hosts < 1 || hosts > 1e5 || apps < 0 || apps > 1e8 || !(cores > 0 && cores <= 1e6) || !(memory > 0 && memory < 1<<55):
		return errors.New("hosts must be 1 to 100,000, with cores and memory above 0; apps 0 to 100,000,000")
	case !(load >= 0 && load <= 1000) || !inDays(c.Float64("days")) || !inDays(c.Float64("from")) || !inDays(c.Float64("until")) || c.Duration("life") < 0:
		return errors.New("load must be 0 to 1,000; days, from and until 0 to 36,500; life not below 0")
	case c.Duration("sampled") < 0 || c.Duration("sampled") > 24*time.Hour:
		return errors.New("sampled must be from 0 to a day")
	case tick != 0 && !(tick >= 1 && tick <= 86400):
		return errors.New("tick must be from 1 s to a day")
	case !slices.Contains([]string{"table", "json", "csv", "series", "apps"}, c.String("output")):
		return fmt.Errorf("-o %s: must be table, json, csv, series or apps", c.String("output"))
	}
	return nil
}

// paceOfFlags is Pace's workload as the flags have it.
func paceOfFlags(c *cli.Context, memory v1.Size) (workload.Pace, error) {
	for _, f := range []string{"trace", "use", "from", "arrivals", "clock", "life", "until", "periodic"} {
		if c.IsSet(f) {
			return workload.Pace{}, fmt.Errorf("--%s: pace draws all, and plays it to its end", f)
		}
	}
	days, load := c.Float64("days"), c.Float64("load")
	if days == 0 {
		days = 10
	}
	if load == 0 {
		load = workload.PaceDefault.Load
	}
	p := paceOf(c.Int("hosts"), c.Int("apps"), days, load)
	p.CPU, p.Memory, p.Sampled = c.Float64("cores"), float64(memory), c.Duration("sampled").Seconds()
	if c.Bool("rigid") {
		p.Elastic = 0
	}
	if p.Apps < 1 {
		return p, errors.New("that is less than one application: more hosts, days or apps")
	}
	return p, nil
}

func inDays(d float64) bool { return d >= 0 && d <= 36500 }

// paceOf is Pace's workload on so many hosts, in so many days. apps 0: as many per host and day as in the paper.
func paceOf(hosts, apps int, days, load float64) workload.Pace {
	p := workload.PaceDefault
	if apps == 0 {
		apps = int(float64(p.Apps) * float64(hosts) / float64(p.Hosts) * days / p.Days)
	}
	p = p.Scaled(hosts, apps, days)
	p.Load = load
	return p
}

// side plays all policies with all seeds, and writes what came of it.
func (o runOptions) side(ctx context.Context, c *cli.Context, seeds []uint64) error {
	// Check first that all policies can play all workloads, so that no run is in vain.
	for i, seed := range seeds {
		if o.seed = seed; o.record == nil && i > 0 {
			break
		}
		p, err := o.checked()
		if err != nil {
			return cli.Exit(err.Error(), 2)
		}
		if i > 0 || p == nil {
			continue
		}
		for _, n := range p.notes {
			fmt.Fprintln(c.App.ErrWriter, "vcsim:", n)
		}
	}
	kind := "pace"
	if o.record != nil {
		kind = o.record.kind
	}
	var all []outcome
	for _, seed := range seeds {
		o.seed = seed
		results, err := o.run(ctx, c.App.ErrWriter)
		if err != nil {
			return err
		}
		for _, r := range results {
			all = append(all, outcome{Workload: kind, Seed: seed, Result: r})
		}
	}
	if dir := c.String("svg"); dir != "" {
		if err := drawRuns(dir, all); err != nil {
			return err
		}
	}
	return writeOutcomes(c.App.Writer, c.String("output"), all)
}

// checked draws the workload and checks that all policies can play it. It checks a workload of pace
// without drawing it, and returns nil.
func (o runOptions) checked() (*playing, error) {
	if o.record == nil {
		for _, name := range o.policies {
			if err := playsPace(name, o.pace); err != nil {
				return nil, err
			}
		}
		return nil, nil
	}
	p, err := o.draw()
	if err != nil {
		return nil, err
	}
	for _, name := range o.policies {
		if err := p.playable(name); err != nil {
			return nil, err
		}
	}
	return p, nil
}

// draw makes the workload.
func (o runOptions) draw() (*playing, error) {
	if o.record != nil {
		return o.record.draw(o.seed)
	}
	w, err := o.pace.Draw(rand.New(rand.NewPCG(o.seed, 0)))
	if err != nil {
		return nil, err
	}
	return o.paces(w), nil
}

// paces is a workload of pace on the hosts that it was drawn for.
func (o runOptions) paces(w *workload.Workload) *playing {
	return &playing{w: w, hosts: slices.Repeat([]replay.Host{{CPU: o.pace.CPU, Memory: o.pace.Memory}}, o.pace.Hosts)}
}

// run plays all policies, one after the other.
func (o runOptions) run(ctx context.Context, say io.Writer) ([]*replay.Result, error) {
	var p *playing
	var results []*replay.Result
	for _, name := range o.policies {
		r, err := o.kept(name)
		if err != nil {
			return nil, err
		}
		if r == nil {
			if p == nil {
				if p, err = o.draw(); err != nil {
					return nil, err
				}
			}
			if r, err = o.play(ctx, say, p, name); err != nil {
				return nil, err
			}
		}
		results = append(results, r)
	}
	return results, nil
}

// one plays a workload of Pace under one policy.
func (o runOptions) one(ctx context.Context, say io.Writer, w *workload.Workload, name string) (*replay.Result, error) {
	return o.play(ctx, say, o.paces(w), name)
}

func (o runOptions) play(ctx context.Context, say io.Writer, on *playing, name string) (*replay.Result, error) {
	p, err := o.policy(name, on.hosts)
	if err != nil {
		return nil, err
	}
	var done atomic.Int64
	apps := int64(len(on.w.Apps))
	all, far := apps, func(ended int) { done.Store(int64(ended)) }
	if on.until > 0 { // what is left is time, not applications
		all = int64(on.until)
		p, far = &timedPolicy{Policy: p, done: &done}, nil
	}
	stop := showProgress(say, &done, all, fmt.Sprintf("%d applications, %s", apps, name))
	r, err := replay.Run(on.w, on.hosts, p, replay.Options{Tick: o.tick, Until: on.until, Progress: far, Stop: func() bool { return ctx.Err() != nil }})
	stop()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return r, o.write(name, r)
}

// policy of that name, as it is played at ticks of o.
func (o runOptions) policy(name string, hosts []replay.Host) (replay.Policy, error) {
	if !isSetting(name) {
		return policyOn(name, hosts)
	}
	p, err := settingsNamed(name, o.tick, nil)
	if err != nil {
		return nil, err
	}
	return withMoves(p, state.MoveSettings{}), nil
}

// timedPolicy says how far the time of a run is.
type timedPolicy struct {
	replay.Policy
	done *atomic.Int64
}

func (t *timedPolicy) Rightsize(c *replay.Cluster) {
	t.done.Store(int64(c.Now))
	t.Policy.Rightsize(c)
}

// Agenda of the policy, if it has one.
func (t *timedPolicy) Agenda() *replay.AgendaOutcome {
	if p, ok := t.Policy.(*replay.Morpheus); ok {
		return p.Agenda()
	}
	return nil
}

// place is the file that a run is kept in: its name says all that the result depends on.
func (o runOptions) place(policy string) string {
	what := fmt.Sprintf("1 %+v %d %v %s", o.pace, o.seed, o.tick, policy)
	if o.record != nil {
		what = fmt.Sprintf("2 %s %d %v %s", o.record.identity(), o.seed, o.tick, policy)
	}
	sum := sha256.Sum256([]byte(what))
	return filepath.Join(o.keep, fmt.Sprintf("run-%x.json", sum[:8]))
}

// kept is the result of a run that was kept; nil: there is none.
func (o runOptions) kept(policy string) (*replay.Result, error) {
	if o.keep == "" {
		return nil, nil
	}
	b, err := os.ReadFile(o.place(policy))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read a kept run: %w", err)
	}
	r := new(replay.Result)
	if err := json.Unmarshal(b, r); err != nil {
		return nil, fmt.Errorf("%s: %w; remove it to run it again", o.place(policy), err)
	}
	return r, nil
}

func (o runOptions) write(policy string, r *replay.Result) error {
	if o.keep == "" {
		return nil
	}
	b, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("keep a run: %w", err)
	}
	if err := os.MkdirAll(o.keep, 0o755); err != nil {
		return fmt.Errorf("keep a run: %w", err)
	}
	file := o.place(policy)
	if err := os.WriteFile(file+".new", b, 0o644); err != nil { // whole or not at all
		return fmt.Errorf("keep a run: %w", err)
	}
	if err := os.Rename(file+".new", file); err != nil {
		return fmt.Errorf("keep a run: %w", err)
	}
	return nil
}
