package ui

import (
	"cmp"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"evenkeel/api/client"
	"evenkeel/api/v1"
)

// window is how many rows of a long list a page has at first, and gets more of at a time.
const window = 200

// rows is the part of a list that a page shows.
type rows[T any] struct {
	Items []T
	Total int    // that the search finds
	All   int    // without the search
	Query string // the search
	More  string // address of the next part; "": there is none
}

// rowsOf a list: those that a search finds by their words, from the position that the address names.
func rowsOf[T any](v *visit, items []T, textOf func(T) string) rows[T] {
	q := v.r.URL.Query()
	out := rows[T]{All: len(items), Query: strings.TrimSpace(q.Get("q"))}
	if wanted := strings.Fields(strings.ToLower(out.Query)); len(wanted) > 0 {
		items = slices.DeleteFunc(slices.Clone(items), func(item T) bool {
			text := strings.ToLower(textOf(item))
			return slices.ContainsFunc(wanted, func(w string) bool { return !strings.Contains(text, w) })
		})
	}
	out.Total = len(items)
	from, _ := strconv.Atoi(q.Get("from")) // what is no number is the beginning
	from = min(max(from, 0), len(items))
	end := min(from+window, len(items))
	out.Items = items[from:end]
	if end < len(items) {
		q.Set("from", strconv.Itoa(end))
		out.More = v.r.URL.Path + "?" + q.Encode()
	}
	return out
}

// fullName is what the whole cluster calls a tenant's object.
func fullName(tenant, name string) string {
	if tenant == "" || tenant == "default" {
		return name
	}
	return tenant + "/" + name
}

// named returns the name that a path ends with, and the tenant that it names.
func named(v *visit) (string, []client.Option) {
	full := v.r.PathValue("name")
	if tenant, name, ok := strings.Cut(full, "/"); ok {
		return name, []client.Option{client.OfTenant(tenant)}
	}
	return full, nil
}

type overviewData struct {
	Status v1.ClusterStatus
	Hosts  []v1.Host
	Below  []v1.VirtualCluster // whose yield is below what they are promised
	Queued []v1.VirtualCluster
}

// overview is the first page: the cluster for its operators, the virtual clusters for a tenant.
func overview(v *visit) error {
	if !v.OfCluster() {
		http.Redirect(v.w, v.r, "/ui/virtual-clusters", http.StatusSeeOther)
		return nil
	}
	var d overviewData
	var err error
	ctx := v.r.Context()
	if d.Status, err = v.api.Status(ctx); err != nil {
		return err
	}
	if d.Hosts, err = v.api.Hosts(ctx); err != nil {
		return err
	}
	all, err := v.api.VirtualClusters(ctx, v.everyTenant()...)
	if err != nil {
		return err
	}
	for _, vc := range all {
		switch {
		case vc.State == "queued":
			d.Queued = append(d.Queued, vc)
		case vc.VMs.Running > 0 && vc.Yield < vc.MinYield-1e-9:
			d.Below = append(d.Below, vc)
		}
	}
	v.Title, v.Live, v.Data = "Overview", true, d
	return v.show("overview")
}

func hosts(v *visit) error {
	all, err := v.api.Hosts(v.r.Context())
	if err != nil {
		return err
	}
	v.Title, v.Live = "Hosts", true
	v.Data = rowsOf(v, all, func(h v1.Host) string { return h.Name + " " + h.State + " " + h.Lease + " " + h.CordonReason })
	return v.show("hosts")
}

type vcsData struct {
	rows[v1.VirtualCluster]
	Quota *v1.Quota // of a tenant
}

func virtualClusters(v *visit) error {
	all, err := v.api.VirtualClusters(v.r.Context(), v.everyTenant()...)
	if err != nil {
		return err
	}
	d := vcsData{rows: rowsOf(v, all, func(vc v1.VirtualCluster) string { return fullName(vc.Tenant, vc.Name) + " " + vc.State })}
	if !v.OfCluster() {
		q, err := v.api.Quota(v.r.Context(), v.Self.Tenant)
		if err != nil {
			return err
		}
		d.Quota = &q
	}
	v.Title, v.Live, v.Data = "Virtual clusters", true, d
	return v.show("virtualclusters")
}

func vms(v *visit) error {
	all, err := v.api.VMs(v.r.Context(), "", "", v.everyTenant()...)
	if err != nil {
		return err
	}
	v.Title, v.Live = "VMs", true
	v.Data = rowsOf(v, all, func(vm v1.VM) string { return fullName(vm.Tenant, vm.Name) + " " + vm.State + " " + vm.Host })
	return v.show("vms")
}

type vcData struct {
	VC      v1.VirtualCluster
	Full    string
	VMs     []v1.VM
	Explain v1.Explanation
	Dry     *v1.Result // what a change would do
	Asked   url.Values // the form that asked for Dry, or was refused
}

// readVC reads what the page of a virtual cluster shows.
func readVC(v *visit) (vcData, error) {
	name, of := named(v)
	ctx := v.r.Context()
	var d vcData
	var err error
	if d.VC, err = v.api.VirtualCluster(ctx, name, of...); err != nil {
		return d, err
	}
	d.Full = fullName(d.VC.Tenant, d.VC.Name)
	if d.VMs, err = v.api.VMs(ctx, name, "", of...); err != nil {
		return d, err
	}
	if d.Explain, err = v.api.Explain(ctx, name, of...); err != nil {
		return d, err
	}
	v.Title, v.Live = d.Full, true
	return d, v.readOperation(of)
}

// readOperation reads the operation that the address names: what a form asked for. One that is forgotten, or another's, is not shown.
func (v *visit) readOperation(of []client.Option) error {
	id := v.r.URL.Query().Get("operation")
	if id == "" {
		return nil
	}
	op, err := v.api.Operation(v.r.Context(), id, of...)
	var refused *client.Error
	if errors.As(err, &refused) && refused.Problem.Status == http.StatusNotFound {
		return nil
	}
	if err != nil {
		return err
	}
	v.Done = &op
	return nil
}

type hostData struct {
	Host  v1.Host
	VMs   []v1.VM
	Dry   *v1.DrainResult
	Asked url.Values
}

func readHost(v *visit) (hostData, error) {
	ctx, name := v.r.Context(), v.r.PathValue("name")
	var d hostData
	var err error
	if d.Host, err = v.api.Host(ctx, name); err != nil {
		return d, err
	}
	if d.VMs, err = v.api.VMs(ctx, "", name, v.everyTenant()...); err != nil {
		return d, err
	}
	v.Title, v.Live = d.Host.Name, true
	return d, v.readOperation(nil)
}

type plansData struct {
	Curve  []v1.CurvePoint
	Now    float64 // minimum yield
	Plans  []v1.Plan
	Dry    *v1.PlanResult
	Budget string
}

func readPlans(v *visit) (plansData, error) {
	ctx := v.r.Context()
	var d plansData
	status, err := v.api.Status(ctx)
	if err != nil {
		return d, err
	}
	d.Now = status.MinYield
	if d.Curve, err = v.api.Curve(ctx); err != nil {
		return d, err
	}
	if d.Plans, err = v.api.Plans(ctx, "", 50); err != nil {
		return d, err
	}
	slices.SortStableFunc(d.Plans, func(a, b v1.Plan) int { return b.CreatedAt.Compare(a.CreatedAt) })
	v.Title, v.Live = "Plans", true
	return d, nil
}

func plan(v *visit) error {
	p, err := v.api.Plan(v.r.Context(), v.r.PathValue("id"))
	if err != nil {
		return err
	}
	v.Title, v.Live, v.Data = "Plan "+p.ID, true, p
	return v.show("plan")
}

// maxEvents is how many events the page of events shows.
const maxEvents = 300

func events(v *visit) error {
	q := v.r.URL.Query()
	query := client.EventQuery{Limit: maxEvents, Name: strings.TrimSpace(q.Get("name"))}
	if kind := strings.TrimSpace(q.Get("kind")); kind != "" {
		query.Kinds = strings.Split(kind, ",")
	}
	list, err := v.api.ListEvents(v.r.Context(), query, v.everyTenant()...)
	if err != nil {
		return err
	}
	slices.SortFunc(list.Items, func(a, b v1.Event) int { return cmp.Compare(b.Seq, a.Seq) })
	v.Title, v.Live = "Events", true
	v.Data = struct {
		Items      []v1.Event
		Kind, Name string
	}{list.Items, q.Get("kind"), query.Name}
	return v.show("events")
}

type tenantRow struct {
	v1.Tenant
	Quota v1.Quota
}

func tenants(v *visit) error {
	ctx := v.r.Context()
	all, err := v.api.Tenants(ctx)
	if err != nil {
		return err
	}
	quotas, err := v.api.Quotas(ctx)
	if err != nil {
		return err
	}
	of := map[string]v1.Quota{}
	for _, q := range quotas {
		of[q.Tenant] = q
	}
	list := make([]tenantRow, len(all))
	for i, t := range all {
		list[i] = tenantRow{t, of[t.Name]}
	}
	v.Title, v.Live = "Tenants", true
	v.Data = rowsOf(v, list, func(t tenantRow) string { return t.Name + " " + t.DisplayName + " " + t.State })
	return v.show("tenants")
}
