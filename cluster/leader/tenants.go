package leader

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"

	"evenkeel/cluster/state"
)

// Busy says that a virtual cluster cannot take a request now, in words that name nothing but that virtual cluster. It is a
// conflict.
type Busy struct{ Text string }

// Error implements error.
func (e *Busy) Error() string { return e.Text }

// Is makes it an ErrConflict.
func (e *Busy) Is(target error) bool { return target == ErrConflict }

// PutTenant makes a tenant, or changes one; change says how. dryRun: only return it as it would be.
func (c *Service) PutTenant(ctx context.Context, name, by string, create, dryRun bool, change func(*state.Tenant)) (state.Tenant, error) {
	for n := 0; ; n++ {
		t, err := c.putTenant(ctx, name, by, create, dryRun, change)
		if !errors.Is(err, ErrConflict) || create || n >= tries {
			return t, err
		}
	}
}

func (c *Service) putTenant(ctx context.Context, name, by string, create, dryRun bool, change func(*state.Tenant)) (state.Tenant, error) {
	s := c.o.State.Snapshot()
	t, there := s.Tenant(name)
	if name == state.QuotaDefaults {
		t, there = s.QuotaDefaults(), true
	}
	if !there && !create {
		return t, fmt.Errorf("tenant %s: %w", name, ErrNotFound)
	}
	if there && create {
		return t, &Exists{Field: "name", Text: "name: a tenant " + name + " exists already"}
	}
	put := state.TenantPut{Tenant: t, Version: t.ModifyIndex, By: by}
	put.Tenant.Name = name
	if t.ModifyIndex == 0 { // it has no row yet
		var salt [16]byte
		_, _ = rand.Read(salt[:]) // crypto/rand never fails: it ends the program first
		put.Tenant.Salt = hex.EncodeToString(salt[:])
	}
	put.Tenant.Quota = cloned(put.Tenant.Quota)
	change(&put.Tenant)
	if err := s.CheckTenantPut(put); err != nil || dryRun {
		return put.Tenant, err
	}
	if err := c.propose(ctx, state.KindTenantPut, put); err != nil {
		return put.Tenant, fmt.Errorf("tenant %s: %w", name, err)
	}
	made, _ := c.o.State.Snapshot().Tenant(name)
	return made, nil
}

func cloned(quota map[state.QuotaKey]state.Limit) map[state.QuotaKey]state.Limit {
	out := make(map[state.QuotaKey]state.Limit, len(quota)+1)
	for key, limit := range quota {
		out[key] = limit
	}
	return out
}

// DropTenant deletes a tenant that owns nothing. dryRun: only say whether it could.
func (c *Service) DropTenant(ctx context.Context, name, by string, dryRun bool) error {
	if err := c.o.State.Snapshot().CheckTenantDrop(name); err != nil || dryRun {
		return err
	}
	return c.propose(ctx, state.KindTenantDrop, state.TenantDrop{Name: name, By: by})
}

// Suspended says whether a tenant is suspended or gone, as this server's state has it.
func (c *Service) Suspended(tenant string) bool { return suspended(c.o.State.Snapshot(), tenant) }

func suspended(s *state.Snapshot, tenant string) bool {
	t, there := s.Tenant(tenant)
	return !there || t.Suspended
}
