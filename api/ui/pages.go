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
const window = 100

// rows is the part of a list that a page shows.
type rows[T any] struct {
	Items []T
	Total int    // that the search finds
	All   int    // without the search
	Query string // the search
	More  string // address of the next part; "": there is none
}

// partAsked is the part of a list that the address of a page names, with its search.
func partAsked(v *visit) client.Part {
	q := v.r.URL.Query()
	from, _ := strconv.Atoi(q.Get("from")) // what is no number is the beginning
	return client.Part{Search: clip(strings.TrimSpace(q.Get("q")), maxSearch), Offset: max(from, 0), Limit: window}
}

// maxSearch is the longest search, characters: that of the API.
const maxSearch = 253

func clip(text string, limit int) string {
	if r := []rune(text); len(r) > limit {
		return string(r[:limit])
	}
	return text
}

// rowsIn a part of a list, as the API answers it.
func rowsIn[T any](v *visit, asked client.Part, p v1.Part[T]) rows[T] {
	out := rows[T]{Items: p.Items, Total: p.Matches, All: p.Total, Query: asked.Search}
	if end := asked.Offset + len(p.Items); end < p.Matches && len(p.Items) > 0 {
		q := v.r.URL.Query()
		q.Set("from", strconv.Itoa(end))
		out.More = v.r.URL.Path + "?" + q.Encode()
	}
	return out
}

// rowsOf a list that the API answers whole: those that a search finds by their words, from the position that the address names.
func rowsOf[T any](v *visit, items []T, textOf func(T) string) rows[T] {
	asked, all := partAsked(v), len(items)
	if wanted := strings.Fields(strings.ToLower(asked.Search)); len(wanted) > 0 {
		items = slices.DeleteFunc(slices.Clone(items), func(item T) bool {
			text := strings.ToLower(textOf(item))
			return slices.ContainsFunc(wanted, func(w string) bool { return !strings.Contains(text, w) })
		})
	}
	from := min(asked.Offset, len(items))
	return rowsIn(v, asked, v1.Part[T]{Items: items[from:min(from+window, len(items))], Matches: len(items), Total: all})
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
	More   int // virtual clusters that are below or queued, beside these
	// MoreWrong is how many conditions there are beside those of Status.
	MoreWrong int
}

// maxWrong is how many conditions, and how many virtual clusters that lack something, the overview names.
const maxWrong = 50

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
	lacking, err := v.api.Lacking(ctx, client.Part{Limit: maxWrong}, v.everyTenant()...)
	if err != nil {
		return err
	}
	for _, vc := range lacking.Items {
		if vc.State == "queued" {
			d.Queued = append(d.Queued, vc)
		} else {
			d.Below = append(d.Below, vc)
		}
	}
	d.More = lacking.Matches - len(lacking.Items)
	if all := d.Status.Conditions; len(all) > maxWrong {
		d.Status.Conditions, d.MoreWrong = all[:maxWrong], len(all)-maxWrong
	}
	v.Title, v.Live, v.Data = "Overview", true, d
	return v.show("overview")
}

func hosts(v *visit) error {
	asked := partAsked(v)
	part, err := v.api.HostsPart(v.r.Context(), asked)
	if err != nil {
		return err
	}
	v.Title, v.Live, v.Data = "Hosts", true, rowsIn(v, asked, part)
	return v.show("hosts")
}

type vcsData struct {
	rows[v1.VirtualCluster]
	Quota *v1.Quota // of a tenant
}

func virtualClusters(v *visit) error {
	asked := partAsked(v)
	part, err := v.api.VirtualClustersPart(v.r.Context(), asked, v.everyTenant()...)
	if err != nil {
		return err
	}
	d := vcsData{rows: rowsIn(v, asked, part)}
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
	asked := partAsked(v)
	part, err := v.api.VMsPart(v.r.Context(), asked, "", "", v.everyTenant()...)
	if err != nil {
		return err
	}
	v.Title, v.Live, v.Data = "VMs", true, rowsIn(v, asked, part)
	return v.show("vms")
}

type vcData struct {
	VC      v1.VirtualCluster
	Full    string
	VMs     rows[v1.VM]
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
	asked := partAsked(v)
	part, err := v.api.VMsPart(ctx, asked, name, "", of...)
	if err != nil {
		return d, err
	}
	d.VMs = rowsIn(v, asked, part)
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
	VMs   rows[v1.VM]
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
	asked := partAsked(v)
	part, err := v.api.VMsPart(ctx, asked, "", name, v.everyTenant()...)
	if err != nil {
		return d, err
	}
	d.VMs = rowsIn(v, asked, part)
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
