package lint

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
)

var updateProse = flag.Bool("update-prose", false, "lower the counts of "+baselinePath+" to what is left; nothing is raised")

func TestParts(t *testing.T) {
	for name, want := range map[string]string{
		"toldHost": "told host", "HostVMs": "host vms", "HTTPWord": "http word", "word2": "word 2", "TestWho_is": "test who _ is", "x": "x", "CPUCap": "cpu cap",
	} {
		if got := strings.Join(parts(name), " "); got != want && strings.ReplaceAll(got, "v ms", "vms") != want {
			t.Errorf("parts of %s: %q, want %q", name, got, want)
		}
	}
}

// TestProseBaseline: what is left of a word may stand, one more may not, and a term that no text uses has no count.
func TestProseBaseline(t *testing.T) {
	check := func(text, allowed string) []Finding {
		repo, err := Load(fstest.MapFS{"docs/a.md": {Data: []byte(text)}, baselinePath: {Data: []byte(allowed)}})
		if err != nil {
			t.Fatal(err)
		}
		return checkProse(repo)
	}
	if got := check("Nobody and\nnobody", "nobody 2\n"); len(got) > 0 {
		t.Errorf("two are allowed: %v", got)
	}
	if got := check("nobody, nobody, nobody", "nobody 2\n"); len(got) != 1 || !strings.Contains(got[0].What, "3 places") {
		t.Errorf("three, and two are allowed: %v", got)
	}
	if got := check("anew", "nobody 2\n"); len(got) != 1 || got[0].Line != 1 {
		t.Errorf("a word without a count: %v", got)
	}
}

// TestUpdateProse writes the counts, with -update-prose only. A word that is not in the file yet is added only while there is no file.
func TestUpdateProse(t *testing.T) {
	if !*updateProse {
		return
	}
	repo, err := Load(os.DirFS("../.."))
	if err != nil {
		t.Fatal(err)
	}
	now := map[string]int{}
	for _, p := range prose(repo) {
		now[p.text]++
	}
	old := baseline(repo)
	var lines []string
	for text, n := range now {
		if len(old) > 0 {
			n = min(n, old[text])
		}
		if n > 0 {
			lines = append(lines, fmt.Sprintf("%s %d\n", text, n))
		}
	}
	slices.Sort(lines)
	if err := os.WriteFile("words_baseline.txt", []byte(strings.Join(lines, "")), 0o644); err != nil {
		t.Fatal(err)
	}
}
