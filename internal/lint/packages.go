package lint

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// packagesPage lists the packages from the top down; checkPackages compares it with the code.
const packagesPage = "docs/reference/packages.md"

var packageRow = regexp.MustCompile("^\\| `([a-z0-9/]+)` \\|")

// checkPackages: the table below "## Packages" of the page has
// every package of the product once, and each package imports only packages
// that stand below it. Test packages are not part of it.
func checkPackages(r *Repo) (findings []Finding) {
	at := slices.IndexFunc(r.Texts, func(t *Text) bool { return t.Path == packagesPage })
	if at < 0 {
		return nil // a repository without the page, as in tests of other rules
	}
	line := map[string]int{} // of each listed package
	inside := false
	for n, text := range r.Texts[at].Lines {
		if strings.HasPrefix(text, "## ") {
			inside = text == "## Packages"
		}
		m := packageRow.FindStringSubmatch(text)
		if !inside || m == nil {
			continue
		}
		if line[m[1]] > 0 {
			findings = append(findings, Finding{packagesPage, n + 1, m[1] + " is listed twice", "list each package once"})
			continue
		}
		line[m[1]] = n + 1
	}
	exists, said := map[string]bool{}, map[string]bool{}
	for _, f := range r.Go {
		if f.Test || within(f.Dir, "test") {
			continue
		}
		exists[f.Dir] = true
		if line[f.Dir] == 0 {
			if !said[f.Dir] {
				said[f.Dir] = true
				findings = append(findings, Finding{packagesPage, 0, "package " + f.Dir + " is not listed", "give it a row above the packages that it imports"})
			}
			continue
		}
		for _, i := range f.Imports {
			own := i.Own()
			if own == "" || line[own] == 0 || line[own] > line[f.Dir] || said[f.Dir+" "+own] {
				continue
			}
			said[f.Dir+" "+own] = true
			findings = append(findings, Finding{packagesPage, line[own], fmt.Sprintf("%s stands above %s, which imports it (%s:%d)", own, f.Dir, f.Path, i.Line), "move its row down"})
		}
	}
	for name, n := range line {
		if !exists[name] {
			findings = append(findings, Finding{packagesPage, n, "there is no package " + name, "remove the row, or name the package as it is named now"})
		}
	}
	return sorted(findings)
}
