package ui

import (
	"cmp"
	"net/url"
	"slices"
	"strings"

	"evenkeel/api/client"
	"evenkeel/api/v1"
)

// migrationPath is the page of a migration.
func migrationPath(id string) string { return "/ui/migrations/" + url.PathEscape(id) }

// migrations are the newest maxEvents, newest first: of a VM and in a state, if the address names them.
func migrations(v *visit) error {
	q := v.r.URL.Query()
	vm, state := strings.TrimSpace(q.Get("vm")), q.Get("state")
	all, err := v.api.Migrations(v.r.Context(), "", vm, state, maxEvents)
	problem, err := refusal(err)
	if err != nil {
		return err
	}
	slices.Reverse(all)
	v.Title, v.Live = "Migrations", problem == nil
	v.Data = struct {
		Items     []v1.Migration
		VM, State string
	}{all, vm, state}
	return v.showWith(problem, "migrations")
}

func readMigration(v *visit) (v1.Migration, error) {
	m, err := v.api.Migration(v.r.Context(), v.r.PathValue("id"))
	v.Title, v.Live = "Migration of "+m.VM, true
	return m, err
}

func changeMigration(v *visit) error {
	if do, _, _ := v.asked(); do != "abort" {
		return unknownForm(do)
	}
	id := v.r.PathValue("id")
	_, err := v.api.AbortMigration(v.r.Context(), id)
	problem, err := refusal(err)
	if err != nil {
		return err
	}
	if problem == nil {
		return v.to(migrationPath(id), nil)
	}
	return again(v, "migration", problem, readMigration, func(*v1.Migration) {})
}

type rightsizingData struct {
	v1.Rightsizing
	Rows rows[v1.RightsizedVM]
}

func readRightsizing(v *visit) (rightsizingData, error) {
	r, err := v.api.Rightsizing(v.r.Context())
	slices.Reverse(r.Hours)
	v.Title, v.Live = "Rightsizing", true
	return rightsizingData{r, rowsOf(v, r.VMs, func(m v1.RightsizedVM) string { return m.VM + " " + m.Host + " " + m.Reason })}, err
}

// operations are the newest maxEvents, newest first: of a virtual cluster and in a state, if the address names them.
func operations(v *visit) error {
	q := v.r.URL.Query()
	vc, state := strings.TrimSpace(q.Get("vc")), q.Get("state")
	of := v.everyTenant()
	tenant, name, ofTenant := strings.Cut(vc, "/")
	switch {
	case ofTenant:
		of = []client.Option{client.OfTenant(tenant)}
	case vc != "":
		tenant, name, of = "", vc, nil
	}
	all, err := v.api.Operations(v.r.Context(), client.OperationQuery{VirtualCluster: name, State: state, Limit: maxEvents}, of...)
	problem, err := refusal(err)
	if err != nil {
		return err
	}
	slices.SortStableFunc(all, func(a, b v1.Operation) int { return cmp.Compare(b.Index, a.Index) })
	for i := range all {
		all[i].Tenant = cmp.Or(all[i].Tenant, tenant) // which the answer leaves out where it was asked for
	}
	v.Title, v.Live = "Operations", problem == nil
	v.Data = struct {
		Items     []v1.Operation
		VC, State string
	}{all, vc, state}
	return v.showWith(problem, "operations")
}
