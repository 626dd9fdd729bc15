package chaos

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"evenkeel/api/client"
	"evenkeel/api/v1"
	"evenkeel/test/lab"
	"evenkeel/test/watch"
)

// Work is what goes on in a cluster while it is disturbed: guests that count, drains that move them, clients that write and read.
type Work struct {
	s       *Site
	guest   lab.Guest
	history *History
	beats   map[string]*lab.Beats // by VM
	domains map[string]string     // of VMs
	stop    context.CancelFunc
	quiet   context.CancelFunc // moves end, writes go on
	all     sync.WaitGroup

	mu      sync.Mutex
	acks    []time.Time // of writes
	leads   []time.Time // when a server that knew its leader answered
	again   map[string]int
	wrong   []string // answers that say no where nothing says why
	drains  int
	reading sync.Mutex
}

// The virtual clusters whose guests count. When their host is lost, the VMs of one are restarted elsewhere, and those of
// the other wait for the host.
const (
	moving  = "beat"
	keeping = "stay"
)

// Begin to work: create the guests, wait until they count, then start the clients. Everything follows from the seed, except
// how long each answer takes.
func Begin(ctx context.Context, s *Site, guest lab.Guest, seed uint64) (*Work, error) {
	w := &Work{s: s, guest: guest, history: NewHistory(time.Now()), beats: map[string]*lab.Beats{}, domains: map[string]string{}, again: map[string]int{}}
	mode, on := "off", true
	slow := v1.Size(24 << 20) // a move takes some seconds
	if _, err := ask(ctx, s, 0, func(ctx context.Context, c *client.Client) (v1.ClusterSettings, error) {
		return c.SetSettings(ctx, v1.SettingsPatch{Moves: &v1.MovePatch{Mode: &mode, AutoConverge: &on, CopyStorage: &on, Bandwidth: &slow}})
	}); err != nil {
		return nil, err
	}
	first, err := ask(ctx, s, 0, func(ctx context.Context, c *client.Client) (v1.ClusterSettings, error) { return c.Settings(ctx) })
	if err != nil {
		return nil, err
	}
	w.history.Starts("setting maxVMs", fmt.Sprint(first.MaxVMs))
	for _, vc := range []v1.VirtualClusterSpec{w.counting(moving, 3, "restart"), w.counting(keeping, 1, "keep")} {
		if _, err := ask(ctx, s, 0, func(ctx context.Context, c *client.Client) (v1.Result, error) {
			return c.Create(ctx, vc, client.IdempotencyKey(vc.Name))
		}); err != nil {
			return nil, err
		}
	}
	if err := w.counted(ctx, 4); err != nil {
		return nil, err
	}
	ctx, w.stop = context.WithCancel(ctx)
	moves, quiet := context.WithCancel(ctx)
	w.quiet = quiet
	rng := func(n uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, n)) }
	w.all.Go(func() { w.move(moves, rng(1)) })
	w.all.Go(func() { w.follow(ctx) })
	w.all.Go(func() { w.leader(ctx) })
	for n := range 3 {
		w.all.Go(func() { w.images(ctx, n, rng(uint64(10+n))) })
		w.all.Go(func() { w.settings(ctx, 40+n, rng(uint64(40+n))) })
	}
	for n := range 2 {
		w.all.Go(func() { w.clusters(ctx, 20+n, rng(uint64(20+n))) })
	}
	return w, nil
}

// Quiet ends the moves and takes drains back. Writes go on.
func (w *Work) Quiet() { w.quiet() }

// End of all work. The written objects stay.
func (w *Work) End() {
	w.stop()
	w.all.Wait()
}

// Close ends following the guests.
func (w *Work) Close() {
	for _, b := range w.beats {
		b.Close()
	}
}

func (w *Work) counting(name string, n int, onLoss string) v1.VirtualClusterSpec {
	return v1.VirtualClusterSpec{Name: name, OnHostLoss: onLoss, Groups: []v1.GroupSpec{{Name: "g", Count: n, CPU: 0.15, Memory: 96 << 20,
		Boot: &v1.Boot{Kernel: "guest", Cmdline: w.guest.Cmdline("ek.touch=8 ek.rate=1 ek.beat=100")}}}}
}

// counted waits until all n guests count, and follows it. It kills a libvirtd that hangs, which is then started again: libvirtd
// 9.0.0 hangs now and then on a busy machine, before any fault.
func (w *Work) counted(ctx context.Context, n int) error {
	ctx, cancel := context.WithTimeout(ctx, 6*time.Minute)
	defer cancel()
	asked := time.Now()
	for {
		if time.Since(asked) > time.Minute {
			for _, h := range w.s.Hosts {
				if !h.DaemonRuns() || h.DaemonAnswers(ctx) {
					continue
				}
				w.s.log.Say("hang", h.Name, "libvirtd does not answer, and is killed; its threads: "+h.DaemonThreads(ctx))
				w.s.log.DaemonKilled(h.Name)
				if err := h.KillDaemon(); err != nil {
					return err
				}
			}
			asked = time.Now()
		}
		vms, err := ask(ctx, w.s, 0, func(ctx context.Context, c *client.Client) ([]v1.VM, error) { return c.VMs(ctx, "", "") })
		for _, vm := range vms {
			if w.beats[vm.Name] == nil {
				logs := map[string]string{}
				for _, h := range w.s.Hosts {
					logs[h.Name] = filepath.Join(h.State(), "libvirt", "console", vm.ID+".log")
				}
				w.beats[vm.Name], w.domains[vm.Name] = lab.FollowBeats(logs), vm.Domain
			}
			if last, ok := w.beats[vm.Name].Last(); !ok || time.Since(last.At) > 5*time.Second {
				err = errors.Join(err, fmt.Errorf("%s has not counted: %s on %s (%s)", vm.Name, vm.State, vm.Host, vm.Reason))
			}
		}
		if err == nil && len(vms) == n {
			return nil
		}
		select {
		case <-ctx.Done():
			for _, h := range w.s.Hosts {
				w.s.log.Say("threads", h.Name, h.DaemonThreads(context.WithoutCancel(ctx)))
			}
			return fmt.Errorf("the guests do not count: %w; the time line:\n%s", err, strings.Join(w.s.log.Last(20), "\n"))
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// pause between two requests of a client; false at the end.
func pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

// ran is Ran by the beats that were followed.
func (w *Work) ran() func(watch.Instance) bool {
	beats := map[string][]lab.Beat{}
	for name, b := range w.beats {
		beats[w.domains[name]] = b.All()
	}
	return Ran(beats)
}

// move guests about: one host after another is emptied and takes VMs again.
func (w *Work) move(ctx context.Context, rng *rand.Rand) {
	for n := 0; ; n++ {
		h := w.s.Hosts[rng.IntN(len(w.s.Hosts))]
		key := client.IdempotencyKey(fmt.Sprintf("drain-%d", n))
		_, err := ask(ctx, w.s, n, func(ctx context.Context, c *client.Client) (v1.DrainResult, error) {
			return c.Drain(ctx, h.Name, v1.DrainRequest{Reason: "chaos"}, key)
		})
		if err == nil {
			w.mu.Lock()
			w.drains++
			w.mu.Unlock()
			for limit := time.Now().Add(40 * time.Second); time.Now().Before(limit) && pause(ctx, 300*time.Millisecond); {
				d, err := ask(ctx, w.s, n, func(ctx context.Context, c *client.Client) (v1.Drain, error) { return c.HostDrain(ctx, h.Name) })
				if err == nil && d.Ended() {
					break
				}
			}
		}
		w.undrain(h)
		if !pause(ctx, time.Duration(200+rng.IntN(2000))*time.Millisecond) {
			return
		}
	}
}

// undrain a host through any server, even after the end of the work.
func (w *Work) undrain(h *Host) {
	for limit := time.Now().Add(2 * time.Minute); time.Now().Before(limit); {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		_, err := ask(ctx, w.s, 0, func(ctx context.Context, c *client.Client) (v1.Host, error) { return c.Undrain(ctx, h.Name) })
		cancel()
		if err == nil {
			return
		}
		time.Sleep(500 * time.Millisecond) // sleep: as a person does
	}
	w.s.log.Say("violation", h.Name, "its drain could not be taken back for two minutes")
}

// follow the events, in which the leader records which hosts are lost, and the logs, in which a host records which VMs it stops because its lease has
// ended.
func (w *Work) follow(ctx context.Context) {
	var after *uint64
	read := map[string]int64{} // bytes of each host's log
	for pause(ctx, 200*time.Millisecond) {
		for _, h := range w.s.Hosts {
			var domains []string
			domains, read[h.Name] = leaseStops(h.LogFile(), read[h.Name])
			for _, domain := range domains {
				w.s.log.Stopped(h.Name, domain)
			}
		}
		all, err := ask(ctx, w.s, 0, func(ctx context.Context, c *client.Client) ([]v1.Event, error) {
			list, err := c.ListEvents(ctx, client.EventQuery{After: after, Limit: 1000})
			return list.Items, err
		})
		if err != nil {
			continue
		}
		for _, e := range all {
			after = &e.Seq
			switch {
			case e.Kind == "host-lost":
				w.s.log.Lost(e.Name, "the leader says: "+e.Text)
			case e.Object != "image" && e.Object != "vc" && e.Kind != "settings-changed": // those are the clients' own
				w.s.log.Say("event", e.Name, e.Kind+": "+e.Text)
			}
		}
	}
}

// leaseStop is how vcd logs that it stops a VM because its lease has ended.
var leaseStop = regexp.MustCompile(`msg="the lease is over: restartable VM stopped" .*\bvm=(\S+)`)

// leaseStops are the domains that vcd has stopped because its lease had ended, by the whole lines of its log from an offset in bytes on; and
// the offset after them. The times in the lines are not used: faults change that clock.
func leaseStops(file string, from int64) (domains []string, to int64) {
	f, err := os.Open(file)
	if err != nil {
		return nil, from
	}
	defer f.Close()
	text, _ := io.ReadAll(io.NewSectionReader(f, from, 16<<20)) // what could be read counts
	text = text[:bytes.LastIndexByte(text, '\n')+1]
	for _, m := range leaseStop.FindAllSubmatch(text, -1) {
		domains = append(domains, string(m[1]))
	}
	return domains, from + int64(len(text))
}

// leader asks all servers who leads.
func (w *Work) leader(ctx context.Context) {
	was := ""
	for pause(ctx, 200*time.Millisecond) {
		var all sync.WaitGroup
		for _, h := range w.s.Hosts {
			all.Go(func() {
				short, cancel := context.WithTimeout(ctx, time.Second)
				defer cancel()
				st, err := h.API.Status(short)
				if err != nil || st.Leader == "" {
					return
				}
				w.mu.Lock()
				defer w.mu.Unlock()
				w.leads = append(w.leads, time.Now())
				if st.Leader != was {
					was = st.Leader
					w.s.log.Say("leader", was, "leads")
				}
			})
		}
		all.Wait()
	}
}

// write until there is an answer, with one key, so that it takes effect at most once. If ctx ends, there is none. It says whether
// the write was acknowledged.
func (w *Work) write(ctx context.Context, rng *rand.Rand, made Write, key string, f func(context.Context, *client.Client, client.Option) error) bool {
	made.Asked = time.Now()
	open := false // an earlier request of it has no answer
	for at := rng.IntN(len(w.s.Hosts)); ; at++ {
		h := w.s.Hosts[at%len(w.s.Hosts)]
		short, done := context.WithTimeout(ctx, 4*time.Second)
		err := f(short, h.API, client.IdempotencyKey(key))
		done()
		// Only this client uses the name: so an earlier request of it without an answer was carried out.
		if err == nil || open && (client.IsProblem(err, v1.ProblemConflict) || client.IsProblem(err, v1.ProblemInvalid) || client.IsProblem(err, v1.ProblemNotFound)) {
			w.acked(made)
			return true
		}
		why, again := retryable(err)
		open = open || again
		w.mu.Lock()
		if again {
			w.again[why]++
		} else {
			w.wrong = append(w.wrong, fmt.Sprintf("%s through %s: %v", key, h.Name, err))
		}
		w.mu.Unlock()
		if !again || !pause(ctx, time.Duration(20+rng.IntN(100))*time.Millisecond) {
			w.history.Wrote(made, time.Time{}, false)
			return false
		}
	}
}

func (w *Work) acked(made Write) {
	reported := time.Now()
	w.history.Wrote(made, reported, true)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.acks = append(w.acks, reported)
}

// retryable says whether the answer asks to try again, and what it was.
func retryable(err error) (string, bool) {
	if errors.Is(err, client.ErrUnreachable) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		return "unreachable", true
	}
	for _, kind := range []string{v1.ProblemNoLeader, v1.ProblemUnavailable, v1.ProblemTimeout} {
		if client.IsProblem(err, kind) {
			return kind[len(v1.ProblemPrefix):], true
		}
	}
	return "", false
}

// images are a set: a client adds some with a text of their own, looks at them, and deletes every third.
func (w *Work) images(ctx context.Context, n int, rng *rand.Rand) {
	var mine []string
	for k := 0; pause(ctx, time.Duration(100+rng.IntN(300))*time.Millisecond); k++ {
		name, value := fmt.Sprintf("w%d-%d", n, k), fmt.Sprintf("quiet value=%d", rng.IntN(1_000_000_000))
		if w.write(ctx, rng, Write{Client: n, Kind: "images", Object: "image " + name, Value: value}, "add-"+name, func(ctx context.Context, c *client.Client, key client.Option) error {
			_, err := c.AddImage(ctx, v1.ImageSpec{Name: name, Kind: "kernel", File: w.guest.Kernel, Initrd: "guest-initrd", Cmdline: value}, key)
			return err
		}) {
			mine = append(mine, name)
		}
		if k%3 == 2 && len(mine) > 0 {
			gone := mine[0]
			mine = mine[1:]
			w.write(ctx, rng, Write{Client: n, Kind: "images", Object: "image " + gone}, "delete-"+gone, func(ctx context.Context, c *client.Client, key client.Option) error {
				return c.DeleteImage(ctx, gone, key)
			})
		}
		if k%10 == 9 {
			w.readImages(ctx, n, w.s.Hosts[rng.IntN(len(w.s.Hosts))], "image "+fmt.Sprintf("w%d-", n))
		}
	}
}

// readImages asks a server for all images, and records those with this prefix that were requested before.
func (w *Work) readImages(ctx context.Context, n int, h *Host, prefix string) bool {
	short, done := context.WithTimeout(ctx, 4*time.Second)
	defer done()
	known := w.history.Objects(prefix)
	asked := time.Now()
	all, err := h.API.Images(short)
	if err != nil {
		return false
	}
	there := map[string]string{}
	for _, i := range all {
		there["image "+i.Name] = i.Cmdline
	}
	for _, object := range known {
		w.history.Read(n, object, there[object], asked, time.Now())
	}
	return true
}

// waiting is a virtual cluster that starts no VM: it needs every host, and no host may run a guest that counts. Without such guests it would start.
func waiting(name, value string) v1.VirtualClusterSpec {
	return v1.VirtualClusterSpec{Name: name, OnFull: "queue", OnHostLoss: "keep", Groups: []v1.GroupSpec{{Name: "g", Count: hosts, CPU: 0.05, Memory: 64 << 20,
		Boot: &v1.Boot{Kernel: "guest"}, Labels: map[string]string{"value": value}, Affinity: &v1.Affinity{Spread: "host", Avoid: []string{"vc:" + moving, "vc:" + keeping}}}}}
}

// clusters creates virtual clusters that wait, with a label of their own, and deletes every second.
func (w *Work) clusters(ctx context.Context, n int, rng *rand.Rand) {
	for k := 0; pause(ctx, time.Duration(300+rng.IntN(700))*time.Millisecond); k++ {
		name, value := fmt.Sprintf("w%d-%d", n, k), fmt.Sprintf("v%d", rng.IntN(1_000_000_000))
		vc := waiting(name, value)
		if !w.write(ctx, rng, Write{Client: n, Kind: "virtual clusters", Object: "vc " + name, Value: value}, "create-"+name, func(ctx context.Context, c *client.Client, key client.Option) error {
			_, err := c.Create(ctx, vc, key)
			return err
		}) {
			continue
		}
		w.readCluster(ctx, n, w.s.Hosts[rng.IntN(len(w.s.Hosts))], name)
		if k%2 == 0 {
			w.write(ctx, rng, Write{Client: n, Kind: "virtual clusters", Object: "vc " + name}, "delete-"+name, func(ctx context.Context, c *client.Client, key client.Option) error {
				_, err := c.Delete(ctx, name, key)
				return err
			})
			w.readCluster(ctx, n, w.s.Hosts[rng.IntN(len(w.s.Hosts))], name)
		}
	}
}

func (w *Work) readCluster(ctx context.Context, n int, h *Host, name string) bool {
	short, done := context.WithTimeout(ctx, 4*time.Second)
	defer done()
	asked := time.Now()
	vc, err := h.API.VirtualCluster(short, name)
	value := ""
	switch {
	case client.IsProblem(err, v1.ProblemNotFound):
	case err != nil:
		return false
	case vc.State != "deleting" && len(vc.Groups) == 1:
		value = vc.Groups[0].Labels["value"]
	}
	w.history.Read(n, "vc "+name, value, asked, time.Now())
	return true
}

// settings are registers that all clients write and read: a number that this test does not use. A setting has no
// key, so a request without an answer is made only once.
func (w *Work) settings(ctx context.Context, n int, rng *rand.Rand) {
	for k := 1; pause(ctx, time.Duration(200+rng.IntN(300))*time.Millisecond); k++ {
		h := w.s.Hosts[rng.IntN(len(w.s.Hosts))]
		if rng.IntN(2) == 0 {
			w.readSetting(ctx, n, h)
			continue
		}
		value := 1000 + 100*k + n
		short, done := context.WithTimeout(ctx, 4*time.Second)
		made := Write{n, "settings", "setting maxVMs", fmt.Sprint(value), time.Now()}
		_, err := h.API.SetSettings(short, v1.SettingsPatch{MaxVMs: &value})
		done()
		if err == nil {
			w.acked(made)
			continue
		}
		w.history.Wrote(made, time.Time{}, false)
		w.mu.Lock()
		if why, again := retryable(err); again {
			w.again[why]++
		} else {
			w.wrong = append(w.wrong, fmt.Sprintf("maxVMs=%d through %s: %v", value, h.Name, err))
		}
		w.mu.Unlock()
	}
}

func (w *Work) readSetting(ctx context.Context, n int, h *Host) bool {
	short, done := context.WithTimeout(ctx, 4*time.Second)
	defer done()
	asked := time.Now()
	now, err := h.API.Settings(short)
	if err != nil {
		return false
	}
	w.history.Read(n, "setting maxVMs", fmt.Sprint(now.MaxVMs), asked, time.Now())
	return true
}

// ReadBack reads everything that was ever written, from every server. It says which server did not answer.
func (w *Work) ReadBack(ctx context.Context) error {
	w.reading.Lock()
	defer w.reading.Unlock()
	for n, h := range w.s.Hosts {
		ok := w.readImages(ctx, 90+n, h, "image ") && w.readSetting(ctx, 90+n, h)
		short, done := context.WithTimeout(ctx, 20*time.Second)
		asked := time.Now()
		vcs, err := h.API.VirtualClusters(short)
		done()
		if !ok || err != nil {
			return errors.Join(fmt.Errorf("%s does not answer", h.Name), err)
		}
		there := map[string]string{}
		for _, vc := range vcs {
			if vc.State != "deleting" && len(vc.Groups) == 1 {
				there["vc "+vc.Name] = vc.Groups[0].Labels["value"]
			}
		}
		for _, object := range w.history.Objects("vc ") {
			w.history.Read(90+n, object, there[object], asked, time.Now())
		}
	}
	return nil
}

// waits says whether a virtual cluster is one that is to wait.
func waits(name string) bool { return !slices.Contains([]string{moving, keeping}, name) }
