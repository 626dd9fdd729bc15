package main

import (
	"slices"
	"strings"

	"github.com/urfave/cli/v2"
)

// States that --state takes.
var (
	vcStates        = []string{"queued", "starting", "running", "stopping", "stopped", "degraded", "failed", "deleting"}
	vmStates        = []string{"starting", "running", "paused", "stopping", "stopped", "failed", "lost", "unknown"}
	hostStates      = []string{"ready", "cordoned", "draining", "drained", "unreachable", "lost", "unknown"}
	planStates      = []string{"proposed", "running", "done", "failed", "stopped", "superseded"}
	migrationStates = []string{"running", "done", "failed", "aborted"}
)

func stateFlag(states []string) cli.Flag {
	return &cli.StringFlag{Name: "state", Usage: "only those in these `STATES`, with commas between: " + strings.Join(states, ", ")}
}

// wantedStates are those of --state; nil: all.
func wantedStates(c *call, known []string) ([]string, error) {
	written := c.String("state")
	if written == "" {
		return nil, nil
	}
	out := strings.Split(written, ",")
	for i, s := range out {
		if out[i] = strings.TrimSpace(s); !slices.Contains(known, out[i]) {
			return nil, usage("--state %s: there is no state %q: there are %s", written, out[i], strings.Join(known, ", "))
		}
	}
	return out, nil
}

// inState are those of a list that --state wants.
func inState[T any](c *call, known []string, all []T, err error, state func(T) string) ([]T, error) {
	wanted, wrong := wantedStates(c, known)
	if wrong != nil {
		return nil, wrong
	}
	if err != nil || wanted == nil {
		return all, err
	}
	return slices.DeleteFunc(all, func(x T) bool { return !slices.Contains(wanted, state(x)) }), nil
}

// labelled is the list of what has labels.
func (l listView[T]) labelled(labels func(T) []map[string]string) listView[T] {
	l.labels = labels
	return l
}

// lists says whether a command lists, so that it takes the formats of lists.
func lists(c *cli.Command) bool { return slices.Contains(c.Flags, cli.Flag(sortFlag)) }
