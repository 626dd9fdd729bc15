package main

import (
	"regexp"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"evenkeel/api/client"
	"evenkeel/api/v1"
)

// defaultTenant has what belongs to no other tenant.
const defaultTenant = "default"

// fullName is what the whole cluster calls a tenant's virtual cluster or VM: film/web. What the default tenant owns has its plain name.
func fullName(tenant, name string) string {
	if tenant == "" || tenant == defaultTenant || name == "" {
		return name
	}
	return tenant + "/" + name
}

// tenantName is what names of tenants look like: DNS labels.
var tenantName = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`)

// splitName of a virtual cluster or VM as the user writes it. Without a slash it leaves the tenant open.
func splitName(written string) (tenant, name string, err error) {
	tenant, name, full := strings.Cut(written, "/")
	switch {
	case !full:
		return "", written, nil
	case !tenantName.MatchString(tenant) || name == "" || strings.Contains(name, "/"):
		return "", "", usage("%q is no name: write NAME, or TENANT/NAME for that of another tenant", written)
	}
	return tenant, name, nil
}

var allTenantsFlag = &cli.BoolFlag{Name: "all-tenants", Aliases: []string{"A"}, Usage: "those of all tenants; as --tenant '*'"}

// chosenTenant is the tenant that a command line names; false if it names none.
func chosenTenant(c *cli.Context) (tenant string, chosen bool, err error) {
	tenant, chosen = c.String("tenant"), c.IsSet("tenant")
	if !c.Bool("all-tenants") {
		return tenant, chosen, nil
	}
	if chosen && tenant != client.AllTenants {
		return "", false, usage("--all-tenants and --tenant %s contradict each other", tenant)
	}
	return client.AllTenants, true, nil
}

// enterTenant decides the tenant of a command about a virtual cluster, a VM or an image: that of the name that it is given, if it is a full
// one. What names one thing, or makes one, is in one tenant.
func (c *call) enterTenant(a *access) error {
	noun, verb, _ := strings.Cut(commandOf(c.Context), " ")
	if noun != "vc" && noun != "vm" && (noun != "image" || verb == "list") {
		return nil
	}
	written := c.name
	if verb == "list" {
		written = c.String("vc")
	}
	tenant, name, err := splitName(written)
	switch {
	case err != nil:
		return err
	case tenant == "" && a.tenant == client.AllTenants && (verb != "list" || written != ""):
		return usage("%s: name one tenant, with --tenant NAME or as TENANT/NAME: --tenant '*' is for lists", commandOf(c.Context))
	case tenant == "":
		return nil
	case a.tenantChosen && a.tenant != tenant && a.tenant != client.AllTenants:
		return usage("%s is of tenant %s, and --tenant says %s", written, tenant, a.tenant)
	}
	a.tenant = tenant
	if verb == "list" {
		return c.Set("vc", name)
	}
	c.name = name
	return nil
}

// owned is an operation with its tenant, where the request named it: for hints that work wherever they are typed.
func (c *call) owned(op v1.Operation) v1.Operation {
	if op.VirtualCluster != "" && op.Tenant == "" {
		op.Tenant = c.tenant
	}
	return op
}

// ofTenant asks for what a tenant has, or all of them: what operators see of hosts and of the cluster is not one tenant's. A server
// from before there were tenants refuses the question for all, and all that it has is the default tenant's.
func ofTenant[T any](tenant string, ask func(of client.Option) ([]T, error)) ([]T, error) {
	all, err := ask(client.OfTenant(tenant))
	if tenant == client.AllTenants && client.IsProblem(err, v1.ProblemInvalid) {
		return ask(client.OfTenant(""))
	}
	return all, err
}

// withFullNames are VMs under the names that the whole cluster knows them by.
func withFullNames(vms []v1.VM) []v1.VM {
	out := slices.Clone(vms)
	for i := range out {
		out[i].Name = fullName(out[i].Tenant, out[i].Name)
	}
	return out
}

// inTenants is the table of a list: that with tenants where it is of all of them.
func inTenants[T any](c *call, one, all listView[T]) listView[T] {
	if c.tenant == client.AllTenants {
		return all
	}
	return one
}

// withTenant adds the tenant in front of the cells of a row.
func withTenant[T any](tenant func(T) string, cells func(T) []string) func(T) []string {
	return func(x T) []string { return append([]string{tenant(x)}, cells(x)...) }
}
