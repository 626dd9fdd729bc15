package server

import (
	"context"

	"evenkeel/api/v1"
	"evenkeel/cluster/leader"
	"evenkeel/cluster/state"
)

// migrationFilter says which migrations are wanted. What is empty was not asked for.
type migrationFilter struct {
	plan, vm, state string
	limit           int
}

// ownMigrations are those of VMs of the tenant that asks, without hosts.
func (s *Server) ownMigrations(ctx context.Context, t TenantParams, r ReadParams, wait WaitParam, f migrationFilter) (*answerOf[v1.List[v1.Migration]], error) {
	return pollOwn(ctx, s, t, r, wait, func(x scopedView) (*answerOf[v1.List[v1.Migration]], uint64, bool, error) {
		out := &answerOf[v1.List[v1.Migration]]{}
		if f.plan != "" { // plans are the cluster's
			return nil, 0, true, notFound("there is no plan %q (any more)", f.plan)
		}
		var index uint64
		out.Body.Items, index = newest(x.v.Migrations(), f.limit, func(m state.Migration) bool {
			return x.ownsMigration(m) && (f.vm == "" || m.VM == f.vm || m.VMName == x.full(f.vm)) && (f.state == "" || string(m.State) == f.state)
		}, func(m state.Migration) uint64 { return m.ModifyIndex }, x.migration)
		if f.vm != "" && len(out.Body.Items) == 0 {
			if _, err := x.vm(f.vm); err != nil {
				return nil, 0, true, err
			}
		}
		return out, index, false, nil
	})
}

// ownMigration is one of them.
func (s *Server) ownMigration(ctx context.Context, t TenantParams, r ReadParams, wait WaitParam, id string) (*migrationAnswer, error) {
	return pollOwn(ctx, s, t, r, wait, func(x scopedView) (*migrationAnswer, uint64, bool, error) {
		m, ok := x.v.Migration(id)
		if !ok || !x.ownsMigration(m) {
			return nil, 0, true, notFound("there is no migration %q (any more)", id)
		}
		return &migrationAnswer{ETag: x.version(m.ID, m.ModifyIndex), Body: x.migration(m)}, m.ModifyIndex, m.State != state.MigrationRunning, nil
	})
}

// ownsMigration says whether a migration is of a VM in the scope.
func (sc scope) ownsMigration(m state.Migration) bool { return sc.owns(m.VMName) && m.Open >= sc.since }

// migration as a restricted scope shows it: when a VM moves, how far it is and how long it stood still. The target, the reason and
// the rate are left out, because they say how busy others are.
func (x scopedView) migration(row state.Migration) v1.Migration {
	full := migration(x.v, row)
	out := v1.Migration{ID: full.ID, VMID: full.VMID, Generation: full.Generation, State: full.State, Reason: "its operators move it", BytesMoved: full.BytesMoved,
		DowntimeMs: full.DowntimeMs, OpenedAt: full.OpenedAt, EndedAt: full.EndedAt}
	_, out.VM = x.names(row.VMName)
	_, out.VirtualCluster = x.names(full.VirtualCluster)
	switch row.State {
	case state.MigrationFailed:
		out.Error = "it runs where it was"
	case state.MigrationAborted:
		out.Abort = "it runs where it was"
	}
	return out
}

// pollOwn is poll for principals of a tenant, who know no index of the log: it reads until what it read first has changed.
func pollOwn[T any](ctx context.Context, s *Server, t TenantParams, in ReadParams, wait WaitParam, read func(scopedView) (out T, index uint64, ended bool, err error)) (T, error) {
	view := func() (scopedView, *leader.View, error) {
		x, err := s.one(ctx, t, in)
		return x, x.v, err
	}
	first := uint64(0)
	return pollUntil(ctx, s, wait, view, read, func(index uint64) bool {
		before := first
		first = index + 1
		return before != 0 && first != before
	})
}
