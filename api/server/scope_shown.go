package server

import (
	"fmt"
	"slices"
	"strings"

	"evenkeel/api/v1"
	"evenkeel/cluster/leader"
	"evenkeel/cluster/state"
)

// virtualCluster as the scope shows it.
func (sc scope) virtualCluster(view leader.VCView) v1.VirtualCluster {
	out := virtualCluster(view)
	out.Tenant, out.Name = sc.names(view.Name)
	out.Reason = sc.text(out.Reason)
	for i := range out.Groups {
		g := &out.Groups[i]
		g.Labels = labelsOut(g.Labels)
		if g.Affinity == nil {
			continue
		}
		a := *g.Affinity
		for _, list := range []*[]string{&a.Require, &a.Prefer, &a.Avoid} {
			*list = each(*list, termOut)
			if sc.restricted { // an operator may have named hosts
				*list = slices.DeleteFunc(*list, func(t string) bool { return strings.HasPrefix(t, "host:") })
			}
		}
		g.Affinity = &a
	}
	if sc.restricted {
		out.ModifyIndex = 0
		out.Reason = stateReasons[out.State]
		if view.StoppedAlone > 0 {
			out.Reason = state.StoppedAloneText(view.StoppedAlone, sc.askers(view.StoppedBy))
		}
	}
	out.Decision = sc.decision(view.Decision, view.Admitted)
	return out
}

// askers are those who asked for something, as a tenant sees them: its own tokens by name, all others as an operator.
func (sc scope) askers(all []string) []string {
	out := []string{}
	for _, by := range all {
		name, own := strings.CutPrefix(by, sc.tenant+"/")
		if !own {
			name = "an operator"
		}
		out = append(out, name)
	}
	return slices.Compact(out)
}

// stateReasons are why a virtual cluster is in a state, to those who see nothing of hosts.
var stateReasons = map[string]string{
	"queued":   "there is no room for all of its VMs now; it starts once there is",
	"starting": "its VMs are starting",
	"degraded": "one of its VMs ended or cannot be asked, or its yield is below its minimum: its VMs say which",
	"failed":   "none of its VMs runs: each says why",
}

// decision of admission. A restricted scope gets the answer without the hosts, the yields and the room of others.
func (sc scope) decision(d state.Decision, admitted bool) *v1.Decision {
	out := decision(d)
	switch {
	case out == nil:
		return nil
	case !sc.restricted:
		out.Summary = sc.text(out.Summary)
		return out
	}
	summary := noRoom
	if d.Admitted || admitted {
		summary = "admitted"
	}
	return &v1.Decision{At: d.At, Admitted: d.Admitted, Summary: summary}
}

const noRoom = "there is no room for all of its VMs now: ask for fewer or smaller ones, let it wait (onFull: queue), or try again later"

// vm as the scope shows it.
func (x scopedView) vmOf(m leader.VMView) v1.VM {
	out := vmOf(x.v, m)
	out.Tenant, out.Name = x.names(m.VM.Name)
	_, out.VirtualCluster = x.names(m.VCName)
	out.Labels = labelsOut(out.Labels)
	out.Reason = x.text(out.Reason)
	if !x.restricted {
		return out
	}
	out.Domain, out.Host, out.MovingTo = "", "", ""
	if out.Reason != "" {
		out.Reason = vmReasons[out.State]
	}
	return out
}

// vmReasons are why a VM is in a state, to those who see nothing of hosts.
var vmReasons = map[string]string{
	"starting": "it is being started",
	"running":  "it is being changed",
	"failed":   "it ended by itself, or could not be started",
	"stopped":  "it was stopped, or was evicted and starts again once there is room",
	"lost":     "its host was lost; it starts elsewhere once there is room",
	"stopping": "it is being stopped",
	"unknown":  "it cannot be asked now",
}

// operation as the scope shows it.
func (x scopedView) operation(op state.Operation) v1.Operation {
	out := operation(x.v, op)
	if op.VC != "" {
		out.Tenant, out.VirtualCluster = x.names(op.Name)
		_, out.VM = x.names(op.VMName)
	}
	out.Text = x.text(out.Text)
	if x.restricted {
		out.Plan, out.Host, out.Index = "", "", 0
		out.Text = fmt.Sprintf("%d of %s done", out.Done, state.VMs(out.Total))
		if op.VM != "" {
			out.Text = out.State
		}
	}
	return out
}

// result of a change as the scope shows it: a restricted one sees what becomes of its own virtual clusters.
func (x scopedView) changes(in []leader.Change) []v1.Change {
	out := []v1.Change{}
	for _, c := range in {
		if x.restricted && !x.owns(c.VC) {
			continue
		}
		to := v1.Change{Verb: c.Verb, Text: x.text(c.Text)}
		_, to.VirtualCluster = x.names(c.VC)
		if c.VM != "" {
			_, to.VM = x.names(c.VM)
		}
		if x.restricted {
			if to.Text = changeTexts[c.Verb]; to.VM != "" {
				to.Text += " " + to.VM
			}
			if c.Disk != "" {
				to.Text += ", " + c.Disk
			}
		}
		out = append(out, to)
	}
	return out
}

// changeTexts are the steps of a plan, to those who see nothing of hosts.
var changeTexts = map[string]string{"place": "start", "delete": "delete", "stop": "stop", "restart": "restart", "reset": "reset", "balloon": "change the memory of", "cap": "change the CPU share"}

// explanation as the scope shows it.
func (x scopedView) explanation(vc state.VC) v1.Explanation {
	view := x.v.VCView(vc)
	if x.restricted {
		shown := x.virtualCluster(view)
		out := v1.Explanation{VirtualCluster: shown.Name, State: shown.State, Yield: shown.Yield, MinYield: shown.MinYield, Decision: shown.Decision,
			Lines: []string{shown.Name + " is " + shown.State}}
		if shown.Reason != "" {
			out.Lines = append(out.Lines, "reason: "+shown.Reason)
		}
		for _, g := range shown.Groups {
			if g.Allocation > 0 {
				out.Lines = append(out.Lines, fmt.Sprintf("group %s: %s, each is given %.3f of the %.3f cores it needs: yield %.3f", g.Name, state.VMs(g.Count), g.Allocation, g.Need, g.Yield))
			}
		}
		return out
	}
	e := leader.Explain(x.v, vc)
	_, name := x.names(vc.Name)
	return v1.Explanation{VirtualCluster: name, State: string(view.State), Yield: e.Yield, MinYield: e.MinYield, Bottleneck: e.Bottleneck,
		Lines: each(e.Lines, x.text), Decision: x.decision(e.Decision, e.Decision.Admitted)}
}

// eventTexts are what happened, to those who see nothing of hosts. Events of other kinds are not shown to them: what a new kind
// says has to be looked at first.
var eventTexts = map[string]string{
	"vc-created": "created", "vc-queued": "there is no room for all of its VMs now: it waits", "vc-admitted": "admitted", "vc-scaled": "scaled", "vc-changed": "changed", "vc-rolled-back": "an earlier version is back",
	"vc-started": "started", "vc-stopped": "stopped", "vc-deleting": "is being deleted", "vc-deleted": "nothing of it is left",
	"vc-restarted": "VMs are started again", "vc-preempted": "it was evicted to make room, and waits", "vc-shut-down": "VMs were shut down",
	"vc-waiting": "VMs wait for room", "vc-reallocated": "its shares follow what runs",
	"vm-starting": "is starting", "vm-running": "runs", "vm-stopping": "is stopping", "vm-stopped": "stopped", "vm-failed": "ended by itself, or could not be started",
	"vm-lost": "its host was lost; it starts elsewhere once there is room", "vm-deleted": "deleted", "vm-moving": "is moving", "vm-moved": "moved",
	"vm-start-requested": "start requested", "vm-stop-requested": "stop requested: it stays stopped, and its memory is kept", "vm-restart-requested": "restart requested",
	"job-accepted": "signed off: its runs have room reserved", "job-changed": "what is reserved for it was changed", "job-rejected": "nothing is reserved for it",
	"occurrence-confirmed": "there is room for a run in its slot", "occurrence-degraded": "there is no room for all VMs of a run in its slot", "occurrence-met": "a run ended in time",
	"occurrence-missed": "a run did not arrive, or did not end in time", "occurrence-re-confirmed": "there is room for a run in its slot again", "occurrence-running": "a run starts in its slot",
	"occurrence-skipped": "a run is left out", "occurrence-reprovisioned": "a late run is given more CPU than is reserved for it", "occurrence-grant-ended": "a run is given no more than is reserved for it",
	"vm-reset-requested": "reset requested", "vm-reset": "was reset", "vm-reset-failed": "was not reset, or that is not known",
}

// event as the scope shows it; false: not at all.
func (sc scope) event(e state.Event) (v1.Event, bool) {
	out := event(e)
	owner := e.OwnerOf()
	switch {
	case sc.tenant == "": // the cluster's events, and all tenants'
		if owner != "" && owner != state.DefaultTenant {
			out.Tenant = owner
		}
		return out, true
	case owner != sc.tenant:
		return out, false
	case !sc.restricted:
		_, out.Name = sc.names(e.Name)
		out.Text = sc.text(out.Text)
		return out, true
	}
	text, shown := eventTexts[e.Kind]
	out.Seq, out.Index, out.Text = e.TenantSeq, 0, text
	_, out.Name = sc.names(e.Name)
	_, counts := sc.eventNumber(e)
	return out, shown && counts
}

// eventNumber is the number that an event has in the scope; false: the scope does not count it.
func (sc scope) eventNumber(e state.Event) (uint64, bool) {
	if !sc.restricted {
		return e.Seq, true
	}
	return e.TenantSeq, e.TenantSeq > 0 && e.OwnerOf() == sc.tenant && e.Index >= sc.since
}

// lastEvent is the number of the newest event.
func (x scopedView) lastEvent() uint64 {
	if !x.restricted {
		return x.v.LastEvent()
	}
	row, _ := x.v.Tenant(x.tenant)
	return row.Events
}

// eventAt is the number in the cluster of the last event up to a number of the scope; 0 if none is kept.
func (x scopedView) eventAt(number uint64) (at uint64) {
	if !x.restricted {
		return number
	}
	for _, e := range x.v.EventsAfter(0, 0) {
		if n, counts := x.eventNumber(e); counts && n <= number {
			at = e.Seq
		}
	}
	return at
}

// wanted is an event as the scope shows it, if it does and a filter wants it.
func (sc scope) wanted(f state.EventFilter, e state.Event) (v1.Event, bool) {
	out, shown := sc.event(e)
	e.Name = out.Name
	return out, shown && f.Match(e)
}

// events that a filter wants, as state.Snapshot.EventsWhere returns those of the cluster.
func (x scopedView) events(f state.EventFilter, after uint64, newest bool, limit int) []v1.Event {
	if x.tenant == "" {
		return each(x.v.EventsWhere(f, after, newest, limit), func(e state.Event) v1.Event { out, _ := x.event(e); return out })
	}
	out := []v1.Event{}
	for _, e := range x.v.EventsAfter(0, 0) {
		number, _ := x.eventNumber(e)
		shown, ok := x.wanted(f, e)
		if !ok || number <= after {
			continue
		}
		if out = append(out, shown); len(out) == limit && !newest {
			break
		}
	}
	return out[max(0, len(out)-limit):]
}

// restrictedTexts are the details of problems whose own would speak of hosts, servers or other tenants.
var restrictedTexts = map[string]string{
	v1.ProblemRefused:      noRoom,
	v1.ProblemConflict:     "it changed meanwhile, or is in use; look at it and try again",
	v1.ProblemBlocked:      "it cannot be done now; try again later",
	v1.ProblemPrecondition: "it is not at the version of If-Match",
	v1.ProblemNoLeader:     "no server leads now; try again",
	v1.ProblemUnavailable:  "it cannot be reached now; try again",
	v1.ProblemTimeout:      "the answer did not come in time; the change may still be carried out",
	v1.ProblemInternal:     "the server failed; its operators find the reason by the id of this request",
}

// restricted is a problem without what a tenant may not see.
func restricted(in *problem, tenant string) *problem {
	p := *in
	p.Hosts, p.Advice, p.Blockers = nil, nil, nil
	if text, ok := restrictedTexts[p.Type]; ok && !in.plain {
		p.Detail, p.Errors = text, nil
		return &p
	}
	sc := scope{tenant: tenant, restricted: true}
	p.Detail = sc.text(p.Detail)
	p.Errors = slices.Clone(p.Errors)
	for i := range p.Errors {
		p.Errors[i].Message = sc.text(p.Errors[i].Message)
		if text, ok := p.Errors[i].Value.(string); ok {
			p.Errors[i].Value = termOut(sc.text(text))
		}
	}
	return &p
}
