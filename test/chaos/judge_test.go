package chaos

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"evenkeel/api/v1"
	"evenkeel/test/lab"
	"evenkeel/test/watch"
)

// at is a moment of a history, in seconds.
func at(s float64) time.Time {
	return time.Unix(1_000_000, 0).Add(time.Duration(s * float64(time.Second)))
}

// process of the one VM of a history. If its end is 0, it is still there.
func process(pid int, host string, comes bool, from, to float64) watch.Instance {
	i := watch.Instance{Domain: "ek-a-g-0", UUID: "a", Host: host, PID: pid, Comes: comes, Started: at(from), Seen: at(1000)}
	if to > 0 {
		i.Seen, i.Gone = at(to), at(to+0.05)
	}
	return i
}

// neverRan is the process in which a guest stood paused all the time.
const neverRan = 77

// TestRestarts: a VM may be started again only after the host on which it was is lost.
func TestRestarts(t *testing.T) {
	power := func(host string, s float64) Loss { return Loss{At: at(s), Host: host} }
	for _, c := range []struct {
		name     string
		history  []watch.Instance
		losses   []Loss
		needless int
		needed   int
	}{
		{"runs", []watch.Instance{process(1, "h1", false, 0, 0)}, nil, 0, 0},
		{"moves", []watch.Instance{process(1, "h1", false, 0, 20), process(2, "h2", true, 15, 0)}, nil, 0, 0},
		{"a move fails", []watch.Instance{process(1, "h1", false, 0, 0), process(2, "h2", true, 15, 20)}, nil, 0, 0},
		{"its host lost its power", []watch.Instance{process(1, "h1", false, 0, 20), process(2, "h2", false, 50, 0)}, []Loss{power("h1", 20.2)}, 0, 1},
		{"its host was cut off and said to be lost", []watch.Instance{process(1, "h1", false, 0, 20), process(2, "h2", false, 50, 0)}, []Loss{power("h1", 49.9)}, 0, 1},
		{"moved, and the target was lost", []watch.Instance{process(1, "h1", false, 0, 20), process(2, "h2", true, 15, 40), process(3, "h1", false, 70, 0)}, []Loss{power("h2", 40)}, 0, 1},
		{"left paused on the source, and the target was lost", []watch.Instance{process(1, "h1", false, 0, 60), process(2, "h2", true, 15, 40), process(3, "h1", false, 70, 0)},
			[]Loss{power("h2", 40)}, 0, 1},
		{"its host stopped it, as its lease was over", []watch.Instance{process(1, "h1", false, 0, 20), process(2, "h1", false, 50, 0)}, []Loss{{At: at(20), Host: "h1", Domain: "ek-a-g-0"}}, 0, 1},
		{"another host stopped it, as its lease was over", []watch.Instance{process(1, "h1", false, 0, 20), process(2, "h1", false, 50, 0)}, []Loss{{At: at(20), Host: "h2", Domain: "ek-a-g-0"}}, 1, 0},
		{"stopped by the target of its move, as its lease was over", []watch.Instance{process(1, "h1", false, 0, 20), process(2, "h2", true, 15, 40), process(3, "h1", false, 70, 0)},
			[]Loss{{At: at(40), Host: "h2", Domain: "ek-a-g-0"}}, 0, 1},
		{"stopped by the source, as its lease was over, while its copy stands paused", []watch.Instance{process(1, "h1", false, 0, 20), process(2, "h2", true, 15, 60), process(3, "h3", false, 70, 0)},
			[]Loss{{At: at(20), Host: "h1", Domain: "ek-a-g-0"}}, 0, 1},
		{"the source was turned off while its copy stands paused", []watch.Instance{process(1, "h1", false, 0, 20), process(2, "h2", true, 15, 60), process(3, "h3", false, 70, 0)},
			[]Loss{power("h1", 20.9)}, 0, 1},
		{"the source was turned off before its agent reported that the VM had left", []watch.Instance{process(1, "h1", false, 0, 20), process(neverRan, "h2", true, 15, 60), process(3, "h3", false, 70, 0)},
			[]Loss{power("h1", 32)}, 0, 1},
		{"its copy stood paused, and the target was turned off", []watch.Instance{process(1, "h1", false, 0, 60), process(neverRan, "h2", true, 15, 40), process(3, "h1", false, 70, 0)},
			[]Loss{power("h2", 40)}, 0, 1},
		{"the VM left, and was started again", []watch.Instance{process(1, "h1", false, 0, 20), process(neverRan, "h2", true, 15, 60), process(3, "h3", false, 70, 0)}, nil, 1, 0},
		{"libvirtd was killed while it started it", []watch.Instance{process(1, "h1", false, 0, 8), process(2, "h1", false, 30, 0)}, []Loss{{At: at(3), Host: "h1", Daemon: true}}, 0, 1},
		{"libvirtd was killed while it ran", []watch.Instance{process(1, "h1", false, 0, 50), process(2, "h1", false, 70, 0)}, []Loss{{At: at(50), Host: "h1", Daemon: true}}, 1, 0},
		{"stopped by its host, which took long", []watch.Instance{process(1, "h1", false, 0, 50), process(2, "h1", false, 70, 0)}, []Loss{{At: at(39), Host: "h1", Domain: "ek-a-g-0"}}, 0, 1},
		{"stopped by its host, whose log was read late", []watch.Instance{process(1, "h1", false, 0, 20), process(2, "h1", false, 50, 0)}, []Loss{{At: at(25), Host: "h1", Domain: "ek-a-g-0"}}, 0, 1},
		{"stopped long after", []watch.Instance{process(1, "h1", false, 0, 20), process(2, "h2", false, 70, 0)}, []Loss{{At: at(40), Host: "h1", Domain: "ek-a-g-0"}}, 1, 0},
		{"another VM was stopped by its host", []watch.Instance{process(1, "h1", false, 0, 20), process(2, "h1", false, 50, 0)}, []Loss{{At: at(20), Host: "h1", Domain: "ek-b-g-0"}}, 1, 0},
		{"for no reason", []watch.Instance{process(1, "h1", false, 0, 20), process(2, "h2", false, 50, 0)}, nil, 1, 0},
		{"another host was lost", []watch.Instance{process(1, "h1", false, 0, 20), process(2, "h2", false, 50, 0)}, []Loss{power("h3", 21)}, 1, 0},
		{"its host was lost long before", []watch.Instance{process(1, "h1", false, 10, 50), process(2, "h2", false, 60, 0)}, []Loss{power("h1", 5)}, 1, 0},
		{"the host was lost that it had left", []watch.Instance{process(1, "h1", false, 0, 20), process(2, "h2", true, 15, 40), process(3, "h3", false, 70, 0)}, []Loss{power("h1", 30)}, 1, 0},
		{"the host was lost of an earlier start", []watch.Instance{process(1, "h1", false, 0, 20), process(2, "h2", false, 50, 80), process(3, "h3", false, 100, 0)}, []Loss{power("h1", 20)}, 1, 1},
		{"before the host was lost", []watch.Instance{process(1, "h1", false, 0, 20), process(2, "h2", false, 30, 0)}, []Loss{power("h1", 60)}, 1, 0},
	} {
		needless, needed := Restarts(c.history, c.losses, func(i watch.Instance) bool { return i.PID != neverRan })
		if len(needless) != c.needless || needed != c.needed {
			t.Errorf("%s: %d without need and %d needed, want %d and %d: %q", c.name, len(needless), needed, c.needless, c.needed, needless)
		}
	}
}

// TestRan: a guest ran in a process if it gave a beat there, while the process was.
func TestRan(t *testing.T) {
	ran := Ran(map[string][]lab.Beat{"ek-a-g-0": {{At: at(10), Host: "h1"}, {At: at(20), Host: "h2"}}})
	for _, c := range []struct {
		i    watch.Instance
		want bool
	}{
		{process(1, "h1", false, 0, 15), true},
		{process(2, "h2", true, 15, 0), true},
		{process(3, "h2", true, 21, 0), false},
		{process(4, "h2", true, 15, 19), false},
		{process(5, "h3", true, 0, 0), false},
		{watch.Instance{Domain: "ek-b-g-0", Host: "h3", Started: at(0)}, true},
	} {
		if got := ran(c.i); got != c.want {
			t.Errorf("process %d: %v, want %v", c.i.PID, got, c.want)
		}
	}
}

// TestHeartbeats: guests that run twice, or boot by themselves.
func TestHeartbeats(t *testing.T) {
	beat := func(host string, s float64, seq int64, up time.Duration) lab.Beat {
		return lab.Beat{At: at(s), Host: host, Seq: seq, Uptime: up}
	}
	one := []watch.Instance{process(1, "h1", false, 0, 0)}
	for _, c := range []struct {
		name      string
		beats     []lab.Beat
		processes []watch.Instance
		want      string
	}{
		{"counts", []lab.Beat{beat("h1", 1, 1, time.Second), beat("h1", 2, 2, 2*time.Second), beat("h2", 3, 4, 3*time.Second)}, one, ""},
		{"two", []lab.Beat{beat("h1", 1, 1, time.Second), beat("h1", 2, 2, 2*time.Second), beat("h2", 2.1, 2, 2*time.Second)}, one, "there are two"},
		{"behind", []lab.Beat{beat("h1", 1, 100, 100*time.Second), beat("h2", 2, 90, 90*time.Second)}, one, "there are two"},
		{"booted by itself", []lab.Beat{beat("h1", 1, 100, 100*time.Second), beat("h1", 2, 1, time.Second)}, one, "booted 2 times"},
		{"booted again", []lab.Beat{beat("h1", 1, 100, 100*time.Second), beat("h2", 60, 1, time.Second)}, []watch.Instance{process(1, "h1", false, 0, 20), process(2, "h2", false, 50, 0)}, ""},
		{"boots slowly", []lab.Beat{beat("h1", 1, 100, 30*time.Second), beat("h2", 60, 0, 25*time.Second)}, []watch.Instance{process(1, "h1", false, 0, 20), process(2, "h2", false, 50, 0)}, ""},
		{"booted without a start", []lab.Beat{beat("h1", 1, 100, 30*time.Second), beat("h1", 60, 0, 25*time.Second)}, []watch.Instance{process(1, "h1", false, 0, 0)}, "was started 1 times"},
	} {
		got := strings.Join(Heartbeats("a", c.beats, c.processes), "; ")
		if c.want == "" && got != "" || !strings.Contains(got, c.want) {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

// TestHistory: the check finds a history that no register can have.
func TestHistory(t *testing.T) {
	type step struct {
		write    bool
		value    string
		from, to float64
		acked    bool
	}
	w := func(v string, from, to float64) step { return step{true, v, from, to, true} }
	open := func(v string, from float64) step { return step{true, v, from, 0, false} }
	r := func(v string, from, to float64) step { return step{false, v, from, to, true} }
	for _, c := range []struct {
		name  string
		steps []step
		lost  bool
	}{
		{"read back", []step{w("a", 1, 2), r("a", 3, 4)}, false},
		{"deleted", []step{w("a", 1, 2), w("", 3, 4), r("", 5, 6)}, false},
		{"two at once, either", []step{w("a", 1, 4), w("b", 2, 3), r("a", 5, 6)}, false},
		{"no answer, not there", []step{w("a", 1, 2), open("b", 3), r("a", 5, 6)}, false},
		{"no answer, there later", []step{w("a", 1, 2), open("b", 3), r("a", 5, 6), r("b", 7, 8)}, false},
		{"lost", []step{w("a", 1, 2), r("", 3, 4)}, true},
		{"an older value", []step{w("a", 1, 2), w("b", 3, 4), r("a", 5, 6)}, true},
		{"came back after it was deleted", []step{w("a", 1, 2), w("", 3, 4), r("", 5, 6), r("a", 7, 8)}, true},
		{"another's value", []step{w("a", 1, 2), r("x", 3, 4)}, true},
		{"stale", []step{w("a", 1, 2), open("b", 3), r("b", 5, 6), r("a", 7, 8)}, true},
	} {
		h := NewHistory(at(0))
		for n, s := range c.steps {
			if s.write {
				h.Wrote(Write{n, "things", "x", s.value, at(s.from)}, at(s.to), s.acked)
			} else {
				h.Read(n, "x", s.value, at(s.from), at(s.to))
			}
		}
		if lost, unsure := h.Lost(); (len(lost) > 0) != c.lost || unsure > 0 {
			t.Errorf("%s: %q", c.name, lost)
		}
	}
}

// TestLongest looks at the ends, too.
func TestLongest(t *testing.T) {
	got, when := Longest([]time.Time{at(1), at(2), at(9)}, at(0), at(20))
	if got != 11*time.Second || !when.Equal(at(9)) {
		t.Errorf("%v from %v", got, when)
	}
}

// TestStuck: a healthy cluster, and every way in which one can be stuck.
func TestStuck(t *testing.T) {
	good := func() Cluster {
		c := Cluster{Hosts: []string{"h1", "h2"}, Drains: map[string]v1.Drain{"h1": {State: "none"}}, Processes: []watch.Instance{process(1, "h1", false, 0, 0)}}
		c.Status.Leader, c.Status.Hosts = "h1", map[string]int{"ready": 2}
		for _, name := range c.Hosts {
			c.Status.Members = append(c.Status.Members, v1.Member{Name: name, Healthy: true, Voter: true, Lease: "held"})
		}
		c.VMs = []v1.VM{{Name: "a-g-0", Domain: "ek-a-g-0", Host: "h1", State: "running"}}
		c.VCs = []v1.VirtualCluster{{Name: "a", State: "running"}, {Name: "w", State: "queued"}}
		c.Migrations = []v1.Migration{{State: "done"}}
		c.Plans = []v1.Plan{{State: "done"}}
		return c
	}
	wait := func(vc string) bool { return vc == "w" }
	if stuck := Stuck(good(), wait); len(stuck) > 0 {
		t.Errorf("nothing is stuck: %q", stuck)
	}
	for _, c := range []struct {
		name string
		how  func(*Cluster)
	}{
		{"starting", func(c *Cluster) { c.VMs[0].State = "starting" }},
		{"lost", func(c *Cluster) { c.VMs[0].State = "lost" }},
		{"moving", func(c *Cluster) { c.VMs[0].MovingTo = "h2" }},
		{"its processes are", func(c *Cluster) { c.Processes = nil }},
		{"its processes are", func(c *Cluster) {
			left := process(2, "h2", false, 0, 0)
			c.Processes = append(c.Processes, left)
		}},
		{"its processes are", func(c *Cluster) { c.VMs[0].Host = "h2" }},
		{"no VM", func(c *Cluster) { c.VMs = nil }},
		{"no server leads", func(c *Cluster) { c.Status.Leader = "" }},
		{"held", func(c *Cluster) { c.Status.RecoveryFreeze = "restore" }},
		{"not there", func(c *Cluster) { c.Status.Members = c.Status.Members[:1] }},
		{"healthy false", func(c *Cluster) { c.Status.Members[1].Healthy = false }},
		{"voter false", func(c *Cluster) { c.Status.Members[1].Voter = false }},
		{"lease over", func(c *Cluster) { c.Status.Members[1].Lease = "over" }},
		{"to be ready", func(c *Cluster) { c.Status.Hosts = map[string]int{"ready": 1, "lost": 1} }},
		{"condition", func(c *Cluster) { c.Status.Conditions = []v1.Condition{{Text: "x"}} }},
		{"queued", func(c *Cluster) { c.VCs[0].State = "queued" }},
		{"degraded", func(c *Cluster) { c.VCs[0].State = "degraded" }},
		{"migration", func(c *Cluster) { c.Migrations[0].State = "running" }},
		{"plan", func(c *Cluster) { c.Plans[0].State = "running" }},
		{"plan", func(c *Cluster) { c.Plans[0].State = "proposed" }},
		{"drain", func(c *Cluster) { c.Drains["h1"] = v1.Drain{State: "draining"} }},
	} {
		bad := good()
		c.how(&bad)
		if stuck := Stuck(bad, wait); !slices.ContainsFunc(stuck, func(s string) bool { return strings.Contains(s, c.name) }) {
			t.Errorf("%s: found %q", c.name, stuck)
		}
	}
}

// TestWayOut: what the message of a vcd that does not start asks the operator to do.
func TestWayOut(t *testing.T) {
	for output, want := range map[string]string{
		"level=INFO x\nvcd: revoked.json: invalid character; remove the file, and the cluster sends them again\n":         "remove",
		"vcd: servers.json: unexpected end; let it in again: vcctl cluster join-token --server --agent --for h1 > FILE\n": "join",
		"vcd: agent: agent of host h1: what it knew: read h1.json: unexpected end of JSON input\n":                        "",
		"panic: freepages: failed to get all reachable pages\n\ngoroutine 1 [running]:\n":                                 "",
	} {
		if got := WayOut(output); got != want {
			t.Errorf("%q: %q, want %q", output, got, want)
		}
	}
}

// TestCrashed: crashes of vcd are recognized apart from those of the library that it calls.
func TestCrashed(t *testing.T) {
	inC := "level=INFO x\nSIGSEGV: segmentation violation\nPC=0x7f m=10 sigcode=1 addr=0xe0\nsignal arrived during cgo execution\n\ngoroutine 4163 gp=0x2 m=10 [syscall]:\n" +
		"runtime.cgocall(0x1, 0x2)\n\t/usr/local/go/src/runtime/cgocall.go:167\nlibvirt.org/go/libvirt._Cfunc_virConnectGetAllDomainStatsWrapper(0x7f)\n\t_cgo_gotypes.go:3056\n"
	own := "panic: runtime error: index out of range [3] with length 3\n\ngoroutine 9 [running]:\nevenkeel/cluster/leader.plan(0x1)\n\tplan.go:3\n"
	for _, c := range []struct {
		said            string
		panics, library string
	}{
		{"level=INFO msg=\"no panic: all is well\"\n", "", ""},
		{inC, "", "SIGSEGV: segmentation violation in libvirt.org/go/libvirt._Cfunc_virConnectGetAllDomainStatsWrapper"},
		{own, "panic: runtime error: index out of range [3] with length 3 in evenkeel/cluster/leader.plan", ""},
	} {
		panics, library := Crashed(c.said)
		if got := strings.Join(panics, "; "); got != c.panics {
			t.Errorf("panics %q, want %q", got, c.panics)
		}
		if got := strings.Join(library, "; "); got != c.library {
			t.Errorf("crashes of the library %q, want %q", got, c.library)
		}
	}
}

// TestLeaseStops: what a host's log says of VMs that it stops, from whole lines only, each once.
func TestLeaseStops(t *testing.T) {
	file := filepath.Join(t.TempDir(), "h1-vcd.log")
	one := `time=2027-12-28T04:01:19.183Z level=WARN msg="the lease is over: restartable VM stopped" member=h1 host=h1 vm=ek-beat-g-1 generation=1` + "\n"
	other := `time=2027-12-28T04:01:19.183Z level=WARN msg="the lease is over, and the hypervisor does not say what runs" member=h1 vm=ek-beat-g-2` + "\n"
	var read int64
	for _, c := range []struct{ text, want string }{{"", ""}, {other + one, "ek-beat-g-1"}, {one[:120], ""}, {one[120:] + one, "ek-beat-g-1,ek-beat-g-1"}, {"", ""}} {
		f, err := os.OpenFile(file, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
		if err == nil {
			_, err = f.WriteString(c.text)
		}
		if err := errors.Join(err, f.Close()); err != nil {
			t.Fatal(err)
		}
		var got []string
		if got, read = leaseStops(file, read); strings.Join(got, ",") != c.want {
			t.Errorf("after %q: %q, want %q", c.text, got, c.want)
		}
	}
}
