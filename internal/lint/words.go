package lint

import (
	"fmt"
	"go/ast"
	"go/token"
	"path"
	"reflect"
	"regexp"
	"strings"
	"unicode"
)

// glossary has the terms; it and the lists below may name what is not to be used.
const glossary = "docs/reference/glossary.md"

// term is words that are not used, and what is written instead.
type term struct {
	avoid string // separated by blanks; in prose a _ stands for a blank
	use   string
}

// identifierTerms are parts of camelCase names.
var identifierTerms = []term{
	{"shaping shaper shaped", "rightsizing, rightsizer, rightsized, or recommendation"},
	{"told tell tells unsaid saw", "report, acknowledge, observe, notify"},
	{"word words", "availability, inventory, desired state, text"},
	{"hold holds held holding", "recovery freeze, charged, pinned, throttled, leased, stabilization window"},
	{"least", "min"},
	{"most", "max"},
	{"roomy", "the capacity index's TryFastPath"},
	{"doubt doubts doubting plainly crowds blames", "margin, headroom, exceeds, explainRefusal"},
	{"wish wishes unwish wary", "optional, dropOptional, pressureMemory"},
	{"relief relieve relieved", "emergency grant"},
	{"pressed", "under pressure"},
	{"lack lacks", "deficit"},
	{"sight sights sighting sightings", "observation"},
	{"looked", "evaluated, examined"},
	{"stir rouse roused urge", "wake, notify"},
	{"settle settles settled", "what it does: debounce, clamp, subtract, await"},
	{"bold boldness", "aggressiveness"},
	{"turns", "batches"},
	{"emptied unemptiable drainage", "drained, undrainable, drain request"},
	{"anew", "replan, again"},
	{"carrier", "executor"},
	{"parks parked parking", "staging"},
	{"lend lends lent", "distribute the surplus"},
	{"spare", "failover capacity, surplus, free"},
	{"accounted", "inventory confirmed"},
	{"losing death", "host failure, loss pending"},
	{"disarm disarmed", "fencing disabled; stop, for a watchdog"},
	{"detour detours straight", "redirect, direct"},
	{"ways", "routes, candidates"},
	{"keeper keepers", "lease manager, certificate store"},
	{"figures", "metrics, stats"},
	{"touched", "affected"},
	{"nobody somebody who whom whose", "what it is: a VM, a host, the caller"},
}

// properNames are names of others that have such a part.
var properNames = map[string]bool{"LeastFit": true, "TestLeastFit": true, "pressed": true} // of Flex; of the results of vcsim run, a contract

// proseTerms are words of comments, messages and documentation.
var proseTerms = []term{
	{"told tell tells telling", "report, acknowledge, inform, say"},
	{"unsaid", "not reported"},
	{"wish wishes wary", "optional; pressure"},
	{"anew", "again"},
	{"nobody somebody everybody anybody whoever", "the actor or the thing: no host, a VM, the caller"},
	{"rouse rouses roused stir stirs", "wake, notify"},
	{"sighting sightings", "observation"},
	{"gives_way give_way gave_way", "is evicted, is stopped"},
	{"lend lends lent", "surplus; distribute"},
	{"shaper shaping", "rightsizer, rightsizing"},
	{"boldness", "aggressiveness"},
	{"what-if what-ifs", "simulation"},
	{"plan_try cluster_arm cluster_disarm", "vcctl simulate, vcctl cluster fencing enable or disable"},
	{"drain_group drain_groups", "drain batch"},
	{"vm-twice vm-unknown hold-began hold-ended", "vm-duplicate, vm-unmanaged, recovery-freeze-began, recovery-freeze-ended"},
}

// parts cuts a camelCase name: HostVMs is Host and VMs.
func parts(name string) (out []string) {
	start := 0
	rs := []rune(name)
	for i := 1; i <= len(rs); i++ {
		if i == len(rs) || unicode.IsUpper(rs[i]) && (!unicode.IsUpper(rs[i-1]) || i+1 < len(rs) && unicode.IsLower(rs[i+1])) ||
			!unicode.IsLetter(rs[i]) || !unicode.IsLetter(rs[i-1]) {
			out = append(out, strings.ToLower(string(rs[start:i])))
			start = i
		}
	}
	return out
}

func checkIdentifiers(r *Repo) (findings []Finding) {
	use := map[string]string{}
	for _, t := range identifierTerms {
		for _, w := range strings.Fields(t.avoid) {
			use[w] = t.use
		}
	}
	check := func(f *GoFile, at token.Pos, name string) {
		if properNames[name] {
			return
		}
		for _, p := range parts(name) {
			if use[p] != "" {
				findings = append(findings, Finding{f.Path, f.Line(at), fmt.Sprintf("the name %s has the part %q", name, p), "name it by " + glossary + ": " + use[p]})
				return
			}
		}
	}
	for _, f := range r.Go {
		if f.Generated {
			continue
		}
		declared(f.AST, func(id *ast.Ident) {
			check(f, id.Pos(), id.Name)
		})
		ast.Inspect(f.AST, func(n ast.Node) bool {
			if field, ok := n.(*ast.Field); ok && field.Tag != nil {
				for _, key := range []string{"json", "query", "yaml"} {
					name, _, _ := strings.Cut(reflect.StructTag(strings.Trim(field.Tag.Value, "`")).Get(key), ",")
					check(f, field.Tag.Pos(), name)
				}
			}
			return true
		})
	}
	return sorted(findings)
}

// declared calls see with each name that a file declares.
func declared(file *ast.File, see func(*ast.Ident)) {
	all := func(list []ast.Expr) {
		for _, e := range list {
			if id, ok := e.(*ast.Ident); ok {
				see(id)
			}
		}
	}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncDecl:
			see(n.Name)
		case *ast.TypeSpec:
			see(n.Name)
		case *ast.ValueSpec:
			for _, id := range n.Names {
				see(id)
			}
		case *ast.Field:
			for _, id := range n.Names {
				see(id)
			}
		case *ast.AssignStmt:
			if n.Tok == token.DEFINE {
				all(n.Lhs)
			}
		case *ast.RangeStmt:
			if n.Tok == token.DEFINE {
				all([]ast.Expr{n.Key, n.Value})
			}
		}
		return true
	})
}

// checkProse finds the words of proseTerms in comments and strings of Go files and in Markdown.
func checkProse(r *Repo) (findings []Finding) {
	use := map[string]string{}
	var all []string
	for _, t := range proseTerms {
		for _, w := range strings.Fields(t.avoid) {
			use[w] = t.use
			all = append(all, strings.ReplaceAll(regexp.QuoteMeta(w), "_", `\s+`))
		}
	}
	avoided := regexp.MustCompile(`(?i)\b(?:` + strings.Join(all, "|") + `)\b`)
	// Pace's own term, and the title of the paper.
	theirs := regexp.MustCompile(`(?i)resource\s+shap(?:ing|er)`)
	add := func(file string, line int, text string) {
		text = theirs.ReplaceAllStringFunc(text, func(s string) string { return strings.Repeat("\n", strings.Count(s, "\n")) })
		for _, at := range avoided.FindAllStringIndex(text, -1) {
			w := strings.ToLower(strings.Join(strings.Fields(text[at[0]:at[1]]), "_"))
			findings = append(findings, Finding{file, line + strings.Count(text[:at[0]], "\n"), fmt.Sprintf("says %q", strings.ReplaceAll(w, "_", " ")),
				"write by " + glossary + ": " + use[w]})
		}
	}
	for _, f := range r.Go {
		if within(f.Dir, "internal/lint") || f.Generated {
			continue
		}
		for _, g := range f.AST.Comments {
			for _, c := range g.List {
				add(f.Path, f.Line(c.Pos()), c.Text)
			}
		}
		ast.Inspect(f.AST, func(n ast.Node) bool {
			if lit, ok := n.(*ast.BasicLit); ok && lit.Kind == token.STRING {
				add(f.Path, f.Line(lit.Pos()), lit.Value)
			}
			return true
		})
	}
	for _, t := range r.Texts {
		if path.Ext(t.Path) == ".md" && t.Path != glossary && t.Path != "CHANGELOG.md" {
			add(t.Path, 1, strings.Join(t.Lines, "\n"))
		}
	}
	return sorted(findings)
}
