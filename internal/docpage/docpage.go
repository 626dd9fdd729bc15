// Package docpage keeps generated parts of pages below docs/ equal to what the
// programs say. Only tests use it: by default they compare; with EVENKEEL_DOCS=write,
// which `make docs` sets, they write. It never changes text outside its markers.
package docpage

import (
	"fmt"
	"os"
	"strings"
)

// Whole compares a page that is generated as a whole with what it should be.
func Whole(path, want string, write bool) error {
	return put(path, want, write)
}

// Part compares the text between the markers of a part with what it should be.
// The markers are lines of their own: <!-- begin NAME --> and <!-- end NAME -->.
func Part(path, name, want string, write bool) error {
	page, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("generated part %s: %w", name, err)
	}
	head, tail := "<!-- begin "+name+" -->\n", "<!-- end "+name+" -->\n"
	before, rest, begins := strings.Cut(string(page), head)
	_, after, ends := strings.Cut(rest, tail)
	if !begins || !ends {
		return fmt.Errorf("%s has no part between %q and %q", path, strings.TrimSpace(head), strings.TrimSpace(tail))
	}
	return put(path, before+head+"\n"+strings.TrimSpace(want)+"\n\n"+tail+after, write)
}

func put(path, want string, write bool) error {
	if write {
		if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
			return fmt.Errorf("write the page: %w", err)
		}
		return nil
	}
	got, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("read the page: %w", err)
	}
	if string(got) == want {
		return nil
	}
	have, should := strings.Split(string(got), "\n"), strings.Split(want, "\n")
	line := 0
	for line < len(have)-1 && line < len(should)-1 && have[line] == should[line] {
		line++
	}
	return fmt.Errorf("%s:%d differs from the program; `make docs` writes it\nit has    %s\nit should %s", path, line+1, have[line], should[line])
}

// Row is a row of a Markdown table.
func Row(cells ...string) string {
	for i, c := range cells {
		cells[i] = strings.ReplaceAll(strings.Join(strings.Fields(c), " "), "|", `\|`)
	}
	return "| " + strings.Join(cells, " | ") + " |\n"
}
