package audit

import (
	"container/list"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// Kinds of refusals.
const (
	Unauthenticated   = "unauthenticated"    // a request without a valid token
	ConnectionRefused = "connection-refused" // a member's connection, by its certificate
	JoinRefused       = "join-refused"       // a request to join, by its token
	// CertificateRefused: a member asked for another certificate. The address is the member's name.
	CertificateRefused = "certificate-refused"
	// SeveralRefused are refusals of several kinds and addresses, counted together because there were too many.
	SeveralRefused = "refusals"
)

// RefusalKinds are the kinds that are counted.
var RefusalKinds = [...]string{Unauthenticated, ConnectionRefused, JoinRefused, CertificateRefused}

// Refusal is the refusal of a request whose client is not authenticated.
type Refusal struct {
	Kind    string
	Address string // of the client, with or without a port
	By      string // the agent that reports it, "" = this server itself
	// Class is why, in one of a few ways: of each class the first Detail is kept. Never text that a stranger chose.
	Class, Detail string
	Count         uint64    // 0 is 1
	Since         time.Time // of a Count above 1; zero: now
}

// Summary is a summary of refusals to one address, or to all those for which there was no room (Others).
type Summary struct {
	Refusal
	From, To time.Time
}

// Others stands for the addresses that are counted together.
const Others = "others"

// Text is the text of a summary, for people.
func (s Summary) Text() string {
	text := s.Detail
	if s.By != "" {
		text = "by " + s.By + ": " + text
	}
	if s.Count > 1 {
		text = fmt.Sprintf("%d times in %s: %s", s.Count, s.To.Sub(s.From).Round(time.Second), text)
	}
	return text
}

func (s Summary) record() Record {
	r := Record{At: s.To, Actor: Actor{Client: s.Address}, Verb: s.Kind, Outcome: Refused, Count: s.Count, Detail: s.Text()}
	if s.Kind == Unauthenticated {
		r.Status = 401
	}
	return r
}

const (
	maxAddresses = 256 // that refusals are counted for by themselves
	maxClasses   = 8   // of one address, whose details are kept
	refusalEvery = time.Minute
)

// Refusals counts refusals per kind and address, and says when to record them: the first one of an address at once, those that
// follow within a minute as one summary when the minute is over, and so on. The number of summaries in a minute is bounded; the
// last one of the minute has all that the others left out. Refusals keeps at most 256 rows: if there are more, the row that was
// seen longest ago is folded into that last summary.
//
// It is not safe for concurrent use. Time comes in.
type Refusals struct {
	max   int // summaries in a minute, at least 2
	every time.Duration
	rows  map[refusalKey]*list.Element // of *refusalRow
	order *list.List                   // the least recently seen first

	others refusalRow
	kinds  map[string]uint64 // of others
	since  time.Time         // begin of the present minute
	made   int               // summaries in it, that of others apart
}

type refusalKey struct{ kind, address, by string }

type refusalRow struct {
	refusalKey
	count       uint64
	classes     []string
	details     []string
	from, to    time.Time // of what count has
	lastSummary time.Time // zero: none so far
}

// NewRefusals returns Refusals that make at most limit summaries a minute.
func NewRefusals(limit int) *Refusals {
	return &Refusals{max: max(2, limit), every: refusalEvery, rows: map[refusalKey]*list.Element{}, order: list.New(), kinds: map[string]uint64{}}
}

// Every changes the minute to another time, for tests.
func (r *Refusals) Every(d time.Duration) *Refusals {
	r.every = d
	return r
}

// Add adds a refusal, and returns what to record now.
func (r *Refusals) Add(q Refusal, now time.Time) []Summary {
	key := refusalKey{Printable(q.Kind, maxField), Printable(HostOf(q.Address), maxField), Printable(q.By, maxField)}
	e := r.rows[key]
	if e == nil {
		if len(r.rows) >= maxAddresses {
			oldest := r.order.Front()
			r.fold(oldest.Value.(*refusalRow))
			r.forget(oldest)
		}
		e = r.order.PushBack(&refusalRow{refusalKey: key})
		r.rows[key] = e
	}
	r.order.MoveToBack(e)
	row := e.Value.(*refusalRow)
	if row.count == 0 {
		row.from = now
		if !q.Since.IsZero() && q.Since.Before(now) {
			row.from = q.Since
		}
	}
	row.to = now
	row.count += max(1, q.Count)
	if len(row.classes) < maxClasses && !slices.Contains(row.classes, q.Class) {
		row.classes = append(row.classes, q.Class)
		row.details = append(row.details, Printable(q.Detail, maxDetail))
	}
	r.minute(now)
	if s, ok := r.summarise(row, now); ok {
		return []Summary{s}
	}
	return nil
}

// Due returns the summaries that are due. Call it every few seconds.
func (r *Refusals) Due(now time.Time) (out []Summary) {
	r.minute(now)
	var next *list.Element
	for e := r.order.Front(); e != nil; e = next {
		next = e.Next()
		row := e.Value.(*refusalRow)
		if s, ok := r.summarise(row, now); ok {
			out = append(out, s)
		} else if row.count > 0 && over(row.lastSummary, now, r.every) {
			r.fold(row)
			row.lastSummary = now
		}
		if row.count == 0 && over(row.lastSummary, now, r.every) {
			r.forget(e)
		}
	}
	if r.others.count > 0 && over(r.others.lastSummary, now, r.every) {
		out = append(out, r.summary(&r.others, now))
	}
	return out
}

// Rest returns all that is left to summarise, in as few summaries as Due: for the end.
func (r *Refusals) Rest(now time.Time) []Summary {
	for e := r.order.Front(); e != nil; e = e.Next() {
		e.Value.(*refusalRow).lastSummary = time.Time{}
	}
	r.others.lastSummary = time.Time{}
	return r.Due(now)
}

// minute begins the next minute when the present one is over.
func (r *Refusals) minute(now time.Time) {
	if over(r.since, now, r.every) {
		r.since, r.made = now, 0
	}
}

// over says whether d has passed since then. A clock that was set back counts as passed.
func over(then, now time.Time, d time.Duration) bool {
	passed := now.Sub(then)
	return then.IsZero() || passed >= d || passed < 0
}

// summarise summarises a row if that is due and there is room for it in this minute. One summary is kept for the others.
func (r *Refusals) summarise(row *refusalRow, now time.Time) (Summary, bool) {
	if row.count == 0 || !over(row.lastSummary, now, r.every) || r.made >= r.max-1 {
		return Summary{}, false
	}
	r.made++
	return r.summary(row, now), true
}

func (r *Refusals) summary(row *refusalRow, now time.Time) Summary {
	s := Summary{Refusal: Refusal{Kind: row.kind, Address: row.address, By: row.by, Count: row.count, Detail: strings.Join(row.details, "; ")}, From: row.from, To: row.to}
	if row == &r.others {
		var parts []string
		for _, kind := range slices.Sorted(maps.Keys(r.kinds)) {
			parts = append(parts, fmt.Sprintf("%d %s", r.kinds[kind], kind))
		}
		s.Kind, s.Address, s.Detail = SeveralRefused, Others, "of more addresses than are counted: "+strings.Join(parts, ", ")
		clear(r.kinds)
	}
	row.count, row.classes, row.details, row.lastSummary = 0, nil, nil, now
	return s
}

// fold folds a row into the others.
func (r *Refusals) fold(row *refusalRow) {
	if row.count == 0 {
		return
	}
	if r.others.count == 0 || row.from.Before(r.others.from) {
		r.others.from = row.from
	}
	if r.others.count == 0 || row.to.After(r.others.to) {
		r.others.to = row.to
	}
	r.others.count += row.count
	r.kinds[row.kind] += row.count
	row.count, row.classes, row.details = 0, nil, nil
}

func (r *Refusals) forget(e *list.Element) {
	r.order.Remove(e)
	delete(r.rows, e.Value.(*refusalRow).refusalKey)
}
