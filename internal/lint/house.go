// Package lint holds the rules of this repository that a machine can check:
// which package may import which, what the pure packages must not do, what
// files look like. Its tests apply them to the repository itself, so go test
// and make lint fail with the place, the reason and what to do instead.
//
// It reads source text only. It never builds, runs or changes anything. Only
// cmd/internal/count imports it.
package lint

import (
	"cmp"
	"fmt"
	"slices"
)

// Finding is one place where a rule is broken.
type Finding struct {
	Path string // from the repository's root
	Line int    // 0: the file or folder as a whole
	What string
	Fix  string // what to do instead
}

// String is the finding as compilers print theirs.
func (f Finding) String() string {
	place := f.Path
	if f.Line > 0 {
		place = fmt.Sprintf("%s:%d", f.Path, f.Line)
	}
	return fmt.Sprintf("%s: %s\n\tinstead: %s", place, f.What, f.Fix)
}

// Rule is one rule of the house.
type Rule struct {
	Name  string
	Check func(*Repo) []Finding
}

// Rules are all of them.
func Rules() []Rule {
	return []Rule{
		{"arrows", checkArrows},
		{"packages page", checkPackages},
		{"modules", checkModules},
		{"reach", checkReach},
		{"calls", checkCalls},
		{"goroutines", checkGoroutines},
		{"globals", checkGlobals},
		{"transitions", checkTransitions},
		{"package comment", checkPackageComment},
		{"package name", checkPackageName},
		{"file length", checkFileLength},
		{"parameters", checkParameters},
		{"fields", checkFields},
		{"machine paths", checkMachinePaths},
		{"sleep in tests", checkSleep},
		{"unfinished", checkUnfinished},
		{"links", checkLinks},
		{"words of identifiers", checkIdentifiers},
		{"words of prose", checkProse},
		{"named files", checkNamedFiles},
		{"page length", checkPageLength},
	}
}

// sorted brings findings into the order of files and lines.
func sorted(findings []Finding) []Finding {
	slices.SortStableFunc(findings, func(a, b Finding) int {
		return cmp.Or(cmp.Compare(a.Path, b.Path), cmp.Compare(a.Line, b.Line), cmp.Compare(a.What, b.What))
	})
	return findings
}
