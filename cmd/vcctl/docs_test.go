package main

import (
	"os"
	"testing"

	"evenkeel/cmd/internal/clidoc"
	"evenkeel/internal/docpage"
)

// TestReferencePage: docs/reference/vcctl.md is what the program says of itself.
func TestReferencePage(t *testing.T) {
	const intro = "The commands of vcctl, made from the program by `make docs`. What they share stands in [vcctl conventions](vcctl-conventions.md),\n" +
		"their exit status in [exit status](exit-status.md). `vcctl NOUN VERB --help` prints the same text."
	if err := docpage.Whole("../../docs/reference/vcctl.md", clidoc.Page((&tool{}).app(), intro), os.Getenv("EVENKEEL_DOCS") == "write"); err != nil {
		t.Error(err)
	}
}

// TestCommandsInPages: the pages show no command and no flag that vcctl does not have.
func TestCommandsInPages(t *testing.T) {
	faults, lines, err := clidoc.CheckPages((&tool{}).app(), "../..")
	if err != nil {
		t.Fatal(err)
	}
	if lines < 200 {
		t.Errorf("only %d command lines were found: the search looks in the wrong place", lines)
	}
	for _, f := range faults {
		t.Error(f)
	}
}
