package client

import (
	"context"
	"net/http"

	"evenkeel/api/v1"
)

// Apply a VC file: create the virtual cluster, or make the one that there is what the file says.
func (c *Client) Apply(ctx context.Context, spec v1.VirtualClusterSpec, opts ...Option) (v1.Result, error) {
	return send[v1.Result](ctx, c, http.MethodPut, spec, keyed(opts), "virtual-clusters", spec.Name)
}

// Restart: running VMs that must restart for the change may.
func Restart() Option { return query("restart", "true") }

// Force: overwrite what others changed since the last file was applied.
func Force() Option { return query("force", "true") }

// Base is the version that a file was made of, as VirtualClusterFile names it.
func Base(version string) Option { return query("base", version) }

// Edit: the file is the present spec with changes in it.
func Edit() Option { return query("edit", "true") }

// VirtualClusterFile is the VC file of a virtual cluster, as its users wrote it.
func (c *Client) VirtualClusterFile(ctx context.Context, name string, opts ...Option) (v1.VirtualClusterFile, error) {
	return get[v1.VirtualClusterFile](ctx, c, opts, "virtual-clusters", name, "spec")
}

// Versions of a virtual cluster that are kept, oldest first.
func (c *Client) Versions(ctx context.Context, name string, opts ...Option) ([]v1.VCVersion, error) {
	return list[v1.VCVersion](ctx, c, opts, "virtual-clusters", name, "versions")
}

// Rollback makes a virtual cluster what one of its versions says.
func (c *Client) Rollback(ctx context.Context, name string, req v1.RollbackRequest, opts ...Option) (v1.Result, error) {
	return post[v1.Result](ctx, c, req, keyed(opts), "virtual-clusters", name, "rollback")
}
