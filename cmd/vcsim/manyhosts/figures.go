package manyhosts

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
)

// Measurements of a run.
type Measurements struct {
	Machine struct {
		Cores int    `json:"cores"`
		Go    string `json:"go"`
	} `json:"machine"`
	Servers int     `json:"servers"`
	Hosts   int     `json:"hosts"`
	VMs     int     `json:"vms"`
	Nice    int     `json:"nice"`        // of the hosts under load
	Life    float64 `json:"lifeSeconds"` // of what is admitted under load; 0: it is deleted afterwards
	JoinIn  float64 `json:"joinSeconds"` // all hosts, by tokens
	FillIn  float64 `json:"fillSeconds"` // from the first request until all VMs run

	Steady struct {
		Seconds float64            `json:"seconds"`
		Leader  string             `json:"leader"`
		CPU     map[string]float64 `json:"cpuPercentOfOneCore"` // by server, and of the process that is all hosts
		RSS     map[string]float64 `json:"rssMiB"`
		Entries float64            `json:"logEntriesPerSecond"`
		Others  float64            `json:"othersPercentOfMachine"` // what the machine did besides
	} `json:"steady"`

	Speed       Speed              `json:"sameWorkMillis"`
	Load        Load               `json:"load"`
	LoadCPU     map[string]float64 `json:"loadCPUPercentOfOneCore"`
	LoadMillis  map[string]float64 `json:"loadCPUMillisPerAdmission"` // deletion and all else that follows included, less what steady state takes
	LoadOthers  float64            `json:"loadOthersPercentOfMachine"`
	LoadEntries float64            `json:"loadLogEntriesPerSecond"`
	LoadRSS     map[string]float64 `json:"loadPeakRSSMiB"`
	Rest        *Rest              `json:"rest,omitempty"`

	Disk     map[string]Disk `json:"disk"`
	Restarts []Restart       `json:"restarts"`
	Doubled  []string        `json:"ranTwice"`
}

// Rest is what servers take for a while after all that was asked for under load is deleted, by server.
type Rest struct {
	Seconds float64            `json:"seconds"`
	CPU     map[string]float64 `json:"cpuPercentOfOneCore"`
	RSS     map[string]float64 `json:"rssMiB"` // at the end
}

// Disk of a server after the load.
type Disk struct {
	Log       float64 `json:"logMiB"`
	Snapshots float64 `json:"snapshotsMiB"`
	Index     uint64  `json:"index"`
}

// Restart of a server under load, until it had all log entries that the leader had when the server was started.
type Restart struct {
	Server  string  `json:"server"`
	By      string  `json:"by"`
	Leader  bool    `json:"leader"`
	Behind  uint64  `json:"behind"` // entries, when it was started again
	Seconds float64 `json:"seconds"`
}

// parts of a figure, by name.
func parts(m map[string]float64, format string) string {
	var out []string
	for _, name := range slices.Sorted(maps.Keys(m)) {
		out = append(out, name+" "+fmt.Sprintf(format, m[name]))
	}
	return strings.Join(out, ", ")
}

// Write the figures for people.
func (f *Measurements) Write(out io.Writer) {
	line := func(format string, args ...any) { fmt.Fprintf(out, format+"\n", args...) }
	line("%d servers, %d hosts, %d VMs on one machine of %d cores, %s", f.Servers, f.Hosts, f.VMs, f.Machine.Cores, f.Machine.Go)
	if f.Nice > 0 {
		line("  hosts run at a lower priority than servers and clients under load (nice %d)", f.Nice)
	}
	line("  hosts joined in %.1f s; all VMs running %.1f s after the first was asked for", f.JoinIn, f.FillIn)
	if s := f.Steady; s.Seconds > 0 {
		line("steady state, %.0f s: leader %s takes %.1f%% of one core and %.0f MiB", s.Seconds, s.Leader, s.CPU[s.Leader], s.RSS[s.Leader])
		line("  CPU %s; memory %s; %.1f log entries a second", parts(s.CPU, "%.1f%%"), parts(s.RSS, "%.0f MiB"), s.Entries)
		line("  all other processes take %.0f%% of the machine", s.Others)
	}
	if l := f.Load; l.Asked > 0 {
		deleted := "afterwards"
		if f.Life > 0 {
			deleted = fmt.Sprintf("%g s later each", f.Life)
		}
		line("load, %.0f s: %d virtual clusters asked for, %d admitted (%.1f a second, %d VMs), %d deleted %s", l.Seconds, l.Asked, l.Admitted, l.PerSecond, l.VMs, l.Deleted, deleted)
		line("  create: p50 %.1f ms, p90 %.1f ms, p99 %.1f ms, worst %.1f ms from when it was due", l.Millis.P50, l.Millis.P90, l.Millis.P99, l.Millis.Max)
		line("  create, worst of each second: %.0f ms", l.Worst)
		line("  delete: p50 %.1f ms, p90 %.1f ms, p99 %.1f ms, worst %.1f ms", l.DeleteTime.P50, l.DeleteTime.P90, l.DeleteTime.P99, l.DeleteTime.Max)
		line("  asked again: %v; failed: %v; the same piece of work took %.1f ms of CPU before, %.1f ms meanwhile", l.Retried, l.Failed, f.Speed.Idle, f.Speed.Load)
		line("  CPU %s; peak memory %s; %.0f log entries a second; others take %.0f%% of the machine", parts(f.LoadCPU, "%.0f%%"), parts(f.LoadRSS, "%.0f MiB"), f.LoadEntries, f.LoadOthers)
		line("  CPU per admission, all that follows from it and the deletion included, steady state not: %s", parts(f.LoadMillis, "%.1f ms"))
	}
	if r := f.Rest; r != nil {
		line("%.0f s after all of these were deleted: memory %s; CPU %s", r.Seconds, parts(r.RSS, "%.0f MiB"), parts(r.CPU, "%.1f%%"))
	}
	for i := range f.Servers {
		name := fmt.Sprintf("s%d", i+1)
		if d, ok := f.Disk[name]; ok {
			line("disk of %s at index %d: log %.1f MiB, snapshots %.1f MiB", name, d.Index, d.Log, d.Snapshots)
		}
	}
	for _, r := range f.Restarts {
		role := "follower"
		if r.Leader {
			role = "leader"
		}
		line("%s %s ended by %s, %d entries behind when started again: in step after %.1f s", role, r.Server, r.By, r.Behind, r.Seconds)
	}
	line("VMs that ran twice: %d", len(f.Doubled))
}

// JSON writes the figures for programs.
func (f *Measurements) JSON(out io.Writer) error {
	e := json.NewEncoder(out)
	e.SetIndent("", "  ")
	return e.Encode(f)
}
