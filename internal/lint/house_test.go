package lint

import (
	"os"
	"strings"
	"testing"
	"testing/fstest"
)

// TestRepository holds the repository to every rule.
func TestRepository(t *testing.T) {
	repo, err := Load(os.DirFS("../.."))
	if err != nil {
		t.Fatal(err)
	}
	if len(repo.Go) == 0 {
		t.Fatal("no Go files found: the rules would check nothing")
	}
	for _, rule := range Rules() {
		t.Run(rule.Name, func(t *testing.T) {
			for _, f := range rule.Check(repo) {
				t.Error(f)
			}
		})
	}
}

// Words that must not stand in this file as they are, or the rules would find them here.
const (
	todo = "TO" + "DO"
	home = "/" + "home/ann/src"
)

// TestRules breaks each rule in a small repository of its own, and shows for
// each what is near to breaking it and does not.
func TestRules(t *testing.T) {
	long := "// Package allocator decides.\npackage allocator\n" + strings.Repeat("\n", longest)
	tests := []struct {
		name  string
		rule  string
		files map[string]string
		want  []string // beginnings of the findings, in order
	}{
		{"down", "arrows", map[string]string{
			"api/server/s.go":     `package server; import _ "evenkeel/cluster/leader"`,
			"cluster/state/s.go":  `package state; import _ "evenkeel/hypervisor"`,
			"cmd/vcd/main.go":     `package main; import _ "evenkeel/hypervisor/libvirt"`,
			"allocator/x/x.go":    `package x; import _ "evenkeel/allocator"`,
			"test/lab/lab.go":     `package lab; import _ "evenkeel/hypervisor/libvirt"`,
			"allocator/a_test.go": `package allocator; import _ "evenkeel/test/lab"`,
		}, nil},
		{"up and across", "arrows", map[string]string{
			"allocator/a.go":      `package allocator; import _ "evenkeel/cluster/state"`,
			"api/server/s.go":     `package server; import _ "evenkeel/hypervisor/libvirt"`,
			"cluster/leader/c.go": `package leader; import _ "evenkeel/api/v1"`,
			"cmd/vcctl/main.go":   `package main; import _ "evenkeel/cluster/state"`,
			"hypervisor/h.go":     `package hypervisor; import _ "evenkeel/test/lab"`,
			"stuff/s.go":          `package stuff`,
		}, []string{
			"allocator/a.go:1: allocator imports cluster/state",
			"api/server/s.go:1: api imports hypervisor/libvirt",
			"cluster/leader/c.go:1: cluster/leader imports api/v1",
			"cmd/vcctl/main.go:1: cmd/vcctl imports cluster/state",
			"hypervisor/h.go:1: hypervisor imports test/lab",
			"stuff: a package with no place",
		}},
		{"page and code agree", "packages page", map[string]string{
			"docs/reference/packages.md": "## Elsewhere\n| `gone` | x |\n## Packages\n| package | x |\n|---|---|\n| `cmd/vcd` | x |\n| `allocator` | x |\n## More\n| `gone/too` | x |",
			"cmd/vcd/main.go":            `package main; import _ "evenkeel/allocator"`,
			"cmd/vcd/main_test.go":       `package main; import _ "evenkeel/test/lab"`,
			"allocator/a.go":             `package allocator`,
			"test/lab/lab.go":            `package lab; import _ "evenkeel/cmd/vcd"`,
		}, nil},
		{"page and code differ", "packages page", map[string]string{
			"docs/reference/packages.md": "## Packages\n| `allocator` | x |\n| `cmd/vcd` | x |\n| `gone` | x |\n| `gone` | x |",
			"cmd/vcd/main.go":            `package main; import _ "evenkeel/allocator"`,
			"allocator/a.go":             `package allocator`,
			"migration/m.go":             `package migration`,
		}, []string{
			"docs/reference/packages.md: package migration is not listed",
			"docs/reference/packages.md:2: allocator stands above cmd/vcd, which imports it",
			"docs/reference/packages.md:4: there is no package gone",
			"docs/reference/packages.md:5: gone is listed twice",
		}},
		{"where they belong", "modules", map[string]string{
			"hypervisor/libvirt/l.go": `package libvirt; import _ "libvirt.org/go/libvirt"`,
			"cluster/node/n.go":       `package node; import _ "github.com/hashicorp/raft"`,
			"api/server/s.go":         `package server; import ("net/http"; "log/slog")`,
			"cmd/vcctl/main.go":       `package main; import _ "github.com/urfave/cli/v2"`,
			"allocator/a.go":          `package allocator; import ("math"; "math/rand/v2"; "time"; "gonum.org/v1/gonum/mat")`,
			"allocator/a_test.go":     `package allocator; import ("os"; "testing")`,
			"test/bench/main.go":      `package main; import ("flag"; "libvirt.org/go/libvirt")`,
		}, nil},
		{"where they do not", "modules", map[string]string{
			"allocator/a.go":               `package allocator; import "context"`,
			"allocator/b.go":               `package allocator; import "log/slog"`,
			"allocator/c.go":               `package allocator; import "github.com/google/uuid"`,
			"api/client/c.go":              `package client; import "libvirt.org/go/libvirtxml"`,
			"cluster/agent/a.go":           `package agent; import _ "evenkeel/api/v1"`,
			"cluster/agent/b.go":           `package agent; import "C"`,
			"cluster/leader/c.go":          `package leader; import "github.com/hashicorp/raft"`,
			"cluster/scheduler/moves/l.go": `package moves; import "github.com/hashicorp/go-memdb"`,
			"cluster/scheduler/moves/t.go": `package moves; import "testing"`,
			"cluster/state/s.go":           `package state; import "net/http"`,
			"cmd/vcd/main.go":              `package main; import "log"`,
			"hypervisor/h.go":              `package hypervisor; import "flag"`,
			"migration/m.go":               `package migration; import "os"`,
		}, []string{
			"allocator/a.go:1: imports context", "allocator/b.go:1: imports log/slog", "allocator/c.go:1: imports github.com/google/uuid",
			"api/client/c.go:1: imports libvirt.org/go/libvirtxml",
			"cluster/agent/a.go:1: imports evenkeel/api/v1", "cluster/agent/b.go:1: imports C",
			"cluster/leader/c.go:1: imports github.com/hashicorp/raft",
			"cluster/scheduler/moves/l.go:1: imports github.com/hashicorp/go-memdb", "cluster/scheduler/moves/t.go:1: imports testing",
			"cluster/state/s.go:1: imports net/http", "cmd/vcd/main.go:1: imports log",
			"hypervisor/h.go:1: imports flag", "migration/m.go:1: imports os",
		}},
		{"by a detour", "reach", map[string]string{
			"cmd/vcctl/main.go":       `package main; import _ "evenkeel/api/client"`,
			"api/client/c.go":         `package client; import _ "evenkeel/hypervisor/libvirt"`,
			"hypervisor/libvirt/l.go": `package libvirt; import _ "libvirt.org/go/libvirt"`,
			"cmd/vcd/main.go":         `package main; import _ "evenkeel/hypervisor/libvirt"`,
			"api/client/c_test.go":    `package client; import _ "evenkeel/hypervisor/libvirt"`,
		}, []string{
			"api/client: links libvirt.org/go/libvirt by way of api/client -> hypervisor/libvirt -> libvirt.org/go/libvirt",
			"cmd/vcctl: links libvirt.org/go/libvirt by way of cmd/vcctl -> api/client -> hypervisor/libvirt",
		}},
		{"the simulator in production", "reach", map[string]string{
			"cmd/vcctl/main.go":                 `package main; import _ "evenkeel/forecast"`,
			"cmd/vcsim/main.go":                 `package main; import _ "evenkeel/sim/baseline"`,
			"forecast/f.go":                     `package forecast; import _ "evenkeel/sim/baseline"`,
			"forecast/f_test.go":                `package forecast; import _ "evenkeel/sim/score"`,
			"sim/baseline/b.go":                 `package baseline`,
			"cluster/scheduler/moves/l_test.go": `package moves; import _ "evenkeel/sim/replay"`,
		}, []string{
			"cmd/vcctl: links evenkeel/sim/baseline by way of cmd/vcctl -> forecast -> evenkeel/sim/baseline",
			"forecast: links evenkeel/sim/baseline by way of forecast -> evenkeel/sim/baseline",
		}},
		{"clock, dice, environment", "calls", map[string]string{
			"allocator/a.go":                  "package allocator\nimport \"time\"\nvar _ = time.Now()\nvar _ = time.Second",
			"cluster/scheduler/drain/plan.go": "package drain\nimport \"time\"\nimport \"sync\"\nvar _ = time.Now\nvar _ sync.Mutex", "cluster/scheduler/drain/run.go": "package drain\nimport \"time\"\nvar _ = time.Now",
			"cluster/scheduler/moves/l.go": "package moves\nimport \"math/rand/v2\"\nvar _ = rand.IntN(3)\nvar _ = rand.New(rand.NewPCG(1, 2))",
			"cluster/state/s.go":           "package state\nimport t \"time\"\nfunc f() { t.Sleep(1) }\nfunc g(t struct{ Now int }) int { return t.Now }",
			"cluster/state/u.go":           "package state\nimport \"github.com/oklog/ulid/v2\"\nvar _ = ulid.Make()",
			"cluster/agent/a.go":           "package agent\nimport (\"os\"; \"time\")\nvar _ = time.Now()\nvar _ = os.Getenv(\"X\")\nvar _ = os.ReadFile",
			"cmd/vcd/main.go":              "package main\nimport \"os\"\nvar _ = os.Getenv(\"X\")",
			"allocator/b_test.go":          "package allocator\nimport \"time\"\nvar _ = time.Now()",
		}, []string{
			"allocator/a.go:3: uses time.Now", "cluster/agent/a.go:4: uses os.Getenv",
			"cluster/scheduler/drain/plan.go:4: uses time.Now", "cluster/scheduler/drain/plan.go:5: uses sync.Mutex", "cluster/scheduler/moves/l.go:3: uses math/rand/v2.IntN",
			"cluster/state/s.go:3: uses time.Sleep", "cluster/state/u.go:3: uses github.com/oklog/ulid/v2.Make",
		}},
		{"goroutines", "goroutines", map[string]string{
			"forecast/f.go":                   "package forecast\nfunc f(c chan int) {\n go f(c)\n select {}\n}",
			"cluster/scheduler/moves/l.go":    "package moves\nfunc f() { go f() }",
			"cluster/scheduler/drain/plan.go": "package drain\nfunc f() { go f() }", "cluster/scheduler/drain/run.go": "package drain\nfunc g() { go g() }",
			"cluster/agent/a.go": "package agent\nfunc f() { go f() }",
		}, []string{"cluster/scheduler/drain/plan.go:2: starts a goroutine", "cluster/scheduler/moves/l.go:2: starts a goroutine", "forecast/f.go:2: uses a channel", "forecast/f.go:3: starts a goroutine", "forecast/f.go:4: waits in a select"}},
		{"memory", "globals", map[string]string{
			"allocator/a.go":     "package allocator\nvar calls int\nvar cache = map[string]int{}\nfunc f() {\n calls++\n cache[\"x\"] = 1\n calls := 2\n calls = 3\n _ = calls\n}",
			"allocator/b.go":     "package allocator\nvar limit = 3\nfunc g(x struct{ limit int }) {\n calls = 4\n x.limit = 1\n}",
			"cluster/agent/a.go": "package agent\nvar n int\nfunc f() { n++ }",
		}, []string{"allocator/a.go:5: changes the package variable calls", "allocator/a.go:6: changes the package variable cache", "allocator/b.go:4: changes"}},
		{"transitions", "transitions", map[string]string{
			"cluster/state/a.go":                     "package state\nfunc f() {\n m.State, m.Error = MigrationFailed, \"x\"\n vm.Phase = next\n if m.State == MigrationDone { vm.Phase, a = b() }\n p.State = MovesDone\n}",
			"cluster/state/drain_transitions.go":     "package state\nfunc f() { d.State = DrainDone; m.State = MigrationDone }",
			"cluster/state/migration_transitions.go": "package state\nvar _ = Migration{State: MigrationRunning}",
			"cluster/state/transitions.go":           "package state\nfunc f() { v.Phase = Lost }",
			"cluster/leader/l.go":                    "package leader\nvar _ = state.Drain{\n State: state.DrainRunning}\nfunc f() { st.Phase = state.Lost }",
			"cluster/state/a_test.go":                "package state\nvar _ = Migration{State: MigrationRunning}",
		}, []string{
			"cluster/leader/l.go:3: gives a row the state DrainRunning", "cluster/state/a.go:3: gives a row the state MigrationFailed", "cluster/state/a.go:4: changes a phase",
			"cluster/state/drain_transitions.go:2: gives a row the state MigrationDone",
		}},
		{"package comments", "package comment", map[string]string{
			"allocator/a.go":      "// Package allocator decides.\npackage allocator",
			"allocator/b.go":      "// b.go is about b.\n\npackage allocator",
			"allocator/a_test.go": "package allocator",
			"api/v1/a.go":         "// Package v1 is one.\npackage v1",
			"api/v1/b.go":         "// Package v1 is two.\npackage v1",
			"cmd/vcctl/main.go":   "// Command vcctl asks.\npackage main",
			"cmd/vcd/main.go":     "// vcd is a daemon.\npackage main",
			"forecast/f.go":       "package forecast",
			"migration/m.go":      "// Copyright of nobody.\npackage migration",
		}, []string{
			"api/v1/b.go:1: a second package comment", "cmd/vcd/main.go:1: the package comment does not begin",
			"forecast: package forecast has no package comment", "migration/m.go:1: the licence stands",
		}},
		{"package names", "package name", map[string]string{
			"cluster/util/u.go": "package util", "api/helpers/h.go": "package aid", "allocator/a.go": "package allocator",
		}, []string{"api/helpers: package aid is named for nothing", "cluster/util: package util is named for nothing"}},
		{"length", "file length", map[string]string{
			"allocator/a.go": long,
			"allocator/g.go": "// Code generated by hand. DO NOT EDIT.\n\n" + long,
			"allocator/s.go": "package allocator\n",
		}, []string{"allocator/a.go: 602 lines"}},
		{"functions", "parameters", map[string]string{
			"allocator/a.go":      "package allocator\n\nfunc six(a, b, c int, d string, e ...string) {}\n\nfunc seven(a, b, c int, d, e, f, g string) {}\n\ntype f func(int, int, int, int, int, int, ...int)\n\nvar v = func(a, b, c, _, _, _, _ int) {}\n\ntype i interface{ m(a, b, c, d, e, f, g int) }",
			"allocator/a_test.go": "package allocator\n\nfunc seven(a, b, c int, d, e, f, g string) {}",
		}, []string{
			"allocator/a.go:5: seven takes 7 parameters", "allocator/a.go:7: a function type takes 7 parameters",
			"allocator/a.go:9: a function takes 7 parameters", "allocator/a.go:11: m takes 7 parameters",
		}},
		{"structs", "fields", map[string]string{
			"allocator/a.go": "package allocator\n\ntype small struct { b\n" + strings.Repeat("\ta int\n", maxFields-1) + "}\n\ntype large struct {\n\ta, b int\n" + strings.Repeat("\tc int\n", maxFields-1) + "}\n\n" +
				"// reasoned is large.\n// Many fields: it is one row.\ntype reasoned struct {\n" + strings.Repeat("\ta int\n", maxFields+1) + "}\n\n// bare has no reason. Many fields:\ntype bare struct {\n" + strings.Repeat("\ta int\n", maxFields+1) + "}\n",
			"allocator/b.go":      "package allocator\n\ntype (\n\t// grouped. Many fields: one row.\n\tgrouped struct {\n" + strings.Repeat("\ta int\n", maxFields+1) + "}\n)\n\nvar inner struct {\n" + strings.Repeat("\ta int\n", maxFields+1) + "}",
			"allocator/a_test.go": "package allocator\n\ntype large struct {\n" + strings.Repeat("\ta int\n", maxFields+1) + "}",
		}, []string{
			"allocator/a.go:25: large has 21 fields", "allocator/a.go:75: bare has 21 fields", "allocator/b.go:30: a struct without a name has 21 fields",
		}},
		{"paths", "machine paths", map[string]string{
			"README.md":       "see " + home + "\nsee https://example.org" + home + " and ~/src",
			"scripts/go.sh":   "cd " + home,
			"build/x.txt":     home,
			"docs/binary.bin": "\x00" + home,
		}, []string{"README.md:1: names a path", "scripts/go.sh:1: names a path"}},
		{"sleep", "sleep in tests", map[string]string{
			"api/a_test.go": "package api\nimport \"time\"\nfunc a() {\n time.Sleep(1)\n time.Sleep(1) // sleep: the lease must run out\n\n // sleep: so long that\n // it counts\n time.Sleep(1)\n // sleep:\n time.Sleep(1)\n}",
			"api/b_test.go": "package api\nimport (\"time\"; \"testing/synctest\")\nfunc b() { synctest.Test(nil, func() { time.Sleep(1) }) }",
			"api/c.go":      "package api\nimport \"time\"\nfunc c() { time.Sleep(1) }",
		}, []string{"api/a_test.go:4: sleeps", "api/a_test.go:11: sleeps"}},
		{"unfinished", "unfinished", map[string]string{
			"api/a.go": "package api // " + todo + " more", "docs/a.md": "nothing to do",
		}, []string{"api/a.go:1: says " + todo}},
		{"links", "links", map[string]string{
			"docs/a.md": "[b](b.md#part) [up](../README.md) [out](https://example.org/x) [here](#x) [gone](c.md)\n```\n[code](d.md)\n```", "docs/b.md": "", "README.md": "[docs](docs)",
		}, []string{"docs/a.md:1: links to #x, and docs/a.md has no such heading", "docs/a.md:1: links to b.md#part", "docs/a.md:1: links to c.md"}},
		{"pages", "page length", map[string]string{
			"docs/how-to/a.md": strings.Repeat("word ", maxLength), "docs/how-to/b.md": strings.Repeat("word ", maxLength+1), "docs/reference/c.md": strings.Repeat("word ", maxLength+1),
			"README.md": strings.Repeat("line\n", maxLines+1), "test/d.md": strings.Repeat("word ", maxLength+1),
		}, []string{"README.md: 151 lines", "docs/how-to/b.md: 1501 words"}},
		{"files in prose", "named files", map[string]string{
			"docs/a.md":    "`cluster/a.go`, `cluster/a.go:f`, `cluster/a.go:g`, `cluster/b.go` and cluster/c.go, `/etc/vcd.yaml`\n```\n`cluster/d.go`\n```",
			"cluster/a.go": "package cluster\n\nfunc f() {}", "CHANGELOG.md": "`cluster/gone.go`", "docs/decisions/1.md": "`cluster/gone.go`",
		}, []string{"docs/a.md:1: names cluster/a.go:g", "docs/a.md:1: names cluster/b.go"}},
		{"anchors", "links", map[string]string{
			"docs/a.md": "# The page, `b` and [c](b.md)\n[own](#the-page-b-and-c) [b](b.md#twice-1) [named](b.md#here) [code](b.go#L3)\n```\n# not-one\n```\n[no](#not-one)",
			"docs/b.md": "## Twice\n## Twice\n<a id=\"here\"></a>There", "docs/b.go": "package docs",
		}, []string{"docs/a.md:6: links to #not-one"}},
		{"names", "words of identifiers", map[string]string{
			"api/a.go":      "package api\n\nfunc toldAll(x struct{ least int }) (most int) {\n\tfor _, word := range []int{1} {\n\t\troomyHost := word\n\t}\n\treturn whole(mostly, almost, LeastFit)\n}",
			"api/b_test.go": "package api\n\ntype keeper struct{ A int `json:\"wishedFor,omitempty\" query:\"tellAll\"` }\n\nconst wholeHolding, LeastFit, whole, almost, mostly = 1, 2, 3, 4, 5\n",
		}, []string{
			"api/a.go:3: the name least has the part \"least\"", "api/a.go:3: the name most has the part \"most\"", "api/a.go:3: the name toldAll has the part \"told\"",
			"api/a.go:4: the name word has the part \"word\"", "api/a.go:5: the name roomyHost has the part \"roomy\"",
			"api/b_test.go:3: the name keeper has the part \"keeper\"", "api/b_test.go:3: the name tellAll has the part \"tell\"", "api/b_test.go:5: the name wholeHolding has the part \"holding\"",
		}},
		{"prose", "words of prose", map[string]string{
			"api/a.go":                   "package api\n\n// f is told.\nfunc f() string {\n\treturn `x\nit wishes` // teller, newspaper\n}",
			"docs/a.md":                  "Dynamic Resource Shaping. Then it gives\nway to nobody.",
			"docs/reference/glossary.md": "anew",
			"CHANGELOG.md":               "anew",
			"internal/lint/words.go":     "package lint // anew",
		}, []string{"api/a.go:3: says \"told\"", "api/a.go:6: says \"wishes\"", "docs/a.md:1: says \"gives way\"", "docs/a.md:2: says \"nobody\""}},
	}
	broken := map[string]bool{}
	for _, tt := range tests {
		t.Run(tt.rule+"/"+tt.name, func(t *testing.T) {
			fsys := fstest.MapFS{}
			for name, text := range tt.files {
				fsys[name] = &fstest.MapFile{Data: []byte(text)}
			}
			repo, err := Load(fsys)
			if err != nil {
				t.Fatal(err)
			}
			var got []Finding
			for _, rule := range Rules() {
				if rule.Name == tt.rule {
					got = rule.Check(repo)
				}
			}
			for i, f := range got {
				if i >= len(tt.want) || !strings.HasPrefix(f.String(), tt.want[i]) {
					t.Errorf("finding %d is not expected: %v", i, f)
				}
				if f.Fix == "" {
					t.Errorf("finding says nothing of what to do instead: %v", f)
				}
			}
			if len(got) < len(tt.want) {
				t.Errorf("got %d findings, want %d: %q", len(got), len(tt.want), tt.want)
			}
			if len(got) > 0 {
				broken[tt.rule] = true
			}
		})
	}
	for _, rule := range Rules() {
		if !broken[rule.Name] {
			t.Errorf("no case breaks rule %q: it may check nothing", rule.Name)
		}
	}
}

// A Go file that does not parse is an error with its name, not a pass.
func TestLoadRefusesBadGo(t *testing.T) {
	_, err := Load(fstest.MapFS{"api/a.go": {Data: []byte("package")}})
	if err == nil || !strings.Contains(err.Error(), "api/a.go") {
		t.Errorf("got error %v, want one that names api/a.go", err)
	}
}

// Lines count that carry a token: no blank line, no comment, but all lines of a string.
func TestCodeLines(t *testing.T) {
	for text, want := range map[string]int{
		"":                  0,
		"// a\n\npackage a": 1,
		"package a // b\n\n/* c\nd */\n\nvar x = `1\n\n2` + `3\n4`; var y = 1\n": 5,
		"package a\n\nfunc f() {\n\t/* x */ f()\n\t// y\n}\n":                    4,
	} {
		if got := codeLines([]byte(text)); got != want {
			t.Errorf("%q has %d lines of code, want %d", text, got, want)
		}
	}
}
