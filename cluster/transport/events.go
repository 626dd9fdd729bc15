package transport

import (
	"context"
	"fmt"
	"net/http"
	"time"
)

// Event is what an agent reports itself for the record: a connection that it refused.
type Event struct {
	At   time.Time `json:"at"`
	Kind string    `json:"kind"`
	Name string    `json:"name"` // of whom it concerns: a member, or an address
	Text string    `json:"text"`
}

// maxEvents of one call, and the longest field of one, bytes.
const (
	maxEvents    = 64
	maxEventText = 1000
)

// eventsRequest is the body of a call that tells events.
type eventsRequest struct {
	Events []Event `json:"events"`
}

// events of an agent are taken down by the server that leads.
func (p *Peers) events(w http.ResponseWriter, r *http.Request) {
	var reported eventsRequest
	if !readCall(w, r, maxCall, &reported) {
		return
	}
	if len(reported.Events) > maxEvents {
		refuse(w, http.StatusRequestEntityTooLarge, kindTooLarge, "%d events, at most %d are taken", len(reported.Events), maxEvents)
		return
	}
	for _, e := range reported.Events {
		if len(e.Kind) > maxEventText || len(e.Name) > maxEventText || len(e.Text) > maxEventText {
			refuse(w, http.StatusRequestEntityTooLarge, kindTooLarge, "an event with more than %d bytes in a field", maxEventText)
			return
		}
	}
	p.o.Record(r.PathValue("host"), reported.Events)
	w.WriteHeader(http.StatusNoContent)
}

// ReportEvents a server (which tells the leader) of events on a host, this member's own.
func (c *Client) ReportEvents(ctx context.Context, address, host string, events []Event) error {
	if err := post(ctx, c.http, urlOf(address, "hosts", host, "events").String(), nil, eventsRequest{events}, nil); err != nil {
		return fmt.Errorf("tell %s of events: %w", address, err)
	}
	return nil
}
