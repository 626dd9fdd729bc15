package lint

import (
	"fmt"
	"go/ast"
	"go/token"
	"path"
	"slices"
	"strings"
)

// deterministic packages give the same answer for the same input: the pure
// ones, and those whose decisions every member of the cluster must repeat.
var deterministic = append([]string{"cluster/state", "cluster/lease"}, pure...)

// decides says whether a file only decides. In packages below cluster/scheduler all files do but the runner.
func decides(f *GoFile, packages []string) bool {
	return withinAny(f.Dir, packages) || within(f.Dir, "cluster/scheduler") && path.Base(f.Path) != "run.go"
}

// clock are the names of package time that look at the clock or wait for it.
var clock = []string{"Now", "Since", "Until", "Sleep", "After", "AfterFunc", "Tick", "NewTimer", "NewTicker"}

// environment are the names of package os that only cmd looks at.
var environment = []string{"Args", "Getenv", "LookupEnv", "Environ", "ExpandEnv", "Setenv", "Unsetenv", "Exit", "Stdin", "Stdout", "Stderr"}

// seeded are the names of math/rand and math/rand/v2 that make a generator
// from a seed, or are types; every other name draws from the global one.
var seeded = []string{"New", "NewSource", "NewPCG", "NewChaCha8", "NewZipf", "Rand", "Source", "Source64", "PCG", "ChaCha8", "Zipf"}

// checkCalls finds names of the standard library that are used where they must not be.
func checkCalls(r *Repo) (findings []Finding) {
	for _, f := range r.Go {
		if f.Test || within(f.Dir, "test") {
			continue
		}
		f.uses(func(name string, at token.Pos) {
			dot := strings.LastIndex(name, ".")
			from, what := name[:dot], name[dot+1:]
			add := func(why, fix string) {
				findings = append(findings, Finding{f.Path, f.Line(at), fmt.Sprintf("uses %s, %s", name, why), fix})
			}
			switch {
			case from == "os" && slices.Contains(environment, what) && !within(f.Dir, "cmd"):
				add("and only cmd looks at the process around it", "take the value, reader or writer as an argument; return an error instead of exiting")
			case !decides(f, deterministic):
			case from == "time" && slices.Contains(clock, what):
				add("and "+f.Dir+" must give the same answer for the same input", "let the time come in with the command, the snapshot or the call")
			case (from == "math/rand" || from == "math/rand/v2") && !slices.Contains(seeded, what):
				add("and "+f.Dir+" must give the same answer for the same input", "draw from a generator made from a seed that came in: rand.New(rand.NewPCG(seed, 0))")
			case within(f.Dir, "cluster/scheduler") && slices.Contains([]string{"context", "sync", "os", "net", "net/http", "log/slog"}, from):
				add("and only run.go of a scheduler does anything", "let the value come in with the call")
			case from == "crypto/rand" || strings.HasPrefix(from, "github.com/oklog/ulid"):
				add("and "+f.Dir+" must give the same answer for the same input", "let ids come in with the command; cluster/leader makes them")
			}
		})
	}
	return sorted(findings)
}

// single are the packages that start no goroutines: what decides, and this one. Their tests run without the race detector: see
// scripts/test.sh.
var single = slices.Concat(pure, []string{"internal/lint"})

// checkGoroutines: who wants two answers at once of a package that decides calls it twice at once.
func checkGoroutines(r *Repo) (findings []Finding) {
	for _, f := range r.Go {
		if f.Test || !decides(f, single) {
			continue
		}
		ast.Inspect(f.AST, func(n ast.Node) bool {
			var what string
			switch n.(type) {
			case *ast.GoStmt:
				what = "starts a goroutine"
			case *ast.SelectStmt:
				what = "waits in a select"
			case *ast.ChanType:
				what = "uses a channel"
			default:
				return true
			}
			findings = append(findings, Finding{f.Path, f.Line(n.Pos()), what + ", and " + f.Dir + " decides",
				"compute in the caller's goroutine; take a stop function (func() bool) where work must be cut short"})
			return true
		})
	}
	return sorted(findings)
}

// checkGlobals: what a deterministic package answers must not depend on what it
// was asked before, so its package variables keep the value they begin with.
func checkGlobals(r *Repo) (findings []Finding) {
	globals := map[string]bool{} // "dir name"
	var files []*GoFile
	for _, f := range r.Go {
		if f.Test || !decides(f, deterministic) {
			continue
		}
		files = append(files, f)
		for _, d := range f.AST.Decls {
			if g, ok := d.(*ast.GenDecl); ok && g.Tok == token.VAR {
				for _, spec := range g.Specs {
					for _, name := range spec.(*ast.ValueSpec).Names {
						globals[f.Dir+" "+name.Name] = true
					}
				}
			}
		}
	}
	for _, f := range files {
		written := func(target ast.Expr) {
			id := root(target)
			if id == nil || !globals[f.Dir+" "+id.Name] {
				return
			}
			// The parser resolves names within a file: one that it took for something of a function is not the package's.
			if id.Obj != nil && f.AST.Scope.Lookup(id.Name) != id.Obj {
				return
			}
			findings = append(findings, Finding{f.Path, f.Line(target.Pos()), "changes the package variable " + id.Name + ", and " + f.Dir + " must give the same answer for the same input",
				"make it a value that the caller holds and hands in"})
		}
		ast.Inspect(f.AST, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.AssignStmt:
				for _, target := range n.Lhs {
					if n.Tok != token.DEFINE {
						written(target)
					}
				}
			case *ast.IncDecStmt:
				written(n.X)
			}
			return true
		})
	}
	return sorted(findings)
}

// root is the variable that an assignment to e changes: x of x, x.f, x[i] and *x.
func root(e ast.Expr) *ast.Ident {
	for {
		switch x := e.(type) {
		case *ast.Ident:
			return x
		case *ast.SelectorExpr:
			e = x.X
		case *ast.IndexExpr:
			e = x.X
		case *ast.StarExpr:
			e = x.X
		case *ast.ParenExpr:
			e = x.X
		default:
			return nil
		}
	}
}

// sleepReason begins the comment that allows a sleep in a test.
const sleepReason = "sleep: "

// checkSleep: tests wait for what they wait for, not for a time to pass. Inside
// a testing/synctest bubble the clock is a fake, so sleeping there is fine.
func checkSleep(r *Repo) (findings []Finding) {
	for _, f := range r.Go {
		if !f.Test {
			continue
		}
		reasoned := map[int]bool{} // lines that a comment with a reason ends on or stands before
		for _, group := range f.AST.Comments {
			for _, c := range group.List {
				text := strings.TrimSpace(strings.TrimPrefix(c.Text, "//"))
				if strings.HasPrefix(text, sleepReason) && len(text) > len(sleepReason) {
					reasoned[f.Line(c.Pos())] = true
					reasoned[f.Line(group.End())+1] = true
				}
			}
		}
		byName := map[string]string{}
		for _, i := range f.Imports {
			byName[i.Name] = i.Path
		}
		ast.Inspect(f.AST, func(n ast.Node) bool {
			s, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			sel, ok := s.Fun.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			switch imported(byName, sel) {
			case "testing/synctest.Test", "testing/synctest.Run":
				return false
			case "time.Sleep":
				if line := f.Line(sel.Pos()); !reasoned[line] {
					findings = append(findings, Finding{f.Path, line, "sleeps in a test",
						"wait for the event itself (a channel, a watch, a bounded poll), run the test in testing/synctest, or say why no other way serves in a comment on the line or above it: // " + sleepReason + "REASON"})
				}
			}
			return true
		})
	}
	return sorted(findings)
}
