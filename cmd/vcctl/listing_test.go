package main

import (
	"slices"
	"strings"
	"testing"
	"time"

	"evenkeel/api/v1"
)

func TestOrder(t *testing.T) {
	for _, c := range []struct {
		name, order, cells, want string
	}{
		{"names count their numbers", "x", "h10 h2 h1 h02", "h1 h2 h02 h10"},
		{"numbers", "x", "0.50 10.00 2.00", "0.50 2.00 10.00"},
		{"turned round, what is empty last", "x:desc", "0.50 - 10.00 2.00", "10.00 2.00 0.50 -"},
		{"sizes", "x", "1.5GiB 512MiB 2GiB 0B", "0B 512MiB 1.5GiB 2GiB"},
		{"times that pass", "x", "2h5m 59s 1d 3m 150ms", "150ms 59s 3m 2h5m 1d"},
		{"k of n", "x", "10/12 9/9 2/3", "2/3 9/9 10/12"},
		{"one that is no amount makes names of all", "x", "10 9 a", "9 10 a"},
		{"equal ones stay", "x:desc", "a b a", "b a a"},
	} {
		by, err := parseOrder(c.order)
		if err != nil {
			t.Fatal(err)
		}
		cells := strings.Fields(c.cells)
		var got []string
		for _, i := range by.of(cells) {
			got = append(got, cells[i])
		}
		if !slices.Equal(got, strings.Fields(c.want)) {
			t.Errorf("%s: %v, want %s", c.name, got, c.want)
		}
	}
	for _, wrong := range []string{"", ":desc", "a:up"} {
		if _, err := parseOrder(wrong); err == nil {
			t.Errorf("order %q is taken", wrong)
		}
	}
}

func TestSelector(t *testing.T) {
	labels := map[string]string{"env": "prod", "tier": "web"}
	for written, want := range map[string]bool{
		"env=prod": true, "env==prod": true, "env=test": false, "env!=test": true, "env!=prod": false, "zone!=a": true, "zone=a": false,
		"env": true, "zone": false, "!zone": true, "!env": false, "env=prod,tier=web": true, "env=prod, tier=db": false, "env=": false, "tier!=": true,
	} {
		s, err := parseSelector(written)
		if err != nil {
			t.Errorf("%s: %v", written, err)
		} else if got := s.match(labels); got != want {
			t.Errorf("%s: %v, want %v", written, got, want)
		}
	}
	for _, wrong := range []string{"=a", ",", "env=a,", "!=x", "a b"} {
		if _, err := parseSelector(wrong); err == nil {
			t.Errorf("selector %q is taken", wrong)
		}
	}
}

func TestShortTime(t *testing.T) {
	for d, want := range map[time.Duration]string{
		-time.Second: "0s", 0: "0s", 59 * time.Second: "59s", time.Minute: "1m", 12*time.Minute + 5*time.Second: "12m5s", 3*time.Hour + 40*time.Minute + 9*time.Second: "3h40m",
		3*time.Hour + 9*time.Second: "3h", 49 * time.Hour: "2d1h", 400 * 24 * time.Hour: "400d", time.Second + 999*time.Millisecond: "1s",
	} {
		if got := shortTime(d); got != want {
			t.Errorf("%s: %s, want %s", d, got, want)
		}
	}
}

func someHosts() listing[v1.Host] {
	hosts := []v1.Host{
		{Name: "h10", State: "ready", Lease: "held", VMs: 3, Allocated: v1.Resources{CPU: 2, Memory: 1 << 30}, Allowance: v1.Resources{CPU: 4, Memory: 8 << 30}, Roles: []string{"server", "agent"}},
		{Name: "h2", State: "cordoned", Lease: "over", VMs: 12, CordonReason: "disk, \"sda\"", Roles: []string{"agent"}},
	}
	return listing[v1.Host]{items(hosts), hostTable}
}

func TestListFormats(t *testing.T) {
	l := someHosts()
	names := asNames(l)
	if names != "h10\nh2\n" {
		t.Errorf("names: %q", names)
	}
	csv, err := asCSV(l)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(csv, "\n")
	if len(lines) != 4 || !strings.HasPrefix(lines[0], "NAME,STATE,ROLES,LEASE,WATCHDOG,") || !strings.HasPrefix(lines[1], `h10,ready,"server, agent",held,,3,`) || !strings.Contains(lines[2], `"disk, ""sda"""`) {
		t.Errorf("CSV:\n%s", csv)
	}
	columns, err := asColumns(l, "name,vms,GIB:allocated.cpu,ROLE:.roles.0,ALL:roles,NONE:no.such")
	if err != nil {
		t.Fatal(err)
	}
	want := "NAME   VMS   GIB   ROLE     ALL            NONE\nh10    3     2     server   server,agent   -\nh2     12    0     agent    agent          -\n"
	if columns != want {
		t.Errorf("columns:\n%s\nwant\n%s", columns, want)
	}
	if _, err := asColumns(l, "nosuch"); err == nil || !strings.Contains(err.Error(), "cpu-used") {
		t.Errorf("a column that there is not: %v", err)
	}
	sorted, err := l.sorted(order{"vms", true})
	if err != nil || asNames(sorted) != "h2\nh10\n" {
		t.Errorf("sorted: %v", err)
	}
	if l.Items[0].Name != "h10" {
		t.Error("sorting changed the list that was sorted")
	}
	if _, err := l.selected(selector{{key: "a"}}); err == nil {
		t.Error("hosts have no labels, and were selected by them")
	}
}

// Whatever the texts, no line of a table is wider than it should be where the columns before the last leave room; -o wide cuts nothing.
func TestTablesFit(t *testing.T) {
	long := strings.Repeat("why it is so, ", 40)
	s := v1.ClusterStatus{Conditions: []v1.Condition{{Severity: "critical", Object: "host", Name: "h1", Text: long}, {Severity: "warning", Object: "host", Name: "h2", Text: "/a/" + strings.Repeat("x", 60) + " and " + strings.Repeat("y", 60)}}}
	for _, line := range strings.Split(conditionTable.text(s.Conditions, false), "\n") {
		if len(line) > tableWidth {
			t.Errorf("%d columns: %s", len(line), line)
		}
	}
	if text := conditionTable.text(s.Conditions, true); !strings.Contains(text, strings.TrimSpace(long)) {
		t.Errorf("-o wide cuts:\n%s", text)
	}
}

func TestHealth(t *testing.T) {
	well := v1.ClusterStatus{Ready: true, Voters: 3, Tolerance: 1, Members: make([]v1.Member, 3)}
	down := v1.Condition{Severity: "critical", Object: "member", Name: "h2", Text: "server: it has not answered for 19s", Command: "vcctl cluster members -o wide"}
	off := v1.Condition{Severity: "warning", Object: "cluster", Name: "01J", Text: "fencing is disabled", Command: "vcctl cluster fencing enable"}
	for _, c := range []struct {
		name   string
		change func(*v1.ClusterStatus)
		want   string
	}{
		{"well", func(*v1.ClusterStatus) {}, "OK"},
		{"the worst, and what to do", func(s *v1.ClusterStatus) { s.Conditions = []v1.Condition{down, off} },
			"critical: member h2: server: it has not answered for 19s (and 1 more condition); next: vcctl cluster members -o wide"},
		{"of the cluster", func(s *v1.ClusterStatus) { s.Conditions = []v1.Condition{off} }, "warning: fencing is disabled; next: vcctl cluster fencing enable"},
		{"without a command", func(s *v1.ClusterStatus) { off := off; off.Command = ""; s.Conditions = []v1.Condition{off, off, off} }, "warning: fencing is disabled (and 2 more conditions)"},
		{"not ready", func(s *v1.ClusterStatus) { s.Ready, s.NotReady = false, "no leader is known" }, "critical: this server is not ready: no leader is known; next: vcctl cluster status --stale"},
		{"virtual clusters", func(s *v1.ClusterStatus) { s.VirtualClusters = map[string]int{"degraded": 2, "running": 5} },
			"warning: virtual clusters: 2 degraded; next: vcctl vc list -o wide --state degraded"},
	} {
		s := well
		c.change(&s)
		if got := healthText(s); got != c.want {
			t.Errorf("%s: %s\nwant %s", c.name, got, c.want)
		}
		if text := statusText(s); !strings.HasPrefix(text, "Status:  ") || !strings.HasPrefix(strings.Split(text, "\n")[1], "Fault tolerance:") {
			t.Errorf("%s: the status begins with\n%s", c.name, text)
		}
	}
	if got := toleranceText(well); got != "1 of 3 voting servers may fail" {
		t.Error(got)
	}
}

func TestVersionText(t *testing.T) {
	v := versions{Version: "1.2", Server: "1.2", Members: []memberVersion{{"h1", nil, "1.2"}, {"h2", nil, "1.1"}, {"h3", nil, "1.2"}, {"h4", nil, ""}}}
	if got, want := versionText(v), "vcctl 1.2\nvcd 1.1   1 member: h2\nvcd 1.2   2 members: h1, h3\nvcd not known   1 member: h4\n"; got != want {
		t.Errorf("%s\nwant\n%s", got, want)
	}
}
