package audit

import (
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// Record is one line of the log.
type Record struct {
	At     time.Time `json:"at"`
	Server string    `json:"server"` // the one that answered
	// Seq numbers the records of one server: 1, 2, 3, ... Server and Seq name a record; ids of requests are chosen by
	// clients and may repeat.
	Seq    uint64 `json:"seq"`
	Actor  Actor  `json:"actor"`
	Verb   string `json:"verb"` // the operation's id in the API, or what a member did by itself: "issueCertificate"
	Object Object `json:"object"`
	// Outcome is Ok, Refused or Failed; Status the HTTP status of the answer, 0 where nothing was answered by HTTP.
	Outcome string `json:"outcome"`
	Status  int    `json:"status,omitempty"`
	Count   uint64 `json:"count,omitempty"` // of refusals that this record stands for
	Detail  string `json:"detail,omitempty"`
}

// Object is the object of a request.
type Object struct {
	Kind string `json:"kind,omitempty"` // "virtual-cluster", "host", "vm", ...
	Name string `json:"name,omitempty"`
}

// String is "kind/name".
func (o Object) String() string {
	if o.Name == "" {
		return o.Kind
	}
	return o.Kind + "/" + o.Name
}

// Outcomes of a request.
const (
	Ok      = "ok"
	Refused = "refused" // the caller may not: 401, 403 or 429
	Failed  = "failed"  // any other error
)

// OutcomeOf returns the outcome for an HTTP status.
func OutcomeOf(status int) string {
	switch {
	case status == 401, status == 403, status == 429:
		return Refused
	case status >= 400:
		return Failed
	}
	return Ok
}

// Bounds of a record's fields, bytes. maxLine bounds a whole line: 12 fields at their bounds, where JSON writes
// no byte as more than two.
const (
	maxField  = 256
	maxDetail = 1024
	maxLine   = 8 << 10
)

// bounded returns the record in a form that is safe to write and to show: every field has its bound and no control characters.
func (r Record) bounded() Record {
	for _, f := range []*string{&r.Server, &r.Actor.ID, &r.Actor.Name, &r.Actor.Tenant, &r.Actor.Client, &r.Actor.Request, &r.Verb, &r.Object.Kind, &r.Object.Name, &r.Outcome} {
		*f = Printable(*f, maxField)
	}
	r.Detail = Printable(r.Detail, maxDetail)
	r.At = r.At.UTC()
	return r
}

// Printable returns at most bound bytes of a text, with '?' for what a terminal does not show as it stands.
func Printable(s string, bound int) string {
	cut := len(s) > bound
	if cut {
		s = s[:bound-len("...")]
		for len(s) > 0 && !utf8.RuneStart(s[len(s)-1]) { // the bytes of a rune that was cut through
			s = s[:len(s)-1]
		}
		if len(s) > 0 && s[len(s)-1] >= utf8.RuneSelf {
			s = s[:len(s)-1]
		}
	}
	s = strings.Map(func(r rune) rune {
		if r == utf8.RuneError || !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, s)
	if cut {
		s += "..."
	}
	return s
}

// MaxLimit is the most records that one query is answered with.
const MaxLimit = 10_000

// Filter says which records are wanted. Empty fields match all.
type Filter struct {
	Since, Until time.Time // Since is included, Until is not
	Actor        string    // id, with or without its "token:", name, or client address with or without its port
	Verb         string    // any case
	Object       string    // kind, name, or kind/name
	Outcome      string    // ok, refused, failed, or an HTTP status
	Limit        int       // the number of the newest records; 0 = 100
}

// Match says whether the filter wants a record.
func (f Filter) Match(r Record) bool {
	switch {
	case !f.Since.IsZero() && r.At.Before(f.Since), !f.Until.IsZero() && !r.At.Before(f.Until):
		return false
	case f.Actor != "" && !matchActor(f.Actor, r.Actor):
		return false
	case f.Verb != "" && !strings.EqualFold(f.Verb, r.Verb):
		return false
	case f.Object != "" && f.Object != r.Object.Kind && f.Object != r.Object.Name && f.Object != r.Object.String():
		return false
	case f.Outcome != "" && f.Outcome != r.Outcome && f.Outcome != strconv.Itoa(r.Status):
		return false
	}
	return true
}

func matchActor(wanted string, a Actor) bool {
	if wanted == a.ID || wanted == a.Name || wanted == a.Client {
		return true
	}
	_, id, kinded := strings.Cut(a.ID, ":")
	return kinded && wanted == id || wanted == HostOf(a.Client)
}

// HostOf returns the host of an address, which may have a port.
func HostOf(address string) string {
	if h, _, err := net.SplitHostPort(address); err == nil {
		return h
	}
	return address
}

// Values returns a filter in the form that ParseFilter reads.
func (f Filter) Values() url.Values {
	v := url.Values{}
	set := func(name, text string) {
		if text != "" {
			v.Set(name, text)
		}
	}
	if !f.Since.IsZero() {
		set("since", f.Since.UTC().Format(time.RFC3339Nano))
	}
	if !f.Until.IsZero() {
		set("until", f.Until.UTC().Format(time.RFC3339Nano))
	}
	set("actor", f.Actor)
	set("verb", f.Verb)
	set("object", f.Object)
	set("outcome", f.Outcome)
	if f.Limit != 0 {
		set("limit", strconv.Itoa(f.Limit))
	}
	return v
}

// ParseFilter reads what Values wrote. An unknown field is an error: with a filter that is not understood in full the answer
// would have records that were not asked for.
func ParseFilter(v url.Values) (f Filter, err error) {
	for name, values := range v {
		text := values[0]
		switch name {
		case "since":
			f.Since, err = time.Parse(time.RFC3339Nano, text)
		case "until":
			f.Until, err = time.Parse(time.RFC3339Nano, text)
		case "actor":
			f.Actor = text
		case "verb":
			f.Verb = text
		case "object":
			f.Object = text
		case "outcome":
			f.Outcome = text
		case "limit":
			f.Limit, err = strconv.Atoi(text)
		default:
			err = fmt.Errorf("unknown")
		}
		if err != nil {
			return f, fmt.Errorf("audit filter: %.20q: %w", name, err)
		}
	}
	return f, nil
}

// limit is how many records the filter wants.
func (f Filter) limit() int {
	if f.Limit <= 0 {
		return 100
	}
	return min(f.Limit, MaxLimit)
}
