package inside

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"evenkeel/hypervisor"
)

// A cap is measured over windows. What a group used has two sources: CPU time that the kernel charged to it, by the machine's own
// clock. Both go on while the machine stands still. The median of the windows bears much of that; only where it is out of bounds do
// those alone count in which the machine never stood still for long.
const (
	capWindow   = time.Second
	wantWindows = 8                     // so many windows count
	maxWindows  = 20                    // measured for a cap, those that do not count included
	minWindows  = 4                     // fewer that count: the cap is not judged
	maxStill    = 25 * time.Millisecond // a quarter of the period of quotas
)

// What a group may be off its quota by, and its vCPUs off their cap, in cores: on average over all caps, and any one.
const meanError, maxError = 0.02, 0.05

// window is what was used in one, in cores.
type window struct {
	group float64 // what the kernel charged to the group with the quota
	vcpus float64 // what the threads of the vCPUs got
	still time.Duration
}

// capRow is what was measured at a cap.
type capRow struct {
	vcpus      int
	cap, quota float64 // cores
	all        []window
	throttled  float64 // share of the quota's periods in which the kernel throttled the group
}

// stands says whether the guest used less than its quota, and the kernel did not keep it from more. Guests of TestCaps compute without pause: such a
// one stands still, which is the emulator's doing.
func (r capRow) stands() bool {
	return r.enforced(r.all) < -maxError && r.throttled < 0.5
}

// counted are the windows that count.
func (r capRow) counted() []window {
	if r.judgeBy(r.all) == nil {
		return r.all
	}
	var calm []window
	for _, w := range r.all {
		if w.still <= maxStill {
			calm = append(calm, w)
		}
	}
	return calm
}

// enforced is by how many cores the group was off its quota.
func (r capRow) enforced(in []window) float64 {
	return median(in, func(w window) float64 { return w.group }) - r.quota
}

// given is by how many cores the vCPUs were off the cap.
func (r capRow) given(in []window) float64 {
	return median(in, func(w window) float64 { return w.vcpus }) - r.cap
}

// judge says what is wrong at a cap.
func (r capRow) judge() error { return r.judgeBy(r.counted()) }

// judgeBy says what is wrong by those windows: the kernel does not enforce the quota, or the quota is not what the cap asks for. The margin that the quota of
// several vCPUs has is theirs where QEMU's own threads leave it, give or take the error that groups have on average.
func (r capRow) judgeBy(in []window) error {
	margin, enforced, given := r.quota-r.cap, r.enforced(in), r.given(in)
	switch {
	case margin < -0.001 || margin > maxError:
		return fmt.Errorf("the quota of %.3f cores is %+.3f more than the cap of %.2f", r.quota, margin, r.cap)
	case math.Abs(enforced) > maxError:
		return fmt.Errorf("the group used %+.3f cores more than its quota of %.3f", enforced, r.quota)
	case given < -maxError || given > max(maxError, margin+meanError):
		return fmt.Errorf("the vCPUs got %+.3f cores more than their cap of %.2f, whose quota has a margin of %.3f", given, r.cap, margin)
	}
	return nil
}

// capErrors are the means and the maxima, in cores, of what groups are off their quotas and vCPUs off their caps, over the n caps with windows enough.
type capErrors struct {
	n                     int
	enforced, maxEnforced float64
	given, maxGiven       float64
}

func errorsOf(rows []capRow) (e capErrors) {
	for _, r := range rows {
		in := r.counted()
		if len(in) < minWindows {
			continue
		}
		enforced, given := math.Abs(r.enforced(in)), math.Abs(r.given(in))
		e.n++
		e.enforced, e.maxEnforced = e.enforced+enforced, max(e.maxEnforced, enforced)
		e.given, e.maxGiven = e.given+given, max(e.maxGiven, given)
	}
	e.enforced, e.given = e.enforced/float64(max(1, e.n)), e.given/float64(max(1, e.n))
	return e
}

// judge says what is wrong with the means. That of vCPUs is judged only if all caps are in it: with one vCPU they have no margin, with two they use it.
func (e capErrors) judge(caps int) error {
	switch {
	case e.enforced > meanError:
		return fmt.Errorf("on average groups are %.4f cores off their quotas, want at most %.2f", e.enforced, meanError)
	case e.n == caps && e.given > meanError:
		return fmt.Errorf("on average vCPUs are %.4f cores off their caps, want at most %.2f", e.given, meanError)
	}
	return nil
}

func median(all []window, of func(window) float64) float64 {
	var values []float64
	for _, w := range all {
		values = append(values, of(w))
	}
	slices.Sort(values)
	n := len(values)
	if n == 0 {
		return math.NaN()
	}
	return (values[(n-1)/2] + values[n/2]) / 2
}

func TestJudge(t *testing.T) {
	windows := func(still time.Duration, group, vcpus float64, n int) (all []window) {
		for range n {
			all = append(all, window{group, vcpus, still})
		}
		return all
	}
	for _, tt := range []struct {
		name string
		row  capRow
		want string
	}{
		{"as asked", capRow{1, 0.4, 0.4, windows(0, 0.41, 0.41, 4), 1}, ""},
		{"what other work did does not count", capRow{1, 0.4, 0.4, append(windows(0, 0.4, 0.4, 4), windows(maxStill+1, 0.7, 0.7, 9)...), 1}, ""},
		{"one of many does not count", capRow{1, 0.4, 0.4, append(windows(0, 0.4, 0.4, 4), windows(0, 0.8, 0.8, 1)...), 1}, ""},
		{"no quota in the kernel", capRow{1, 0.4, 0.4, windows(0, 0.9, 0.9, 4), 1}, "more than its quota"},
		{"throttled too much", capRow{1, 0.4, 0.4, windows(0, 0.3, 0.3, 4), 1}, "more than its quota"},
		{"the margin is too large", capRow{2, 0.3, 0.4, windows(0, 0.4, 0.39, 4), 1}, "more than the cap"},
		{"the margin is used", capRow{2, 1, 1.04, windows(0, 1.05, 1.04, 4), 1}, ""},
		{"more than the margin", capRow{2, 1, 1.04, windows(0, 1.08, 1.08, 4), 1}, "more than their cap"},
		{"more than a cap without a margin", capRow{1, 0.4, 0.4, windows(0, 0.44, 0.46, 4), 1}, "more than their cap"},
		{"the emulator takes it from the vCPUs", capRow{2, 1, 1.04, windows(0, 1.04, 0.9, 4), 1}, "more than their cap"},
	} {
		if err := tt.row.judge(); (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %q", tt.name, err, tt.want)
		}
	}
	for name, x := range map[string]struct {
		row  capRow
		want bool
	}{
		"it uses its quota":                  {capRow{2, 0.3, 0.326, windows(0, 0.32, 0.3, 8), 1}, false},
		"it stands":                          {capRow{2, 0.3, 0.326, windows(0, 0.015, 0.015, 8), 0}, true},
		"it is throttled below its quota":    {capRow{2, 0.3, 0.326, windows(0, 0.015, 0.015, 8), 0.9}, false},
		"it uses more, and is not throttled": {capRow{2, 0.3, 0.326, windows(0, 0.9, 0.9, 8), 0}, false},
	} {
		if got := x.row.stands(); got != x.want {
			t.Errorf("%s: stands %v, want %v", name, got, x.want)
		}
	}
	one, two := capRow{1, 0.4, 0.4, windows(0, 0.4, 0.4, 4), 1}, capRow{2, 1, 1.04, windows(0, 1.04, 1.045, 4), 1}
	few, off := capRow{1, 0.4, 0.4, windows(maxStill+1, 0.8, 0.8, 4), 1}, capRow{1, 0.4, 0.4, windows(0, 0.44, 0.36, 4), 1}
	for name, x := range map[string]struct {
		rows []capRow
		want string
	}{
		"none was measured":                        {nil, ""},
		"a margin is used at one of three":         {[]capRow{one, two, one}, ""},
		"a margin is used, and two were left out":  {[]capRow{few, two, few}, ""},
		"vCPUs get more at each, and each within":  {[]capRow{two, two, two}, "vCPUs are 0.0450 cores off"},
		"groups are off at each, and each is near": {[]capRow{off, off}, "groups are 0.0400 cores off"},
	} {
		if err := errorsOf(x.rows).judge(len(x.rows)); (err == nil) != (x.want == "") || err != nil && !strings.Contains(err.Error(), x.want) {
			t.Errorf("%s: %v, want %q", name, err, x.want)
		}
	}
}

// TestCaps sets caps, checks that the kernel has the quota and throttles by it, and judges what guests that compute without pause get.
func TestCaps(t *testing.T) {
	h := kvmHost(t)
	w := watchClock(t)
	var rows []capRow
	for _, vm := range []struct {
		vcpus int
		group string
		caps  []float64
	}{
		{1, "libvirt/vcpu0", inShort([]float64{0.05, 0.1, 0.2, 0.25, 0.4, 0.5, 0.6, 0.8})},
		{2, "libvirt", inShort([]float64{0.3, 0.5, 0.8, 1})},
	} {
		another := func(name string) (hypervisor.Spec, string) {
			s := busy(spec(name), vm.vcpus)
			s.VCPUs, s.CPU = vm.vcpus, hypervisor.CPU{Cap: 0.8, Weight: 1}
			s = runBusy(t, h, s)
			return s, filepath.Join(groupOf(t, s.Name), vm.group)
		}
		guest := 1
		s, group := another(fmt.Sprintf("ek-caps-%d", vm.vcpus))
		for _, c := range vm.caps {
			row := measureCap(t, h, w, s, group, c)
			for ; row.stands() && guest < boots; guest++ {
				fmt.Printf("CAPS the guest %s stands still (guest %d of %d): %.3f of %.3f cores used, throttled in %.0f%% of the periods; %s\n",
					s.Name, guest, boots, row.quota+row.enforced(row.all), row.quota, 100*row.throttled, whereabouts(s.Name))
				if err := h.Destroy(t.Context(), s.VM); err != nil {
					t.Fatal(err)
				}
				s, group = another(fmt.Sprintf("%s-%d", s.Name, guest+1))
				row = measureCap(t, h, w, s, group, c)
			}
			t.Run(fmt.Sprintf("%dVCPUs%.2f", vm.vcpus, c), func(t *testing.T) {
				rows = append(rows, row)
				if row.throttled == 0 {
					t.Errorf("at a cap of %.2f cores the kernel throttled a busy guest in no period of %d s", c, len(row.all))
				}
				if n := len(row.counted()); n < minWindows {
					t.Skipf("not judged: %v; but in only %d of %d windows did the machine never stand still for %s", row.judgeBy(row.all), n, len(row.all), maxStill)
				}
				if err := row.judge(); err != nil {
					t.Error(err)
				}
			})
		}
		if vm.vcpus == 1 {
			t.Run("Quotas", func(t *testing.T) { quotas(t, h, s, group) })
			t.Run("Pressure", func(t *testing.T) { pressure(t, h, s, group) })
			t.Run("Delay", func(t *testing.T) { delays(t, h, s, group) })
		} else {
			t.Run("FewerVCPUs", func(t *testing.T) { fewerVCPUs(t, h, s, group) })
		}
		if err := h.Destroy(t.Context(), s.VM); err != nil {
			t.Fatal(err)
		}
	}
	printCaps(t, rows)
}

// measureCap sets a cap and measures what the guest gets.
func measureCap(t *testing.T, h hypervisor.Host, w *clockWatch, s hypervisor.Spec, group string, c float64) capRow {
	t.Helper()
	if err := h.SetCPU(t.Context(), s.VM, hypervisor.CPU{Cap: c, Weight: 1}); err != nil {
		t.Fatal(err)
	}
	text := read(t, group, "cpu.max")
	if want := fmt.Sprintf("%.0f 100000", c*100000); s.VCPUs == 1 && text != want { // with several: decision 0005
		t.Errorf("at a cap of %.2f cores cpu.max is %q, want %q", c, text, want)
	}
	row := capRow{vcpus: s.VCPUs, cap: c}
	var quota, period float64
	if _, err := fmt.Sscanf(text, "%f %f", &quota, &period); err != nil {
		t.Fatalf("cpu.max is %q", text)
	}
	row.quota = quota / period
	periods, throttled := stat(t, group, "nr_periods"), stat(t, group, "nr_throttled")
	for len(row.all) < wantWindows || len(row.all) < maxWindows && len(row.counted()) < wantWindows {
		w.still()
		began, group0, vcpus0 := time.Now(), usage(t, group), vcpuTime(t, s)
		time.Sleep(capWindow) // sleep: the window is what is measured
		passed, group1, vcpus1 := time.Since(began), usage(t, group), vcpuTime(t, s)
		row.all = append(row.all, window{float64(group1-group0) / float64(passed), float64(vcpus1-vcpus0) / float64(passed), w.still()})
	}
	periods, throttled = stat(t, group, "nr_periods")-periods, stat(t, group, "nr_throttled")-throttled
	row.throttled = float64(throttled) / float64(max(1, periods))
	return row
}

// printCaps prints what was measured, for the test outside.
func printCaps(t *testing.T, rows []capRow) {
	t.Helper()
	fmt.Printf("CAPS %-6s %8s %8s %8s %8s %8s %8s %9s\n", "VCPUS", "CAP", "QUOTA", "USED", "OFF", "GOT", "OFF", "WINDOWS")
	counted, all := 0, 0
	for _, r := range rows {
		in := r.counted()
		counted, all = counted+len(in), all+len(r.all)
		if len(in) < minWindows {
			in = r.all
		}
		fmt.Printf("CAPS %-6d %8.2f %8.3f %8.3f %+8.3f %8.3f %+8.3f %4d of %2d\n", r.vcpus, r.cap, r.quota, r.quota+r.enforced(in), r.enforced(in),
			r.cap+r.given(in), r.given(in), len(r.counted()), len(r.all))
	}
	e := errorsOf(rows)
	if e.n == 0 {
		return
	}
	fmt.Printf("CAPS error against the quota: mean %.4f cores, maximal %.4f; of vCPUs against the cap: mean %.4f, maximal %.4f; %d of %d caps, %d of %d windows of %s counted\n",
		e.enforced, e.maxEnforced, e.given, e.maxGiven, e.n, len(rows), counted, all, capWindow)
	if err := e.judge(len(rows)); err != nil {
		t.Error(err)
	}
}

// TestWeights has two guests compete for one core, and prints what share the one of three times the weight got.
func TestWeights(t *testing.T) {
	h := kvmHost(t)
	light, heavy := busy(spec("ek-light"), 1), busy(spec("ek-heavy"), 1)
	light.CPU, heavy.CPU = hypervisor.CPU{Cap: 1, Weight: 0.25}, hypervisor.CPU{Cap: 1, Weight: 0.75}
	light, heavy = runBusy(t, h, light), runBusy(t, h, heavy)
	command(t, "systemctl", "set-property", "--runtime", "machine.slice", "AllowedCPUs=0")
	time.Sleep(2 * time.Second) // sleep: until all their threads have moved to the one CPU, before the window
	all := used(t, h, 8*time.Second, light.VM, heavy.VM)
	fmt.Printf("WEIGHTS share %.3f of %.3f cores, cpu.weight %s and %s\n", all[1]/(all[0]+all[1]), all[0]+all[1],
		read(t, groupOf(t, heavy.Name), "cpu.weight"), read(t, groupOf(t, light.Name), "cpu.weight"))
}

// inShort is all caps, or in a short run the least, the middle and the greatest.
func inShort(caps []float64) []float64 {
	if !testing.Short() {
		return caps
	}
	return []float64{caps[0], caps[len(caps)/2], caps[len(caps)-1]}
}

// stat is a number of a group's cpu.stat.
func stat(t *testing.T, group, name string) int64 {
	t.Helper()
	for line := range strings.Lines(read(t, group, "cpu.stat")) {
		if text, ok := strings.CutPrefix(line, name+" "); ok {
			n, err := strconv.ParseInt(strings.TrimSpace(text), 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
	}
	t.Fatalf("no %s in cpu.stat of %s", name, group)
	return 0
}

// usage is the CPU time that the kernel has charged to a group.
func usage(t *testing.T, group string) time.Duration {
	t.Helper()
	return time.Duration(stat(t, group, "usage_usec")) * time.Microsecond
}

// vcpuTime is the CPU time of the threads of a VM's vCPUs.
func vcpuTime(t *testing.T, s hypervisor.Spec) (sum time.Duration) {
	t.Helper()
	tasks := filepath.Join("/proc", read(t, "/run/libvirt/qemu", s.Name+".pid"), "task")
	threads, err := os.ReadDir(tasks)
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, thread := range threads {
		if name := read(t, tasks, thread.Name(), "comm"); !strings.HasPrefix(name, "CPU ") {
			continue
		}
		var ns int64 // Documentation/scheduler/sched-stats.rst: time on the CPU
		if _, err := fmt.Sscan(read(t, tasks, thread.Name(), "schedstat"), &ns); err != nil {
			t.Fatal(err)
		}
		sum, n = sum+time.Duration(ns), n+1
	}
	if n != s.VCPUs {
		t.Fatalf("%d threads of vCPUs, want %d", n, s.VCPUs)
	}
	return sum
}

// used is the CPU that the vCPUs of VMs get over one window, in cores.
func used(t *testing.T, h hypervisor.Host, window time.Duration, ids ...string) []float64 {
	t.Helper()
	sample := func() map[string]hypervisor.Stats {
		all, err := h.Stats(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		of := map[string]hypervisor.Stats{}
		for _, s := range all {
			of[s.VM] = s
		}
		return of
	}
	first := sample()
	time.Sleep(window) // sleep: the window is what is measured
	last := sample()
	var cores []float64
	for _, id := range ids {
		a, had := first[id]
		b, has := last[id]
		if !had || !has {
			t.Fatalf("no sample of %s", id)
		}
		cores = append(cores, float64(b.VCPUTime-a.VCPUTime)/float64(b.At.Sub(a.At)))
	}
	return cores
}

// groupOf is the control group of a VM: the scope that machined made for it.
func groupOf(t *testing.T, name string) string {
	t.Helper()
	// systemd writes "-" as "\x2d" in the names of scopes.
	escaped := strings.ReplaceAll(name, "-", `\\x2d`)
	found, err := filepath.Glob(`/sys/fs/cgroup/machine.slice/machine-qemu\\x2d*\\x2d` + escaped + ".scope")
	if err != nil || len(found) != 1 {
		t.Fatalf("scopes of %s below machine.slice: %q, %v", name, found, err)
	}
	return found[0]
}

func read(t *testing.T, path ...string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(path...))
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(text))
}
