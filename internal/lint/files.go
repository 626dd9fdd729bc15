package lint

import (
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"
)

// longest is the most lines a file that people wrote may have.
const longest = 600

func checkFileLength(r *Repo) (findings []Finding) {
	for _, f := range r.Go {
		if f.Lines > longest && !f.Generated {
			findings = append(findings, Finding{f.Path, 0, fmt.Sprintf("%d lines, more than %d", f.Lines, longest),
				"split it into files named after their nouns"})
		}
	}
	return sorted(findings)
}

// checkPackageComment: exactly one file of a package says what the package is
// for, and it is not the licence.
func checkPackageComment(r *Repo) (findings []Finding) {
	type comment struct {
		file *GoFile
		text string
	}
	comments := map[string][]comment{}
	first := map[string]*GoFile{} // of each folder with more than tests in it
	for _, f := range r.Go {
		if f.Test {
			continue
		}
		if first[f.Dir] == nil {
			first[f.Dir] = f
		}
		if f.AST.Doc != nil {
			comments[f.Dir] = append(comments[f.Dir], comment{f, f.AST.Doc.Text()})
		}
	}
	const fix = "one comment, in the package's main file or doc.go, that says what the package is for and what it never does"
	for dir, file := range first {
		found := comments[dir]
		if len(found) == 0 {
			findings = append(findings, Finding{dir, 0, "package " + file.AST.Name.Name + " has no package comment", fix})
			continue
		}
		for _, c := range found[1:] {
			findings = append(findings, Finding{c.file.Path, c.file.Line(c.file.AST.Doc.Pos()), "a second package comment, besides that of " + found[0].file.Path, fix})
		}
		c := found[0]
		line := c.file.Line(c.file.AST.Doc.Pos())
		start := "Package " + c.file.AST.Name.Name + " "
		if c.file.AST.Name.Name == "main" {
			start = "Command " + path.Base(dir) + " "
		}
		if lower := strings.ToLower(c.text); strings.Contains(lower, "licensed under") || strings.Contains(lower, "copyright") {
			findings = append(findings, Finding{c.file.Path, line, "the licence stands as package comment", "part it from the package clause by an empty line, and write " + fix})
		} else if !strings.HasPrefix(c.text, start) {
			findings = append(findings, Finding{c.file.Path, line, "the package comment does not begin as godoc wants", fmt.Sprintf("begin it with %q", start)})
		}
	}
	return sorted(findings)
}

// meaningless names say nothing of what is inside.
var meaningless = []string{"base", "common", "helper", "helpers", "misc", "shared", "struct", "structs", "tool", "tools", "util", "utils"}

func checkPackageName(r *Repo) (findings []Finding) {
	seen := map[string]bool{}
	for _, f := range r.Go {
		name := strings.TrimSuffix(f.AST.Name.Name, "_test")
		if seen[f.Dir+" "+name] {
			continue
		}
		seen[f.Dir+" "+name] = true
		if slices.Contains(meaningless, name) || slices.Contains(meaningless, path.Base(f.Dir)) {
			findings = append(findings, Finding{f.Dir, 0, "package " + name + " is named for nothing",
				"name it after what it is about, or put the code beside its one caller"})
		}
	}
	return sorted(findings)
}

// machinePath is a folder of one person's or one build's machine.
var machinePath = regexp.MustCompile(`(?:^|[^\w.~/\-])/(?:home/[a-z]|root/|Users/|work/)`)

func checkMachinePaths(r *Repo) (findings []Finding) {
	for _, t := range r.Texts {
		for n, line := range t.Lines {
			if at := machinePath.FindString(line); at != "" {
				findings = append(findings, Finding{t.Path, n + 1, fmt.Sprintf("names a path of one machine (%q)", strings.TrimSpace(line)),
					"use a path relative to the repository, ~, or one that the Filesystem Hierarchy Standard gives a service"})
			}
		}
	}
	return sorted(findings)
}

var unfinished = regexp.MustCompile(`\b(?:TO` + `DO|FIX` + `ME)\b`)

// ofOthers is the folder with files of others, which stay as they were published.
const ofOthers = "api/ui/assets/xterm/"

func checkUnfinished(r *Repo) (findings []Finding) {
	for _, t := range r.Texts {
		if strings.HasPrefix(t.Path, ofOthers) {
			continue
		}
		for n, line := range t.Lines {
			if part := unfinished.FindString(line); part != "" {
				findings = append(findings, Finding{t.Path, n + 1, "says " + part,
					"finish it, or leave it out and open an issue"})
			}
		}
	}
	return sorted(findings)
}
