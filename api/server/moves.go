package server

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"evenkeel/api/v1"
	"evenkeel/cluster/leader"
	"evenkeel/cluster/state"
)

const (
	tagPlan      = "Plans of moves"
	tagMigration = "Migrations"
)

// IDParam is the id in the path.
type IDParam struct {
	ID string `path:"id" maxLength:"64" doc:"Id."`
}

// WaitParam makes a read a long poll.
type WaitParam struct {
	Wait string `query:"wait" doc:"How long to wait for a change after the log index in index, as a Go duration, at most 60s; then the answer comes as it stands." example:"30s"`
}

func (p WaitParam) duration() (time.Duration, error) {
	if p.Wait == "" {
		return 0, nil
	}
	d, err := time.ParseDuration(p.Wait)
	if err != nil || d < 0 || d > maxWait {
		return 0, invalidParameter("query", "wait", p.Wait, "must be a duration from 0s to 60s, like 30s")
	}
	return d, nil
}

// poll reads until what it reads changed after an index, or can change no more, or the time is over. read
// returns the index at which that changed last, and whether it has ended.
func poll[T any](ctx context.Context, s *Server, in ReadParams, wait WaitParam, read func(*leader.View) (out T, index uint64, ended bool, err error)) (T, error) {
	view := func() (*leader.View, *leader.View, error) {
		v, err := s.view(ctx, in.Consistency)
		return v, v, err
	}
	return pollUntil(ctx, s, wait, view, read, func(index uint64) bool { return index > in.Index })
}

// pollUntil reads what a view shows until changed accepts the index of what was read, or that has ended, or the time is over. view
// returns the view for read, and the look at the cluster that it is made from.
func pollUntil[V, T any](ctx context.Context, s *Server, wait WaitParam, view func() (V, *leader.View, error), read func(V) (out T, index uint64, ended bool, err error),
	changed func(index uint64) bool) (T, error) {
	var none T
	d, err := wait.duration()
	if err != nil {
		return none, err
	}
	if d > 0 {
		if err := s.live.acquire(ctx, livePoll); err != nil {
			return none, err
		}
	}
	over := time.NewTimer(d)
	defer over.Stop()
	for {
		shown, v, err := view()
		if err != nil {
			return none, err
		}
		out, index, ended, err := read(shown)
		if err != nil || d == 0 || ended || changed(index) {
			return out, err
		}
		select {
		case <-v.Watch():
		case <-over.C:
			return out, nil
		case <-s.draining:
			return out, nil
		case <-ctx.Done():
			return none, s.fail(ctx, ctx.Err())
		}
	}
}

// newest keeps the last limit rows that are wanted, and says when one of them changed last.
func newest[R, T any](rows []R, limit int, want func(R) bool, changed func(R) uint64, convert func(R) T) (out []T, index uint64) {
	out = []T{}
	for i := len(rows) - 1; i >= 0 && len(out) < limit; i-- {
		if want(rows[i]) {
			out = append(out, convert(rows[i]))
			index = max(index, changed(rows[i]))
		}
	}
	slices.Reverse(out)
	return out, index
}

type planAnswer struct {
	ETag string `header:"ETag" doc:"Version of the plan."`
	Body v1.Plan
}

type migrationAnswer struct {
	ETag string `header:"ETag" doc:"Version of the migration."`
	Body v1.Migration
}

func (s *Server) registerMoves(api huma.API) {
	get(api, route{"listPlans", "/v1/plans", tagPlan, "List plans of moves", "The newest plans, oldest of them first. The last 200 that ended are kept. With wait, the answer comes once one of them changed after index."},
		func(ctx context.Context, in *struct {
			ReadParams
			WaitParam
			State string `query:"state" enum:"proposed,running,done,failed,stopped,superseded" doc:"Only those in that state."`
			Limit int    `query:"limit" minimum:"1" maximum:"1000" default:"100" doc:"At most so many."`
		}) (*answerOf[v1.List[v1.Plan]], error) {
			return poll(ctx, s, in.ReadParams, in.WaitParam, func(v *leader.View) (*answerOf[v1.List[v1.Plan]], uint64, bool, error) {
				out := &answerOf[v1.List[v1.Plan]]{}
				var index uint64
				out.Body.Items, index = newest(v.MovePlans(), in.Limit, func(p state.MovePlan) bool { return in.State == "" || string(p.State) == in.State },
					func(p state.MovePlan) uint64 { return p.ModifyIndex }, func(p state.MovePlan) v1.Plan { return plan(v, p) })
				return out, index, false, nil
			})
		})
	get(api, route{"getPlan", "/v1/plans/{id}", tagPlan, "Get a plan of moves", "With wait, the answer comes once the plan changed after index, or has ended."},
		func(ctx context.Context, in *struct {
			IDParam
			ReadParams
			WaitParam
		}) (*planAnswer, error) {
			return poll(ctx, s, in.ReadParams, in.WaitParam, func(v *leader.View) (*planAnswer, uint64, bool, error) {
				p, ok := v.MovePlan(in.ID)
				if !ok {
					return nil, 0, true, notFound("there is no plan %q (any more)", in.ID)
				}
				return &planAnswer{ETag: etag(p.ModifyIndex), Body: plan(v, p)}, p.ModifyIndex, p.State.Ended(), nil
			})
		})
	get(api, route{"listMigrations", "/v1/migrations", tagMigration, "List migrations", "The newest migrations, oldest of them first; of those that run, with how far they are. The last 1,000 that ended are kept. With wait, the answer comes once one of them changed after index. To a role of the cluster: those of all tenants, whatever tenant names. To a role of a tenant: those of its VMs, without hosts; with wait, the answer comes once one of them changed."},
		func(ctx context.Context, in *struct {
			TenantParams
			ReadParams
			WaitParam
			Plan  string `query:"plan" maxLength:"64" doc:"Only those of the plan of that id."`
			VM    string `query:"vm" maxLength:"253" doc:"Only those of the VM of that name or id."`
			State string `query:"state" enum:"running,done,failed,aborted" doc:"Only those in that state."`
			Limit int    `query:"limit" minimum:"1" maximum:"1000" default:"100" doc:"At most so many."`
		}) (*answerOf[v1.List[v1.Migration]], error) {
			if principalOf(ctx).of() != "" {
				return s.ownMigrations(ctx, in.TenantParams, in.ReadParams, in.WaitParam, migrationFilter{in.Plan, in.VM, in.State, in.Limit})
			}
			return poll(ctx, s, in.ReadParams, in.WaitParam, func(v *leader.View) (*answerOf[v1.List[v1.Migration]], uint64, bool, error) {
				out := &answerOf[v1.List[v1.Migration]]{}
				var index uint64
				out.Body.Items, index = newest(v.Migrations(), in.Limit, func(m state.Migration) bool {
					return (in.Plan == "" || m.Plan == in.Plan) && (in.VM == "" || m.VM == in.VM || m.VMName == in.VM) && (in.State == "" || string(m.State) == in.State)
				}, func(m state.Migration) uint64 { return m.ModifyIndex }, func(m state.Migration) v1.Migration { return migration(v, m) })
				if len(out.Body.Items) == 0 {
					if err := missing(v, in.Plan, in.VM); err != nil {
						return nil, 0, true, err
					}
				}
				return out, index, false, nil
			})
		})
	get(api, route{"getMigration", "/v1/migrations/{id}", tagMigration, "Get a migration", "While it runs, with how far it is. With wait, the answer comes once it changed after index, or has ended."},
		func(ctx context.Context, in *struct {
			IDParam
			TenantParams
			ReadParams
			WaitParam
		}) (*migrationAnswer, error) {
			if principalOf(ctx).of() != "" {
				return s.ownMigration(ctx, in.TenantParams, in.ReadParams, in.WaitParam, in.ID)
			}
			return poll(ctx, s, in.ReadParams, in.WaitParam, func(v *leader.View) (*migrationAnswer, uint64, bool, error) {
				m, ok := v.Migration(in.ID)
				if !ok {
					return nil, 0, true, notFound("there is no migration %q (any more)", in.ID)
				}
				return &migrationAnswer{ETag: etag(m.ModifyIndex), Body: migration(v, m)}, m.ModifyIndex, m.State != state.MigrationRunning, nil
			})
		})
}

// budget is nil where there is no bound.
func budget(bytes int64) *v1.Size {
	if bytes < 0 {
		return nil
	}
	size := v1.Size(bytes)
	return &size
}

func plan(v *leader.View, p state.MovePlan) v1.Plan {
	out := v1.Plan{
		ID: p.ID, Kind: string(p.Kind), State: string(p.State), Host: p.Host, By: p.By, Text: p.Text, Reason: p.Reason,
		Bytes: v1.Size(p.Bytes), BytesBudget: budget(p.Budget), BytesMoved: v1.Size(p.BytesMoved), Seconds: p.Seconds,
		MinYieldBefore: p.MinYieldBefore, MinYieldAfter: p.MinYieldAfter, AverageYieldBefore: p.AverageYieldBefore, AverageYieldAfter: p.AverageYieldAfter,
		UpperBound: p.UpperBound, Moves: make([]v1.Move, len(p.Steps)), CreatedAt: p.CreatedAt, EndedAt: p.EndedAt, Effort: p.Effort, Basis: p.Basis,
		ModifyIndex: p.ModifyIndex,
	}
	names := map[string]string{}
	name := func(vc, vm, group string) string {
		if _, ok := names[vc]; !ok {
			row, known := v.VC(vc)
			if i := strings.LastIndex(vm, "-"+group+"-"); !known && i > 0 { // deleted meanwhile, or of a saved state
				row.Name = vm[:i]
			}
			names[vc] = row.Name
		}
		return names[vc]
	}
	if p.VC != "" {
		out.VirtualCluster = name(p.VC, "", "")
	}
	for _, m := range v.MigrationsOf(p.ID) {
		if m.State == state.MigrationRunning { // the plan's own count holds those that ended
			out.BytesMoved += v1.Size(v.MigrationView(m).BytesMoved)
		}
	}
	for i, m := range p.Steps {
		out.Moves[i] = v1.Move{
			VM: m.VMName, VMID: m.VM, VirtualCluster: name(m.VC, m.VMName, m.Group), Group: m.Group, From: m.From, To: m.To, After: append([]int{}, m.After...),
			Bytes: v1.Size(m.Bytes), BytesBudget: budget(m.Allotment), Staging: m.Staging, Reason: m.Reason, Begins: m.Begins, Seconds: m.Seconds,
			State: string(m.State), Migration: m.Migration, Text: m.Text,
		}
	}
	return out
}

func migration(v *leader.View, row state.Migration) v1.Migration {
	m := v.MigrationView(row)
	vc, _ := v.VC(m.VC) // deleted meanwhile: no name
	out := v1.Migration{
		ID: m.ID, VM: m.VMName, VMID: m.VM, VirtualCluster: vc.Name, Generation: m.Generation, From: m.From, To: m.To, Plan: m.Plan, Move: m.Step,
		State: string(m.State), Reason: m.Reason, Error: m.Error, Abort: m.Abort, Bytes: v1.Size(m.Bytes), BytesBudget: budget(m.MaxBytes),
		BytesMoved: v1.Size(m.BytesMoved), DowntimeMs: m.DowntimeMs, OpenedAt: m.OpenedAt, EndedAt: m.EndedAt, ModifyIndex: m.ModifyIndex,
		Options: v1.MoveOptions{Bandwidth: v1.Size(m.Options.Bandwidth), AutoConverge: m.Options.AutoConverge, PostCopy: m.Options.PostCopy, CopyStorage: m.Options.CopyStorage},
	}
	if m.Options.Deadline > 0 {
		out.Options.Deadline = v1.FormatDuration(m.Options.Deadline.Duration())
	}
	if p := m.Live; p != nil {
		out.Progress = &v1.MoveProgress{Bytes: v1.Size(p.Bytes), Remaining: v1.Size(max(0, p.Remaining)), Rate: p.Rate, Dirty: p.Dirty, Since: p.Since.Seconds(),
			ETA: eta(p.Remaining, p.Rate-p.Dirty), PostCopy: p.PostCopy, Text: p.Text}
		if p.PostCopy { // nothing is sent again: the guest writes at the target
			out.Progress.ETA = eta(p.Remaining, p.Rate)
		}
	}
	return out
}

// eta is when what is left is sent at a rate, in seconds; -1: never, or not known.
func eta(bytes int64, rate float64) float64 {
	if rate <= 0 || bytes < 0 {
		return -1
	}
	return float64(bytes) / rate
}

// missing says that there is no plan of that id, or no VM of that name or id. What is empty was not asked for.
func missing(v *leader.View, plan, vm string) error {
	if _, ok := v.MovePlan(plan); plan != "" && !ok {
		return notFound("there is no plan %q (any more)", plan)
	}
	_, named := v.VMNamed(vm)
	_, known := v.VM(vm)
	if vm != "" && !named && !known {
		return notFound("there is no VM %q", vm)
	}
	return nil
}
