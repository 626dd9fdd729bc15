package main

import (
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/urfave/cli/v2"
)

// Each paper's folder is made before anything is played, and one that cannot be made is an error at once.
func TestPaperMakesItsFolder(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	writing := func(f cli.Flag) bool { return slices.Contains(f.Names(), "out") }
	for _, c := range paperCommand().Subcommands {
		if !slices.ContainsFunc(c.Flags, writing) {
			continue // it prints
		}
		played := false
		c.Action = func(x *cli.Context) error {
			played = true
			_, err := os.Stat(x.String("out"))
			return err
		}
		run := func(out string) error {
			app := &cli.App{Name: "vcsim", Writer: io.Discard, ErrWriter: io.Discard, Commands: []*cli.Command{c}, ExitErrHandler: func(*cli.Context, error) {}}
			return app.Run([]string{"vcsim", c.Name, "--out", out})
		}
		if err := run(filepath.Join(t.TempDir(), "new", "folder")); err != nil || !played {
			t.Errorf("%s: %v, played: %v", c.Name, err, played)
		}
		played = false
		if err := run(filepath.Join(file, "below")); err == nil || played || !strings.Contains(err.Error(), "--out") {
			t.Errorf("%s below a file: %v, played: %v", c.Name, err, played)
		}
	}
}
