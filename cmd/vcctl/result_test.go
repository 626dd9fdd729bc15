package main

import (
	"testing"

	v1 "evenkeel/api/v1"
)

// A request that was accepted prints what came of it: done, or how to watch what goes on.
func TestResultText(t *testing.T) {
	scale := func(state, text string) v1.Result {
		return v1.Result{Operation: &v1.Operation{Kind: "scale", VirtualCluster: "render", State: state, Text: text}}
	}
	for _, c := range []struct {
		name string
		r    v1.Result
		want string
	}{
		{"going on", scale(v1.OperationPending, "2 of 3 VMs running"),
			"scale of render goes on (2 of 3 VMs running); watch it with: vcctl vc get render -w\n"},
		{"done", scale(v1.OperationDone, "3 of 3 VMs running"), "scale of render: done, 3 of 3 VMs running\n"},
		{"dry run", v1.Result{DryRun: true}, "Dry run: nothing was changed.\n"},
		{"nothing to do", v1.Result{}, "Nothing to do.\n"},
	} {
		if got := resultText(c.r); got != c.want {
			t.Errorf("%s: got %q, want %q", c.name, got, c.want)
		}
	}
}
