package transport

import (
	"bytes"
	"encoding/json"
	"fmt"

	"evenkeel/cluster/agent"
)

// Change is a report as it is sent: what is new since one that the leader took.
// Statuses are steps and samples measurements: they are always new.
type Change struct {
	// Since is the number of the report whose Head still holds; 0 if there is a Head here.
	Since uint64 `json:"since,omitempty"`
	// Head is the report without Statuses and Samples, an agent.Report.
	Head     json.RawMessage `json:"head,omitempty"`
	Statuses []agent.Status  `json:"statuses"`
	Samples  []agent.Sample  `json:"samples"`
}

// reportEncoder makes changes of a sequence of reports. The zero value begins with a whole one.
type reportEncoder struct {
	n    uint64 // of the last report that was taken, 0 = none
	head []byte // of it
	next []byte // of the last change that was made
}

// change of a report since the last one that was taken. Make it again for another try: nothing
// counts until taken.
func (e *reportEncoder) change(r agent.Report) (Change, error) {
	out := Change{Since: e.n, Statuses: r.Statuses, Samples: r.Samples}
	r.Statuses, r.Samples = nil, nil
	head, err := json.Marshal(r) // compared as bytes: the agent may go on using what the report points to
	if err != nil {
		return Change{}, fmt.Errorf("encode the report of host %s: %w", r.Host, err)
	}
	e.next = head
	if e.n == 0 || !bytes.Equal(head, e.head) {
		out.Since, out.Head = 0, head
	}
	return out, nil
}

// taken: the leader has what the last change told, under that number.
func (e *reportEncoder) taken(n uint64) { e.n, e.head = n, e.next }

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
	r.Statuses, r.Samples = c.Statuses, c.Samples
	return r, nil
}

// keep a report as what later ones are changes of.
func (d *reportDecoder) keep(n uint64, r agent.Report) {
	r.Statuses, r.Samples = nil, nil
	d.n, d.head = n, r
}
