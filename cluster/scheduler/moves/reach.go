package moves

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"evenkeel/hypervisor"
)

// Routes are the obstacles to sending VMs, by the host that would send and the one to which VMs would go; "" = any.
type Routes map[string]map[string]hypervisor.Obstacle

// Docs is the page that says what hosts need to send VMs to each other.
const Docs = "docs/how-to/set-up-live-migration.md"

// Why says why no VM can be sent from one host to another; "" = one can, as far as is known.
func (w Routes) Why(from, to string) string {
	if all := w[from][""]; all.Why != "" {
		return causeOn(all, from)
	}
	return causeOn(w[from][to], from)
}

// any says why a host cannot send VMs to any other.
func (w Routes) any(from string) string {
	if all := w[from][""]; all.Why != "" {
		return fmt.Sprintf("host %s cannot send VMs: %s", from, causeOn(all, from))
	}
	return ""
}

// causeOn returns a cause with the hosts on which it lies, if it does not lie between them.
func causeOn(o hypervisor.Obstacle, hosts ...string) string {
	if o.Why == "" || !o.Here {
		return o.Why
	}
	return o.Why + " on " + Names(hosts)
}

// MissingRoute has hosts that cannot send VMs to others for the same cause.
type MissingRoute struct {
	From []string
	To   []string // nil: any host
	Why  hypervisor.Obstacle
}

// String names all hosts, the cause, and the page that says how to mend it.
func (n MissingRoute) String() string {
	text := Names(n.From) + " cannot send VMs"
	if len(n.To) > 0 {
		text += " to " + Names(n.To)
	}
	return fmt.Sprintf("%s: %s (see %s)", text, causeOn(n.Why, n.From...), Docs)
}

// Sum joins obstacles of the same cause: first the hosts that do not reach a given host, or reach none; then the hosts that all of them
// do not reach.
func (w Routes) Sum() (out []MissingRoute) {
	type key struct {
		to  string
		why hypervisor.Obstacle
	}
	from := map[key][]string{}
	for host, to := range w {
		if all := to[""]; all.Why != "" {
			from[key{"", all}] = append(from[key{"", all}], host)
			continue
		}
		for name, o := range to {
			if o.Why != "" {
				from[key{name, o}] = append(from[key{name, o}], host)
			}
		}
	}
	var keys []key
	for k := range from {
		slices.Sort(from[k])
		keys = append(keys, k)
	}
	slices.SortFunc(keys, func(a, b key) int { return cmp.Or(strings.Compare(a.to, b.to), strings.Compare(a.why.Why, b.why.Why)) })
next:
	for _, k := range keys {
		if k.to == "" {
			out = append(out, MissingRoute{From: from[k], Why: k.why})
			continue
		}
		for i := range out {
			if n := &out[i]; len(n.To) > 0 && n.Why == k.why && slices.Equal(n.From, from[k]) {
				n.To = append(n.To, k.to)
				continue next
			}
		}
		out = append(out, MissingRoute{From: from[k], To: []string{k.to}, Why: k.why})
	}
	return out
}
