package client

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"evenkeel/api/v1"
)

// EventQuery says which events are wanted. Empty fields match all.
type EventQuery struct {
	After *uint64 // only with a greater number; nil: a list has the newest, Follow what happens from now on
	Limit int     // of a list; 0 = the server's default
	Kinds []string
	Name  string
	Since string // a time (RFC 3339), or how long ago (30m)
	// Severity that they have at least: see v1.Severities.
	Severity string
}

func (q EventQuery) option() Option {
	after := ""
	if q.After != nil {
		after = strconv.FormatUint(*q.After, 10)
	}
	return query("after", after, "limit", number(q.Limit), "kind", strings.Join(q.Kinds, ","), "name", q.Name, "since", q.Since, "severity", q.Severity)
}

// ListEvents that a query asks for.
func (c *Client) ListEvents(ctx context.Context, q EventQuery, opts ...Option) (v1.EventList, error) {
	return get[v1.EventList](ctx, c, with(opts, q.option(), query("follow", "false")), "events")
}

// Message of a stream of events: an event, or a note of a gap before the next one.
type Message struct {
	Event v1.Event
	Gap   *v1.Gap
}

// How a broken stream is taken up again.
const (
	firstRetry = 200 * time.Millisecond
	lastRetry  = 5 * time.Second
	silence    = time.Minute // the server says something at least every 15 s
)

// Follow passes events to handle until ctx ends or handle returns an error, which Follow returns.
// After a broken connection it goes on behind the last event seen, for as long as ctx allows. It
// ends if a server refuses the request (a wrong token, say), or if the connection breaks before
// there is a number to go on from.
func (c *Client) Follow(ctx context.Context, q EventQuery, handle func(Message) error) error {
	wait := firstRetry
	for {
		seen, err := c.follow(ctx, &q, handle)
		var refused *Error
		var stop *stopped
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.As(err, &stop):
			return stop.err
		case errors.As(err, &refused) && refused.Problem.Status/100 == 4 && refused.Problem.Status != http.StatusTooManyRequests:
			return err
		case q.After == nil: // nothing to go on from: the caller would miss events without knowing
			return err
		}
		if seen {
			wait = firstRetry
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(wait):
		}
		wait = min(2*wait, lastRetry)
	}
}

type stopped struct{ err error }

func (s *stopped) Error() string { return s.err.Error() }

// follow one connection. seen: it came about.
func (c *Client) follow(ctx context.Context, q *EventQuery, handle func(Message) error) (seen bool, err error) {
	unlimited := *q
	unlimited.Limit = 0
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	quiet := time.AfterFunc(silence, cancel) // a dead connection reports nothing, not even an error
	defer quiet.Stop()
	r, err := c.request(ctx, http.MethodGet, nil, []Option{unlimited.option()}, "events")
	if err != nil {
		return false, &stopped{err}
	}
	r.Header.Set("Accept", "text/event-stream, application/problem+json")
	resp, err := c.http.Do(r.Request)
	if err != nil {
		return false, c.unreachable(ctx, err)
	}
	defer resp.Body.Close() //nolint:errcheck // given up
	if resp.StatusCode != http.StatusOK {
		return false, problem(resp, r.Request)
	}
	lines := bufio.NewReaderSize(resp.Body, 64<<10)
	var kind, data string
	for {
		line, err := lines.ReadString('\n')
		if err != nil {
			if err == io.EOF {
				err = fmt.Errorf("%w: the stream of events ended", ErrUnreachable)
			}
			return true, err
		}
		quiet.Reset(silence)
		line = strings.TrimRight(line, "\r\n")
		name, value, _ := strings.Cut(line, ":")
		value = strings.TrimPrefix(value, " ")
		switch {
		case line == "" && data != "":
			m, err := message(kind, data)
			if err != nil {
				return true, &stopped{err}
			}
			if err := handle(m); err != nil {
				return true, &stopped{err}
			}
			if m.Gap == nil {
				q.After = &m.Event.Seq
			} else if m.Gap.Next > 0 {
				last := m.Gap.Next - 1
				q.After = &last
			}
			kind, data = "", ""
		case name == "event":
			kind = value
		case name == "data":
			data += value
		case line == "" || name == "" || name == "id": // end of nothing, a comment, the number that the data has too
			if at, ok := strings.CutPrefix(value, "events after "); ok && name == "" && q.After == nil {
				if n, err := strconv.ParseUint(at, 10, 64); err == nil {
					q.After = &n // where a reconnect is to go on if it comes before the first event
				}
			}
		}
	}
}

func message(kind, data string) (Message, error) {
	var m Message
	var err error
	switch kind {
	case "", "message":
		err = json.Unmarshal([]byte(data), &m.Event)
	case "gap":
		m.Gap = &v1.Gap{}
		err = json.Unmarshal([]byte(data), m.Gap)
	default:
		return m, fmt.Errorf("an event of an unknown type %q: is this client older than the server?", kind)
	}
	if err != nil {
		return m, fmt.Errorf("an event that cannot be read: %w", err)
	}
	return m, nil
}
