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
	// restricted: the principal is of the tenant. It sees no hosts, no log and no other tenants.
	restricted bool
	salt       string // of the tenant: makes ETags that do not show the index of the log
	// since is the log index at which the tenant was made; 0 for the tenant default. What is older belonged to a deleted tenant of
	// the same name.
	since uint64
	// maxPriority is the highest priority that a restricted request may give. A virtual cluster that
	// has a higher one may keep it.
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

// scopedOrAll is scoped for lists that a role of the cluster gets whole unless it names a tenant: with what belongs to the cluster,
// and to all tenants.
func (s *Server) scopedOrAll(ctx context.Context, t TenantParams, r ReadParams) (scopedView, error) {
	if t.Tenant == "" && principalOf(ctx).of() == "" {
		t.Tenant = allTenants
	}
	return s.scoped(ctx, t, r)
}

// one is scoped for a request that names one object: it refuses the tenant *, which does not say
// whose object is meant.
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

// tenantOfChange is the tenant of a new token or binding: that of a principal of a tenant, and else what the body names.
func tenantOfChange(p *principal, t TenantParams, named string) (string, error) {
	own := p.of()
	if own == "" {
		return named, nil
	}
	for _, asked := range []string{t.Tenant, named} {
		if asked != "" && asked != own {
			return "", noTenant(asked)
		}
	}
	return own, nil
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

// names returns an object's tenant, "" where the request named it, and its name there.
func (sc scope) names(full string) (tenant, name string) {
	tenant, name = state.SplitName(full)
	if sc.tenant != "" {
		tenant = ""
	}
	return tenant, name
}

// ownerOf is the tenant of one object that is shown by itself; "" is the default one.
func ownerOf(full string) string {
	if tenant, _ := state.SplitName(full); tenant != state.DefaultTenant {
		return tenant
	}
	return ""
}

// text is a sentence about objects of the scope, for readers who know no other scope: without the tenant in names.
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

// call is what comes with a change of the virtual cluster of that full name; "": of none that
// exists.
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
	c.IfMatch = math.MaxUint64 // an index that no virtual cluster has
	if vc, ok := x.v.VCNamed(full); ok && p.IfMatch == x.version(vc.ID, vc.ModifyIndex) {
		c.IfMatch = vc.ModifyIndex
	}
	return c, nil
}

// key is the idempotency key of a request among those of all tenants.
func (sc scope) key(key string) string {
	if key == "" || sc.tenant == state.DefaultTenant || sc.tenant == "" {
		return key
	}
	return state.KeyOfTenant(sc.tenant, sc.since, key)
}

func (x scopedView) eachVC(f func(vc *state.VC)) {
	x.v.EachVC(func(vc *state.VC) bool {
		if x.owns(vc.Name) {
			f(vc)
		}
		return true
	})
}

func (x scopedView) vc(name string) (state.VC, error) {
	vc, ok := x.v.VCNamed(x.full(name))
	if !ok {
		return vc, notFound("there is no virtual cluster %q", name)
	}
	return vc, nil
}

func (x scopedView) eachVM(f func(vm *state.VM)) {
	x.v.EachVM(func(vm *state.VM) bool {
		if x.owns(vm.Name) {
			f(vm)
		}
		return true
	})
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

// token as the scope shows it.
func (x scopedView) token(t state.Token) v1.Token {
	t.MadeBy = x.maker(t.MadeBy, x.v)
	return tokenOf(t)
}

// maker is who made a token, as the scope shows it. A tenant sees its own tokens that exist, and not who works for the cluster.
func (sc scope) maker(madeBy string, known interface {
	Token(id string) (state.Token, bool)
}) string {
	if !sc.restricted {
		return madeBy
	}
	actor := strings.TrimSuffix(madeBy[strings.LastIndex(madeBy, "(")+1:], ")")
	id, _ := strings.CutPrefix(actor, tokenActor)
	if t, there := known.Token(id); !there || t.Tenant != sc.tenant {
		return ""
	}
	return madeBy
}

// imageNamed is the image that a name in the scope stands for: the tenant's own, or else the one that is open to all tenants. An image
// older than the tenant belonged to a deleted tenant of that name.
func (x scopedView) imageNamed(name string) (state.Image, bool) {
	if i, ok := x.v.Image(x.full(name)); ok && i.CreateIndex >= x.since {
		return i, true
	}
	i, ok := x.v.Image(name)
	return i, ok && i.Tenant() == state.DefaultTenant
}

// imageIn is the full name of an image that the request names, as the cluster has it; imageOut as the tenant writes it.
func (x scopedView) imageIn(name string) string {
	if i, ok := x.imageNamed(name); ok {
		return i.Name
	}
	return name
}

func imageOut(full string) string {
	_, name := state.SplitName(full)
	return name
}

// images of the scope: what its names stand for, or all.
func (x scopedView) images() []state.Image {
	return slices.DeleteFunc(x.v.Images(), func(i state.Image) bool {
		if x.tenant == "" {
			return false
		}
		named, ok := x.imageNamed(imageOut(i.Name))
		return !ok || named.Name != i.Name
	})
}

// image as the scope shows it: where the file lies on the hosts is for roles of the cluster.
func (sc scope) image(i state.Image) v1.Image {
	out := image(i)
	if sc.restricted {
		out.File = ""
	}
	return out
}

// spec of a virtual cluster as the request has it, with the names that it has in the cluster.
func (x scopedView) spec(in v1.VirtualClusterSpec) (state.VC, error) {
	vc := specOf(in)
	vc.Name = x.full(vc.Name)
	old, _ := x.v.VCNamed(vc.Name)
	if x.restricted && vc.Priority > max(x.maxPriority, old.Priority) {
		return vc, &v1.Invalid{Fields: []v1.FieldError{{Field: "priority", Message: fmt.Sprintf("must be at most %d in this tenant", x.maxPriority), Value: vc.Priority}}}
	}
	for i := range vc.Groups {
		g := &vc.Groups[i]
		g.Labels = x.labelsIn(g.Labels)
		g.Image, g.Boot.Kernel, g.Boot.Initrd = x.imageIn(g.Image), x.imageIn(g.Boot.Kernel), x.imageIn(g.Boot.Initrd)
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
			*terms.list = each(*terms.list, x.termIn)
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
