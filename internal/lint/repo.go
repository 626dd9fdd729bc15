package lint

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/scanner"
	"go/token"
	"io/fs"
	"path"
	"regexp"
	"strconv"
	"strings"
)

// module is the path before every import of our own.
const module = "evenkeel"

// Repo is the repository's text, Go files parsed.
type Repo struct {
	Go    []*GoFile
	Texts []*Text // every text file, the Go files included
	paths map[string]bool
}

// Text is a file that is not binary.
type Text struct {
	Path  string
	Lines []string
}

// GoFile is a parsed Go file. Files below testdata are not among them.
type GoFile struct {
	Path      string // from the root
	Dir       string // folder from the root; "." is the root itself
	Test      bool   // a _test.go file
	Generated bool
	Lines     int
	Code      int // lines with at least one token that is no comment
	AST       *ast.File
	Imports   []Import
	fset      *token.FileSet
}

// Import is one import of a file.
type Import struct {
	Name string // the name it has in the file
	Path string
	Line int
}

// Own is the folder of an import of our own, "" for any other.
func (i Import) Own() string {
	if i.Path == module {
		return "."
	}
	own, ok := strings.CutPrefix(i.Path, module+"/")
	if !ok {
		return ""
	}
	return own
}

// Line of a position in the file.
func (f *GoFile) Line(p token.Pos) int { return f.fset.Position(p).Line }

// skipped folders hold what was built or fetched, not what was written.
var skipped = map[string]bool{".git": true, "bin": true, "build": true, "node_modules": true}

// Load reads the repository whose root is fsys.
func Load(fsys fs.FS) (*Repo, error) {
	r := &Repo{paths: map[string]bool{}}
	err := fs.WalkDir(fsys, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && skipped[name] {
			return fs.SkipDir
		}
		r.paths[name] = true
		if !d.Type().IsRegular() {
			return nil
		}
		data, err := fs.ReadFile(fsys, name)
		if err != nil {
			return fmt.Errorf("read %s: %w", name, err)
		}
		if bytes.IndexByte(data, 0) >= 0 {
			return nil
		}
		r.Texts = append(r.Texts, &Text{Path: name, Lines: strings.Split(strings.TrimSuffix(string(data), "\n"), "\n")})
		if path.Ext(name) != ".go" || strings.Contains("/"+name, "/testdata/") {
			return nil
		}
		file, err := parse(name, data)
		if err != nil {
			return err
		}
		r.Go = append(r.Go, file)
		return nil
	})
	return r, err
}

func parse(name string, data []byte) (*GoFile, error) {
	fset := token.NewFileSet()
	tree, err := parser.ParseFile(fset, name, data, parser.ParseComments)
	if err != nil {
		return nil, fmt.Errorf("parse %s: %w", name, err)
	}
	f := &GoFile{
		Path:      name,
		Dir:       path.Dir(name),
		Test:      strings.HasSuffix(name, "_test.go"),
		Generated: ast.IsGenerated(tree),
		Lines:     bytes.Count(data, []byte("\n")),
		Code:      codeLines(data),
		AST:       tree,
		fset:      fset,
	}
	for _, spec := range tree.Imports {
		p, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			return nil, fmt.Errorf("parse %s: import %s: %w", name, spec.Path.Value, err)
		}
		imp := Import{Name: localName(p), Path: p, Line: f.Line(spec.Pos())}
		if spec.Name != nil {
			imp.Name = spec.Name.Name
		}
		f.Imports = append(f.Imports, imp)
	}
	return f, nil
}

// codeLines counts the lines of Go source that carry at least one token that is no comment.
func codeLines(source []byte) int {
	file := token.NewFileSet().AddFile("", -1, len(source))
	var s scanner.Scanner
	s.Init(file, source, nil, 0) // skips comments
	count, last := 0, 0          // last: the last line that is counted
	for {
		at, tok, text := s.Scan()
		if tok == token.EOF {
			return count
		}
		if tok == token.SEMICOLON && text != ";" {
			continue // the end of a line
		}
		first := file.Line(at)
		end := first + strings.Count(text, "\n") // of a string over several lines
		count += end - max(first-1, last)
		last = end
	}
}

var version = regexp.MustCompile(`^v[0-9]+$`)

// localName is the name under which an import without one is known, as far as its path tells.
func localName(p string) string {
	base := path.Base(p)
	if version.MatchString(base) {
		base = path.Base(path.Dir(p))
	}
	return base
}

// uses calls see with each name of an imported package that the file uses, as "import/path.Name".
func (f *GoFile) uses(see func(name string, at token.Pos)) {
	byName := map[string]string{}
	for _, i := range f.Imports {
		byName[i.Name] = i.Path
	}
	ast.Inspect(f.AST, func(n ast.Node) bool {
		if s, ok := n.(*ast.SelectorExpr); ok {
			if name := imported(byName, s); name != "" {
				see(name, s.Pos())
			}
		}
		return true
	})
}

// imported is "import/path.Name" if s names something of an imported package.
func imported(byName map[string]string, s *ast.SelectorExpr) string {
	id, ok := s.X.(*ast.Ident)
	// An identifier that the parser could resolve is a variable of the file that only has a package's name.
	if !ok || id.Obj != nil || byName[id.Name] == "" {
		return ""
	}
	return byName[id.Name] + "." + s.Sel.Name
}

// within says whether dir is root or lies below it.
func within(dir, root string) bool {
	return dir == root || strings.HasPrefix(dir, root+"/")
}

// withinAny says whether dir is one of roots or lies below one.
func withinAny(dir string, roots []string) bool {
	for _, root := range roots {
		if within(dir, root) {
			return true
		}
	}
	return false
}
