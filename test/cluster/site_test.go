package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"evenkeel/api/client"
	"evenkeel/api/v1"
	"evenkeel/test/lab"
	"evenkeel/test/labsite"
	"evenkeel/test/patience"
	"evenkeel/test/watch"
)

// site is a cluster on three hosts, and what is needed to disturb it.
type site struct {
	lab   *lab.Lab
	on    *labsite.Site
	bin   string // directory of vcd, vcctl, labhost, watchdog
	hosts []*host
	watch *watch.Watcher
	// domains of VMs that create made, by name: of the last one of that name
	domains sync.Map

	strangers *strangers // that were refused; nil: none so far
}

// host is a host of the lab with its vcd.
type host struct {
	*labsite.Host
	site *site
}

// settings of a host's vcd.yaml that tests change.
type settings struct {
	noWatchdog bool
	fences     []*host // hosts that it can turn off
}

// watchEvery is how often the machine's processes are looked at.
const watchEvery = 40 * time.Millisecond

// once checks that no VM ever ran twice at a time.
func (s *site) once(t *testing.T) {
	t.Helper()
	for _, d := range s.watch.Duplicates() {
		t.Errorf("a VM ran twice: %s", d)
	}
}

// newSite starts three hosts and makes a cluster of them, as docs/tutorials/three-hosts.md says.
func newSite(t *testing.T) *site {
	t.Helper()
	return newSiteOn(t, lab.Options{Hosts: 3, Shared: true, StateSize: 512 << 20, TLS: true})
}

func newSiteOn(t *testing.T, opts lab.Options) *site {
	t.Helper()
	guest := lab.Real(t)
	s := &site{bin: t.TempDir()}
	if err := os.Chmod(s.bin, 0o755); err != nil {
		t.Fatal(err)
	}
	build := labsite.Programs
	if os.Getenv("EVENKEEL_INSTALLED") == "1" {
		build = build[2:]
		for _, program := range []string{"/usr/sbin/vcd", "/usr/bin/vcctl"} {
			if err := errors.Join(exec.Command("dpkg", "-S", program).Run(), os.Symlink(program, filepath.Join(s.bin, filepath.Base(program)))); err != nil {
				t.Fatalf("%s of an installed package: %v", program, err)
			}
		}
	}
	if from := os.Getenv("EVENKEEL_FROM"); from != "" { // see TestUpgrade
		build = build[1:]
		program, err := os.ReadFile(from)
		if err := errors.Join(err, os.WriteFile(filepath.Join(s.bin, "vcd"), program, 0o755)); err != nil {
			t.Fatalf("the vcd of an earlier version: %v", err)
		}
	}
	if err := labsite.Build(t.Context(), s.bin, build...); err != nil {
		t.Fatal(err)
	}
	s.lab = lab.New(t, opts)
	stop, err := s.lab.ServePower()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = stop() })
	if s.on, err = labsite.New(t.Context(), s.lab, guest, s.bin); err != nil {
		t.Fatal(err)
	}
	var members []*labsite.Host
	for _, h := range s.lab.Hosts() {
		members = append(members, s.on.Host(h))
		s.hosts = append(s.hosts, &host{Host: members[len(members)-1], site: s})
	}
	for _, h := range s.hosts {
		end, err := h.Guard(filepath.Join(filepath.Dir(h.Board()), "programs", "watchdog.log"))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(end)
		h.configure(t, settings{})
		h.launch(t)
	}
	if s.watch, err = watch.Start(s.lab.Dir(), watchEvery); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.watch.Close)

	if err := s.on.Found(t.Context(), guest, members...); err != nil {
		t.Fatal(err)
	}
	s.calm(t)
	return s
}

// client of one server, from the desk.
func (s *site) client(t *testing.T, h *host, token, ca string) *client.Client {
	t.Helper()
	c, err := s.on.Client(h.Host, token, ca)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// configure writes the host's vcd.yaml.
func (h *host) configure(t *testing.T, set settings) {
	t.Helper()
	var b strings.Builder
	if !set.noWatchdog {
		b.WriteString(labsite.Watchdog)
	}
	if len(set.fences) > 0 {
		b.WriteString("fence:\n")
	}
	for _, other := range set.fences {
		fmt.Fprintf(&b, "  %s:\n    agent: fence_lab\n    options: {labhost: %s, lab: %s, plug: %s}\n", other.Name, filepath.Join(h.site.bin, "labhost"), h.site.lab.Dir(), other.Name)
	}
	sbin := filepath.Join(h.Config(), "sbin")
	agent, err := os.ReadFile(filepath.Join("..", "lab", "fence", "fence_lab"))
	err = errors.Join(err, os.MkdirAll(sbin, 0o755), os.WriteFile(filepath.Join(sbin, "fence_lab"), agent, 0o755), h.Configure(b.String()))
	if err != nil {
		t.Fatal(err)
	}
}

// set changes the host's vcd.yaml and starts its vcd again.
func (h *host) set(t *testing.T, set settings) {
	t.Helper()
	h.configure(t, set)
	h.terminate(t)
	h.launch(t)
}

// launch starts the host's vcd, as the init of a real host does.
func (h *host) launch(t *testing.T) {
	t.Helper()
	// The host's own /usr/local/sbin: the lab's hosts share the machine's otherwise.
	mount := `mountpoint -q /usr/local/sbin || mount --bind /etc/evenkeel/sbin /usr/local/sbin`
	if out, err := h.Command(context.Background(), "bash", "-c", mount).CombinedOutput(); err != nil {
		t.Fatalf("install fence_lab on %s: %v: %s", h.Name, err, out)
	}
	log := "" // in the lab
	if dir := os.Getenv("EVENKEEL_LOGS"); dir != "" {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		log = filepath.Join(dir, h.Name+".log")
	}
	if err := h.StartVcd(log); err != nil {
		t.Fatal(err)
	}
}

// terminate the host's vcd, as systemd does.
func (h *host) terminate(t *testing.T) {
	t.Helper()
	p := h.Vcd()
	if err := p.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := p.Wait(30 * time.Second); err != nil {
		t.Fatal(err)
	}
}

// boot gives the host its power back, and starts what runs on it.
func (h *host) boot(t *testing.T) {
	t.Helper()
	if !h.Runs() { // no watchdog goes on counting without power
		if err := h.Unguard(); err != nil {
			t.Fatal(err)
		}
	}
	if err := h.PowerOn(context.Background()); err != nil { // also while a test ends
		t.Fatal(err)
	}
	if !h.Runs() {
		h.launch(t)
	}
}

// vcctl must succeed.
func (h *host) vcctl(t *testing.T, stdin string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	out, err := h.Vcctl(ctx, stdin, args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// host of that name.
func (s *site) host(name string) *host {
	for _, h := range s.hosts {
		if h.Name == name {
			return h
		}
	}
	return nil
}

// others than those.
func (s *site) others(not ...*host) []*host {
	var out []*host
next:
	for _, h := range s.hosts {
		for _, n := range not {
			if h == n {
				continue next
			}
		}
		out = append(out, h)
	}
	return out
}

// eventually asks until there is no error, as long as the errors show progress.
func eventually(t *testing.T, within time.Duration, what string, f func(ctx context.Context) error) {
	t.Helper()
	if !long() { // on a busy machine everything takes longer, see within
		within = min(4*within, within+2*time.Minute)
	}
	if err := patience.Ask(t.Context(), within, what, f); err != nil {
		t.Fatal(err)
	}
}

// ask one server after another until one answers.
func ask[T any](ctx context.Context, hosts []*host, f func(context.Context, *client.Client) (T, error)) (T, error) {
	var out T
	var errs []error
	for _, h := range hosts {
		if !h.Up() {
			continue
		}
		short, cancel := context.WithTimeout(ctx, 5*time.Second)
		v, err := f(short, h.API)
		cancel()
		if err == nil {
			return v, nil
		}
		errs = append(errs, fmt.Errorf("%s: %w", h.Name, err))
	}
	return out, errors.Join(errs...)
}

// must have an answer within half a minute, from any server.
func must[T any](t *testing.T, s *site, f func(context.Context, *client.Client) (T, error)) T {
	t.Helper()
	var out T
	eventually(t, 30*time.Second, "a server answers", func(ctx context.Context) (err error) {
		out, err = ask(ctx, s.hosts, f)
		return err
	})
	return out
}

func (s *site) vms(ctx context.Context, vc string) ([]v1.VM, error) {
	return ask(ctx, s.hosts, func(ctx context.Context, c *client.Client) ([]v1.VM, error) { return c.VMs(ctx, vc, "") })
}

// domain that the last VM of that name had which create made.
func (s *site) domain(name string) string {
	domain, _ := s.domains.Load(name)
	text, _ := domain.(string)
	return text
}

// leader is the host whose vcd leads.
func (s *site) leader(t *testing.T) *host {
	t.Helper()
	var leads *host
	eventually(t, 30*time.Second, "a server leads", func(ctx context.Context) error {
		st, err := ask(ctx, s.hosts, func(ctx context.Context, c *client.Client) (v1.ClusterStatus, error) { return c.Status(ctx) })
		if leads = s.host(st.Leader); err == nil && leads == nil {
			err = fmt.Errorf("leader %q", st.Leader)
		}
		return err
	})
	return leads
}

// healthy: all members vote and are well, all hosts are ready and hold their leases.
func (s *site) healthy(ctx context.Context) error {
	for _, h := range s.hosts {
		if !h.Up() {
			return fmt.Errorf("%s has no power", h.Name)
		}
	}
	st, err := ask(ctx, s.hosts, func(ctx context.Context, c *client.Client) (v1.ClusterStatus, error) { return c.Status(ctx) })
	if err != nil {
		return err
	}
	if len(st.Members) != len(s.hosts) || st.Hosts["ready"] != len(s.hosts) || st.RecoveryFreeze != "" {
		return fmt.Errorf("%d members, hosts %v, hold %q", len(st.Members), st.Hosts, st.RecoveryFreeze)
	}
	for _, m := range st.Members {
		if !m.Healthy || !m.Voter || m.Lease != "held" {
			return fmt.Errorf("member %s: healthy %v (%s), voter %v, lease %s", m.Name, m.Healthy, m.Trouble, m.Voter, m.Lease)
		}
	}
	return nil
}

// calm undoes what tests did, and waits for a healthy cluster without VCs.
func (s *site) calm(t *testing.T) {
	t.Helper()
	if err := s.lab.Heal(); err != nil {
		t.Fatal(err)
	}
	for _, h := range s.hosts {
		if err := errors.Join(h.FreeDisk(), h.CutCable(false)); err != nil {
			t.Fatal(err)
		}
		if h.Up() && h.Runs() {
			if err := h.Vcd().Resume(); err != nil {
				t.Fatal(err)
			}
		}
		h.boot(t)
		h.MendDaemon(t)
	}
	eventually(t, 90*time.Second, "the cluster is healthy", s.healthy)
	eventually(t, 90*time.Second, "all virtual clusters are deleted", func(ctx context.Context) error {
		vcs, err := ask(ctx, s.hosts, func(ctx context.Context, c *client.Client) ([]v1.VirtualCluster, error) {
			return c.VirtualClusters(ctx)
		})
		if err != nil || len(vcs) == 0 {
			return err
		}
		for _, vc := range vcs {
			if vc.State != "deleting" {
				_, err = ask(ctx, s.hosts, func(ctx context.Context, c *client.Client) (v1.Result, error) { return c.Delete(ctx, vc.Name) })
			}
		}
		return errors.Join(fmt.Errorf("%d are left, the first is %s, %s", len(vcs), vcs[0].Name, vcs[0].State), err)
	})
	// The cluster does not end a VM that it does not know: only a person may.
	unknown := map[string]bool{}
	s.domains.Range(func(name, domain any) bool {
		unknown[domain.(string)] = strings.HasPrefix(name.(string), "unknown-")
		return true
	})
	for _, i := range s.watch.Now() {
		if unknown[i.Domain] {
			if err := s.host(i.Host).KillVM(i.Domain); err != nil {
				t.Log(err)
			}
		}
	}
	eventually(t, 30*time.Second, "no VM runs", func(context.Context) error {
		if all := s.watch.Now(); len(all) > 0 {
			return fmt.Errorf("%v", all)
		}
		return nil
	})
}

// spec of a VC of n guests that do little. If there is a where, they are put on that host.
func spec(name string, n int, onLoss string, where *host) v1.VirtualClusterSpec {
	g := v1.GroupSpec{Name: "g", Count: n, CPU: 0.15, Memory: 96 << 20, Boot: &v1.Boot{Kernel: "guest"}}
	if where != nil {
		g.Affinity = &v1.Affinity{Prefer: []string{"host:" + where.Name}}
	}
	return v1.VirtualClusterSpec{Name: name, OnHostLoss: onLoss, Groups: []v1.GroupSpec{g}}
}

// create a VC and wait until all its VMs run; on that host, if one is given.
func (s *site) create(t *testing.T, vc v1.VirtualClusterSpec, where *host) {
	t.Helper()
	key := client.IdempotencyKey(fmt.Sprint(vc.Name, time.Now().UnixNano())) // names are used again, keys are not
	must(t, s, func(ctx context.Context, c *client.Client) (v1.Result, error) { return c.Create(ctx, vc, key) })
	n := 0
	for _, g := range vc.Groups {
		n += g.Count
	}
	s.running(t, time.Minute, vc.Name, n)
	for _, vm := range must(t, s, func(ctx context.Context, c *client.Client) ([]v1.VM, error) { return c.VMs(ctx, vc.Name, "") }) {
		s.domains.Store(vm.Name, vm.Domain)
		if where != nil && vm.Host != where.Name {
			t.Fatalf("%s is on %s, not on %s", vm.Name, vm.Host, where.Name)
		}
	}
}

// running waits until n VMs of the VC run.
func (s *site) running(t *testing.T, within time.Duration, vc string, n int) {
	t.Helper()
	eventually(t, within, fmt.Sprintf("%d VMs of %s run", n, vc), func(ctx context.Context) error { return s.run(ctx, vc, n) })
}

func (s *site) run(ctx context.Context, vc string, n int) error {
	vms, err := s.vms(ctx, vc)
	if err != nil {
		return err
	}
	if len(vms) != n {
		return fmt.Errorf("%d VMs", len(vms))
	}
	for _, vm := range vms {
		if vm.State != "running" {
			return fmt.Errorf("%s is %s on %s (%s)", vm.Name, vm.State, vm.Host, vm.Reason)
		}
		if i, ok := s.watch.Of(vm.Domain); !ok || i.Host != vm.Host {
			return fmt.Errorf("%s has no process on %s", vm.Name, vm.Host)
		}
	}
	return nil
}

// lastEvent is the number of the newest event.
func (s *site) lastEvent(t *testing.T) uint64 {
	t.Helper()
	all := must(t, s, func(ctx context.Context, c *client.Client) ([]v1.Event, error) {
		list, err := c.ListEvents(ctx, client.EventQuery{Limit: 1})
		return list.Items, err
	})
	if len(all) == 0 {
		return 0
	}
	return all[len(all)-1].Seq
}

// event waits for an event of that kind about that name, with a part of its text.
func (s *site) event(t *testing.T, within time.Duration, after uint64, kind, name, part string) v1.Event {
	t.Helper()
	var found v1.Event
	eventually(t, within, fmt.Sprintf("there is an event %s of %s with %q", kind, name, part), func(ctx context.Context) error {
		all, err := ask(ctx, s.hosts, func(ctx context.Context, c *client.Client) ([]v1.Event, error) {
			list, err := c.ListEvents(ctx, client.EventQuery{After: &after, Limit: 1000})
			return list.Items, err
		})
		if err != nil {
			return err
		}
		var kinds []string
		for _, e := range all {
			if e.Kind == kind && (name == "" || e.Name == name) && strings.Contains(e.Text, part) {
				found = e
				return nil
			}
			kinds = append(kinds, e.Kind+" "+e.Name+": "+e.Text)
		}
		return fmt.Errorf("%d events, the last %q", len(all), kinds[max(0, len(kinds)-8):])
	})
	return found
}

// disks of all hosts, by host and name of the file, and what identifies each file.
func (s *site) disks(t *testing.T) []string {
	t.Helper()
	var out []string
	for _, h := range s.hosts {
		files, err := filepath.Glob(filepath.Join(h.State(), "libvirt", "pool", "*.qcow2"))
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range files {
			info, err := os.Stat(f)
			if err != nil {
				t.Fatal(err)
			}
			out = append(out, fmt.Sprintf("%s/%s inode %d", h.Name, filepath.Base(f), info.Sys().(*syscall.Stat_t).Ino))
		}
	}
	return out
}
