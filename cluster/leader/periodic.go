package leader

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"evenkeel/cluster/scheduler/agenda"
	"evenkeel/cluster/scheduler/reprovision"
	"evenkeel/cluster/state"
)

// PeriodicAsk is what an owner decides about a job.
type PeriodicAsk struct {
	agenda.Ask
	Verb string   // accept, override, reject
	Skip []string // dates to leave out besides those that are left out
	Keep []string // dates to leave out no more
}

// Periodic is a job with what was found, and what its owner decided.
type Periodic struct {
	state.PeriodicJob
	Proposal    agenda.Proposal
	Refused     string // why there is no proposal
	Runs        []state.Run
	Occurrences []state.Occurrence
}

// notEnded is why nothing can be decided about a job of which nothing is kept.
const notEnded = "its first run has not ended; decide once it has"

// PeriodicOf looks a job up by its full name, and proposes a contract.
func PeriodicOf(s *state.Snapshot, name string, ask agenda.Ask) (Periodic, error) {
	job, ok := s.PeriodicJob(name)
	if !ok {
		begun := s.BegunJobs()
		at := slices.IndexFunc(begun, func(j state.PeriodicJob) bool { return j.Name == name })
		if at < 0 {
			return Periodic{}, fmt.Errorf("job %s: %w", name, ErrNotFound)
		}
		return Periodic{PeriodicJob: begun[at], Refused: notEnded}, nil
	}
	p := Periodic{PeriodicJob: job, Runs: s.Runs(name), Occurrences: s.Occurrences(name)}
	var err error
	if p.Proposal, err = agenda.Propose(p.Runs, ask, s.RunsOfOtherJobs(name)); err != nil {
		p.Refused = err.Error()
	}
	return p, nil
}

// DecidePeriodic puts the decision of an owner about a job into force.
func (c *Service) DecidePeriodic(ctx context.Context, name string, ask PeriodicAsk, call Call) (Periodic, error) {
	print := fingerprint("periodic "+ask.Verb+" "+zoneName(ask.Ask), name, ask)
	for n := 0; ; n++ {
		p, err := c.decidePeriodic(ctx, name, ask, call, print)
		if !errors.Is(err, state.ErrConflict) || n >= tries {
			return p, err
		}
	}
}

func (c *Service) decidePeriodic(ctx context.Context, name string, ask PeriodicAsk, call Call, print string) (Periodic, error) {
	s := c.o.State.Snapshot()
	if _, done, err := remembered(s, print, call); done || err != nil {
		if err != nil {
			return Periodic{}, err
		}
		return PeriodicOf(s, name, ask.Ask)
	}
	p, err := PeriodicOf(s, name, ask.Ask)
	if err != nil {
		return p, err
	}
	if p.Refused == notEnded {
		return p, &Invalid{Fields: []FieldError{{Field: "job", Text: notEnded}}}
	}
	if call.IfMatch != 0 && call.IfMatch != p.ModifyIndex {
		return p, fmt.Errorf("job %s is at version %d, not %d: %w", name, p.ModifyIndex, call.IfMatch, ErrPrecondition)
	}
	if ask.Verb != "reject" && ask.Rule == "" && !ask.Start.IsZero() {
		return p, &Invalid{Fields: []FieldError{{Field: "start", Text: "it is the start of a rule: give the rule too"}}}
	}
	put := state.PeriodicPut{Job: name, Version: p.ModifyIndex, Verb: ask.Verb}
	switch old := p.SignOff; {
	case ask.Verb == "reject":
		put.SignOff = state.SignOff{State: state.Rejected}
		put.Text = "nothing is reserved for it"
	case ask.Verb == "override" && old.State == state.SignedOff:
		var err error
		if put.SignOff, err = agenda.Override(old, ask.Ask); err != nil {
			return p, &Invalid{Fields: []FieldError{{Field: "job", Text: err.Error()}}}
		}
	case ask.Verb == "override" && p.Refused != "":
		return p, &Invalid{Fields: []FieldError{{Field: "job", Text: "nothing is reserved for it that could be changed: accept it first"}}}
	case p.Refused != "":
		return p, &Invalid{Fields: []FieldError{{Field: "job", Text: p.Refused}}}
	default:
		put.SignOff = p.Proposal.SignOff
		put.SignOff.Skips = old.Skips
	}
	put.SignOff.By = userOf(ctx)
	if put.SignOff.State == state.SignedOff {
		if put.SignOff.Skips, err = agenda.LeftOut(put.SignOff, ask.Skip, ask.Keep, c.o.Now()); err != nil {
			return p, &Invalid{Fields: []FieldError{{Field: "skip", Text: err.Error()}}}
		}
		put.Text = fmt.Sprintf("%s for %s in each period", state.VMs(put.SignOff.VMs()), put.SignOff.Length())
		if err := c.inForce(&put.SignOff); err != nil {
			return p, err
		}
		if err := s.CheckSignOff(name, &put.SignOff); err != nil {
			return p, err
		}
	}
	if call.DryRun {
		p.SignOff, p.Occurrences = put.SignOff, nil // those that there are were of the decision in force
		return p, nil
	}
	if call.IdempotencyKey != "" {
		put.Remembered = &state.Remembered{Key: call.IdempotencyKey, Fingerprint: print}
	}
	if err := c.propose(ctx, state.KindPeriodic, put); err != nil {
		return p, fmt.Errorf("%s job %s: %w", ask.Verb, name, err)
	}
	c.current.Load().agenda.Soon()
	s = c.o.State.Snapshot() // the proposal is as it was: its runs have not changed by this
	p.PeriodicJob, _ = s.PeriodicJob(name)
	p.Occurrences = s.Occurrences(name)
	return p, nil
}

// inForce says why a contract cannot come into force, whatever else there is; nil if it can.
func (c *Service) inForce(contract *state.SignOff) error {
	err := contract.Valid()
	if err == nil {
		err = agenda.Fits(contract, c.o.Now())
	}
	if err != nil {
		return &Invalid{Fields: []FieldError{{Field: "job", Text: strings.TrimSuffix(err.Error(), ": "+state.ErrInvalid.Error())}}}
	}
	return nil
}

// ReprovisionStats returns the counts of a server that leads.
func (c *Service) ReprovisionStats() reprovision.Stats { return c.current.Load().reprovision.Stats() }

// GrantLines say what the run of a VC was granted; nil: it is no run of a job that was signed off, or was granted nothing so far. Names of
// other VCs are in them only if all may see them.
func GrantLines(s *state.Snapshot, vc string, names bool) (lines []string) {
	say := func(format string, args ...any) { lines = append(lines, fmt.Sprintf(format, args...)) }
	run, ok := s.OpenRun(vc)
	if !ok || run.Grant == nil && run.Extras == nil {
		return nil
	}
	if g := run.Grant; g != nil {
		say("it is sure of %.2f cores since %s, until it is decided again", g.Cores, g.Since.UTC().Format("2006-01-02 15:04:05 MST"))
		if g.Extra > 0 {
			say("%.2f of them are beyond what is reserved for it now, as it would miss its deadline; what it is given is bound by %s", g.Extra, g.Bound)
		}
		if names && len(g.From) > 0 {
			say("virtual clusters on its hosts that have less than they need: %s", strings.Join(g.From, ", "))
		}
	}
	if e := run.Extras; e != nil && e.Extra+e.Borrowed > 0 {
		say("so far it was given %.2f core-hours beyond its reservation, and others had %.2f core-hours of that", e.Extra/3600, e.Borrowed/3600)
	}
	return lines
}

func zoneName(ask agenda.Ask) string {
	if ask.Zone == nil {
		return ""
	}
	return ask.Zone.String()
}
