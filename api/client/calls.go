package client

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"strings"

	"evenkeel/api/v1"
)

// VirtualClusters, oldest first.
func (c *Client) VirtualClusters(ctx context.Context, opts ...Option) ([]v1.VirtualCluster, error) {
	return list[v1.VirtualCluster](ctx, c, opts, "virtual-clusters")
}

// Part of a list that is asked for. The zero value is all of it.
type Part struct {
	Search string // words that items have
	Offset int    // items before the first one
	Limit  int    // 0: all
}

func (p Part) option() Option {
	return query("search", p.Search, "offset", number(p.Offset), "limit", number(p.Limit))
}

// VirtualClustersPart is a part of VirtualClusters.
func (c *Client) VirtualClustersPart(ctx context.Context, p Part, opts ...Option) (v1.Part[v1.VirtualCluster], error) {
	return get[v1.Part[v1.VirtualCluster]](ctx, c, with(opts, p.option()), "virtual-clusters")
}

// Lacking are virtual clusters in the queue, and those that run with a yield below what they are promised.
func (c *Client) Lacking(ctx context.Context, p Part, opts ...Option) (v1.Part[v1.VirtualCluster], error) {
	return c.VirtualClustersPart(ctx, p, with(opts, query("lacking", "true"))...)
}

// VirtualCluster of that name.
func (c *Client) VirtualCluster(ctx context.Context, name string, opts ...Option) (v1.VirtualCluster, error) {
	return get[v1.VirtualCluster](ctx, c, opts, "virtual-clusters", name)
}

// Explain a virtual cluster.
func (c *Client) Explain(ctx context.Context, name string, opts ...Option) (v1.Explanation, error) {
	return get[v1.Explanation](ctx, c, opts, "virtual-clusters", name, "explain")
}

// Create a virtual cluster.
func (c *Client) Create(ctx context.Context, spec v1.VirtualClusterSpec, opts ...Option) (v1.Result, error) {
	return post[v1.Result](ctx, c, spec, keyed(opts), "virtual-clusters")
}

// Scale a group of a virtual cluster.
func (c *Client) Scale(ctx context.Context, name string, req v1.ScaleRequest, opts ...Option) (v1.Result, error) {
	return send[v1.Result](ctx, c, http.MethodPatch, req, keyed(opts), "virtual-clusters", name)
}

// Start a virtual cluster.
func (c *Client) Start(ctx context.Context, name string, opts ...Option) (v1.Result, error) {
	return post[v1.Result](ctx, c, nil, keyed(opts), "virtual-clusters", name, "start")
}

// Stop a virtual cluster.
func (c *Client) Stop(ctx context.Context, name string, opts ...Option) (v1.Result, error) {
	return post[v1.Result](ctx, c, nil, keyed(opts), "virtual-clusters", name, "stop")
}

// Delete a virtual cluster.
func (c *Client) Delete(ctx context.Context, name string, opts ...Option) (v1.Result, error) {
	return remove[v1.Result](ctx, c, keyed(opts), "virtual-clusters", name)
}

// VMs of a virtual cluster and on a host; "" means any.
func (c *Client) VMs(ctx context.Context, virtualCluster, host string, opts ...Option) ([]v1.VM, error) {
	return list[v1.VM](ctx, c, with(opts, query("virtualCluster", virtualCluster, "host", host)), "vms")
}

// VMsPart is a part of all VMs; of a virtual cluster, on a host, or both, where they are named.
func (c *Client) VMsPart(ctx context.Context, p Part, virtualCluster, host string, opts ...Option) (v1.Part[v1.VM], error) {
	return get[v1.Part[v1.VM]](ctx, c, with(opts, p.option(), query("virtualCluster", virtualCluster, "host", host)), "vms")
}

// VM of that name or id.
func (c *Client) VM(ctx context.Context, name string, opts ...Option) (v1.VM, error) {
	return get[v1.VM](ctx, c, opts, "vms", name)
}

// Samples of a VM, by name or id: what it used of a resource ("" is v1.ResourceCPU), in a resolution ("" is 1m), in steps that
// end after since: a time (RFC 3339), or how long ago (30m); "" is all there are.
func (c *Client) Samples(ctx context.Context, name, resource, resolution, since string, opts ...Option) (v1.Samples, error) {
	return get[v1.Samples](ctx, c, with(opts, query("resource", resource, "resolution", resolution, "since", since)), "vms", name, "samples")
}

// Forecast of what a VM, by name or id, will use of a resource ("" is v1.ResourceCPU) in the next steps (0 is 10).
func (c *Client) Forecast(ctx context.Context, name, resource string, steps int, opts ...Option) (v1.Forecast, error) {
	return get[v1.Forecast](ctx, c, with(opts, query("resource", resource, "steps", number(steps))), "vms", name, "forecast")
}

// Hosts by name.
func (c *Client) Hosts(ctx context.Context, opts ...Option) ([]v1.Host, error) {
	return list[v1.Host](ctx, c, opts, "hosts")
}

// HostsPart is a part of Hosts.
func (c *Client) HostsPart(ctx context.Context, p Part, opts ...Option) (v1.Part[v1.Host], error) {
	return get[v1.Part[v1.Host]](ctx, c, with(opts, p.option()), "hosts")
}

// Host of that name.
func (c *Client) Host(ctx context.Context, name string, opts ...Option) (v1.Host, error) {
	return get[v1.Host](ctx, c, opts, "hosts", name)
}

// Cordon a host.
func (c *Client) Cordon(ctx context.Context, host, reason string, opts ...Option) (v1.Host, error) {
	return send[v1.Host](ctx, c, http.MethodPut, v1.CordonRequest{Reason: reason}, opts, "hosts", host, "cordon")
}

// Uncordon a host.
func (c *Client) Uncordon(ctx context.Context, host string, opts ...Option) (v1.Host, error) {
	return remove[v1.Host](ctx, c, opts, "hosts", host, "cordon")
}

// Drain a host: move all its VMs away.
func (c *Client) Drain(ctx context.Context, host string, q v1.DrainRequest, opts ...Option) (v1.DrainResult, error) {
	return post[v1.DrainResult](ctx, c, q, keyed(opts), "hosts", host, "drain")
}

// Undrain a host: it takes new VMs again, and no more leave it.
func (c *Client) Undrain(ctx context.Context, host string, opts ...Option) (v1.Host, error) {
	return remove[v1.Host](ctx, c, opts, "hosts", host, "drain")
}

// HostDrain is how far the drain of a host is.
func (c *Client) HostDrain(ctx context.Context, host string, opts ...Option) (v1.Drain, error) {
	return get[v1.Drain](ctx, c, opts, "hosts", host, "drain")
}

// HostEmpty says whether a host runs any VM of the cluster, as its hypervisor reports.
func (c *Client) HostEmpty(ctx context.Context, host string, opts ...Option) (v1.HostEmpty, error) {
	return get[v1.HostEmpty](ctx, c, opts, "hosts", host, "empty")
}

// DrainGroups are the batches of hosts that can be drained at the same time, one batch after another.
func (c *Client) DrainGroups(ctx context.Context, opts ...Option) (v1.DrainBatches, error) {
	return get[v1.DrainBatches](ctx, c, opts, "drain-batches")
}

// ConfirmDead confirms, as the operator, that a host is dead.
func (c *Client) ConfirmDead(ctx context.Context, host, reason string, opts ...Option) (v1.Host, error) {
	return post[v1.Host](ctx, c, v1.ReasonRequest{Reason: reason}, opts, "hosts", host, "confirm-dead")
}

// Fence a host with its device, or only try the device.
func (c *Client) Fence(ctx context.Context, host string, test bool) (v1.Acknowledgement, error) {
	return post[v1.Acknowledgement](ctx, c, v1.FenceRequest{Test: test}, []Option{bulk}, "hosts", host, "fence")
}

// Rebalance the cluster: move VMs so that the least yield grows.
func (c *Client) Rebalance(ctx context.Context, q v1.RebalanceRequest, opts ...Option) (v1.PlanResult, error) {
	return post[v1.PlanResult](ctx, c, q, keyed(opts), "rebalance")
}

// MigrateVM moves one VM that runs to another host.
func (c *Client) MigrateVM(ctx context.Context, name string, q v1.MigrateRequest, opts ...Option) (v1.PlanResult, error) {
	return post[v1.PlanResult](ctx, c, q, keyed(opts), "vms", name, "migrate")
}

// StartVM starts one VM that does not run.
func (c *Client) StartVM(ctx context.Context, name string, opts ...Option) (v1.Result, error) {
	return post[v1.Result](ctx, c, nil, keyed(opts), "vms", name, "start")
}

// StopVM stops one VM, and keeps it stopped.
func (c *Client) StopVM(ctx context.Context, name string, opts ...Option) (v1.Result, error) {
	return post[v1.Result](ctx, c, nil, keyed(opts), "vms", name, "stop")
}

// RestartVM stops one VM and starts it again on its host.
func (c *Client) RestartVM(ctx context.Context, name string, opts ...Option) (v1.Result, error) {
	return post[v1.Result](ctx, c, nil, keyed(opts), "vms", name, "restart")
}

// ResetVM has the guest of one VM boot again at once.
func (c *Client) ResetVM(ctx context.Context, name string, opts ...Option) (v1.Result, error) {
	return post[v1.Result](ctx, c, nil, keyed(opts), "vms", name, "reset")
}

// Curve is the greatest least yield by the bytes that moves send.
func (c *Client) Curve(ctx context.Context, opts ...Option) ([]v1.CurvePoint, error) {
	return list[v1.CurvePoint](ctx, c, opts, "rebalance", "curve")
}

// Plans of moves, oldest first: the newest limit of them, in that state; "" means any.
func (c *Client) Plans(ctx context.Context, state string, limit int, opts ...Option) ([]v1.Plan, error) {
	return list[v1.Plan](ctx, c, with(opts, query("state", state, "limit", number(limit))), "plans")
}

// Plan of that id.
func (c *Client) Plan(ctx context.Context, id string, opts ...Option) (v1.Plan, error) {
	return get[v1.Plan](ctx, c, opts, "plans", id)
}

// ApplyPlan carries out a plan that was only proposed.
func (c *Client) ApplyPlan(ctx context.Context, id string, opts ...Option) (v1.PlanResult, error) {
	return post[v1.PlanResult](ctx, c, nil, keyed(opts), "plans", id, "apply")
}

// StopPlan lets no further move of a plan begin.
func (c *Client) StopPlan(ctx context.Context, id string, opts ...Option) (v1.Plan, error) {
	return post[v1.Plan](ctx, c, nil, opts, "plans", id, "stop")
}

// Migrations of a plan and of a VM, in that state, oldest first: the newest limit of them; "" means any.
func (c *Client) Migrations(ctx context.Context, plan, vm, state string, limit int, opts ...Option) ([]v1.Migration, error) {
	return list[v1.Migration](ctx, c, with(opts, query("plan", plan, "vm", vm, "state", state, "limit", number(limit))), "migrations")
}

// Migration of that id.
func (c *Client) Migration(ctx context.Context, id string, opts ...Option) (v1.Migration, error) {
	return get[v1.Migration](ctx, c, opts, "migrations", id)
}

// AbortMigration: the VM stays where it is.
func (c *Client) AbortMigration(ctx context.Context, id string, opts ...Option) (v1.Migration, error) {
	return post[v1.Migration](ctx, c, nil, opts, "migrations", id, "abort")
}

// Simulate answers what the cluster would be like with other hosts, needs or budgets. It changes nothing, so any server may be
// asked again.
func (c *Client) Simulate(ctx context.Context, q v1.SimulateRequest) (v1.SimulateResult, error) {
	return post[v1.SimulateResult](ctx, c, q, keyed([]Option{bulk}), "simulate")
}

// FailoverCapacity says for each host whether all VMs still fit without it.
func (c *Client) FailoverCapacity(ctx context.Context, opts ...Option) ([]v1.FailoverRow, error) {
	return list[v1.FailoverRow](ctx, c, with(opts, bulk), "failover-capacity")
}

// Images by name.
func (c *Client) Images(ctx context.Context, opts ...Option) ([]v1.Image, error) {
	return list[v1.Image](ctx, c, opts, "images")
}

// AddImage to the catalogue.
func (c *Client) AddImage(ctx context.Context, spec v1.ImageSpec, opts ...Option) (v1.Image, error) {
	return post[v1.Image](ctx, c, spec, keyed(opts), "images")
}

// DeleteImage from the catalogue.
func (c *Client) DeleteImage(ctx context.Context, name string, opts ...Option) error {
	_, err := remove[struct{}](ctx, c, keyed(opts), "images", name)
	return err
}

// OperationQuery says which operations are wanted; an empty field matches all.
type OperationQuery struct {
	State, Kind, VirtualCluster, VM, Host string
	Limit                                 int
}

// Operations that are wanted, oldest first: the newest Limit of them.
func (c *Client) Operations(ctx context.Context, q OperationQuery, opts ...Option) ([]v1.Operation, error) {
	return list[v1.Operation](ctx, c, with(opts, query("state", q.State, "kind", q.Kind, "virtualCluster", q.VirtualCluster, "vm", q.VM, "host", q.Host, "limit", number(q.Limit))), "operations")
}

// Operation of that id as it stands.
func (c *Client) Operation(ctx context.Context, id string, opts ...Option) (v1.Operation, error) {
	return get[v1.Operation](ctx, c, opts, "operations", id)
}

// MakeToken of the API; the answer holds its secret, once.
func (c *Client) MakeToken(ctx context.Context, q v1.TokenRequest, opts ...Option) (v1.Token, error) {
	return post[v1.Token](ctx, c, q, opts, "tokens")
}

// Auth says how a person can log in. It needs no token.
func (c *Client) Auth(ctx context.Context) (v1.Auth, error) { return get[v1.Auth](ctx, c, nil, "auth") }

// Self is the holder of the client's token, as the server that is asked knows it.
func (c *Client) Self(ctx context.Context) (v1.Self, error) {
	return get[v1.Self](ctx, c, nil, "auth", "self")
}

// Tokens of the API, without their secrets.
func (c *Client) Tokens(ctx context.Context, opts ...Option) ([]v1.Token, error) {
	return list[v1.Token](ctx, c, opts, "tokens")
}

// RevokeToken of the API, by its id.
func (c *Client) RevokeToken(ctx context.Context, id string, opts ...Option) (v1.TokenRevocation, error) {
	return remove[v1.TokenRevocation](ctx, c, opts, "tokens", id)
}

// Tenants by name.
func (c *Client) Tenants(ctx context.Context, opts ...Option) ([]v1.Tenant, error) {
	return list[v1.Tenant](ctx, c, opts, "tenants")
}

// Tenant of that name.
func (c *Client) Tenant(ctx context.Context, name string, opts ...Option) (v1.Tenant, error) {
	return get[v1.Tenant](ctx, c, opts, "tenants", name)
}

// CreateTenant makes a tenant.
func (c *Client) CreateTenant(ctx context.Context, q v1.TenantRequest, opts ...Option) (v1.Tenant, error) {
	return post[v1.Tenant](ctx, c, q, opts, "tenants")
}

// ChangeTenant changes what the patch names. Labels that are empty and not nil: it has none from then on.
func (c *Client) ChangeTenant(ctx context.Context, name string, q v1.TenantPatch, opts ...Option) (v1.Tenant, error) {
	var body any = q
	if q.Labels != nil && len(q.Labels) == 0 { // which omitempty would leave out
		body = struct {
			v1.TenantPatch
			Labels map[string]string `json:"labels"`
		}{q, q.Labels}
	}
	return send[v1.Tenant](ctx, c, http.MethodPatch, body, opts, "tenants", name)
}

// DeleteTenant deletes a tenant that owns nothing.
func (c *Client) DeleteTenant(ctx context.Context, name string, opts ...Option) error {
	_, err := remove[struct{}](ctx, c, opts, "tenants", name)
	return err
}

// Quotas of all tenants that the caller sees.
func (c *Client) Quotas(ctx context.Context, opts ...Option) ([]v1.Quota, error) {
	return list[v1.Quota](ctx, c, opts, "quotas")
}

// Quota of a tenant; of AllTenants: the limits of those that set none of their own.
func (c *Client) Quota(ctx context.Context, tenant string, opts ...Option) (v1.Quota, error) {
	return get[v1.Quota](ctx, c, opts, "quotas", tenant)
}

// SetQuota changes the limits that the patch names.
func (c *Client) SetQuota(ctx context.Context, tenant string, q v1.QuotaPatch, opts ...Option) (v1.Quota, error) {
	return send[v1.Quota](ctx, c, http.MethodPatch, q, opts, "quotas", tenant)
}

// Status of the cluster.
func (c *Client) Status(ctx context.Context, opts ...Option) (v1.ClusterStatus, error) {
	return get[v1.ClusterStatus](ctx, c, opts, "cluster", "status")
}

// Settings of the cluster.
func (c *Client) Settings(ctx context.Context, opts ...Option) (v1.ClusterSettings, error) {
	return get[v1.ClusterSettings](ctx, c, opts, "cluster", "settings")
}

// SetSettings changes settings of the cluster, and returns all of them.
func (c *Client) SetSettings(ctx context.Context, q v1.SettingsPatch, opts ...Option) (v1.ClusterSettings, error) {
	return send[v1.ClusterSettings](ctx, c, http.MethodPatch, q, opts, "cluster", "settings")
}

// Rightsizing is what is reclaimed of what was declared, or would be.
func (c *Client) Rightsizing(ctx context.Context, opts ...Option) (v1.Rightsizing, error) {
	return get[v1.Rightsizing](ctx, c, opts, "cluster", "rightsizing")
}

// Members of the cluster.
func (c *Client) Members(ctx context.Context, opts ...Option) ([]v1.Member, error) {
	return list[v1.Member](ctx, c, opts, "cluster", "members")
}

// RemoveMember from the cluster.
func (c *Client) RemoveMember(ctx context.Context, name string, force bool) (v1.Acknowledgement, error) {
	return remove[v1.Acknowledgement](ctx, c, []Option{query("force", flag(force))}, "cluster", "members", name)
}

// Certificates of members that have not expired.
func (c *Client) Certificates(ctx context.Context, opts ...Option) ([]v1.Certificate, error) {
	return list[v1.Certificate](ctx, c, opts, "cluster", "certificates")
}

// RenewCertificate has a member renew its certificate now.
func (c *Client) RenewCertificate(ctx context.Context, member string) (v1.Certificate, error) {
	return post[v1.Certificate](ctx, c, nil, nil, "cluster", "members", member, "certificate")
}

// MakeJoinToken that lets one member in.
func (c *Client) MakeJoinToken(ctx context.Context, q v1.JoinTokenRequest) (v1.JoinToken, error) {
	return post[v1.JoinToken](ctx, c, q, nil, "cluster", "join-tokens")
}

// JoinTokens there are, without their secrets.
func (c *Client) JoinTokens(ctx context.Context, opts ...Option) ([]v1.JoinToken, error) {
	return list[v1.JoinToken](ctx, c, opts, "cluster", "join-tokens")
}

// TransferLeadership to a server; "" is the one whose log is the newest.
func (c *Client) TransferLeadership(ctx context.Context, to string) (v1.Acknowledgement, error) {
	return post[v1.Acknowledgement](ctx, c, v1.LeaderRequest{To: to}, nil, "cluster", "leader")
}

// SetFencing enables or disables the cluster's fencing: whether the end of a lease stops VMs.
func (c *Client) SetFencing(ctx context.Context, enable bool, reason string) (v1.Acknowledgement, error) {
	return post[v1.Acknowledgement](ctx, c, v1.ReasonRequest{Reason: reason}, nil, "cluster", "fencing", map[bool]string{true: "enable", false: "disable"}[enable])
}

// AuditQuery says which audit records are wanted. Empty fields match all.
type AuditQuery struct {
	Since, Until                 string // a time (RFC 3339), or how long ago (30m)
	Actor, Verb, Object, Outcome string
	Limit                        int // the newest so many; 0 = 100
}

// Audit records of all servers, newest last, and what is missing from them.
func (c *Client) Audit(ctx context.Context, q AuditQuery, opts ...Option) (v1.AuditList, error) {
	wanted := query("since", q.Since, "until", q.Until, "actor", q.Actor, "verb", q.Verb, "object", q.Object, "outcome", q.Outcome, "limit", number(q.Limit))
	return get[v1.AuditList](ctx, c, with(opts, wanted), "audit")
}

// SaveSnapshot copies the saved state of the cluster to w.
func (c *Client) SaveSnapshot(ctx context.Context, w io.Writer) (int64, error) {
	r, err := c.request(ctx, http.MethodGet, nil, nil, "cluster", "snapshot")
	if err != nil {
		return 0, err
	}
	r.Header.Set("Accept", "application/octet-stream, application/problem+json")
	resp, err := c.http.Do(r.Request)
	if err != nil {
		return 0, c.unreachable(ctx, err)
	}
	defer resp.Body.Close() //nolint:errcheck // nothing is kept in it
	if resp.StatusCode != http.StatusOK {
		return 0, problem(resp, r.Request)
	}
	return io.Copy(w, resp.Body)
}

// RestoreSnapshot puts a saved state in force. foreign: also that of another cluster. waitFor are hosts that it does
// not know and that may run its VMs.
func (c *Client) RestoreSnapshot(ctx context.Context, saved []byte, foreign bool, waitFor ...string) (v1.Snapshot, error) {
	body := func(s *sending) {
		s.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(saved)), nil }
		s.Body, _ = s.GetBody()
		s.ContentLength = int64(len(saved))
		s.Header.Set("Content-Type", "application/octet-stream")
	}
	return post[v1.Snapshot](ctx, c, nil, []Option{bulk, body, query("waitFor", strings.Join(waitFor, ","), "foreign", flag(foreign))}, "cluster", "snapshot")
}
