package server_test

import (
	"testing"

	"evenkeel/api/v1"
	"evenkeel/test/site"
)

// TestMovesOfMembers: three servers that are agents too. What moves VMs is asked of a server that does not lead, and
// what is under way is known there, too; the plan goes on when the leader is another.
func TestMovesOfMembers(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := startSeveral(t, 3, 3, site.Options{CPU: 4, Memory: 8 << 30})
		leader, follower := s.leads()
		api := s.client(follower)
		spec := small("a", 4)
		spec.Groups[0].CPU = 1
		spec.Groups[0].Affinity = &v1.Affinity{Prefer: []string{"host:" + leader}}
		r, err := api.Create(t.Context(), spec)
		must(t, err)
		_, err = api.Wait(t.Context(), *r.Operation, nil)
		must(t, err)

		slow, one := v1.Size(32<<20), 1
		_, err = api.SetSettings(t.Context(), v1.SettingsPatch{Moves: &v1.MovePatch{Bandwidth: &slow, PerHost: &one}})
		must(t, err)
		host, err := api.Host(t.Context(), leader)
		must(t, err)
		if host.VMs == 0 {
			t.Fatalf("no VM is where it prefers to be: %+v", host)
		}
		begun, err := api.Drain(t.Context(), leader, v1.DrainRequest{Reason: "the host of the leader"})
		must(t, err)
		if begun.Operation == nil || begun.Plan == nil || len(begun.Plan.Moves) != host.VMs {
			t.Fatalf("%+v", begun)
		}
		must(t, s.Await(t.Context(), "a VM moves, seen from a server that does not lead", func() bool {
			all, err := api.Migrations(t.Context(), begun.Plan.ID, "", "running", 0)
			return err == nil && len(all) > 0 && all[0].Progress != nil
		}))
		_, err = api.TransferLeadership(t.Context(), follower)
		must(t, err)
		op, err := api.Wait(t.Context(), *begun.Operation, nil)
		must(t, err)
		if op.State != v1.OperationDone {
			t.Errorf("%+v", op)
		}
		e, err := api.HostEmpty(t.Context(), leader)
		must(t, err)
		if !e.Empty {
			t.Errorf("%+v", e)
		}
		vms, err := api.VMs(t.Context(), "a", "")
		must(t, err)
		for _, vm := range vms {
			if vm.State != "running" || vm.Host == leader || vm.Generation != 1 {
				t.Errorf("%+v", vm)
			}
		}
		status, err := api.Status(t.Context())
		must(t, err)
		if status.Leader != follower || status.Settings.Moves.Bandwidth != slow {
			t.Errorf("%+v", status)
		}
	})
}
