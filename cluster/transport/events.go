package transport

import (
	"context"
	"fmt"
	"net/http"
	"time"
)

// Event is an event that an agent itself reports: a connection that it refused.
type Event struct {
	At   time.Time `json:"at"`
	Kind string    `json:"kind"`
	Name string    `json:"name"` // its object: a member, or an address
	Text string    `json:"text"`
}

// maxEvents bounds the events of one call, maxEventText the longest field of one, bytes.
const (
	maxEvents    = 64
	maxEventText = 1000
)

// eventsRequest is the body of a call that reports events.
type eventsRequest struct {
	Events []Event `json:"events"`
}

// events takes the events of an agent to the server that leads, which records them.
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

// ReportEvents reports events on a host, this member's own, to a server, which passes them to the leader.
func (c *Client) ReportEvents(ctx context.Context, address, host string, events []Event) error {
	if err := post(ctx, c.http, urlOf(address, "hosts", host, "events").String(), nil, eventsRequest{events}, nil); err != nil {
		return fmt.Errorf("report events to %s: %w", address, err)
	}
	return nil
}
