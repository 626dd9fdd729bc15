package server

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strings"

	"evenkeel/api/v1"
	"evenkeel/cluster/leader"
	"evenkeel/cluster/state"
)

// allTenants is the tenant parameter that stands for all.
const allTenants = "*"

// TenantParams come with every request for what belongs to a tenant.
type TenantParams struct {
	Tenant string `query:"tenant" maxLength:"63" doc:"Tenant to act in: left out, that of the token, or for a role of the cluster the tenant default. * lists all tenants; items then name theirs. A token of a tenant acts in no other one."`
}

// scope is what a request may see and name of virtual clusters, VMs, operations and events. It is the one place that decides that: a
// handler gets rows through a scope, and answers with what the scope makes of them.
type scope struct {
	tenant string // "" where it is all of them
	// restricted: the principal is of the tenant. It sees nothing of hosts, of the log and of other tenants.
	restricted bool
	salt       string // of the tenant: makes ETags that do not tell the index of the log
	// since is the index of the log at which the tenant was made; 0 for the default one. What is older was of a tenant of that name
	// that was deleted.
	since uint64
	// maxPriority that a restricted request may give a virtual cluster.
	maxPriority int
}

// scopedView is a view of the cluster through a scope.
type scopedView struct {
	scope
	v *leader.View
}

// scoped is the view for a request on what belongs to tenants.
func (s *Server) scoped(ctx context.Context, t TenantParams, r ReadParams) (scopedView, error) {
	principal := principalOf(ctx)
	v, err := s.viewOfAny(ctx, r.Consistency)
	if err != nil {
		return scopedView{}, err
	}
	sc, err := scopeOf(principal, t.Tenant, v)
	return scopedView{sc, v}, err
}

// one is scoped for a request that names one object: all tenants is no answer to where it is.
func (s *Server) one(ctx context.Context, t TenantParams, r ReadParams) (scopedView, error) {
	if t.Tenant == allTenants {
		return scopedView{}, invalidParameter("query", "tenant", t.Tenant, "must name one tenant here")
	}
	return s.scoped(ctx, t, r)
}

func scopeOf(p *principal, asked string, v *leader.View) (scope, error) {
	if own := p.of(); own != "" {
		if asked != "" && asked != own {
			return scope{}, noTenant(asked)
		}
		row, there := v.Tenant(own)
		if !there || row.Suspended {
			return scope{}, suspended(own)
		}
		return scope{tenant: own, restricted: true, salt: row.Salt, since: sinceOfTenant(row), maxPriority: row.MaxPriority}, nil
	}
	switch asked {
	case allTenants:
		return scope{}, nil
	case "":
		asked = state.DefaultTenant
	}
	row, there := v.Tenant(asked)
	if !there {
		return scope{}, noTenant(asked)
	}
	return scope{tenant: asked, since: sinceOfTenant(row)}, nil
}

// sinceOfTenant is scope.since. The default tenant is there from the beginning, whenever its row was made.
func sinceOfTenant(t state.Tenant) uint64 {
	if t.Name == state.DefaultTenant {
		return 0
	}
	return t.CreateIndex
}

func noTenant(name string) error { return notFound("there is no tenant %q", name) }

func suspended(tenant string) *problem {
	return newProblem(http.StatusForbidden, v1.ProblemSuspended, "tenant "+tenant+" is suspended; what runs goes on, and its operators can say why")
}

// of is the tenant that a principal is of; "" is the cluster.
func (p *principal) of() string {
	if p == nil {
		return ""
	}
	return p.Tenant
}

// full is the full name of what the request calls name.
func (sc scope) full(name string) string { return state.FullName(sc.tenant, name) }

// owns says whether an object of that full name is in the scope.
func (sc scope) owns(full string) bool {
	tenant, _ := state.SplitName(full)
	return sc.tenant == "" || sc.tenant == tenant
}

// names of an object in answers: its tenant where the request did not name it, and its name there.
func (sc scope) names(full string) (tenant, name string) {
	tenant, name = state.SplitName(full)
	if sc.tenant != "" {
		tenant = ""
	}
	return tenant, name
}

// text is what a sentence about objects of the scope says to those who know only it: their names without their tenant.
func (sc scope) text(t string) string {
	if sc.tenant == "" || sc.tenant == state.DefaultTenant {
		return t
	}
	return strings.ReplaceAll(t, sc.full(""), "")
}

// version is the ETag of an object at an index of the log.
func (sc scope) version(id string, index uint64) string {
	if !sc.restricted {
		return etag(index)
	}
	sum := hmac.New(sha256.New, []byte(sc.salt))
	fmt.Fprintf(sum, "%s\x00%d", id, index)
	return `"` + hex.EncodeToString(sum.Sum(nil)[:12]) + `"`
}

// call is what comes with a change of the virtual cluster of that full name; "": of none that there is.
func (x scopedView) call(p CallParams, full string) (leader.Call, error) {
	if !x.restricted {
		c, err := p.call()
		c.IdempotencyKey = x.key(p.IdempotencyKey)
		return c, err
	}
	c := leader.Call{IdempotencyKey: x.key(p.IdempotencyKey), DryRun: p.DryRun}
	if p.IfMatch == "" || p.IfMatch == "*" {
		return c, nil
	}
	c.IfMatch = math.MaxUint64 // that nothing has
	if vc, ok := x.v.VCNamed(full); ok && p.IfMatch == x.version(vc.ID, vc.ModifyIndex) {
		c.IfMatch = vc.ModifyIndex
	}
	return c, nil
}

// key is the idempotency key of a request among those of all tenants. A header holds no control character, so that no key of one
// tenant is that of another. A tenant that is made again under the name of a deleted one has keys of its own.
func (sc scope) key(key string) string {
	if key == "" || sc.tenant == state.DefaultTenant || sc.tenant == "" {
		return key
	}
	return fmt.Sprintf("%s.%d\x1f%s", sc.tenant, sc.since, key)
}

func (x scopedView) vcs() []state.VC {
	var out []state.VC
	x.v.EachVC(func(vc *state.VC) bool {
		if x.owns(vc.Name) {
			out = append(out, *vc)
		}
		return true
	})
	return out
}

func (x scopedView) vc(name string) (state.VC, error) {
	vc, ok := x.v.VCNamed(x.full(name))
	if !ok {
		return vc, notFound("there is no virtual cluster %q", name)
	}
	return vc, nil
}

func (x scopedView) vms() []state.VM {
	var out []state.VM
	x.v.EachVM(func(vm *state.VM) bool {
		if x.owns(vm.Name) {
			out = append(out, *vm)
		}
		return true
	})
	return out
}

// vm by its name or id. An id names one VM of the cluster, so that a role of the cluster need not say whose it is.
func (x scopedView) vm(name string) (state.VM, error) {
	if vm, ok := x.v.VMNamed(x.full(name)); ok {
		return vm, nil
	}
	if vm, ok := x.v.VM(name); ok && (!x.restricted || x.owns(vm.Name)) {
		return vm, nil
	}
	return state.VM{}, notFound("there is no VM %q", name)
}

// seesOperation says whether an operation is in the scope: of a virtual cluster in it, or of the cluster for its roles.
func (sc scope) seesOperation(op state.Operation) bool {
	if op.VC == "" {
		return !sc.restricted && (sc.tenant == "" || sc.tenant == state.DefaultTenant)
	}
	return sc.owns(op.Name) && !(sc.restricted && op.Index < sc.since)
}

func (x scopedView) findOperation(id string) (state.Operation, error) {
	op, ok := x.v.Operation(id)
	if !ok || x.restricted && !x.seesOperation(op) {
		return op, notFound("there is no operation %q (any more)", id)
	}
	return op, nil
}

// placed is the name of a VM in the scope, and its host where the scope shows hosts.
func (sc scope) placed(vm state.VM) (name, host string) {
	_, name = sc.names(vm.Name)
	if !sc.restricted {
		host = vm.Host
	}
	return name, host
}

// ownsToken says whether a token is in the scope.
func (sc scope) ownsToken(t state.Token) bool { return sc.tenant == "" || sc.tenant == t.Tenant }

// token as the scope shows it: who of the cluster made it is not the tenant's business.
func (sc scope) token(t state.Token) v1.Token {
	if sc.restricted {
		t.MadeBy = ""
	}
	return tokenOf(t)
}

// imageFor a principal: where the file lies on the hosts is for roles of the cluster.
func imageFor(p *principal) func(state.Image) v1.Image {
	return func(i state.Image) v1.Image {
		out := image(i)
		if p.of() != "" {
			out.File = ""
		}
		return out
	}
}

// spec of a virtual cluster as the request has it, with the names that it has in the cluster.
func (x scopedView) spec(in v1.VirtualClusterSpec) (state.VC, error) {
	vc := specOf(in)
	vc.Name = x.full(vc.Name)
	if x.restricted && vc.Priority > x.maxPriority {
		return vc, &v1.Invalid{Fields: []v1.FieldError{{Field: "priority", Message: fmt.Sprintf("must be at most %d in this tenant", x.maxPriority), Value: vc.Priority}}}
	}
	for i := range vc.Groups {
		g := &vc.Groups[i]
		g.Labels = x.labelsIn(g.Labels)
		a := &g.Affinity
		for _, terms := range []struct {
			field string
			list  *[]string
		}{{"require", &a.Require}, {"prefer", &a.Prefer}, {"avoid", &a.Avoid}} {
			for j, term := range *terms.list {
				why := ""
				switch kind, name, _ := strings.Cut(term, ":"); {
				case x.restricted && kind == "host":
					why = "names a host, which only operators can: use label=value or vc:NAME"
				case kind == "vc" && strings.Contains(name, "/"):
					why = "must name a virtual cluster of the same tenant, without its tenant"
				}
				if why != "" {
					at := fmt.Sprintf("groups[%d].affinity.%s[%d]", i, terms.field, j)
					return vc, &v1.Invalid{Fields: []v1.FieldError{{Field: at, Message: why, Value: term}}}
				}
			}
			*terms.list = mapped(*terms.list, x.termIn)
		}
	}
	return vc, nil
}

// labelMark separates the name of a label from its tenant. It is in no name.
const labelMark = "@"

// labelsIn are the labels as the cluster has them: those of another tenant than the default one are marked, so that no rule of one
// tenant matches what is another's.
func (sc scope) labelsIn(labels map[string]string) map[string]string {
	if sc.tenant == state.DefaultTenant || labels == nil {
		return labels
	}
	out := make(map[string]string, len(labels))
	for name, value := range labels {
		out[name+labelMark+sc.tenant] = value
	}
	return out
}

func labelsOut(labels map[string]string) map[string]string {
	if labels == nil {
		return nil
	}
	out := make(map[string]string, len(labels))
	for name, value := range labels {
		name, _, _ = strings.Cut(name, labelMark)
		out[name] = value
	}
	return out
}

// termIn is a term of affinity as the cluster has it; termOut as the tenant wrote it.
func (sc scope) termIn(term string) string {
	if sc.tenant == state.DefaultTenant {
		return term
	}
	if name, ok := strings.CutPrefix(term, "vc:"); ok {
		return "vc:" + sc.full(name)
	}
	if name, value, ok := strings.Cut(term, "="); ok && !strings.HasPrefix(term, "host:") {
		return name + labelMark + sc.tenant + "=" + value
	}
	return term
}

func termOut(term string) string {
	if full, ok := strings.CutPrefix(term, "vc:"); ok {
		_, name := state.SplitName(full)
		return "vc:" + name
	}
	if name, value, ok := strings.Cut(term, "="); ok {
		name, _, _ = strings.Cut(name, labelMark)
		return name + "=" + value
	}
	return term
}

func mapped(list []string, f func(string) string) []string {
	out := slices.Clone(list)
	for i, text := range out {
		out[i] = f(text)
	}
	return out
}

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
			*list = mapped(*list, termOut)
			if sc.restricted { // an operator may have named hosts
				*list = slices.DeleteFunc(*list, func(t string) bool { return strings.HasPrefix(t, "host:") })
			}
		}
		g.Affinity = &a
	}
	if sc.restricted {
		out.ModifyIndex = 0
		out.Reason = stateReasons[out.State]
	}
	out.Decision = sc.decision(view.Decision, view.Admitted)
	return out
}

// stateReasons are why a virtual cluster is in a state, to those who see nothing of hosts.
var stateReasons = map[string]string{
	"queued":   "there is no room for all of its VMs now; it starts once there is",
	"starting": "its VMs are starting",
	"degraded": "one of its VMs ended, or its yield is below its minimum: its VMs say which",
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
	out.Reason = x.text(out.Reason)
	if !x.restricted {
		return out
	}
	out.Domain, out.Host, out.MovingTo, out.Migration = "", "", "", ""
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
	}
	out.Text = x.text(out.Text)
	if x.restricted {
		out.Plan, out.Host, out.Index = "", "", 0
		out.Text = fmt.Sprintf("%d of %d VMs done", out.Done, out.Total)
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
		}
		out = append(out, to)
	}
	return out
}

// changeTexts are the steps of a plan, to those who see nothing of hosts.
var changeTexts = map[string]string{"place": "start", "delete": "delete, with its disk,", "stop": "stop, its disk is kept,", "balloon": "change the memory of", "cap": "change the CPU share"}

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
				out.Lines = append(out.Lines, fmt.Sprintf("group %s: %d VMs, each is given %.3f of the %.3f cores it needs: yield %.3f", g.Name, g.Count, g.Allocation, g.Need, g.Yield))
			}
		}
		return out
	}
	e := leader.Explain(x.v, vc)
	_, name := x.names(vc.Name)
	return v1.Explanation{VirtualCluster: name, State: string(view.State), Yield: e.Yield, MinYield: e.MinYield, Bottleneck: e.Bottleneck,
		Lines: mapped(append([]string{}, e.Lines...), x.text), Decision: x.decision(e.Decision, e.Decision.Admitted)}
}

// eventTexts are what happened, to those who see nothing of hosts. Events of other kinds are not shown to them: what a new kind
// says has to be looked at first.
var eventTexts = map[string]string{
	"vc-created": "created", "vc-queued": "there is no room for all of its VMs now: it waits", "vc-admitted": "admitted", "vc-scaled": "scaled",
	"vc-started": "started", "vc-stopped": "stopped", "vc-deleting": "is being deleted", "vc-deleted": "nothing of it is left",
	"vc-restarted": "VMs are started again", "vc-preempted": "it was evicted to make room, and waits", "vc-shut-down": "VMs were shut down",
	"vc-waiting": "VMs wait for room", "vc-reallocated": "its shares follow what runs",
	"vm-starting": "is starting", "vm-running": "runs", "vm-stopping": "is stopping", "vm-stopped": "stopped", "vm-failed": "ended by itself, or could not be started",
	"vm-lost": "its host was lost; it starts elsewhere once there is room", "vm-deleted": "deleted", "vm-moving": "is moving", "vm-moved": "moved",
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
