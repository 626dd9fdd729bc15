package member_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"strings"
	"sync"
	"testing"

	"evenkeel/cluster/transport"
	"evenkeel/hypervisor"
)

// journal keeps the log of all members of a site.
type journal struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (j *journal) Write(b []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.Write(b)
}

type entry struct{ Level, Msg, Do string }

// of a member, the entries of level INFO and above.
func (j *journal) of(t *testing.T, name string) (out []entry) {
	t.Helper()
	j.mu.Lock()
	defer j.mu.Unlock()
	for line := range strings.Lines(j.text.String()) {
		var raw map[string]any
		if err := json.Unmarshal([]byte(line), &raw); err != nil {
			t.Fatal(err)
		}
		if raw["member"] != name {
			continue
		}
		do, _ := raw["to do"].(string)
		out = append(out, entry{Level: raw["level"].(string), Msg: raw["msg"].(string), Do: do})
	}
	return out
}

// since returns the entry in which a member reported that it was removed, and those after it; nil: it has not reported that.
func (j *journal) since(t *testing.T, name string) []entry {
	all := j.of(t, name)
	for i, e := range all {
		if e.Level == "ERROR" && strings.Contains(e.Msg, "has removed this member") {
			return all[i:]
		}
	}
	return nil
}

// A member that was removed while it ran reports that once, with the way out, and logs nothing more. So does one that was down
// meanwhile. Its VMs are not touched. Admitted again, it works.
func TestRemovedMembersSaySoOnce(t *testing.T) {
	bubble(t, 4, func(t *testing.T, s *site) {
		j := &journal{}
		s.log = slog.New(slog.NewJSONHandler(j, nil))
		m := s.first()
		s.join("h2", false)
		s.join("h3", true)
		s.join("h4", true)
		s.eventually("four hosts report", func() bool { return s.ready() == 4 })
		foreign := hypervisor.Spec{Identity: hypervisor.Identity{VM: "01FOREIGN", Cluster: "01ANOTHERCLUSTER", Generation: 1}, Name: "ek-x", VCPUs: 1, Memory: 512 * mib, Balloon: 512 * mib, CPU: hypervisor.CPU{Weight: 1}, Boot: hypervisor.Boot{Kernel: "/k"}}
		if err := errors.Join(s.world.Host("h2").Define(t.Context(), foreign), s.world.Host("h2").Start(t.Context(), foreign)); err != nil {
			t.Fatal(err)
		}
		s.stop("h4")
		remove := func(name string) {
			t.Helper()
			s.eventually(name+" is removed", func() bool { return s.leader().Remove(t.Context(), name, false) == nil })
		}
		remove("h4")
		s.start("h4", s.listen("h4")) // it was down when it was removed
		remove("h2")
		remove("h3")
		for _, name := range []string{"h2", "h3", "h4"} {
			s.eventually(name+" says that it was removed", func() bool { return j.since(t, name) != nil })
			if err := s.up[name].Ready(); !errors.Is(err, transport.ErrRemoved) {
				t.Errorf("%s is ready: %v", name, err)
			}
		}
		if vms, err := s.world.Host("h2").List(t.Context()); err != nil || len(vms) != 1 {
			t.Errorf("its VMs: %v, %v", vms, err)
		}
		s.stop("h2")
		if err := os.RemoveAll(s.dirs["h2"]); err != nil {
			t.Fatal(err)
		}
		s.join("h2", false)
		s.eventually("h2 is let in again", func() bool { return s.ready() >= 2 && s.up["h2"].Ready() == nil })
		if _, ok := m.State.Snapshot().Member("h2"); !ok {
			t.Error("h2 is no member")
		}
		for _, name := range []string{"h3", "h4"} {
			said := j.since(t, name)
			again := map[string]int{}
			for _, e := range said[1:] {
				again[e.Msg]++
			}
			delete(again, "connection refused") // by a server, of other removed members
			for msg, n := range again {
				if n > 1 { // what was under way ends once
					t.Errorf("%s goes on, %d times: %s", name, n, msg)
				}
			}
			if said[0].Do != "leave it, or let "+name+" in" {
				t.Errorf("the way out of %s: %+v", name, said[0])
			}
		}
	})
}
