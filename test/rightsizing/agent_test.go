package rightsizing_test

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"evenkeel/cluster/agent"
	"evenkeel/hypervisor"
	"evenkeel/hypervisor/libvirt"
	"evenkeel/test/lab"
)

const mib = int64(1) << 20

// overhead of an emulated guest, bytes.
const overhead = 128 * mib

// orders gives an agent its desired state and keeps what it reports, as a leader does whose desired state the test sets.
type orders struct {
	mu       sync.Mutex
	want     agent.Desired
	changed  chan struct{}
	samples  map[string]agent.Sample
	pressure map[string][]string // every reason, by VM
	ended    map[string]string
	charged  map[string]int64
}

func newOrders(cpu float64, memory int64, specs ...hypervisor.Spec) *orders {
	o := &orders{changed: make(chan struct{}), samples: map[string]agent.Sample{}, pressure: map[string][]string{}, ended: map[string]string{}, charged: map[string]int64{}}
	o.want = agent.Desired{Cluster: "rightsizing", Index: 1, CPU: cpu, Memory: memory, Overhead: overhead}
	for _, s := range specs {
		o.want.VMs = append(o.want.VMs, agent.VM{Spec: s, Want: agent.WantRun, MayStart: true, ChargedMemory: s.Memory})
	}
	return o
}

func (o *orders) Desired(context.Context, string) (agent.Desired, <-chan struct{}, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	d := o.want
	d.VMs = slices.Clone(d.VMs)
	return d, o.changed, nil
}

func (o *orders) Report(_ context.Context, r agent.Report) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, s := range r.Samples {
		o.samples[s.VM] = s
		if s.Guest != nil && s.Guest.Pressure != "" && !slices.Contains(o.pressure[s.VM], s.Guest.Pressure) {
			o.pressure[s.VM] = append(o.pressure[s.VM], s.Guest.Pressure)
		}
	}
	for _, st := range r.Statuses {
		i := slices.IndexFunc(o.want.VMs, func(vm agent.VM) bool { return vm.Spec.VM == st.VM })
		if i < 0 {
			continue
		}
		vm := &o.want.VMs[i]
		if st.Phase == agent.PhaseStarting { // it waits, or libvirtd ended in its start: it may start still
			continue
		}
		switch vm.MayStart = false; {
		case st.SourceLost:
			o.want.VMs = slices.Delete(o.want.VMs, i, i+1)
		case st.Phase == agent.PhaseRunning:
			vm.Seen, vm.EndKnown = true, false
			if st.ChargedMemory > 0 {
				vm.ChargedMemory = st.ChargedMemory
			}
			o.charged[st.VM] = vm.ChargedMemory
		default:
			vm.Seen, vm.EndKnown = false, true
			o.ended[st.VM] = st.Reason
		}
		o.next()
	}
	return nil
}

func (o *orders) Permit(_ context.Context, q agent.PermitRequest) (agent.Permit, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return agent.Permit{Index: o.want.Index, Granted: q.Starts, Moves: q.Moves}, nil
}

func (o *orders) Renew(context.Context, agent.Renewal) (agent.Grant, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return agent.Grant{Index: o.want.Index, Lease: 20 * time.Second}, nil
}

// next makes the state a newer one. o is locked.
func (o *orders) next() {
	o.want.Index++
	close(o.changed)
	o.changed = make(chan struct{})
}

// target sets the balloon targets of VMs, and what the host may use.
func (o *orders) target(bytes, memory int64, vms ...string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.want.Memory = memory
	for i := range o.want.VMs {
		if vm := &o.want.VMs[i]; slices.Contains(vms, vm.Spec.VM) {
			vm.Spec.Balloon, vm.ChargedMemory = bytes, max(vm.ChargedMemory, bytes)
		}
	}
	o.next()
}

func (o *orders) sample(id string) agent.Sample {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.samples[id]
}

// realHost is a host of the lab with guests on it.
type realHost struct {
	hypervisor.Host
	guest    lab.Guest
	dir      string
	consoles map[string]*console
}

func newRealHost(t *testing.T) *realHost {
	t.Helper()
	g := lab.Real(t)
	l := lab.New(t, lab.Options{})
	if err := l.Precede(); err != nil {
		t.Fatal(err)
	}
	kvm, err := lab.KVM(t.Context(), g)
	if err != nil {
		t.Fatal(err)
	}
	h := &realHost{guest: g, dir: t.TempDir(), consoles: map[string]*console{}}
	h.Host, err = libvirt.Open(t.Context(), libvirt.Options{URI: l.Host(1).URI(), ForceEmulation: !kvm, StateDir: h.dir, ConsoleLogs: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = h.Close() })
	return h
}

// vm of so much memory that its guest plays, with other settings beside.
func (h *realHost) vm(id string, memory int64, settings string) hypervisor.Spec {
	h.consoles[id] = follow(filepath.Join(h.dir, "console", id+".log"))
	return hypervisor.Spec{Identity: hypervisor.Identity{Cluster: "rightsizing", VM: id, Generation: 1}, Name: "ek-rightsizing-" + id, VCPUs: 1, Memory: memory, Balloon: memory,
		CPU:  hypervisor.CPU{Cap: 0.5, Weight: 0.5},
		Boot: hypervisor.Boot{Kernel: h.guest.Kernel, Initrd: h.guest.Initrd, Cmdline: h.guest.Cmdline("ek.beat=3600000 " + settings)}}
}

// agent on the host, until stop. VMs run on.
func (h *realHost) agent(t *testing.T, o *orders) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- agent.Run(ctx, agent.Options{Host: "h1", Hypervisor: h.Host, Leader: o, Log: slog.New(slog.NewTextHandler(t.Output(), nil)), Boot: "1",
			Allowance: func(c hypervisor.Capacity) agent.Limits { return agent.Limits{CPU: c.CPU, Memory: c.Memory} },
			Overhead:  func(hypervisor.Capacity) int64 { return overhead }})
	}()
	return sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// end the VMs with the test.
func (h *realHost) end(t *testing.T, specs ...hypervisor.Spec) {
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		for _, s := range specs {
			if err := h.Destroy(ctx, s.VM); err != nil {
				t.Error(err)
			}
			if err := h.Undefine(ctx, s); err != nil {
				t.Error(err)
			}
		}
	})
}

// list is a pattern of one CPU share, by the memory of each step.
func list(cpu int, mib ...int) pattern {
	p := pattern{mib: mib}
	for range mib {
		p.cpu = append(p.cpu, cpu)
	}
	return p
}

// repeat a figure.
func repeat(n, mib int) []int { return slices.Repeat([]int{mib}, n) }

// The agent shrinks guests of 256 MiB to half of that, on a host that has room for two of them to grow back. One spikes from idle to full
// in 2 s, one leaks, one loses its balloon driver, one never had one. The agent is ended while it shrinks them, and another one goes on.
// Only the guest that leaks is harmed, when it has leaked all of its memory, and each VM shows a reason.
func TestSqueezedGuests(t *testing.T) {
	h := newRealHost(t)
	const memory, low = 256 * mib, 128 * mib
	leak := make([]int, 150)
	for i := range leak { // slower at the end: its balloon stands still then, so that a report of what is left counts
		leak[i] = 10 + max(0, min(i-50, 40))*4 + max(0, i-90)
	}
	specs := []hypervisor.Spec{
		h.vm("steady", memory, bitbrains(7, 120, 8, 40).setting(time.Second, 100)),
		h.vm("spike", memory, list(5, slices.Concat(repeat(60, 10), []int{80}, repeat(59, 150))...).setting(time.Second, 100)),
		h.vm("leak", memory, list(5, leak...).setting(time.Second, 100)),
		h.vm("drops", memory, "ek.balloon=45 "+list(5, repeat(20, 20)...).setting(time.Second, 100)),
		h.vm("none", memory, "ek.balloon=none "+list(5, repeat(20, 20)...).setting(time.Second, 100)),
	}
	h.end(t, specs...)
	o := newOrders(4, 5*(memory+overhead), specs...)
	stop := h.agent(t, o)
	defer func() { stop() }()
	eventually(t, 3*time.Minute, "all guests play", func() (bool, string) {
		for _, s := range specs {
			if p := h.consoles[s.VM].look(t); p.step < 1 {
				return false, s.VM + " does not"
			}
			if s.VM != "none" && o.sample(s.VM).Guest == nil {
				return false, s.VM + " does not report"
			}
		}
		return true, ""
	})
	if g := o.sample("none").Guest; g != nil {
		t.Errorf("a guest without a driver reports %+v", g)
	}
	o.mu.Lock()
	clear(o.ended) // a start that libvirtd cut short was repeated and is no harm
	o.mu.Unlock()

	// What they need now, and as much as two can grow back by: the one that loses its driver does so at once.
	limit := 4*low + memory + 5*overhead + 2*(memory-low)
	o.target(200*mib, 5*(memory+overhead), "steady", "spike", "leak", "drops")
	stop() // in the middle of it
	stop = h.agent(t, o)
	o.target(low, 5*(memory+overhead), "steady", "spike", "leak", "drops")
	eventually(t, time.Minute, "the guests are squeezed", func() (bool, string) {
		for _, id := range []string{"steady", "spike", "leak"} {
			if s := o.sample(id); s.Balloon > 140*mib {
				return false, fmt.Sprintf("%s has %d MiB, %+v", id, s.Balloon/mib, s.Guest)
			}
		}
		return true, ""
	})
	o.target(low, limit, "drops")
	for _, s := range specs {
		t.Logf("squeezed: %-6s %d MiB, %+v; %s", s.VM, o.sample(s.VM).Balloon/mib, o.sample(s.VM).Guest, h.consoles[s.VM].look(t))
	}

	highest := int64(0)
	eventually(t, 4*time.Minute, "what is to happen has", func() (bool, string) {
		sum := int64(0)
		for _, s := range specs {
			if x := o.sample(s.VM); o.ended[s.VM] == "" {
				sum += x.Balloon + overhead
			}
		}
		highest = max(highest, sum)
		o.mu.Lock()
		leaked := o.ended["leak"]
		o.mu.Unlock()
		at := h.consoles["spike"].look(t).step
		return leaked != "" && at >= 75 && o.sample("drops").Guest == nil, fmt.Sprintf("the leak: %q, %s; the spike: %s", leaked, h.consoles["leak"].look(t), h.consoles["spike"].look(t))
	})
	for _, s := range specs {
		p := h.consoles[s.VM].look(t)
		x := o.sample(s.VM)
		t.Logf("%-6s: %s; has %d MiB, %+v; was short: %q; ended: %q", s.VM, p, x.Balloon/mib, x.Guest, o.pressure[s.VM], o.ended[s.VM])
		if s.VM == "leak" {
			continue
		}
		if p.n["killed"] > 0 || p.ended != "" || o.ended[s.VM] != "" || len(p.errors) > 0 || p.memoryQoS() < 0.95 {
			t.Errorf("%s was harmed: memory in time in %.1f%% of its steps, %v", s.VM, 100*p.memoryQoS(), p.errors)
		}
	}
	t.Logf("at most %d MiB at one time, of %d", highest/mib, limit/mib)
	if x := o.sample("spike"); x.Balloon < 200*mib {
		t.Errorf("the one that spiked has %d MiB", x.Balloon/mib)
	}
	if x := o.sample("drops"); x.Guest != nil || x.Balloon < memory-mib {
		t.Errorf("the one without a driver any more has %d MiB and reports %+v", x.Balloon/mib, x.Guest)
	}
	if !strings.Contains(strings.Join(o.pressure["leak"], " "), "left") && !strings.Contains(strings.Join(o.pressure["leak"], " "), "by itself") {
		t.Errorf("the one that leaks was never found to be short of memory: %q", o.pressure["leak"])
	}
}
