package lint

import (
	"fmt"
	"path"
	"slices"
	"strings"
)

// Arrows point down only: cmd -> api -> cluster -> the packages below. arrows
// says for each folder which of our own packages its code may import, itself
// and what lies below it apart. A folder that is not named is judged as the
// nearest one above it that is. "x/..." is x and all below it. Tests may import
// what they like.
var arrows = map[string][]string{
	// Decide: values in, values out.
	"allocator": nil,
	"migration": {"allocator"},
	"forecast":  nil,

	// Judge: what deciding that way would have come to. Only the simulator and the papers need this.
	"sim/trace":    nil,           // workloads that others measured and published, read from their formats
	"sim/workload": {"sim/trace"}, // what arrives at a cluster, and what it really uses
	"sim/ets":      nil,           // exponential smoothing
	"sim/arima":    nil,
	"sim/gp":       nil,
	"sim/fitted":   {"forecast", "sim/arima", "sim/gp"}, // Pace's models
	"sim/baseline": {"forecast", "sim/ets"},             // forecasts that any cleverer one must beat
	"sim/score":    {"forecast"},                        // how well models predict a series
	"sim/flex":     nil,                                 // admission by measured load
	"sim/batch":    {"allocator", "migration"},
	"sim/morpheus": {"sim/workload", "sim/batch", "cluster/scheduler/reservation", "forecast/..."},
	"sim/signoff":  {"cluster/scheduler/reservation", "migration", "forecast/..."},
	"sim/replay":   {"sim/workload", "sim/flex", "sim/arima", "sim/gp", "cluster/scheduler/reservation", "allocator/...", "migration", "forecast/..."},

	// Act: one interface in our own types, and what stands behind it.
	"hypervisor":             nil,
	"hypervisor/libvirt":     {"hypervisor", "hypervisor/imagefile"},
	"hypervisor/simulated":   {"hypervisor"},
	"hypervisor/conformance": {"hypervisor"},
	"hypervisor/hostcheck":   {"hypervisor"},

	// Files that hold secrets, and files that must be found whole.
	"internal/secretfile": nil,
	"internal/statefile":  {"internal/secretfile"},

	// Record and control.
	"cluster/capacity": {"allocator"},
	"cluster/state":    {"cluster/capacity", "allocator", "migration", "forecast", "hypervisor"},
	"cluster/lease":    {"cluster/state"},
	"cluster/watchdog": nil,
	"cluster/fence":    {"internal/secretfile"},
	"cluster/audit":    nil,
	"cluster/history":  nil,
	"cluster/agent":    {"cluster/capacity", "cluster/state", "cluster/lease", "cluster/history", "forecast", "hypervisor", "internal/statefile"},

	// Schedulers: placement and moves are what they share, and no feature imports another. simulate asks what the others would do.
	"cluster/scheduler/placement":   {"cluster/capacity", "cluster/state", "allocator", "forecast/periodic"},
	"cluster/scheduler/moves":       {"cluster/scheduler/placement", "cluster/capacity", "cluster/state", "allocator", "migration", "hypervisor"},
	"cluster/scheduler/admission":   {"cluster/scheduler/placement", "cluster/capacity", "cluster/state", "allocator", "forecast"},
	"cluster/scheduler/rebalance":   {"cluster/scheduler/placement", "cluster/scheduler/moves", "cluster/state", "migration"},
	"cluster/scheduler/drain":       {"cluster/scheduler/placement", "cluster/scheduler/moves", "cluster/state", "migration"},
	"cluster/scheduler/failover":    {"cluster/scheduler/placement", "cluster/scheduler/moves", "cluster/state", "cluster/lease", "cluster/agent", "migration"},
	"cluster/scheduler/simulate":    {"cluster/scheduler/placement", "cluster/scheduler/moves", "cluster/scheduler/admission", "cluster/state", "allocator", "migration"},
	"cluster/scheduler/reservation": {"allocator", "migration"},
	"cluster/scheduler/agenda":      {"cluster/scheduler/placement", "cluster/scheduler/reservation", "cluster/state", "allocator", "migration", "forecast/periodic"},
	"cluster/scheduler/reprovision": {"cluster/scheduler/placement", "cluster/scheduler/reservation", "cluster/state"},
	"cluster/scheduler/rightsizing": {"cluster/capacity", "cluster/state", "cluster/agent", "allocator/rightsizing", "forecast"},

	"cluster/node":      {"cluster/state", "cluster/lease", "internal/statefile"},
	"cluster/waits":     {"cluster/state"},
	"cluster/leader":    {"cluster/scheduler/...", "cluster/audit", "cluster/waits", "cluster/state", "cluster/lease", "cluster/history", "cluster/agent", "cluster/node", "allocator", "migration", "forecast", "hypervisor"},
	"cluster/single":    {"cluster/state", "cluster/agent", "cluster/node", "cluster/leader", "hypervisor"},
	"cluster/pki":       {"internal/secretfile", "internal/statefile"},
	"cluster/transport": {"cluster/audit", "cluster/pki", "hypervisor", "cluster/state", "cluster/lease", "cluster/history", "forecast", "cluster/agent", "cluster/node", "cluster/leader"},
	"cluster/member":    {"cluster/...", "hypervisor", "internal/secretfile", "internal/statefile"},

	// Speak to people and programs.
	"api/v1":     nil,
	"api/client": {"api/v1"},
	"api/ui":     {"api/v1", "api/client", "api/oidc/issuer"},
	"api/oidc":   {"cluster/state"},
	// vcctl links it: nothing of the cluster.
	"api/oidc/issuer": nil,
	"api":             {"api/...", "cluster/...", "allocator/...", "migration", "forecast", "hypervisor", "internal/secretfile"},

	// Wire together.
	"cmd":       {"api/...", "cluster/...", "allocator/...", "migration", "forecast/...", "sim/...", "hypervisor/...", "internal/secretfile", "internal/statefile"},
	"cmd/vcctl": {"api/v1", "api/client", "api/oidc/issuer", "allocator/...", "migration", "forecast/...", "internal/secretfile"},

	"cmd/internal/count": {"internal/lint"},

	"internal/lint":    nil,
	"internal/docpage": nil, // generated parts of pages; only tests use it
	"test":             {"api/...", "cluster/...", "cmd/...", "allocator/...", "migration", "forecast/...", "sim/...", "hypervisor/..."},
}

// place is the entry of arrows that dir is judged by.
func place(dir string) (string, bool) {
	for d := dir; d != "."; d = path.Dir(d) {
		if _, ok := arrows[d]; ok {
			return d, true
		}
	}
	return "", false
}

// listed says whether p is in a list of paths, some of which may be "x/...".
func listed(list []string, p string) bool {
	return slices.ContainsFunc(list, func(entry string) bool {
		if root, ok := strings.CutSuffix(entry, "/..."); ok {
			return within(p, root)
		}
		return p == entry
	})
}

func checkArrows(r *Repo) (findings []Finding) {
	unplaced := map[string]bool{}
	for _, f := range r.Go {
		if f.Test {
			continue
		}
		at, ok := place(f.Dir)
		if !ok {
			if !unplaced[f.Dir] {
				unplaced[f.Dir] = true
				findings = append(findings, Finding{f.Dir, 0, "a package with no place in the house",
					"put the code where it belongs (docs/reference/packages.md), or give the package its line in internal/lint/arrows.go"})
			}
			continue
		}
		for _, i := range f.Imports {
			own := i.Own()
			if own == "" || within(own, at) || listed(arrows[at], own) {
				continue
			}
			may := "none of our own packages"
			if len(arrows[at]) > 0 {
				may = strings.Join(arrows[at], ", ")
			}
			findings = append(findings, Finding{f.Path, i.Line,
				fmt.Sprintf("%s imports %s, and arrows point down only", at, own),
				fmt.Sprintf("%s may import %s; declare an interface or a type of its own here and let cmd wire the two together", at, may)})
		}
	}
	return sorted(findings)
}

// confined says which imports are of which folders only. "x/..." is x and all below it.
var confined = []struct {
	imports []string
	only    []string
	fix     string
}{
	{[]string{"libvirt.org/go/...", "C"}, []string{"hypervisor/libvirt"},
		"go through the interface of package hypervisor; cgo and libvirt stay in hypervisor/libvirt"},
	{[]string{"github.com/hashicorp/raft/...", "github.com/hashicorp/raft-boltdb/...", "github.com/hashicorp/raft-autopilot/...", "github.com/hashicorp/memberlist/...", "go.etcd.io/bbolt/..."}, []string{"cluster/node"},
		"take an interface with the calls that are needed; cluster/node is the shell around Raft and gossip"},
	{[]string{"github.com/hashicorp/go-memdb/..."}, []string{"cluster/state"},
		"read through cluster/state's snapshot"},
	{[]string{"net/http/...", "github.com/danielgtaylor/huma/...", "github.com/coder/websocket/..."}, []string{"api", "cluster/transport"},
		"only api and cluster/transport speak HTTP: put the handler or the call there"},
	{[]string{module + "/api/v1"}, []string{"api", "cmd"},
		"convert wire types at the edge, in api, so that wire, log and solver can change apart"},
	{[]string{"github.com/coreos/go-oidc/...", "github.com/go-jose/go-jose/..."}, []string{"api/oidc"},
		"ask api/oidc whether a token is good: one place pins algorithms and claims"},
	{[]string{"github.com/zitadel/oidc/..."}, nil,
		"the product is no issuer: test/openid runs one for tests"},
	{[]string{"flag", "github.com/urfave/cli/...", "github.com/jedib0t/go-pretty/..."}, []string{"cmd"},
		"take a value; only cmd reads flags and writes to terminals"},
	{[]string{"log"}, []string{"cluster/node"}, // Raft's library wants one
		"log with log/slog, through a logger that was handed in"},
	{[]string{"testing/...", "pgregory.net/rapid/...", "go.uber.org/goleak/..."}, []string{"hypervisor/conformance"},
		"move the code to a _test.go file"},
}

// pure packages decide: values in, values out.
var pure = []string{"allocator", "migration", "forecast", "sim/baseline", "sim/batch", "sim/ets", "sim/flex", "sim/morpheus", "sim/replay", "sim/score", "sim/signoff", "sim/workload"}

// impure are the imports no pure package has.
var impure = []string{
	"bufio", "context", "crypto/rand", "embed", "io/fs", "io/ioutil", "log", "log/slog", "net", "os", "os/exec",
	"os/signal", "os/user", "path/filepath", "plugin", "runtime", "sync", "syscall", "unsafe",
}

// pureModules are the modules that pure packages may use. rrule-go reads the clock only for a rule without a start.
var pureModules = []string{"gonum.org/v1/gonum", "github.com/teambition/rrule-go"}

func checkModules(r *Repo) (findings []Finding) {
	for _, f := range r.Go {
		// Programs of the tests and the lab may use what they need.
		if f.Test || within(f.Dir, "test") {
			continue
		}
		for _, i := range f.Imports {
			for _, c := range confined {
				if listed(c.imports, i.Path) && !withinAny(f.Dir, c.only) {
					findings = append(findings, Finding{f.Path, i.Line, "imports " + i.Path, c.fix})
				}
			}
			if !withinAny(f.Dir, pure) {
				continue
			}
			external := strings.Contains(strings.Split(i.Path, "/")[0], ".")
			if withinAny(i.Path, impure) || (external && !withinAny(i.Path, pureModules)) {
				findings = append(findings, Finding{f.Path, i.Line,
					fmt.Sprintf("imports %s, and %s is a pure package", i.Path, f.Dir),
					"take what is needed as a value (a time, a seed, a stop function) and return what was found; the caller reads, logs and waits"})
			}
		}
	}
	return sorted(findings)
}

// barred are folders whose code must not come to link the target, by however many steps.
var barred = []struct {
	from   []string
	target []string
	fix    string
}{
	{[]string{"cmd/vcctl", "cmd/vcsim", "api", "cluster", "allocator", "migration", "forecast", "sim", "hypervisor/simulated"},
		[]string{"libvirt.org/go/libvirt", "C"},
		"only cmd/vcd imports hypervisor/libvirt; all else must build with CGO_ENABLED=0"},
	{[]string{"cmd/vcctl"}, []string{"github.com/hashicorp/raft"},
		"the client speaks REST: use api/client"},
	{[]string{"cmd/vcd", "cmd/vcctl", "api", "cluster", "allocator", "migration", "forecast", "hypervisor"}, []string{module + "/sim"},
		"sim is for the simulator and the papers: move what production needs out of it"},
}

// checkReach follows imports through our own packages. What modules of others
// import in turn is seen by building vcctl with CGO_ENABLED=0 (make build).
func checkReach(r *Repo) (findings []Finding) {
	type edge struct {
		file *GoFile
		imp  Import
	}
	edges := map[string][]edge{}
	for _, f := range r.Go {
		if f.Test {
			continue
		}
		for _, i := range f.Imports {
			edges[f.Dir] = append(edges[f.Dir], edge{f, i})
		}
	}
	// chain is a way from dir to an import below one of targets.
	var chain func(dir string, targets []string, seen map[string]bool) []string
	chain = func(dir string, targets []string, seen map[string]bool) []string {
		if seen[dir] {
			return nil
		}
		seen[dir] = true
		for _, e := range edges[dir] {
			if withinAny(e.imp.Path, targets) {
				return []string{dir, e.imp.Path}
			}
			if own := e.imp.Own(); own != "" {
				if rest := chain(own, targets, seen); rest != nil {
					return append([]string{dir}, rest...)
				}
			}
		}
		return nil
	}
	dirs := make([]string, 0, len(edges))
	for dir := range edges {
		dirs = append(dirs, dir)
	}
	slices.Sort(dirs)
	for _, b := range barred {
		for _, dir := range dirs {
			if !withinAny(dir, b.from) {
				continue
			}
			if way := chain(dir, b.target, map[string]bool{}); way != nil {
				findings = append(findings, Finding{dir, 0, "links " + way[len(way)-1] + " by way of " + strings.Join(way, " -> "), b.fix})
			}
		}
	}
	return sorted(findings)
}
