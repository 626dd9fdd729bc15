package transport

import (
	"bytes"
	"encoding/json"
	"fmt"

	"evenkeel/cluster/agent"
	"evenkeel/hypervisor"
)

// Change is a report as it is sent: what is new since one that the leader took.
// Statuses are steps, samples measurements and estimates what changed: they are always new.
type Change struct {
	// Since is the number of the report whose Head still holds; 0 if there is a Head here.
	Since uint64 `json:"since,omitempty"`
	// Index is that of the report where it is not that of the Head. Only a leader that says that it knows it (sessionAnswer)
	// is sent one: it changes with nearly every report.
	Index *uint64 `json:"index,omitempty"`
	// Head is the report without Statuses, Samples, Estimates, Pressure and Available, an agent.Report.
	Head     json.RawMessage `json:"head,omitempty"`
	Statuses []agent.Status  `json:"statuses"`
	Samples  []agent.Sample  `json:"samples"`
	// Estimates are sent once; a leader of a version that does not know them goes without.
	Estimates []agent.Estimate `json:"estimates,omitempty"`
	// Pressure is of the host, when the samples were taken: it changes with every report.
	Pressure *hypervisor.Pressure `json:"pressure,omitempty"`
	// Available is told with samples; nobody waits for it.
	Available *agent.Available `json:"available,omitempty"`
}

// reportEncoder makes changes of a sequence of reports. The zero value begins with a whole one.
type reportEncoder struct {
	n          uint64 // of the last report that was taken, 0 = none
	last, next told   // by it, and by the last change that was made
}

// told is the head of a report: its Index, and all else as JSON, in which Index is 0; and which VMs were short of memory.
type told struct {
	index   uint64
	rest    []byte
	pressed string
}

// change of a report since the last one that was taken. Make it again for another try: nothing
// counts until taken. news: there is more in it than samples and what is Quiet, if that. An Index of 0 says nothing to a
// leader that was told another: it keeps the highest. apart: the leader knows Change.Index.
func (e *reportEncoder) change(r agent.Report, apart bool) (out Change, news bool, err error) {
	out = Change{Since: e.n, Statuses: r.Statuses, Samples: r.Samples, Estimates: r.Estimates, Pressure: r.Pressure, Available: r.Available}
	e.next.index, e.next.pressed = r.Index, e.last.pressed
	if r.Samples != nil {
		e.next.pressed = pressed(r)
	}
	r.Statuses, r.Samples, r.Estimates, r.Pressure, r.Available, r.Index = nil, nil, nil, nil, nil, 0
	if e.next.rest, err = json.Marshal(r); err != nil { // compared as bytes: the agent may go on using what the report points to
		return Change{}, false, fmt.Errorf("encode the report of host %s: %w", r.Host, err)
	}
	same := e.n > 0 && bytes.Equal(e.next.rest, e.last.rest)
	news = len(out.Statuses) > 0 || len(out.Estimates) > 0 || e.next.pressed != e.last.pressed || !same || !r.Quiet && e.next.index != 0 && e.next.index != e.last.index
	switch {
	case same && e.next.index == e.last.index:
	case same && apart:
		index := e.next.index
		out.Index = &index
	default:
		out.Since, out.Head = 0, e.next.rest
		if r.Index = e.next.index; r.Index != 0 {
			if out.Head, err = json.Marshal(r); err != nil {
				return Change{}, false, fmt.Errorf("encode the report of host %s: %w", r.Host, err)
			}
		}
	}
	return out, news, nil
}

// pressed are the VMs that are short of memory: the leader is to hear at once of one that was not, and of one that is not any more.
func pressed(r agent.Report) string {
	out := ""
	for _, s := range r.Samples {
		if s.Guest != nil && s.Guest.Pressed != "" {
			out += s.VM + " "
		}
	}
	return out
}

// taken: the leader has what the last change told, under that number.
func (e *reportEncoder) taken(n uint64) { e.n, e.last = n, e.next }

// reportDecoder puts reports of one host together again. The zero value knows none.
type reportDecoder struct {
	n    uint64
	head agent.Report
}

// take a change in; errWhole if what it is a change of is not known here. It counts for the next
// one only when it is kept.
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
	r.Statuses, r.Samples, r.Estimates, r.Pressure, r.Available = c.Statuses, c.Samples, c.Estimates, c.Pressure, c.Available
	return r, nil
}

// keep a report as what later ones are changes of.
func (d *reportDecoder) keep(n uint64, r agent.Report) {
	r.Statuses, r.Samples, r.Estimates, r.Pressure, r.Available = nil, nil, nil, nil, nil
	d.n, d.head = n, r
}
