package client

import (
	"context"

	"evenkeel/api/v1"
)

// RoleBindings there are.
func (c *Client) RoleBindings(ctx context.Context, opts ...Option) ([]v1.RoleBinding, error) {
	return list[v1.RoleBinding](ctx, c, opts, "role-bindings")
}

// GrantRole to a subject, instead of the one that it may have there.
func (c *Client) GrantRole(ctx context.Context, q v1.RoleBindingRequest, opts ...Option) (v1.RoleBinding, error) {
	return post[v1.RoleBinding](ctx, c, q, opts, "role-bindings")
}

// RevokeRole takes a role binding away, by its id.
func (c *Client) RevokeRole(ctx context.Context, id string, opts ...Option) (v1.RoleBinding, error) {
	return remove[v1.RoleBinding](ctx, c, opts, "role-bindings", id)
}

// RevokeUser refuses the tokens that the OpenID Connect issuer made for a user so far.
func (c *Client) RevokeUser(ctx context.Context, q v1.UserRevocationRequest, opts ...Option) (v1.UserRevocation, error) {
	return post[v1.UserRevocation](ctx, c, q, opts, "auth", "revocations")
}

// UserRevocations that are in force.
func (c *Client) UserRevocations(ctx context.Context, opts ...Option) ([]v1.UserRevocation, error) {
	return list[v1.UserRevocation](ctx, c, opts, "auth", "revocations")
}

// Permissions of the holder of the client's token, in the client's tenant.
func (c *Client) Permissions(ctx context.Context, opts ...Option) (v1.Permissions, error) {
	return get[v1.Permissions](ctx, c, opts, "auth", "permissions")
}

// CanI says whether the holder of the client's token may do something to objects of a kind.
func (c *Client) CanI(ctx context.Context, verb, kind string, opts ...Option) (v1.MayI, error) {
	return get[v1.MayI](ctx, c, append(opts, query("verb", verb, "kind", kind)), "auth", "can-i")
}
