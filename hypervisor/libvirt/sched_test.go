package libvirt

import (
	"math"
	"os"
	"path/filepath"
	"testing"

	"pgregory.net/rapid"

	"evenkeel/hypervisor"
)

func TestSchedParams(t *testing.T) {
	const none = int64(-1)
	cases := []struct {
		name   string
		vcpus  int
		cpu    hypervisor.CPU
		cgroup int
		want   sched
	}{
		{"half a core", 1, hypervisor.CPU{Cap: 0.5, Weight: 0.5}, 1, sched{512, 100_000, 50_000, 100_000, none}},
		{"half a core, v2", 1, hypervisor.CPU{Cap: 0.5, Weight: 0.5}, 2, sched{50, 100_000, 50_000, 100_000, none}},
		{"whole vCPU: never throttled", 1, hypervisor.CPU{Cap: 1, Weight: 1}, 1, sched{1024, 100_000, 105_000, 100_000, none}},
		{"whole vCPU, v2", 1, hypervisor.CPU{Cap: 1, Weight: 1}, 2, sched{100, 100_000, 105_000, 100_000, none}},
		{"several vCPUs: one quota with margin", 4, hypervisor.CPU{Cap: 1, Weight: 1}, 1, sched{1024, 100_000, none, 100_000, 104_000}},
		{"several vCPUs, v2", 4, hypervisor.CPU{Cap: 2.5, Weight: 2.5}, 2, sched{250, 100_000, none, 100_000, 257_000}},
		{"no cap, one vCPU", 1, hypervisor.CPU{Weight: 2}, 1, sched{2048, 100_000, none, 100_000, none}},
		{"no cap, several vCPUs", 2, hypervisor.CPU{Weight: 2}, 2, sched{200, 100_000, none, 100_000, none}},
		{"least quota", 1, hypervisor.CPU{Cap: 0.01, Weight: 0.01}, 1, sched{10, 100_000, 1_000, 100_000, none}},
		{"longer period", 1, hypervisor.CPU{Cap: 0.004, Weight: 0.004}, 1, sched{4, 250_000, 1_000, 100_000, none}},
		{"longest period", 1, hypervisor.CPU{Cap: 0.001, Weight: 0.001}, 2, sched{1, 1_000_000, 1_000, 100_000, none}},
		{"below what the kernel can do", 1, hypervisor.CPU{Cap: 1e-6, Weight: 1e-6}, 1, sched{2, 1_000_000, 1_000, 100_000, none}},
		{"no weight: that of one core", 1, hypervisor.CPU{}, 1, sched{1024, 100_000, none, 100_000, none}},
		{"no weight, v2", 1, hypervisor.CPU{}, 2, sched{100, 100_000, none, 100_000, none}},
		{"heaviest", 64, hypervisor.CPU{Weight: 1000}, 1, sched{262_144, 100_000, none, 100_000, none}},
		{"heaviest, v2", 64, hypervisor.CPU{Weight: 1000}, 2, sched{10_000, 100_000, none, 100_000, none}},
	}
	for _, c := range cases {
		if got := schedParams(c.vcpus, c.cpu, c.cgroup); got != c.want {
			t.Errorf("%s: schedParams(%d, %+v, v%d) = %+v, want %+v", c.name, c.vcpus, c.cpu, c.cgroup, got, c.want)
		}
	}
}

// What is read back is what was set, as far as quotas and shares can say it.
func TestSchedInverse(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		vcpus := rapid.IntRange(1, 32).Draw(t, "vcpus")
		cgroup := rapid.IntRange(1, 2).Draw(t, "cgroup")
		want := hypervisor.CPU{Cap: rapid.Float64Range(0.001, float64(vcpus)).Draw(t, "cap"), Weight: rapid.Float64Range(0.01, 32).Draw(t, "weight")}
		if rapid.Bool().Draw(t, "no cap") {
			want.Cap = 0
		}
		s := schedParams(vcpus, want, cgroup)
		for _, q := range []struct {
			period uint64
			quota  int64
		}{{s.VCPUPeriod, s.VCPUQuota}, {s.GlobalPeriod, s.GlobalQuota}} {
			if q.period < 1_000 || q.period > 1_000_000 || q.quota != -1 && q.quota < 1_000 {
				t.Fatalf("%+v: the kernel refuses this", s)
			}
		}
		got := s.cpu(vcpus, cgroup, true)
		if math.Abs(got.Cap-want.Cap) > 1.1e-5 {
			t.Errorf("cap %v comes back as %v (%+v)", want.Cap, got.Cap, s)
		}
		if math.Abs(got.Weight-want.Weight) > 0.0051 {
			t.Errorf("weight %v comes back as %v (%+v)", want.Weight, got.Weight, s)
		}
	})
}

// Quotas that another program set are taken as they are.
func TestSchedForeign(t *testing.T) {
	cases := []struct {
		name  string
		vcpus int
		s     sched
		want  float64
	}{
		{"per vCPU", 2, sched{1024, 100_000, 50_000, 100_000, -1}, 1},
		{"whole VM", 2, sched{1024, 100_000, -1, 100_000, 150_000}, 1.5},
		{"both, the lesser holds", 2, sched{1024, 100_000, 50_000, 100_000, 80_000}, 0.8},
		{"whole vCPU", 1, sched{1024, 100_000, 105_000, 100_000, -1}, 1.05},
		{"none", 2, sched{1024, 100_000, -1, 100_000, -1}, 0},
		{"none, as the greatest quota", 2, sched{1024, 100_000, 17592186044415, 100_000, 17592186044415}, 0},
		{"nothing known", 1, sched{}, 0},
	}
	for _, c := range cases {
		if got := c.s.cpu(c.vcpus, 1, false).Cap; got != c.want {
			t.Errorf("%s: cap %v, want %v", c.name, got, c.want)
		}
	}
}

func TestCheckCPU(t *testing.T) {
	for _, good := range []hypervisor.CPU{{}, {Cap: 0.5, Weight: 3}} {
		if err := checkCPU(good); err != nil {
			t.Errorf("%+v: %v", good, err)
		}
	}
	for _, bad := range []hypervisor.CPU{{Cap: -1}, {Cap: math.NaN()}, {Weight: math.Inf(1)}, {Weight: -0.1}} {
		if err := checkCPU(bad); err == nil {
			t.Errorf("%+v: taken", bad)
		}
	}
}

func TestDetectCgroup(t *testing.T) {
	cases := []struct {
		name  string
		files []string
		want  int
	}{
		{"unified", []string{"cgroup.controllers"}, 2},
		{"legacy", []string{"cpu/cpu.shares", "memory/x"}, 1},
		{"legacy, joint controllers", []string{"cpu,cpuacct/cpu.shares"}, 1},
		{"hybrid: CPU is on v1", []string{"cpu/cpu.shares", "unified/cgroup.controllers"}, 1},
		{"hybrid: CPU is on v2", []string{"memory/x", "unified/cgroup.controllers"}, 2},
		{"none", nil, 1},
	}
	for _, c := range cases {
		root := t.TempDir()
		for _, f := range c.files {
			path := filepath.Join(root, f)
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, nil, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if got := detectCgroup(root); got != c.want {
			t.Errorf("%s: v%d, want v%d", c.name, got, c.want)
		}
	}
}
