package server

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"evenkeel/api/v1"
	"evenkeel/cluster/state"
	"evenkeel/internal/docpage"
)

// TestEventsReferencePage: docs/reference/events.md lists every kind of event.
func TestEventsReferencePage(t *testing.T) {
	var table strings.Builder
	table.WriteString("| kind | severity | what happened |\n|---|---|---|\n")
	for _, k := range v1.EventKinds {
		table.WriteString(docpage.Row("`"+k.Kind+"`", k.Severity, k.Doc))
	}
	if err := docpage.Part(reference+"events.md", "kinds of events", table.String(), writeDocs); err != nil {
		t.Error(err)
	}
}

// Every kind that the state records is in the table: by its own text in the code, or by what it is put together of.
func TestEventKindsAreListed(t *testing.T) {
	if !slices.IsSortedFunc(v1.EventKinds, func(a, b v1.EventKind) int { return strings.Compare(a.Kind, b.Kind) }) {
		t.Error("v1.EventKinds are not in the order of their names")
	}
	var kinds []string
	files, err := filepath.Glob("../../cluster/state/*.go")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	literal := regexp.MustCompile(`(?:\.event\(|kind(?:, [a-z]+)? :?= )"([a-z]+(?:-[a-z]+)+|rightsized)"`)
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		text, err := os.ReadFile(file) //nolint:gosec // a file of this repository
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range literal.FindAllStringSubmatch(string(text), -1) {
			kinds = append(kinds, m[1])
		}
	}
	if len(kinds) < 30 {
		t.Errorf("only %d kinds are found in the code: its form has changed", len(kinds))
	}
	for pattern, form := range map[string]string{ // what other packages have the state record, and the verbs of plans
		"../../cluster/*/*.go": `state\.Audit\{Kind: "([a-z-]+)"`, "../../cluster/scheduler/*/*.go": `state\.Audit\{Kind: "([a-z-]+)"`,
		"../../cluster/audit/refusals.go": `Refused += "([a-z]+-refused)"`, "../../cluster/scheduler/admission/place.go": `"[a-z]+": "([a-z-]+)"`,
	} {
		found := 0
		files, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			if strings.HasSuffix(file, "_test.go") {
				continue
			}
			text, err := os.ReadFile(file) //nolint:gosec // a file of this repository
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range regexp.MustCompile(form).FindAllStringSubmatch(string(text), -1) {
				if found++; strings.HasSuffix(file, "place.go") {
					m[1] = "vc-" + m[1]
				}
				kinds = append(kinds, m[1])
			}
		}
		if found == 0 {
			t.Errorf("no kind is found in %s: its form has changed", pattern)
		}
	}
	for _, phase := range []state.Phase{state.Starting, state.Running, state.Stopping, state.Stopped, state.Failed, state.Lost} {
		kinds = append(kinds, "vm-"+string(phase))
	}
	for _, s := range []state.MovePlanState{state.MovesProposed, state.MovesRunning, state.MovesDone, state.MovesFailed, state.MovesStopped, state.MovesSuperseded} {
		kinds = append(kinds, "plan-"+string(s))
	}
	for _, s := range []state.DrainState{state.DrainRunning, state.DrainDone, state.DrainBlocked, state.DrainStopped} {
		kinds = append(kinds, "host-"+string(s))
	}
	for _, kind := range kinds {
		if !v1.KnownEventKind(kind) {
			t.Errorf("the kind %q is not in v1.EventKinds (api/v1/eventkinds.go): give it a severity and a line", kind)
		}
	}
}

func TestSeverityOfEvents(t *testing.T) {
	for kind, want := range map[string]string{"host-lost": "critical", "vm-failed": "warning", "vm-running": "info", "of-another-version": "info"} {
		if got := v1.EventSeverity(kind); got != want {
			t.Errorf("%s: %s, want %s", kind, got, want)
		}
	}
	if got := severe([]string{"vm-*"}, v1.SeverityCritical); !slices.Equal(got, []string{"vm-duplicate", "vm-lost"}) {
		t.Errorf("critical of vm-*: %v", got)
	}
	if got := severe([]string{"vm-running"}, v1.SeverityWarning); len(got) != 1 || (state.EventFilter{Kinds: got}).Match(state.Event{Kind: "vm-running"}) {
		t.Errorf("nothing is wanted: %v", got)
	}
}
