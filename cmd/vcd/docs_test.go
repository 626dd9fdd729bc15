package main

import (
	"io"
	"os"
	"testing"

	"evenkeel/cmd/internal/clidoc"
	"evenkeel/internal/docpage"
)

// TestReferencePage: docs/reference/vcd.md is what the program says of itself.
func TestReferencePage(t *testing.T) {
	const intro = "The commands of vcd, the daemon, made from the program by `make docs`. `vcd run` reads `/etc/evenkeel/vcd.yaml`: `man vcd.yaml`\n" +
		"([source](../../packaging/man/vcd.yaml.5)) describes its keys. The exit status is 0, 1 (failed) or 2 (wrong usage)."
	if err := docpage.Whole("../../docs/reference/vcd.md", clidoc.Page(app(io.Discard, io.Discard), intro), os.Getenv("EVENKEEL_DOCS") == "write"); err != nil {
		t.Error(err)
	}
}

// TestCommandsInPages: the pages show no command and no flag that vcd does not have.
func TestCommandsInPages(t *testing.T) {
	faults, lines, err := clidoc.CheckPages(app(io.Discard, io.Discard), "../..")
	if err != nil {
		t.Fatal(err)
	}
	if lines < 10 {
		t.Errorf("only %d command lines were found: the search looks in the wrong place", lines)
	}
	for _, f := range faults {
		t.Error(f)
	}
}
