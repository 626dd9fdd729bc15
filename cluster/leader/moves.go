package leader

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"

	"evenkeel/cluster/agent"
	"evenkeel/cluster/scheduler/moves"
	"evenkeel/cluster/scheduler/placement"
	"evenkeel/cluster/scheduler/rebalance"
	"evenkeel/cluster/state"
)

// moveOf returns the move of a VM as the agent of one of its hosts is to carry it out.
func moveOf(s *state.Snapshot, meta state.Meta, g *state.Group, vm *state.VM, host string) *agent.Move {
	m, _ := s.MigrationOf(vm.ID)
	to, _ := s.Host(vm.MovingTo)
	o := m.Options
	out := &agent.Move{Open: m.Open, To: vm.MovingTo, URI: to.MigrateURI, Incoming: vm.Host != host, SourceLost: m.SourceLost > 0,
		Wait: !m.Ready, Permit: m.Permit, Paused: m.Paused, Left: m.Left > 0, MaxBytes: max(0, m.MaxBytes), Bandwidth: o.Bandwidth, Deadline: o.Deadline.Duration(),
		AutoConverge: o.AutoConverge, PostCopy: o.PostCopy, CopyStorage: o.CopyStorage, Abort: m.Abort}
	for _, pool := range meta.Settings.SharedPools {
		out.SharedDisk = out.SharedDisk || pool == g.Disk.Pool
	}
	return out
}

// sentBytes returns the bytes of a move whose end a status reports: never less than was reported before.
func sentBytes(s *state.Snapshot, st agent.Status) int64 {
	m, _ := s.MigrationOpened(st.VM, st.Move)
	return max(st.Bytes, m.BytesMoved)
}

// recordSent proposes what migrations sent, by their source's last report. It may come after the VM arrived.
func (c *Service) recordSent(ctx context.Context, s *state.Snapshot, r agent.Report) error {
	for _, st := range r.Statuses {
		if st.Phase != agent.PhaseLeft || st.Move == 0 {
			continue
		}
		m, ok := s.MigrationOpened(st.VM, st.Move)
		if !ok || m.From != r.Host || m.Reported && st.Bytes <= m.BytesMoved && st.Downtime.Milliseconds() <= m.DowntimeMs {
			continue
		}
		body := state.MigrationReport{ID: m.ID, Bytes: st.Bytes, DowntimeMs: st.Downtime.Milliseconds()}
		if err := c.propose(ctx, state.KindMigrationReport, body); err != nil && !errors.Is(err, state.ErrNotFound) {
			return err
		}
	}
	return nil
}

// ask is the environment of a request: the answer to a VC that does not fit says which moves would make room for it.
func (t *term) ask() placement.Env {
	env := t.env()
	env.Advise = func(s *state.Snapshot, vc state.VC) string {
		meta, _ := s.Meta()
		set := meta.Settings.Moves.WithDefaults()
		vms := 0
		s.EachVM(func(*state.VM) bool { vms++; return true })
		if vms == 0 || vms > maxAdvised {
			return ""
		}
		f := moves.NewFleet(s, env, t.reports.fleet(s), moves.Options{CopyStorage: set.CopyStorage}, vc)
		plan, takes, err := rebalance.PlanRoom(f, -1)
		if err != nil || math.IsInf(takes, 1) || len(plan.Steps) == 0 {
			return ""
		}
		names := make([]string, 0, len(plan.Steps))
		for _, step := range plan.Steps {
			names = append(names, step.VMName+" to "+step.To)
		}
		if len(names) > 3 {
			names = append(names[:3], fmt.Sprintf("and %d more", len(plan.Steps)-3))
		}
		text := fmt.Sprintf("would fit after moving %s: %s", gibText(plan.Bytes), strings.Join(names, ", "))
		switch budget := set.Budget(); {
		case set.Mode != state.MovesAuto:
			text += "; moves are not made by themselves (see moves.mode of the cluster's settings)"
		case plan.Bytes > budget:
			text += fmt.Sprintf("; at most %s are moved at a time (see moves.maxBytes of the cluster's settings)", gibText(budget))
		}
		return text
	}
	return env
}

func gibText(bytes int64) string { return fmt.Sprintf("%.1f GiB", float64(bytes)/(1<<30)) }
