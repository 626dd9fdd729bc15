package main

import (
	"errors"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/urfave/cli/v2"
	"pgregory.net/rapid"

	"evenkeel/api/client"
	"evenkeel/api/v1"
)

func testApp() *cli.App {
	t := &tool{in: strings.NewReader(""), out: io.Discard, err: io.Discard}
	return t.app()
}

func TestReorder(t *testing.T) {
	for _, c := range []struct{ in, want string }{
		{"", ""},
		{"vc list", "vc list"},
		{"vc list -o json", "-o=json vc list"},
		{"-o json vc list", "-o=json vc list"},
		{"vc -o=json list -w", "-o=json vc list -w"},
		{"vc list -ojson", "-o=json vc list"},
		{"vc list --output json", "--output=json vc list"},
		{"vc delete a --dry-run", "vc delete --dry-run -- a"},
		{"vc delete --dry-run a", "vc delete --dry-run -- a"},
		{"--dry-run vc delete a", "vc delete --dry-run -- a"},
		{"vc --dry-run delete a", "vc delete --dry-run -- a"},
		{"vc create -f - --wait --timeout 5s", "vc create -f=- --wait --timeout=5s"},
		{"vc create -f=x.yaml", "vc create -f=x.yaml"},
		{"vc scale a --cpu -1", "vc scale --cpu=-1 -- a"},
		{"vc scale --count 3 a --group=w", "vc scale --count=3 --group=w -- a"},
		{"vc get vc", "vc get -- vc"},
		{"vc get help", "vc get -- help"},
		{"vc delete -- -x", "vc delete -- -x"},
		{"vc delete a -- --dry-run", "vc delete -- a --dry-run"},
		{"solve -", "solve -- -"},
		{"solve --batch - --seed 3", "solve --batch --seed=3 -- -"},
		{"help", "--help"},
		{"help vc create", "vc create --help"},
		{"vc help create", "vc create --help"},
		{"vc create --help", "vc create --help"},
		{"vc create -h -f", "error"},
		{"vc delete a --wait=false", "vc delete --wait=false -- a"},
		{"__complete -- vc delete --", "__complete -- vc delete --"},
		{"host drain h1 --dry-run", "host drain --dry-run -- h1"},
		{"--dry-run host drain h1", "host drain --dry-run -- h1"},
		{"host drain h1 --dry-rum", "error"},
		{"host drain h1 --max-bytes 64GiB --on-blocked=skip -m disk", "host drain --max-bytes=64GiB --on-blocked=skip -m=disk -- h1"},
		{"cluster settings set moves.mode=off --dry-run", "cluster settings set --dry-run -- moves.mode=off"},
		{"cluster settings", "cluster settings"},
		{"rebalance --dry-run", "rebalance --dry-run"},
		{"host cordon h1 -m disk", "host cordon -m=disk -- h1"},
		{"vc delete a --dryrun", "error"},
		{"vc delete a --dry-run=", "vc delete --dry-run= -- a"},
		{"vc list --count 3", "error"},
		{"vc create -f", "error"},
		{"vc crate", "error"},
		{"vd list", "error"},
		{"--wait", "error"},
		{"-x vc list", "error"},
		{"vc delete a -dry-run", "vc delete --dry-run -- a"},
	} {
		got, err := reorder(testApp(), append([]string{"vcctl"}, strings.Fields(c.in)...))
		if c.want == "error" {
			if statusOf(err) != statusUsage {
				t.Errorf("%s: got %q, %v, want wrong usage", c.in, got, err)
			}
			continue
		}
		if want := strings.Fields("vcctl " + c.want); err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: got %q, %v, want %q", c.in, got, err, want)
		}
	}
}

// TestReorderAnywhere: wherever the flags of a command line stand, it means the same.
func TestReorderAnywhere(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		fields := []string{"vc", "scale", "render"}
		flags := [][]string{{"--count", "3"}, {"--group=w"}, {"--cpu", "-1"}, {"--dry-run"}, {"-o", "json"}, {"--address", "https://x"}, {"-ojson"}}
		chosen := rapid.SliceOfDistinct(rapid.IntRange(0, len(flags)-1), func(i int) int { return i }).Draw(t, "flags")
		line := []string{"vcctl"}
		at := 0
		for _, i := range chosen {
			for n := rapid.IntRange(0, len(fields)-at).Draw(t, "words before"); n > 0; n-- {
				line = append(line, fields[at])
				at++
			}
			line = append(line, flags[i]...)
		}
		line = append(line, fields[at:]...)
		canonical := []string{"vcctl", "vc", "scale", "render"}
		for _, i := range chosen {
			canonical = append(canonical, flags[i]...)
		}
		got, err := reorder(testApp(), line)
		want, wantErr := reorder(testApp(), canonical)
		if err != nil || wantErr != nil || !slices.Equal(got, want) {
			t.Fatalf("%q -> %q, %v; but %q -> %q, %v", line, got, err, canonical, want, wantErr)
		}
	})
}

// TestFlagsAgree: a flag of a name takes a value in every command or in none,
// which is what lets reorder read it before it knows the command.
func TestFlagsAgree(t *testing.T) {
	app := testApp()
	table := flagTable(app)
	check := func(where string, flags []cli.Flag) {
		for _, f := range flags {
			for _, n := range f.Names() {
				if d, ok := f.(cli.DocGenerationFlag); !ok || d.TakesValue() != table[n].value {
					t.Errorf("%s: flag %s takes a value here and not elsewhere, or the other way round", where, n)
				}
			}
		}
	}
	check("vcctl", app.Flags)
	each(app.Commands, func(c *cli.Command) { check(c.Name, c.Flags) })
}

// TestEveryCommandHelps: usage, a description with an example, and no flag without a word.
func TestEveryCommandHelps(t *testing.T) {
	each(testApp().Commands, func(c *cli.Command) {
		if c.Usage == "" || c.Description == "" {
			t.Errorf("%s says nothing of itself", c.Name)
		}
		if len(c.Subcommands) == 0 && c.Name != "solve" && !strings.Contains(c.Description, "Example: ") {
			t.Errorf("%s has no example", c.Name)
		}
		for _, f := range c.Flags {
			if d, ok := f.(cli.DocGenerationFlag); !ok || d.GetUsage() == "" {
				t.Errorf("%s: flag %s says nothing of itself", c.Name, f.Names()[0])
			}
		}
	})
}

func FuzzReorder(f *testing.F) {
	for _, s := range []string{"vc delete a --dry-run", "-o json vc list", "vc create -f - --", "help vc", "-", "--=", "-o", "vc\x00list"} {
		f.Add(s)
	}
	app := testApp()
	f.Fuzz(func(t *testing.T, line string) {
		out, err := reorder(app, append([]string{"vcctl"}, strings.Split(line, " ")...))
		if err != nil {
			if statusOf(err) != statusUsage {
				t.Fatal(err)
			}
			return
		}
		if slices.Contains(strings.Split(line, " "), "--dry-run") && !slices.Contains(out, "--dry-run") && !slices.Contains(out, "--help") {
			t.Fatalf("%q lost its --dry-run: %q", line, out)
		}
	})
}

func TestStatusOf(t *testing.T) {
	problem := func(kind string) error {
		return doing(&client.Error{Problem: v1.Problem{Type: kind, Title: "t"}}, "doing it")
	}
	for _, c := range []struct {
		err  error
		want int
	}{
		{nil, 0}, {errors.New("x"), 1}, {usage("x"), 2}, {problem(v1.ProblemRefused), 3}, {problem(v1.ProblemNotFound), 4},
		{problem(v1.ProblemConflict), 5}, {problem(v1.ProblemExists), 5}, {problem(v1.ProblemPrecondition), 5},
		{problem(v1.ProblemTimeout), 6}, {problem(v1.ProblemNoLeader), 7}, {doing(client.ErrUnreachable, "x"), 7},
		{problem(v1.ProblemInvalid), 2}, {problem(v1.ProblemMalformed), 2}, {problem(v1.ProblemUnsupported), 2}, {problem(v1.ProblemTooLarge), 2},
		{problem(v1.ProblemUnauthorized), 1}, {problem(v1.ProblemInternal), 1}, {problem(v1.ProblemUnavailable), 1}, {cli.Exit("", 3), 3},
	} {
		if got := statusOf(c.err); got != c.want {
			t.Errorf("%v: exit status %d, want %d", c.err, got, c.want)
		}
	}
}
