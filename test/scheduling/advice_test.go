package scheduling_test

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"evenkeel/cluster/scheduler/admission"
	"evenkeel/cluster/state"
	"evenkeel/test/scheduling"
)

// adviceIsTrue follows each piece of advice of a refusal that is about the VC itself:
// with it, the VC must fit.
func adviceIsTrue(c *scheduling.Cluster, x state.VC, d state.Decision) (followed int) {
	c.T.Helper()
	for _, advice := range d.Advice {
		y := x
		y.Groups = slices.Clone(x.Groups)
		var n int
		var f float64
		var unit, of string
		group := func(name string) *state.Group {
			for i := range y.Groups {
				if y.Name+"/"+y.Groups[i].Name == name {
					return &y.Groups[i]
				}
			}
			c.T.Fatalf("advice %q names no group", advice)
			return nil
		}
		of, rule, drop := strings.Cut(advice, " without ")
		switch {
		case drop:
			rule, err := strconv.Unquote(rule)
			if err != nil {
				c.T.Fatalf("advice %q: %v", advice, err)
			}
			g := group(of)
			a := &g.Affinity
			kind, term, _ := strings.Cut(rule, " ")
			remove := func(list []string) []string {
				at := slices.Index(list, term)
				return slices.Delete(slices.Clone(list), at, at+1)
			}
			switch kind {
			case "spread":
				a.Spread = ""
			case "require":
				a.Require = remove(a.Require)
			case "avoid":
				a.Avoid = remove(a.Avoid)
			}
		case scan(advice, "at most %d VM in %s instead", &n, &of), scan(advice, "at most %d VMs in %s instead", &n, &of):
			group(of).Count = n
		case scan(advice, "a minYield of at most %g for %s instead", &f, &of):
			y.MinYield = f
		case scan(advice, "at most %g %s of memory per VM of %s instead", &f, &unit, &of):
			if unit != "MiB" {
				c.T.Fatalf("advice %q", advice)
			}
			group(of).Memory = int64(f) * scheduling.MiB
		case scan(advice, "a need of at most %g cores of CPU per VM of %s instead", &f, &of), scan(advice, "a need of at most %g core of CPU per VM of %s instead", &f, &of):
			group(of).CPU = f
		default:
			continue
		}
		followed++
		if n < 0 || f < 0 || n == 0 && f == 0 && !drop {
			c.T.Fatalf("silly advice: %q", advice)
		}
		if again := admission.Consider(c.Snapshot(), y, c.Env()); !again.Admitted {
			c.T.Fatalf("followed the advice %q and was refused again: %+v\n%+v", advice, again, y)
		}
	}
	return followed
}

func scan(text, form string, into ...any) bool {
	n, err := fmt.Sscanf(text, form, into...)
	return err == nil && n == len(into)
}
