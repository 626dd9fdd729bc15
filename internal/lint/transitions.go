package lint

import (
	"go/ast"
	"path"
	"slices"
)

// transitions say where rows of the state come to the states of their lives: the names of those states, by the file of
// cluster/state that alone gives them to a row.
var transitions = map[string][]string{
	"migration_transitions.go": {"MigrationRunning", "MigrationDone", "MigrationFailed", "MigrationAborted"},
	"drain_transitions.go":     {"DrainRunning", "DrainDone", "DrainBlocked", "DrainStopped"},
}

// phases is the file of cluster/state that alone changes the phase of a VM's row.
const phases = "transitions.go"

// checkTransitions: what a migration, a drain or a VM can come to from where it is stands in one file each.
func checkTransitions(r *Repo) (findings []Finding) {
	for _, f := range r.Go {
		if f.Test || within(f.Dir, "test") {
			continue
		}
		check := func(target ast.Expr, field string, value ast.Expr) {
			if field == "Phase" && f.Dir == "cluster/state" && path.Base(f.Path) != phases {
				findings = append(findings, Finding{f.Path, f.Line(target.Pos()), "changes a phase", "add a transition to cluster/state/" + phases + ", and call it"})
			}
			if field != "State" {
				return
			}
			name := lastName(value)
			for file, names := range transitions {
				if slices.Contains(names, name) && f.Path != path.Join("cluster/state", file) {
					findings = append(findings, Finding{f.Path, f.Line(target.Pos()), "gives a row the state " + name, "add a transition to cluster/state/" + file + ", and call it"})
				}
			}
		}
		ast.Inspect(f.AST, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.AssignStmt:
				for i, target := range n.Lhs {
					if s, ok := target.(*ast.SelectorExpr); ok && len(n.Rhs) == len(n.Lhs) {
						check(target, s.Sel.Name, n.Rhs[i])
					}
				}
			case *ast.KeyValueExpr:
				if key, ok := n.Key.(*ast.Ident); ok && key.Name == "State" {
					check(n, key.Name, n.Value)
				}
			}
			return true
		})
	}
	return sorted(findings)
}

// lastName is the name of a variable or constant without its package; "" for other expressions.
func lastName(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.Ident:
		return e.Name
	case *ast.SelectorExpr:
		return e.Sel.Name
	}
	return ""
}
