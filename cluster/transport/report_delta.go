package transport

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"evenkeel/cluster/agent"
	"evenkeel/hypervisor"
)

// Change is a report as it is sent: what is new since a report that the leader took. Statuses and estimates are always new. Samples are
// measurements: only some reports send them.
type Change struct {
	// Since is the number of the last report that the leader took. All that this change does not have is as in that report. 0 if there
	// is a Head here.
	Since uint64 `json:"since,omitempty"`
	// Index is the index of the report, if it differs from that of report Since. It does in nearly every report.
	Index *uint64 `json:"index,omitempty"`
	// Head is the report without Statuses, Samples, Estimates, Pressure and Available, an agent.Report.
	Head json.RawMessage `json:"head,omitempty"`
	// Ran are VMs that run now besides those of report Since, and Left those of it that do not run, or not as they did.
	Ran      []agent.Instance `json:"ran,omitempty"`
	Left     []agent.Instance `json:"left,omitempty"`
	Statuses []agent.Status   `json:"statuses"`
	Samples  []agent.Sample   `json:"samples"` // null: those that were sent last count
	// Estimates are sent once.
	Estimates []agent.Estimate `json:"estimates,omitempty"`
	// Pressure is of the host, when the samples were taken: it changes with every report.
	Pressure *hypervisor.Pressure `json:"pressure,omitempty"`
	// Available is sent with samples; no caller waits for it.
	Available *agent.Available `json:"available,omitempty"`
}

// reportEncoder makes changes of a sequence of reports. The zero value begins with a whole one.
type reportEncoder struct {
	n          uint64     // of the last report that was taken, 0 = none
	last, next reportHead // last is of that report, next of the last change that was made
}

// reportHead is what a change is computed from: the Index of a report, what runs, and the rest as JSON. pressure and states are what
// the leader must learn of the samples at once.
type reportHead struct {
	index    uint64
	running  []agent.Instance // ordered; nil: the hypervisor was not asked
	rest     []byte
	sampled  bool // samples were sent with the last whole report, or since
	pressure string
	states   string
}

// change returns what is new since the last report that the leader took. It may be called again for another try: nothing counts until
// taken. due: it is time for samples. If it is not, change leaves samples out, if any were sent before. It sends them all the same with
// a Head; with estimates, whose age they give; and if they show that a VM is under memory pressure or no longer so, or has changed its
// state. news: the change has more than samples and what is Quiet. The leader keeps the highest Index, so an Index of 0 changes nothing
// for it.
func (e *reportEncoder) change(r agent.Report, due bool) (out Change, news bool, err error) {
	out = Change{Since: e.n, Statuses: r.Statuses, Samples: r.Samples, Estimates: r.Estimates, Pressure: r.Pressure, Available: r.Available}
	last := &e.last
	if e.next, err = last.next(r); err != nil {
		return Change{}, false, err
	}
	next := &e.next
	same := e.n > 0 && bytes.Equal(next.rest, last.rest) && (next.running == nil) == (last.running == nil)
	runs := slices.Equal(next.running, last.running)
	news = len(out.Statuses) > 0 || len(out.Estimates) > 0 || next.pressure != last.pressure || !same || !runs || !r.Quiet && next.index != 0 && next.index != last.index
	urgent := len(out.Estimates) > 0 || next.pressure != last.pressure || next.states != last.states
	if !due && last.sampled && !urgent && (!news || same) {
		out.Samples, out.Pressure, out.Available = nil, nil, nil
	}
	next.sampled = same && last.sampled || out.Samples != nil
	if !same {
		out.Since = 0
		if out.Head, err = next.whole(r); err != nil {
			return Change{}, false, err
		}
		return out, news, nil
	}
	if next.index != last.index {
		index := next.index
		out.Index = &index
	}
	out.Ran, out.Left = without(next.running, last.running), without(last.running, next.running)
	return out, news, nil
}

// next is the head of the report after h. rest is compared as bytes: the agent may go on using what the report points to.
func (h *reportHead) next(r agent.Report) (reportHead, error) {
	out := reportHead{index: r.Index, running: byInstance(r.Running), pressure: h.pressure, states: h.states}
	if r.Samples != nil {
		out.pressure, out.states = pressureDigest(r), states(r)
	}
	var err error
	out.rest, err = encodeHead(r, 0, nil)
	return out, err
}

// whole is the head as it is sent at first: with the index and what runs, where there is any.
func (h *reportHead) whole(r agent.Report) (json.RawMessage, error) {
	if h.index == 0 && h.running == nil {
		return h.rest, nil
	}
	return encodeHead(r, h.index, h.running)
}

// encodeHead leaves out what each change has of its own.
func encodeHead(r agent.Report, index uint64, running []agent.Instance) ([]byte, error) {
	r.Statuses, r.Samples, r.Estimates, r.Pressure, r.Available = nil, nil, nil, nil, nil
	r.Index, r.Running = index, running
	b, err := json.Marshal(r)
	if err != nil {
		return nil, fmt.Errorf("encode the report of host %s: %w", r.Host, err)
	}
	return b, nil
}

// pressureDigest lists the VMs that are short of memory: the leader must learn at once of one that was not, and of one that is
// not any more.
func pressureDigest(r agent.Report) string {
	out := ""
	for _, s := range r.Samples {
		if s.Guest != nil && s.Guest.Pressure != "" {
			out += s.VM + " "
		}
	}
	return out
}

// states lists the states of the VMs that do not simply run.
func states(r agent.Report) string {
	out := ""
	for _, s := range r.Samples {
		if s.State != string(hypervisor.Running) {
			out += s.VM + " " + s.State + " "
		}
	}
	return out
}

// byInstance orders what runs, in a slice of its own; nil stays nil.
func byInstance(running []agent.Instance) []agent.Instance {
	out := slices.Clone(running)
	slices.SortFunc(out, instances)
	return out
}

// instances compares instances in an order in which only equal ones are equal.
func instances(a, b agent.Instance) int {
	one := func(is bool) int {
		if is {
			return 1
		}
		return 0
	}
	return cmp.Or(strings.Compare(a.VM, b.VM), strings.Compare(a.Name, b.Name), cmp.Compare(a.Generation, b.Generation), one(a.Incoming)-one(b.Incoming), one(a.Leftover)-one(b.Leftover), one(a.Leaving)-one(b.Leaving))
}

// without returns all without some. Both are ordered; where an instance is there twice, each counts.
func without(all, some []agent.Instance) []agent.Instance {
	var out []agent.Instance
	for _, one := range all {
		for len(some) > 0 && instances(some[0], one) < 0 {
			some = some[1:]
		}
		if len(some) > 0 && some[0] == one {
			some = some[1:]
			continue
		}
		out = append(out, one)
	}
	return out
}

// taken notes that the leader has what the last change reported, under that number.
func (e *reportEncoder) taken(n uint64) { e.n, e.last = n, e.next }

// reportDecoder puts reports of one host together again. The zero value knows none.
type reportDecoder struct {
	n    uint64
	head agent.Report
}

// take takes in a change; the error is errWhole if the report that it changes is not known here. Later changes may rest on it
// only once it is kept.
func (d *reportDecoder) take(c Change) (agent.Report, error) {
	r := d.head
	switch {
	case c.Head != nil:
		r = agent.Report{}
		if err := json.Unmarshal(c.Head, &r); err != nil {
			return agent.Report{}, fmt.Errorf("decode a report: %w", err)
		}
	case c.Since == 0 || c.Since != d.n:
		return agent.Report{}, fmt.Errorf("the report is a change of report %d, and the last one here is %d: %w", c.Since, d.n, errWhole)
	}
	if c.Index != nil {
		r.Index = *c.Index
	}
	if len(c.Ran)+len(c.Left) > 0 {
		was := byInstance(r.Running)
		r.Running = append(without(was, byInstance(c.Left)), c.Ran...)
		if len(r.Running)+len(c.Left) != len(was)+len(c.Ran) {
			return agent.Report{}, fmt.Errorf("the report names %d VMs that run no more, and not all of them did: %w", len(c.Left), errWhole)
		}
		if r.Running == nil {
			r.Running = []agent.Instance{} // the hypervisor was asked
		}
		slices.SortFunc(r.Running, instances)
	}
	r.Statuses, r.Samples, r.Estimates, r.Pressure, r.Available = c.Statuses, c.Samples, c.Estimates, c.Pressure, c.Available
	return r, nil
}

// keep keeps a report as the one to which later changes refer.
func (d *reportDecoder) keep(n uint64, r agent.Report) {
	r.Statuses, r.Samples, r.Estimates, r.Pressure, r.Available = nil, nil, nil, nil, nil
	d.n, d.head = n, r
}
