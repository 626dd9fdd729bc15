package libvirt

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"libvirt.org/go/libvirt"

	"evenkeel/hypervisor"
)

func TestThrottledOf(t *testing.T) {
	for _, c := range []struct {
		text string
		want time.Duration
		bad  bool
	}{
		{text: "nr_periods 10\nnr_throttled 3\nthrottled_time 1500000\n", want: 1500 * time.Microsecond},
		{text: "usage_usec 5\nuser_usec 3\nsystem_usec 2\nnr_periods 1\nnr_throttled 1\nthrottled_usec 70\nnr_bursts 0\n", want: 70 * time.Microsecond},
		{text: "throttled_time 0\n", want: 0},
		{text: "usage_usec 5\n", bad: true}, // a group of version 2 without the CPU controller
		{text: "throttled_time x\n", bad: true},
		{text: "throttled_time -1\n", bad: true},
		{text: "throttled_usec 9223372036854775807\n", bad: true},
		{text: "", bad: true},
	} {
		got, err := throttledOf([]byte(c.text))
		if got != c.want || (err != nil) != c.bad {
			t.Errorf("%q: %v, %v", c.text, got, err)
		}
	}
}

func TestGroupDir(t *testing.T) {
	const v1 = "30 24 0:26 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,name=systemd\n" +
		"31 24 0:27 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset\n" +
		"32 24 0:28 / /sys/fs/cgroup/cpu,cpuacct rw,relatime shared:9 - cgroup cgroup rw,cpu,cpuacct\n"
	const below = "32 24 0:28 /docker/1 /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n"
	const v2 = "35 24 0:30 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n"
	for name, c := range map[string]struct {
		cgroup, mounts string
		version        int
		want           string
	}{
		"1": {"3:cpuset:/machine/q/emulator\n2:cpuacct,cpu:/machine/qemu-1-a.libvirt-qemu/emulator\n", v1, 1,
			"/sys/fs/cgroup/cpu,cpuacct/machine/qemu-1-a.libvirt-qemu/emulator"},
		"1, a colon in the name": {"2:cpu:/machine/qemu-1-a:b/emulator\n", v1, 1, "/sys/fs/cgroup/cpu,cpuacct/machine/qemu-1-a:b/emulator"},
		"1, mounted from below":  {"2:cpu:/docker/1/machine/q/emulator\n", below, 1, "/sys/fs/cgroup/cpu/machine/q/emulator"},
		"1, beside what is seen": {"2:cpu:/docker/12/machine/q/emulator\n", below, 1, ""},
		"1, outside":             {"2:cpu:/../h2/machine/q/emulator\n", v1, 1, ""},
		"1, only cpuset":         {"3:cpuset:/machine/q/emulator\n", v1, 1, ""},
		"2": {"0::/machine.slice/machine-qemu\\x2d1\\x2da.scope/libvirt/emulator\n", v2, 2,
			"/sys/fs/cgroup/machine.slice/machine-qemu\\x2d1\\x2da.scope/libvirt/emulator"},
		"2 where 1 is asked for": {"0::/machine/q/emulator\n", v2, 1, ""},
		"not mounted":            {"0::/machine/q/emulator\n", v1, 2, ""},
		"nonsense":               {"\x00:::\n\n0\n", "- - -\n\n", 2, ""},
	} {
		got, err := groupDir([]byte(c.cgroup), []byte(c.mounts), c.version)
		if got != c.want || (err == nil) != (c.want != "") {
			t.Errorf("%s: %q, %v, want %q", name, got, err, c.want)
		}
	}
}

// tree makes files below a new directory.
func tree(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestGroupsOf(t *testing.T) {
	const uuid = "01234567-0123-4123-8123-0123456789ab"
	const scope = `machine-qemu\x2d1\x2dek\x2da.scope` // as systemd escapes "qemu-1-ek-a"
	fs := tree(t, map[string]string{
		scope + "/cpu.stat":                  "throttled_usec 1\n",
		scope + "/libvirt/cpu.stat":          "throttled_usec 20\n",
		scope + "/libvirt/emulator/cpu.stat": "throttled_usec 5000\n", // its threads are no vCPUs
		scope + "/libvirt/vcpu0/cpu.stat":    "throttled_usec 300\n",
		scope + "/libvirt/vcpu1/cpu.stat":    "throttled_usec 4000\n",
	})
	proc := tree(t, map[string]string{
		"self/mountinfo": "35 24 0:30 / " + fs + " rw - cgroup2 cgroup2 rw\n",
		"17/cmdline":     "qemu-system-x86_64\x00-name\x00guest=a\x00-uuid\x00" + uuid + "\x00-m\x00128\x00",
		"17/cgroup":      "0::/" + scope + "/libvirt/emulator\n",
		"18/cmdline":     "qemu-system-x86_64\x00-uuid\x0011234567-0123-4123-8123-0123456789ab\x00",
		"18/cgroup":      "0::/other\n",
		"19/cmdline":     "",
		"uptime":         "1 2\n",
	})
	dirs, err := groupsOf(&processes{proc: proc}, uuid, 2)
	if err != nil || len(dirs) != 4 {
		t.Fatalf("%q, %v", dirs, err)
	}
	if d, err := throttledIn(dirs); err != nil || d != 4321*time.Microsecond {
		t.Errorf("%v, %v", d, err)
	}
	if _, err := groupsOf(&processes{proc: proc}, "11234567-0123-4123-8123-0123456789ab", 2); err == nil || !strings.Contains(err.Error(), "no group that libvirt made") {
		t.Errorf("a process in another group: %v", err)
	}
	if _, err := groupsOf(&processes{proc: proc}, "21234567-0123-4123-8123-0123456789ab", 2); err == nil {
		t.Error("a VM that is not there")
	}
	if err := os.MkdirAll(filepath.Join(proc, "20"), 0o755); err != nil {
		t.Fatal(err)
	}
	line, _ := os.ReadFile(filepath.Join(proc, "17/cmdline"))
	if err := os.WriteFile(filepath.Join(proc, "20/cmdline"), line, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := groupsOf(&processes{proc: proc}, uuid, 2); err == nil || !strings.Contains(err.Error(), "both") {
		t.Errorf("two processes of one VM: %v", err)
	}
}

func TestPressure(t *testing.T) {
	dir := tree(t, map[string]string{
		"cpu":    "some avg10=12.50 avg60=1.00 avg300=0.10 total=12\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=0\n",
		"memory": "full avg10=3.00 avg60=0.00 avg300=0.00 total=0\n",
	})
	if got, want := pressureIn(dir), (hypervisor.Pressure{CPU: 0.125, Memory: hypervisor.Unknown, IO: hypervisor.Unknown, Available: hypervisor.Unknown}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	for _, text := range []string{"some\n", "some avg10=x\n", "some avg10=NaN\n", "some avg10=101\n", "some total=1\n"} {
		if v, err := pressureOf([]byte(text)); err == nil {
			t.Errorf("%q: %v", text, v)
		}
	}
}

func TestAvailableMemory(t *testing.T) {
	for text, want := range map[string]int64{"MemTotal: 10 kB\nMemAvailable:    7 kB\nBuffers: 1 kB\n": 7 << 10, "MemAvailable: 0 kB\n": 0,
		"": hypervisor.Unknown, "MemAvailable: 7\n": hypervisor.Unknown, "MemAvailable: -7 kB\n": hypervisor.Unknown, "MemAvailable: 99999999999999999999 kB\n": hypervisor.Unknown,
		"MemAvailable: 9223372036854775807 kB\n": hypervisor.Unknown, "MemFree: 7 kB\n": hypervisor.Unknown} {
		if got := availableIn([]byte(text)); got != want {
			t.Errorf("%q: %d, want %d", text, got, want)
		}
	}
}

func TestGuestReport(t *testing.T) {
	at := time.Unix(1_800_000_000, 0)
	said := func(update, unused, usable uint64) *libvirt.DomainStatsBalloon {
		return &libvirt.DomainStatsBalloon{LastUpdateSet: true, LastUpdate: update, UnusedSet: true, Unused: unused, UsableSet: true, Usable: usable,
			SwapInSet: true, MajorFaultSet: true, MajorFault: 7}
	}
	g := noReport
	step := func(after time.Duration, b *libvirt.DomainStatsBalloon, want ...int64) {
		t.Helper()
		at = at.Add(after)
		g.take(b, at)
		if got := []int64{g.unused, g.available, g.swapIn, g.swapOut, g.majorFaults}; !slices.Equal(got, want) {
			t.Errorf("%+v: %v, want %v", b, got, want)
		}
	}
	const no = hypervisor.Unknown
	step(0, &libvirt.DomainStatsBalloon{}, no, no, no, no, no)
	step(time.Second, said(0, 5, 6), no, no, no, no, no) // no driver: figures that mean nothing
	step(time.Second, said(100, 5, 6), 5<<10, 6<<10, 0, no, 7)
	step(time.Second, &libvirt.DomainStatsBalloon{}, 5<<10, 6<<10, 0, no, 7) // libvirt is busy with it
	step(reportsFor-time.Second, said(100, 5, 6), 5<<10, 6<<10, 0, no, 7)
	step(2*time.Second, said(100, 5, 6), no, no, no, no, no) // the guest has fallen silent
	step(time.Second, said(101, 1<<62, 4), no, 4<<10, 0, no, 7)
	// A report without a figure does not keep that of the report before.
	step(time.Second, &libvirt.DomainStatsBalloon{LastUpdateSet: true, LastUpdate: 103, UnusedSet: true, Unused: 1}, 1<<10, no, no, no, no)
}

// What a guest can still use is reported for the balloon that it has now, also if the guest's report is older than that balloon.
func TestReportIsOlderThanTheBalloon(t *testing.T) {
	at := time.Unix(1_800_000_000, 0)
	for _, c := range []struct {
		name    string
		reports []uint64 // seconds after the begin that the report is of, by sample
		has     []uint64 // MiB, by sample, one each second
		said    []uint64 // MiB available by the report
		left    []int64
	}{
		{"as it is", []uint64{0, 0, 2}, []uint64{256, 256, 256}, []uint64{200, 200, 190}, []int64{200, 200, 190}},
		{"shrunk since", []uint64{0, 0, 0, 3}, []uint64{256, 256, 128, 128}, []uint64{200, 200, 200, 71}, []int64{200, 200, 72, 71}},
		{"shrunk since it reported, which is seen only now", []uint64{0, 0, 1, 3}, []uint64{256, 256, 256, 128}, []uint64{200, 200, 190, 65}, []int64{200, 200, 190, 65}},
		{"a late report from before", []uint64{0, 0, 0, 2}, []uint64{256, 256, 256, 128}, []uint64{200, 200, 200, 180}, []int64{200, 200, 200, 52}},
		{"grown since", []uint64{0, 0, 0}, []uint64{128, 128, 192}, []uint64{5, 5, 5}, []int64{5, 5, 69}},
		{"shrunk below what it uses", []uint64{0, 0}, []uint64{256, 128}, []uint64{100, 100}, []int64{100, 0}},
		{"clocks that differ", []uint64{9000, 9000}, []uint64{256, 128}, []uint64{200, 200}, []int64{200, 72}},
	} {
		g := noReport
		for i := range c.has {
			now := at.Add(time.Duration(i)*time.Second + 500*time.Millisecond)
			g.take(&libvirt.DomainStatsBalloon{Current: c.has[i] << 10, LastUpdateSet: true, LastUpdate: uint64(at.Unix()) + c.reports[i], UsableSet: true, Usable: c.said[i] << 10}, now)
			if got := g.left(g.available, int64(c.has[i])<<20) >> 20; got != c.left[i] {
				t.Errorf("%s: after %d s %d MiB are left, want %d", c.name, i, got, c.left[i])
			}
		}
	}
}
