package lint

import (
	"fmt"
	"go/ast"
	"path"
	"regexp"
	"slices"
	"strings"
)

var link = regexp.MustCompile(`\]\(([^)\s]+)\)`)

// checkLinks: what Markdown files link to in the repository exists, headings included.
func checkLinks(r *Repo) (findings []Finding) {
	anchors := map[string]map[string]bool{}
	for _, t := range r.Texts {
		if path.Ext(t.Path) == ".md" {
			anchors[t.Path] = anchorsOf(t)
		}
	}
	for _, t := range r.Texts {
		if path.Ext(t.Path) != ".md" {
			continue
		}
		eachLineOfProse(t, func(n int, line string) {
			for _, m := range link.FindAllStringSubmatch(line, -1) {
				target, anchor, _ := strings.Cut(m[1], "#")
				if strings.Contains(target, ":") {
					continue // of another site
				}
				page := t.Path
				if target != "" {
					page = path.Join(path.Dir(t.Path), target)
				}
				switch {
				case target != "" && !r.paths[page]:
					findings = append(findings, Finding{t.Path, n, "links to " + m[1] + ", which does not exist", "link to the file as it is named now, relative to this one"})
				case anchor != "" && anchors[page] != nil && !anchors[page][anchor]:
					findings = append(findings, Finding{t.Path, n, "links to " + m[1] + ", and " + page + " has no such heading", "link to a heading as it is written now: small letters, hyphens for spaces"})
				}
			}
		})
	}
	return sorted(findings)
}

// eachLineOfProse calls see with each line of a Markdown file outside fenced code, numbered from 1.
func eachLineOfProse(t *Text, see func(n int, line string)) {
	code := false
	for n, line := range t.Lines {
		if strings.HasPrefix(strings.TrimSpace(line), "```") {
			code = !code
			continue
		}
		if !code {
			see(n+1, line)
		}
	}
}

var (
	heading    = regexp.MustCompile(`^#+ +(.*)$`)
	named      = regexp.MustCompile(`<a id="([^"]+)">`)
	linkText   = regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`)
	notInNames = regexp.MustCompile(`[^\p{L}\p{N} _-]`)
)

// anchorsOf are the names by which links reach parts of a Markdown file, as forges make them of headings.
func anchorsOf(t *Text) map[string]bool {
	names := map[string]bool{}
	eachLineOfProse(t, func(_ int, line string) {
		for _, m := range named.FindAllStringSubmatch(line, -1) {
			names[m[1]] = true
		}
		m := heading.FindStringSubmatch(line)
		if m == nil {
			return
		}
		text := linkText.ReplaceAllString(m[1], "$1")
		base := strings.ReplaceAll(notInNames.ReplaceAllString(strings.ToLower(strings.TrimSpace(text)), ""), " ", "-")
		name := base
		for i := 1; names[name]; i++ {
			name = fmt.Sprintf("%s-%d", base, i)
		}
		names[name] = true
	})
	return names
}

// ofRepository is a file of this repository as prose names it: in backticks, from the root, perhaps with a function of it after a colon.
var ofRepository = regexp.MustCompile("`((?:allocator|api|cluster|cmd|examples|forecast|hypervisor|internal|migration|packaging|scripts|sim|test)/[\\w./-]*\\.(?:go|md|sh|yaml))(?::(\\w+))?`")

// hasFunction says whether a Go file declares a function or method of that name.
func hasFunction(r *Repo, file, name string) bool {
	for _, f := range r.Go {
		if f.Path == file {
			return slices.ContainsFunc(f.AST.Decls, func(d ast.Decl) bool {
				fn, is := d.(*ast.FuncDecl)
				return is && fn.Name.Name == name
			})
		}
	}
	return false
}

// checkNamedFiles: files, and functions in them, that Markdown names in backticks exist. Decisions and the change log report the past.
func checkNamedFiles(r *Repo) (findings []Finding) {
	for _, t := range r.Texts {
		if path.Ext(t.Path) != ".md" || t.Path == "CHANGELOG.md" || within(t.Path, "docs/decisions") {
			continue
		}
		eachLineOfProse(t, func(n int, line string) {
			for _, m := range ofRepository.FindAllStringSubmatch(line, -1) {
				if !r.paths[m[1]] {
					findings = append(findings, Finding{t.Path, n, "names " + m[1] + ", which does not exist", "name the file as it is named now"})
				} else if m[2] != "" && !hasFunction(r, m[1], m[2]) {
					findings = append(findings, Finding{t.Path, n, "names " + m[1] + ":" + m[2] + ", and the file has no such function", "name the function as it is named now"})
				}
			}
		})
	}
	return sorted(findings)
}

// maxLength are the words of a page that is to be read through, and maxLines the lines of the README.
const (
	maxLength = 1500
	maxLines  = 150
)

// checkPageLength: a page has one purpose. References and reproductions are looked things up in, not read through.
func checkPageLength(r *Repo) (findings []Finding) {
	for _, t := range r.Texts {
		page := within(t.Path, "docs") && !withinAny(t.Path, []string{"docs/reference", "docs/reproduction"}) || t.Path == "CONTRIBUTING.md"
		if path.Ext(t.Path) != ".md" || !page && t.Path != "README.md" {
			continue
		}
		length := 0
		for _, line := range t.Lines {
			length += len(strings.Fields(line))
		}
		if length > maxLength {
			findings = append(findings, Finding{t.Path, 0, fmt.Sprintf("%d words, more than %d", length, maxLength),
				"make two pages of it, or move what is looked up to docs/reference and figures to docs/reproduction"})
		}
		if t.Path == "README.md" && len(t.Lines) > maxLines {
			findings = append(findings, Finding{t.Path, 0, fmt.Sprintf("%d lines, more than %d", len(t.Lines), maxLines), "move detail below docs/ and link to it"})
		}
	}
	return sorted(findings)
}
