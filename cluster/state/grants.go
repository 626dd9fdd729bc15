package state

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
)

// DefaultReprovision is the share of the cluster's CPU that grants may have. The paper says "bounded and configurable" (Jyothi et al. 2016,
// sec. 7), and gives no number.
const DefaultReprovision = 0.25

// PeriodicSettings are the settings for runs of jobs that an owner signed off.
type PeriodicSettings struct {
	// Reprovision is the largest share of the cluster's CPU, 0 to 1, that grants may give to runs beyond their reservations. 0: there
	// are no grants, and a run is sure of no more than its minYield.
	Reprovision float64 `json:"reprovision,omitempty"`
}

// Limits of a grant.
const (
	maxGrantFrom = 8 // VCs that it names
	maxGrants    = 2000
)

// Grant is the CPU that a run is sure of for now. The leader decides on it once a minute; it stands until the leader replaces it.
type Grant struct {
	Since time.Time `json:"since"`
	Cores float64   `json:"cores"`           // of all its VMs together
	Extra float64   `json:"extra,omitempty"` // of Cores, what is beyond its reservation
	Bound string    `json:"bound,omitempty"` // what keeps it from more: see reservation.Bound
	// From are full names of VCs beside it that have less than they need.
	From []string `json:"from,omitempty"`
}

// Extras sums up what a run has used, was granted and did not get, in core-seconds.
type Extras struct {
	At       time.Time `json:"at,omitzero"`
	Done     float64   `json:"done,omitempty"`     // used by its VMs until At
	Extra    float64   `json:"extra,omitempty"`    // granted beyond its reservation
	Borrowed float64   `json:"borrowed,omitempty"` // of its reservation, what others had
}

// ReprovisionPut is what the leader decides about runs, on a snapshot of that index.
type ReprovisionPut struct {
	Basis uint64     `json:"basis"`
	Runs  []RunGrant `json:"runs"`
}

// RunGrant is what a run has from now on.
type RunGrant struct {
	Run    string `json:"run"`             // id
	Grant  *Grant `json:"grant,omitempty"` // nil: none
	Extras Extras `json:"extras"`
	Text   string `json:"text,omitempty"` // for the event, where a grant beyond the reservation begins
}

func (b *ReprovisionPut) valid() error {
	if len(b.Runs) > maxGrants {
		return fmt.Errorf("%d runs at once: %w", len(b.Runs), ErrInvalid)
	}
	amount := func(x float64) bool { return x >= 0 && !math.IsInf(x, 0) }
	for _, r := range b.Runs {
		if err := check("run", r.Run, "id", r.Run); err != nil {
			return err
		}
		if x := r.Extras; !amount(x.Done) || !amount(x.Extra) || !amount(x.Borrowed) || len(r.Text) > maxAgendaText {
			return fmt.Errorf("run %q: used %v, given %v, borrowed %v core-seconds: %w", r.Run, x.Done, x.Extra, x.Borrowed, ErrInvalid)
		}
		if g := r.Grant; g != nil && (!amount(g.Cores) || !amount(g.Extra) || g.Extra > g.Cores || len(g.Bound) > 20 || len(g.From) > maxGrantFrom ||
			slices.ContainsFunc(g.From, func(vc string) bool { return vc == "" || len(vc) > maxJobNameSize || strings.ContainsRune(vc, 0) })) {
			return fmt.Errorf("run %q: a grant of %v cores, %v beyond its reservation, beside %d virtual clusters: %w", r.Run, g.Cores, g.Extra, len(g.From), ErrInvalid)
		}
	}
	return nil
}

// reprovision gives runs what the leader decided. Runs that are gone are left out; one that has ended is given nothing any more.
func (w *writer) reprovision(b *ReprovisionPut) error {
	if b.Basis >= w.index {
		return fmt.Errorf("decided on index %d, which is not before %d: %w", b.Basis, w.index, ErrConflict)
	}
	for _, put := range b.Runs {
		r, ok := first[Run](w.read(), tRuns, "id", put.Run)
		if !ok {
			continue
		}
		old := r.Grant
		if r.Grant = nil; r.Ended.IsZero() {
			r.Grant = put.Grant
		}
		extras := put.Extras
		r.Extras = &extras
		w.put(tRuns, &r)
		w.granted(&r, old, put.Text)
	}
	return nil
}

// granted has the hosts of a run divide their CPU again where its grant is another one, and says so.
func (w *writer) granted(r *Run, old *Grant, text string) {
	before, now := Grant{}, Grant{}
	if old != nil {
		before = *old
	}
	if r.Grant != nil {
		now = *r.Grant
	}
	if before.Cores != now.Cores {
		var hosts []string
		for _, vm := range w.read().VMsOf(r.VC) {
			hosts = append(hosts, vm.Host)
		}
		w.touchAll(hosts)
	}
	switch o, _ := w.read().Occurrence(r.Occurrence); {
	case before.Extra == 0 && now.Extra > 0:
		w.event("occurrence-reprovisioned", "job", r.Job, "the run of %s%s", timeText(o.Period), because(text))
	case before.Extra > 0 && now.Extra == 0 && r.Ended.IsZero():
		w.event("occurrence-grant-ended", "job", r.Job, "the run of %s is given no more than its reservation; grants gave it %.2f core-hours", timeText(o.Period), r.Extras.Extra/3600)
	}
}

// GrantOf is what the open run of a VC is granted, and what its VMs declared together.
func (s *Snapshot) GrantOf(vc string) (g Grant, declared float64) {
	r, ok := peek[Run](s, tRuns, "open", vc)
	if !ok || r.Grant == nil {
		return Grant{}, 0
	}
	for _, g := range r.Groups {
		declared += float64(g.Count) * g.CPU
	}
	return *r.Grant, declared
}

// GrantedCores is what a VM of a group is granted; 0: nothing. VMs share a grant as they declared CPU.
func (s *Snapshot) GrantedCores(vc string, g *Group) float64 {
	grant, declared := s.GrantOf(vc)
	if declared <= 0 {
		return 0
	}
	return min(g.CPU, grant.Cores/declared*g.CPU)
}

// GrantedYield is the yield of a group below which it has less than its VC's run is granted; 0: nothing is granted.
func (s *Snapshot) GrantedYield(vc string, g Group) float64 {
	if need := g.Need(); need > 0 {
		return min(1, s.GrantedCores(vc, &g)/need)
	}
	return 0
}
