package rightsizing_test

import (
	"bufio"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"evenkeel/api/v1"
	"evenkeel/test/daemon"
	"evenkeel/test/lab"
)

func TestMain(m *testing.M) { os.Exit(daemon.Main(m)) }

// site is vcd on a host of the lab, with guests that play.
type site struct {
	*daemon.Daemon
	t     *testing.T
	mu    sync.Mutex
	plays map[string]*played // by VM
}

// newSite starts vcd where VMs may have so many cores and so much memory, with forecasts by steps of that long.
func newSite(t *testing.T, cpu float64, memory int64, step time.Duration) *site {
	t.Helper()
	lab.Real(t)
	l := lab.New(t, lab.Options{})
	if err := l.Precede(); err != nil {
		t.Fatal(err)
	}
	return &site{t: t, plays: map[string]*played{}, Daemon: daemon.New(t, l.Host(1), "--allowance-cpu", fmt.Sprint(cpu),
		"--allowance-memory", fmt.Sprintf("%dMiB", memory/mib), "--min-yield", "0.5", "--forecast-step", step.String())}
}

// vc of one VM that plays, of so much memory and at least that; its guest swaps.
func vc(name string, memory, lowest int64, settings string) v1.VirtualClusterSpec {
	return v1.VirtualClusterSpec{Name: name, OnFull: "reject", Needs: "estimated", Groups: []v1.GroupSpec{{Name: "g", Count: 1, CPU: 0.2, Memory: v1.Size(memory), MemoryMin: v1.Size(lowest),
		Disk: &v1.Disk{Size: v1.Size(64 * mib), Ephemeral: true},
		Boot: &v1.Boot{Kernel: "tiny", Cmdline: lab.Guest{}.Cmdline("ek.beat=3600000 ek.swap=vda " + settings)}}}}
}

// admit a VC and follow what its guest says; the error says why it is refused.
func (s *site) admit(spec v1.VirtualClusterSpec) error {
	s.t.Helper()
	r, err := s.Create(s.t.Context(), spec)
	if err != nil {
		return err
	}
	s.Done(r, nil)
	name := spec.Name + "-g-0"
	s.mu.Lock()
	s.plays[name] = &played{step: -1}
	s.mu.Unlock()
	go s.follow(name)
	return nil
}

// follow a guest's console until the test ends, over every vcd.
func (s *site) follow(vm string) {
	for s.t.Context().Err() == nil {
		c, err := s.Console(s.t.Context(), vm)
		if err == nil {
			for lines := bufio.NewScanner(c); lines.Scan(); {
				s.mu.Lock()
				s.plays[vm].take(strings.TrimSpace(lines.Text()))
				s.mu.Unlock()
			}
			_ = c.Close()
		}
		select {
		case <-s.t.Context().Done():
		case <-time.After(500 * time.Millisecond):
		}
	}
}

func (s *site) play(vm string) played {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p := s.plays[vm]; p != nil {
		return *p
	}
	return played{step: -1}
}

// vms as the cluster shows them, by name.
func (s *site) vms() map[string]v1.VM {
	s.t.Helper()
	all, err := s.VMs(s.t.Context(), "", "")
	if err != nil {
		s.t.Fatal(err)
	}
	out := map[string]v1.VM{}
	for _, vm := range all {
		out[vm.Name] = vm
	}
	return out
}
