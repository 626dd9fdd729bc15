package manyhosts

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"runtime/pprof"
	"sync"
	"syscall"
	"time"

	"evenkeel/api/client"
	"evenkeel/api/server"
	"evenkeel/api/v1"
	"evenkeel/cluster/member"
	"evenkeel/hypervisor/simulated"
)

// Options of a run.
type Options struct {
	Dir     string // for all files; empty or not there
	Profile string // directory for profiles of the servers and hosts, "" = none
	Servers int
	Hosts   int
	VMs     int     // that run throughout
	Largest int     // virtual clusters of 1 to so many VMs among them
	CPU     float64 // mean need of a VM, cores
	Seed    uint64

	Steady      time.Duration // of the measurement without requests
	Rate        float64       // virtual clusters a second
	During      time.Duration
	Life        time.Duration // after which each of these is deleted; 0: when all were asked for
	After       time.Duration // measure memory once more so long after all of these were deleted; 0: not
	Small       int           // virtual clusters of 1 to so many VMs under load
	Clients     int
	Tenants     int // that the VMs that run throughout belong to; 0: the tenant default
	SampleEvery time.Duration
	// Nice is the nice value of the hosts while requests are offered, 0 to 19, so that servers and clients run first. In a
	// real cluster hosts have CPUs of their own.
	Nice     int
	Progress io.Writer // what happens meanwhile, for people
	// Serve, if set, is called instead of the measurements once all VMs run; the cluster ends when it returns.
	Serve func(context.Context, Cluster) error
}

// Cluster is what runs: where its API answers, and to whom.
type Cluster struct {
	Servers []string `json:"servers"` // host:port
	Token   string   `json:"token"`   // of an admin
	CAFile  string   `json:"caFile"`
}

type bench struct {
	o       Options
	f       Measurements
	token   string
	servers []*process
	world   *simulated.World
	all     []*client.Client
	agents  sync.WaitGroup
	stop    context.CancelFunc
}

// Run the measurement.
func Run(ctx context.Context, o Options) (f *Measurements, err error) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	if o.Profile != "" {
		if err := os.MkdirAll(o.Profile, 0o755); err != nil {
			return nil, fmt.Errorf("directory for profiles: %w", err)
		}
	}
	b := &bench{o: o, stop: stop}
	defer func() {
		stop()
		b.agents.Wait()
		for _, p := range b.servers {
			if e := p.end(syscall.SIGTERM); e != nil && err == nil {
				err = fmt.Errorf("server %s: %w", p.name, e)
			}
		}
		if b.world != nil {
			err = errors.Join(err, b.world.Close())
		}
	}()
	debug.SetGCPercent(400) // what the agents of all hosts share here each would have for itself
	b.f.Machine.Cores, b.f.Machine.Go = runtime.NumCPU(), runtime.Version()
	b.f.Servers, b.f.Hosts, b.f.Nice, b.f.Life = o.Servers, o.Hosts, o.Nice, o.Life.Seconds()
	type step struct {
		name string
		do   func(context.Context) error
	}
	steps := []step{{"servers", b.startServers}, {"hosts", b.startHosts}, {"fill", b.fill}}
	if o.Serve != nil {
		steps = append(steps, step{"serve", func(ctx context.Context) error {
			return o.Serve(ctx, Cluster{Servers: b.addresses(), Token: b.token, CAFile: b.caFile()})
		}})
	} else {
		steps = append(steps, step{"steady state", b.steady}, step{"load", b.load}, step{"rest", b.rest}, step{"restarts", b.restarts})
	}
	for _, step := range steps {
		b.say("%s", step.name)
		if err := step.do(ctx); err != nil {
			return &b.f, fmt.Errorf("%s: %w", step.name, err)
		}
	}
	b.f.Doubled = b.world.Audit().Doubled
	return &b.f, nil
}

func (b *bench) say(format string, args ...any) {
	fmt.Fprintf(b.o.Progress, time.Now().Format("15:04:05 ")+format+"\n", args...)
}

func (b *bench) addresses() (out []string) {
	for _, p := range b.servers {
		out = append(out, p.listen)
	}
	return out
}

// free address on loopback.
func free() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return l.Addr().String(), l.Close()
}

func (b *bench) startServers(ctx context.Context) error {
	b.token, _ = server.NewToken()
	for i := range b.o.Servers {
		p := &process{name: fmt.Sprintf("s%d", i+1), dir: filepath.Join(b.o.Dir, fmt.Sprintf("s%d", i+1))}
		var err error
		if p.listen, err = free(); err != nil {
			return err
		}
		if p.gossip, err = free(); err != nil {
			return err
		}
		token := b.token
		if i == 0 {
			_, err = member.Init(p.dir, p.name, p.listen, false)
		} else {
			token = ""
			var t v1.JoinToken
			if t, err = b.all[0].MakeJoinToken(ctx, v1.JoinTokenRequest{Server: true}); err == nil {
				_, err = member.Join(ctx, p.dir, p.name, p.listen, member.JoinOptions{Token: t.Token, Addresses: b.addresses()})
			}
		}
		if err != nil {
			return err
		}
		b.servers = append(b.servers, p)
		if err := p.start(ctx, token); err != nil {
			return err
		}
		if i == 0 {
			if b.all, err = clients(1, b.addresses(), b.token, filepath.Join(p.dir, "pki", "ca.pem")); err != nil {
				return err
			}
		}
	}
	voters := func() bool {
		s, err := b.all[0].Status(ctx)
		n := 0
		for _, m := range s.Members {
			if m.Voter {
				n++
			}
		}
		return err == nil && n == b.o.Servers
	}
	if err := until(ctx, time.Minute, "all servers vote", voters); err != nil {
		return err
	}
	for _, img := range []v1.ImageSpec{{Name: "tiny", Kind: "kernel", File: "/simulated/vmlinuz"}} {
		if _, err := b.all[0].AddImage(ctx, img); err != nil {
			return err
		}
	}
	var err error
	b.all, err = clients(b.o.Clients, b.addresses(), b.token, b.caFile())
	return err
}

// caFile of the cluster, as the first server has it.
func (b *bench) caFile() string { return filepath.Join(b.servers[0].dir, "pki", "ca.pem") }

func (b *bench) startHosts(ctx context.Context) error {
	var err error
	if b.world, err = simulated.New(simulated.Options{Hosts: b.o.Hosts, Seed: b.o.Seed}); err != nil {
		return err
	}
	dir := filepath.Join(b.o.Dir, "hosts")
	begin := time.Now()
	if err := join(ctx, b.all[0], dir, b.world.Hosts(), b.addresses()); err != nil {
		return err
	}
	b.f.JoinIn = time.Since(begin).Seconds()
	b.say("%d hosts joined in %.1f s", b.o.Hosts, b.f.JoinIn)
	if err := b.startAgents(ctx, dir); err != nil {
		return err
	}
	return until(ctx, 5*time.Minute, "all hosts are ready", func() bool {
		s, err := b.all[0].Status(ctx)
		return err == nil && s.Hosts["ready"] == b.o.Hosts
	})
}

func (b *bench) fill(ctx context.Context) error {
	begin := time.Now()
	err := b.profiled("fill", func() error {
		_, err := b.fillUp(ctx)
		return err
	})
	b.f.FillIn = time.Since(begin).Seconds()
	return err
}

func (b *bench) fillUp(ctx context.Context) (int, error) {
	begin := time.Now()
	tenants, err := makeTenants(ctx, b.all[0], b.o.Tenants)
	if err != nil {
		return 0, err
	}
	n, err := fill(ctx, b.all, tenants, filling{vms: b.o.VMs, largest: b.o.Largest, cpu: b.o.CPU, seed: b.o.Seed})
	if err != nil {
		return n, err
	}
	b.f.VMs = n
	b.say("%d VMs admitted in %.1f s", n, time.Since(begin).Seconds())
	return n, until(ctx, 10*time.Minute, "all VMs run", func() bool {
		s, err := b.all[0].Status(ctx)
		if err != nil || s.VMs.Running < n {
			time.Sleep(time.Second) // sleep: the question is a costly one
			return false
		}
		return true
	})
}

// leader that leads now.
func (b *bench) leader() (*process, error) {
	for _, p := range b.servers {
		if p.cmd == nil {
			continue
		}
		if here, err := p.ask("leads"); err != nil {
			return nil, err
		} else if here == "true" {
			return p, nil
		}
	}
	return nil, errors.New("no server leads")
}

// look is what a measurement begins and ends with.
type look struct {
	by        map[string]usage
	busy, all time.Duration
	at        time.Time
	index     uint64
}

func (b *bench) look() (l look, err error) {
	l = look{by: map[string]usage{}, at: time.Now()}
	l.busy, l.all = spent()
	for _, p := range b.servers {
		if l.by[p.name], err = usageOf(p.cmd.Process.Pid); err != nil {
			return l, err
		}
	}
	if l.by[hosts], err = usageOf(os.Getpid()); err != nil {
		return l, err
	}
	lead, err := b.leader()
	if err == nil {
		l.index, err = lead.index()
	}
	return l, err
}

// The processes besides the servers, in figures: this one, and the one that asks.
const (
	hosts  = "hosts"
	askers = "clients"
)

// between two looks: CPU by process in percent of a core, that of all others in percent of the machine,
// entries of the log per second.
func between(a, z look) (cpu map[string]float64, others, entries float64) {
	cpu = map[string]float64{}
	var ours time.Duration
	for name, u := range z.by {
		spent := u.cpu - a.by[name].cpu
		ours += spent
		cpu[name] = 100 * spent.Seconds() / u.at.Sub(a.by[name].at).Seconds()
	}
	if all := z.all - a.all; all > 0 {
		others = 100 * float64(z.busy-a.busy-ours) / float64(all)
	}
	return cpu, others, float64(z.index-a.index) / z.at.Sub(a.at).Seconds()
}

// profiled runs f while all processes write profiles of it, if they are wanted.
func (b *bench) profiled(name string, f func() error) error {
	if b.o.Profile == "" {
		return f()
	}
	for _, p := range b.servers {
		if _, err := p.ask("profile " + filepath.Join(b.o.Profile, name+"-"+p.name+".cpu")); err != nil {
			return err
		}
	}
	here, err := os.Create(filepath.Join(b.o.Profile, name+"-hosts.cpu"))
	if err == nil {
		err = pprof.StartCPUProfile(here)
	}
	if err != nil {
		return fmt.Errorf("profile: %w", err)
	}
	err = f()
	pprof.StopCPUProfile()
	for _, p := range b.servers {
		_, err2 := p.ask("profiled " + filepath.Join(b.o.Profile, name+"-"+p.name+".heap"))
		err = errors.Join(err, err2)
	}
	return errors.Join(err, here.Close())
}

func (b *bench) steady(ctx context.Context) error {
	if b.o.Steady <= 0 {
		return nil
	}
	select { // what the VMs' starts left to do is not steady state
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(20 * time.Second):
	}
	return b.profiled("steady", func() error {
		a, err := b.look()
		if err != nil {
			return err
		}
		speed := speedOf()
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(b.o.Steady):
		}
		b.f.Speed.Idle = speed()
		z, err := b.look()
		if err != nil {
			return err
		}
		lead, err := b.leader()
		if err != nil {
			return err
		}
		s := &b.f.Steady
		s.Seconds, s.Leader, s.RSS = z.at.Sub(a.at).Seconds(), lead.name, map[string]float64{}
		s.CPU, s.Others, s.Entries = between(a, z)
		for _, p := range b.servers {
			s.RSS[p.name] = mib(z.by[p.name].rss)
		}
		b.say("leader %s: %.1f%% of a core, %.0f MiB; hosts %.0f%%; others take %.0f%% of the machine", lead.name, s.CPU[lead.name], s.RSS[lead.name], s.CPU[hosts], s.Others)
		return b.sayMemory()
	})
}

// sayMemory says what the memory of each server is for.
func (b *bench) sayMemory() error {
	for _, p := range b.servers {
		text, err := p.ask("memory")
		if err != nil {
			return err
		}
		b.say("memory of %s, MiB: %s", p.name, text)
	}
	return nil
}

func mib(bytes int64) float64 { return float64(bytes) / (1 << 20) }

func (b *bench) offer(rate float64, during, life time.Duration, prefix string) Offer {
	return Offer{Servers: b.addresses(), Token: b.token, CA: b.caFile(), Clients: b.o.Clients,
		Rate: rate, During: during, Life: life, Largest: b.o.Small, CPU: b.o.CPU, Seed: b.o.Seed, Prefix: prefix}
}

func (b *bench) load(ctx context.Context) error {
	if b.o.Rate <= 0 || b.o.During <= 0 {
		return nil
	}
	err := b.profiled("load", func() error {
		a, err := b.look()
		if err != nil {
			return err
		}
		speed := speedOf()
		load, used, err := ask(ctx, b.offer(b.o.Rate, b.o.During, cmp.Or(b.o.Life, b.o.During+time.Second), "load"), func() error { return setNice(b.o.Nice) })
		if err := errors.Join(err, setNice(0)); err != nil {
			return err
		}
		b.f.Load, b.f.Speed.Load = load, speed()
		z, err := b.look()
		if err != nil {
			return err
		}
		a.by[askers], z.by[askers] = usage{at: a.at}, usage{at: z.at, cpu: used}
		b.f.LoadCPU, b.f.LoadOthers, b.f.LoadEntries = between(a, z)
		b.f.LoadMillis = map[string]float64{}
		for name, percent := range b.f.LoadCPU {
			b.f.LoadMillis[name] = 10 * (percent - b.f.Steady.CPU[name]) * z.at.Sub(a.at).Seconds() / float64(max(1, load.Admitted))
		}
		b.f.LoadRSS = map[string]float64{}
		for _, p := range b.servers {
			b.f.LoadRSS[p.name] = mib(z.by[p.name].peak)
		}
		return nil
	})
	l := b.f.Load
	b.say("%.0f admissions a second, p50 %.0f ms, p99 %.0f ms, failed %v; CPU for each: %s", l.PerSecond, l.Millis.P50, l.Millis.P99, l.Failed, parts(b.f.LoadMillis, "%.1f ms"))
	return errors.Join(err, b.disks(), b.sayMemory())
}

// rest measures what memory the servers take when what was asked for under load is gone again.
func (b *bench) rest(ctx context.Context) error {
	if b.o.After <= 0 || b.f.Load.Asked == 0 {
		return nil
	}
	return b.profiled("rest", func() error {
		a, err := b.look()
		if err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(b.o.After):
		}
		z, err := b.look()
		if err != nil {
			return err
		}
		r := &Rest{Seconds: z.at.Sub(a.at).Seconds(), RSS: map[string]float64{}}
		r.CPU, _, _ = between(a, z)
		for _, p := range b.servers {
			r.RSS[p.name] = mib(z.by[p.name].rss)
		}
		b.f.Rest = r
		b.say("%.0f s later: memory %s", r.Seconds, parts(r.RSS, "%.0f MiB"))
		return b.sayMemory()
	})
}

func (b *bench) disks() error {
	b.f.Disk = map[string]Disk{}
	for _, p := range b.servers {
		index, err := p.index()
		if err != nil {
			return err
		}
		dir := filepath.Join(p.dir, "raft")
		b.f.Disk[p.name] = Disk{mib(sizeOf(filepath.Join(dir, "raft.db"))), mib(sizeOf(filepath.Join(dir, "snapshots"))), index}
	}
	return nil
}

// restarts ends a follower with SIGTERM, then another one with SIGKILL, then the leader, while requests go on.
func (b *bench) restarts(ctx context.Context) error {
	if b.o.Servers < 3 {
		return nil
	}
	for i, by := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL, syscall.SIGKILL} {
		lead, err := b.leader()
		if err != nil {
			return err
		}
		victim := lead
		if i < 2 {
			for _, p := range b.servers {
				if p != lead && (victim == lead || i == 1) {
					victim = p
				}
			}
		}
		var r Restart
		var busy sync.WaitGroup
		busy.Go(func() {
			offer(ctx, b.all, b.offer(min(20, max(1, b.o.Rate)), 5*time.Second, time.Second, fmt.Sprintf("restart%d-", i)))
		})
		r, err = b.restart(ctx, victim, lead, by)
		busy.Wait()
		if err != nil {
			return err
		}
		b.f.Restarts = append(b.f.Restarts, r)
		b.say("server %s ended by %s and started again: in step after %.1f s", r.Server, r.By, r.Seconds)
	}
	return nil
}

func (b *bench) restart(ctx context.Context, victim, lead *process, by syscall.Signal) (r Restart, err error) {
	r = Restart{Server: victim.name, By: by.String(), Leader: victim == lead}
	had, err := victim.index()
	if err != nil {
		return r, err
	}
	if err := victim.end(by); err != nil {
		return r, err
	}
	// Others go on meanwhile; if it led, another one must be found first.
	var now *process
	if err := until(ctx, 30*time.Second, "another server leads", func() bool { now, err = b.leader(); return err == nil }); err != nil {
		return r, err
	}
	select {
	case <-ctx.Done():
		return r, ctx.Err()
	case <-time.After(3 * time.Second):
	}
	goal, err := now.index()
	if err != nil {
		return r, err
	}
	r.Behind = goal - min(goal, had)
	begin := time.Now()
	if err := victim.start(ctx, ""); err != nil {
		return r, err
	}
	err = until(ctx, 2*time.Minute, "server "+victim.name+" is in step", func() bool {
		at, err := victim.index()
		return err == nil && at >= goal
	})
	r.Seconds = time.Since(begin).Seconds()
	return r, err
}

// Dir makes a directory for a run, and what removes it.
func Dir() (string, func(), error) {
	dir, err := os.MkdirTemp("", "vcsim-")
	if err != nil {
		return "", func() {}, fmt.Errorf("directory for the servers: %w", err)
	}
	return dir, func() { _ = os.RemoveAll(dir) }, nil
}
