package lint

import (
	"fmt"
	"go/ast"
	"regexp"
)

// Limits of what one function takes and one struct holds. Tests are free of them.
const (
	maxParameters = 6
	maxFields     = 20
)

// manyFields begins the sentence of a struct's comment that says why it has more fields than maxFields.
var manyFields = regexp.MustCompile(`(?s)(?:^|[.:]\s+)Many fields: \S`)

func checkParameters(r *Repo) (findings []Finding) {
	for _, f := range r.Go {
		if f.Test || f.Generated {
			continue
		}
		names := map[*ast.FuncType]string{}
		ast.Inspect(f.AST, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.FuncDecl:
				names[n.Type] = n.Name.Name
			case *ast.FuncLit:
				names[n.Type] = "a function"
			case *ast.InterfaceType:
				for _, m := range n.Methods.List {
					if t, ok := m.Type.(*ast.FuncType); ok {
						names[t] = m.Names[0].Name
					}
				}
			case *ast.FuncType:
				name := names[n]
				if name == "" {
					name = "a function type"
				}
				if count := n.Params.NumFields(); count > maxParameters {
					findings = append(findings, Finding{f.Path, f.Line(n.Pos()), fmt.Sprintf("%s takes %d parameters, more than %d", name, count, maxParameters),
						"make those that belong together a struct, or part the function"})
				}
			}
			return true
		})
	}
	return sorted(findings)
}

func checkFields(r *Repo) (findings []Finding) {
	for _, f := range r.Go {
		if f.Test || f.Generated {
			continue
		}
		named := map[*ast.StructType]string{}
		reasoned := map[*ast.StructType]bool{}
		ast.Inspect(f.AST, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.GenDecl:
				for _, s := range n.Specs {
					if spec, ok := s.(*ast.TypeSpec); ok {
						if t, ok := spec.Type.(*ast.StructType); ok {
							named[t] = spec.Name.Name
							reasoned[t] = manyFields.MatchString(n.Doc.Text()) || manyFields.MatchString(spec.Doc.Text())
						}
					}
				}
			case *ast.StructType:
				count := n.Fields.NumFields()
				if count <= maxFields || reasoned[n] {
					return true
				}
				name := named[n]
				if name == "" {
					name = "a struct without a name"
				}
				findings = append(findings, Finding{f.Path, f.Line(n.Pos()), fmt.Sprintf("%s has %d fields, more than %d", name, count, maxFields),
					"part it where a step or a thing has a name, or say in its comment why not, in a sentence that begins \"Many fields: \""})
			}
			return true
		})
	}
	return sorted(findings)
}
