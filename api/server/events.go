package server

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"evenkeel/api/v1"
	"evenkeel/cluster/state"
)

const (
	tagEvent       = "Events"
	heartbeatEvery = 15 * time.Second
	// leaderLookEvery is how often a stream checks whether its server hears from the leader. Two checks in a row without it end the
	// stream: an election is often over sooner.
	leaderLookEvery = 2 * time.Second
	streamWrite     = 30 * time.Second // for one write to a stream
	streamEnd       = time.Second      // for the last ones, once the request has ended
	eventsAtOnce    = 500
)

type eventsInput struct {
	TenantParams
	ReadParams
	After       string `query:"after" maxLength:"20" doc:"Only events with a greater number than this; 0: all that are kept. A stream without it begins with what happens next, a list with the newest."`
	Follow      bool   `query:"follow" default:"true" doc:"false: a list as JSON, and the end."`
	Limit       int    `query:"limit" minimum:"1" maximum:"10000" default:"1000" doc:"Most events of a list, after the filters."`
	Kind        string `query:"kind" maxLength:"1000" doc:"Only events of these kinds, separated by commas: vm-running, or vm-* for all that begin like it."`
	Severity    string `query:"severity" enum:"info,warning,critical" doc:"Only events that are at least so severe."`
	Name        string `query:"name" maxLength:"253" doc:"Only events about the object of that name."`
	Since       string `query:"since" maxLength:"64" doc:"Only events from then on: a time (RFC 3339), or how long ago (30m, 6h)."`
	LastEventID string `header:"Last-Event-ID" maxLength:"20" doc:"The same as after, as browsers send it when they connect again."`
}

func (s *Server) registerEvents(api huma.API) {
	schemas := api.OpenAPI().Components.Schemas
	schemas.Schema(reflect.TypeFor[v1.Event](), true, "")
	schemas.Schema(reflect.TypeFor[v1.Gap](), true, "")
	huma.Register(api, huma.Operation{
		OperationID: "events", Method: http.MethodGet, Path: "/v1/events", Tags: []string{tagEvent}, Summary: "Follow or list events",
		Description: "A stream of server-sent events. The id of each is its number: send the last one as Last-Event-ID, or as after, to go on where a connection ended. " +
			"An event of type gap says that some are no longer kept. Comments keep the connection alive. With follow=false, a JSON list.",
		Responses: map[string]*huma.Response{"200": {Description: "The events.", Content: map[string]*huma.MediaType{
			"text/event-stream": {Schema: &huma.Schema{Type: huma.TypeString, Description: "Each message's data is an Event as JSON; a message of type gap holds a Gap."}},
			"application/json":  {Schema: schemas.Schema(reflect.TypeFor[v1.EventList](), true, "")},
		}}},
		Errors: []int{http.StatusUnauthorized, http.StatusServiceUnavailable},
	}, s.events)
}

// filter of events that the parameters ask for.
func (in *eventsInput) filter(now time.Time) (state.EventFilter, error) {
	f := state.EventFilter{Name: in.Name}
	for _, kind := range strings.Split(in.Kind, ",") {
		if kind = strings.TrimSpace(kind); kind == "" {
			continue
		}
		if !v1.KnownEventKind(kind) {
			return f, invalidParameter("query", "kind", kind, "there is no such kind of event: docs/reference/events.md lists them")
		}
		f.Kinds = append(f.Kinds, kind)
	}
	if in.Severity != "" && in.Severity != v1.SeverityInfo {
		f.Kinds = severe(f.Kinds, in.Severity)
	}
	var err error
	f.Since, err = sinceOf(in.Since, now)
	return f, err
}

// severe are the kinds among those that are wanted (none: all) that are at least so severe.
func severe(wanted []string, minSeverity string) (out []string) {
	f := state.EventFilter{Kinds: wanted}
	for _, kind := range v1.KindsOfSeverity(minSeverity) {
		if f.Match(state.Event{Kind: kind}) {
			out = append(out, kind)
		}
	}
	if len(out) == 0 {
		return []string{"-"} // no event has this kind
	}
	return out
}

func (s *Server) events(ctx context.Context, in *eventsInput) (*huma.StreamResponse, error) {
	after, given, err := position(in)
	if err != nil {
		return nil, err
	}
	filter, err := in.filter(time.Now())
	if err != nil {
		return nil, err
	}
	x, err := s.scopedOrAll(ctx, in.TenantParams, in.ReadParams)
	if err != nil {
		return nil, err
	}
	last := x.lastEvent()
	if in.Follow {
		if err := s.live.acquire(ctx, liveStream); err != nil {
			return nil, err
		}
		if !given {
			after = last
		}
		return &huma.StreamResponse{Body: func(hctx huma.Context) {
			r, w := humago.Unwrap(hctx)
			s.stream(r.Context(), w, x, filter, after, in.Consistency == "stale")
		}}, nil
	}
	list := v1.EventList{Items: x.events(filter, after, !given, in.Limit), Last: last}
	return &huma.StreamResponse{Body: func(hctx huma.Context) {
		hctx.SetHeader("Content-Type", "application/json")
		_ = json.NewEncoder(hctx.BodyWriter()).Encode(list) // an error here means that the client is gone: there is no one to report it to
	}}, nil
}

func position(in *eventsInput) (after uint64, given bool, err error) {
	where, name, text := "query", "after", in.After
	if in.LastEventID != "" { // a reconnect knows better than the address it uses
		where, name, text = "header", "Last-Event-ID", in.LastEventID
	}
	if text == "" {
		return 0, false, nil
	}
	after, err = strconv.ParseUint(text, 10, 64)
	if err != nil {
		return 0, false, invalidParameter(where, name, text, "must be the number of an event")
	}
	return after, true, nil
}

// stream sends the events after a number that a filter wants until the client or the server ends. It ends as well when the server has
// not heard from the leader for a while, unless stale: silence must not look like a cluster in which nothing happens.
func (s *Server) stream(ctx context.Context, w http.ResponseWriter, x scopedView, filter state.EventFilter, after uint64, stale bool) {
	h := w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Accel-Buffering", "no")
	out := sse{ctx: ctx, w: w, conn: http.NewResponseController(w)}
	defer out.endWith(ctx)()
	w.WriteHeader(http.StatusOK)
	if last := x.lastEvent(); after > last { // the number is from before the state was restored to an older one
		out.gap(v1.Gap{After: after, Next: last + 1})
		after = last
	}
	out.comment("events after %d", after)
	at := x.eventAt(after)
	beat := time.NewTicker(heartbeatEvery)
	defer beat.Stop()
	look := time.NewTicker(leaderLookEvery)
	defer look.Stop()
	for unheard := 0; out.err == nil; {
		var err error
		if x.v, err = s.cluster.View(ctx, true); err != nil { // events come in the order of the log wherever they are read
			return
		}
		changed := x.v.Watch()
		if last := x.lastEvent(); last < after { // it was restored meanwhile
			out.gap(v1.Gap{After: after, Next: last + 1})
			after, at = last, x.eventAt(last)
		}
		events := x.v.EventsAfter(at, eventsAtOnce)
		for _, e := range events {
			at = e.Seq
			number, counts := x.eventNumber(e)
			if !counts {
				continue
			}
			if number > after+1 && after > 0 {
				out.gap(v1.Gap{After: after, Next: number})
			}
			after = number
			if shown, ok := x.wanted(filter, e); ok {
				out.event(shown)
			}
		}
		if len(events) > 0 {
			out.flush()
			if len(events) == eventsAtOnce && ctx.Err() == nil {
				continue
			}
		}
		select {
		case <-changed:
		case <-beat.C:
			out.comment("still here")
		case <-look.C:
			if unheard++; stale || s.knowsRights() {
				unheard = 0
			}
			if unheard > 1 {
				out.comment("this server has not heard from the leader")
				return
			}
		case <-s.draining:
			return
		case <-ctx.Done():
			if why := cutReason(ctx); why != "" {
				out.comment("%s", why)
			}
			return
		}
	}
}

// sse writes server-sent events; after the first error it writes nothing.
type sse struct {
	ctx  context.Context // of the request; once it ended, writes have streamEnd
	w    io.Writer
	conn *http.ResponseController
	err  error
}

// endWith bounds the write under way once ctx ends. The function that it returns must be called before the handler
// returns: net/http's writers must not be touched after that.
func (o *sse) endWith(ctx context.Context) (stop func()) {
	bounded := make(chan struct{})
	cancel := context.AfterFunc(ctx, func() {
		defer close(bounded)
		_ = o.conn.SetWriteDeadline(time.Now().Add(streamEnd))
	})
	return func() {
		if !cancel() { // it has begun
			<-bounded
		}
	}
}

func (o *sse) write(format string, args ...any) {
	if o.err != nil {
		return
	}
	_ = o.conn.SetWriteDeadline(time.Now().Add(streamWrite)) // a writer without deadlines is a test's
	if o.ctx.Err() != nil {
		_ = o.conn.SetWriteDeadline(time.Now().Add(streamEnd))
	}
	_, o.err = fmt.Fprintf(o.w, format, args...)
}

func (o *sse) flush() {
	if o.err == nil {
		o.err = o.conn.Flush()
	}
}

func (o *sse) comment(format string, args ...any) {
	o.write(": "+format+"\n\n", args...)
	o.flush()
}

func (o *sse) event(e v1.Event) {
	b, err := json.Marshal(e)
	if err != nil {
		o.err = err
		return
	}
	o.write("id: %d\ndata: %s\n\n", e.Seq, b)
}

func (o *sse) gap(g v1.Gap) {
	o.write("event: gap\ndata: {\"after\":%d,\"next\":%d}\n\n", g.After, g.Next)
}
