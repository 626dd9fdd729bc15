package main

import (
	"bytes"
	"context"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"evenkeel/sim/replay"
)

// pageLike compares a page, but for the processor times in its last line, with the golden file of that name, and looks whether all figures that
// it shows are there and are XML.
func pageLike(t *testing.T, dir, page string) {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(dir, page+".md"))
	if err != nil {
		t.Fatal(err)
	}
	var kept []string
	for _, line := range strings.SplitAfter(string(raw), "\n") {
		if !strings.HasPrefix(line, "User CPU") {
			kept = append(kept, line)
		}
	}
	got := strings.Join(kept, "")
	golden := filepath.Join("testdata", "paper", page+".golden")
	if *rewrite {
		if err := os.MkdirAll(filepath.Dir(golden), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s: got\n%s\nwant\n%s", page, got, want)
	}
	stats := 0
	for _, part := range strings.Split(got, "](")[1:] {
		name, _, _ := strings.Cut(part, ")")
		if filepath.Ext(name) != ".svg" {
			continue
		}
		stats++
		svg, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Error(err)
			continue
		}
		d := xml.NewDecoder(bytes.NewReader(svg))
		for {
			if _, err = d.Token(); err != nil {
				break
			}
		}
		if !errors.Is(err, io.EOF) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if stats < 2 {
		t.Errorf("%s shows %d figures", page, stats)
	}
}

func TestPaperFlexGolden(t *testing.T) {
	dir := t.TempDir()
	r := flexReport{nodes: 10, seed: 2, log: io.Discard}
	if err := r.run(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := r.write(dir); err != nil {
		t.Fatal(err)
	}
	pageLike(t, dir, "flex")
	rowsOf(t, dir, "flex", r.seed, r.tables())
}

// rowsOf checks that the tables that are written alone are those of the page, and that the page links to them once they exist.
func rowsOf(t *testing.T, dir, paper string, seed uint64, tables []byte) {
	t.Helper()
	if err := writeTables(io.Discard, dir, paper, seed, tables); err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(filepath.Join(dir, paper+".md"))
	if err != nil {
		t.Fatal(err)
	}
	rows := 0
	for _, line := range strings.Split(string(tables), "\n") {
		if strings.HasPrefix(line, "|") {
			if rows++; !bytes.Contains(page, []byte(line+"\n")) {
				t.Errorf("%s: %q is not in the page", paper, line)
			}
		}
	}
	if reported := string(otherSeeds(dir, paper)); rows < 8 || !strings.Contains(reported, fmt.Sprintf("(%s-seed-%d.md)", paper, seed)) {
		t.Errorf("%s: %d rows; the page would say %q", paper, rows, reported)
	}
}

func TestPaperHaGolden(t *testing.T) {
	dir := t.TempDir()
	r := haReport{days: 2, tasks: 400, seed: 2}
	if err := r.run(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := r.write(dir); err != nil {
		t.Fatal(err)
	}
	pageLike(t, dir, "ha")
	rowsOf(t, dir, "ha", r.seed, r.tables())
}

func TestPapersAreGivenUp(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	f := flexReport{nodes: 10, seed: 1, log: io.Discard}
	if err := f.run(ctx); !errors.Is(err, replay.ErrStopped) {
		t.Errorf("flex: %v", err)
	}
	h := haReport{days: 1, tasks: 200, seed: 1}
	if err := h.run(ctx); !errors.Is(err, replay.ErrStopped) {
		t.Errorf("ha: %v", err)
	}
}
