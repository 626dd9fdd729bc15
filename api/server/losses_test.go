package server_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"evenkeel/api/client"
	"evenkeel/api/v1"
	"evenkeel/test/patience"
	"evenkeel/test/site"
)

// A state that was saved comes back, whole or not at all, and the hosts are asked before anything goes on.
func TestSnapshots(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := startSeveral(t, 1, 2, site.Options{})
		c := s.client("h1")
		a, err := c.Create(t.Context(), small("a", 2))
		must(t, err)
		_, err = c.Wait(t.Context(), *a.Operation, nil)
		must(t, err)
		var b bytes.Buffer
		_, err = c.SaveSnapshot(t.Context(), &b)
		must(t, err)
		saved, err := v1.InspectSnapshot(bytes.NewReader(b.Bytes()))
		must(t, err)
		if saved.VirtualClusters != 1 || saved.VMs != 2 || saved.Hosts != 1 || saved.Members != 1 || saved.Images != 1 || saved.Server != "h1" || saved.Version != "test" {
			t.Errorf("%+v", saved)
		}
		flipped := bytes.Clone(b.Bytes())
		flipped[len(flipped)/2] ^= 1
		for what, file := range map[string][]byte{"flipped": flipped, "cut": b.Bytes()[:b.Len()-10], "cut between lines": b.Bytes()[:bytes.LastIndexByte(b.Bytes()[:b.Len()-1], '\n')+1],
			"longer": append(bytes.Clone(b.Bytes()), "{}\n"...), "other": []byte("PK\x03\x04 an archive\n"), "empty": {}} {
			if what != "empty" { // an empty body is refused before it is looked at
				if _, err := v1.InspectSnapshot(bytes.NewReader(file)); err == nil {
					t.Errorf("%s: inspected as if it were whole", what)
				}
			}
			_, err := c.RestoreSnapshot(t.Context(), file, false)
			if !client.IsProblem(err, v1.ProblemInvalid) && !client.IsProblem(err, v1.ProblemMalformed) {
				t.Errorf("%s: %v", what, err)
			}
		}
		_, err = c.Create(t.Context(), small("b", 1))
		must(t, err)
		// A client that follows the events gets that of the restore, though the log had more events before it.
		reported := make(chan client.Message, 1000)
		following, cancel := context.WithCancel(t.Context())
		defer cancel()
		go func() {
			_ = c.Follow(following, client.EventQuery{After: new(uint64)}, func(m client.Message) error { reported <- m; return nil })
		}()
		heard := func(what string, is func(client.Message) bool) {
			t.Helper()
			for {
				if is(patience.Receive(t, patience.Stall, "the event of "+what, reported)) {
					return
				}
			}
		}
		for n := range 20 {
			_, err = c.Cordon(t.Context(), "h1", fmt.Sprint(n))
			must(t, err)
		}
		heard("the last cordon", func(m client.Message) bool { return m.Gap == nil && strings.HasSuffix(m.Event.Text, ": 19") })
		back, err := c.RestoreSnapshot(t.Context(), b.Bytes(), false)
		must(t, err)
		if back.Index != saved.Index || back.VMs != 2 {
			t.Errorf("restored %+v, saved %+v", back, saved)
		}
		heard("a gap", func(m client.Message) bool { return m.Gap != nil })
		// The state has no b any more; a runs as it did; the recovery freeze ends by itself once the host has sent its inventory.
		must(t, s.Await(t.Context(), "the hold ends", func() bool {
			status, err := c.Status(t.Context())
			return err == nil && status.RecoveryFreeze == "" && status.Epoch > saved.Epoch
		}))
		vcs, err := c.VirtualClusters(t.Context())
		must(t, err)
		if len(vcs) != 1 || vcs[0].Name != "a" {
			t.Errorf("%+v", vcs)
		}
		must(t, s.Await(t.Context(), "a runs", func() bool {
			vms, err := c.VMs(t.Context(), "a", "")
			return err == nil && len(vms) == 2 && vms[0].State == "running" && vms[1].State == "running"
		}))
		s.event("snapshot-restored", "")

		other := startSeveral(t, 1, 1, site.Options{})
		if _, err := other.client("h1").RestoreSnapshot(t.Context(), b.Bytes(), false); !client.IsProblem(err, v1.ProblemConflict) {
			t.Errorf("another cluster's snapshot: %v", err)
		}
	})
}

// What operators do about hosts: fence them, confirm them dead, disable and enable fencing.
func TestLosses(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := startSeveral(t, 1, 2, site.Options{Lease: 4 * time.Second})
		must(t, s.Join(t.Context(), "h2", false, true))
		c := s.client("h1")
		must(t, s.Await(t.Context(), "h2 is ready", func() bool {
			h, err := c.Host(t.Context(), "h2")
			return err == nil && h.State == "ready" && h.Lease == "held"
		}))
		if said, err := c.Fence(t.Context(), "h2", true); err != nil || !strings.Contains(said.Text, "power is on") {
			t.Errorf("%+v, %v", said, err)
		}
		s.event("fence-tested", "power is on")
		s.device.fail(errNoAnswer)
		if _, err := c.Fence(t.Context(), "h2", true); err == nil || !strings.Contains(err.Error(), "the BMC does not answer") {
			t.Errorf("what the device says is kept from the operator: %v", err)
		}
		if _, err := c.Fence(t.Context(), "h2", false); err == nil || !strings.Contains(err.Error(), "the BMC does not answer") {
			t.Errorf("what the device says is kept from the operator: %v", err)
		}
		s.device.fail(nil)

		_, err := c.SetFencing(t.Context(), false, "switch firmware")
		must(t, err)
		status, err := c.Status(t.Context())
		must(t, err)
		if !status.FencingDisabled || !mentions(status.Conditions, "fencing is disabled") {
			t.Errorf("%+v", status.Conditions)
		}
		_, err = c.SetFencing(t.Context(), true, "")
		must(t, err)

		must(t, s.Stop("h2"))
		must(t, s.Await(t.Context(), "h2 is not heard of", func() bool {
			_, err := c.ConfirmDead(t.Context(), "h2", "", client.DryRun())
			return err == nil
		}))
		status, err = c.Status(t.Context())
		must(t, err)
		if !mentions(status.Conditions, "unreachable") || status.Conditions[0].Severity != "critical" {
			t.Errorf("%+v", status.Conditions)
		}
		h, err := c.Host(t.Context(), "h2")
		must(t, err)
		if h.State != "unreachable" {
			t.Errorf("a dry run changed something: %+v", h)
		}
		h, err = c.ConfirmDead(t.Context(), "h2", "power supply burnt")
		must(t, err)
		if h.State != "lost" || !strings.Contains(h.Error, "power supply burnt") {
			t.Errorf("%+v", h)
		}
		if _, err := c.Fence(t.Context(), "h2", false); err != nil {
			t.Error(err)
		}
		if said, err := c.RemoveMember(t.Context(), "h2", false); err != nil || !strings.Contains(said.Text, "h2") {
			t.Errorf("%+v, %v", said, err)
		}
		if members, err := c.Members(t.Context()); err != nil || len(members) != 1 {
			t.Errorf("%+v, %v", members, err)
		}
	})
}

// errNoAnswer is what a fence device says.
var errNoAnswer = errors.New("the BMC does not answer")

func mentions(conditions []v1.Condition, texts string) bool {
	for _, c := range conditions {
		if strings.Contains(c.Text, texts) {
			return true
		}
	}
	return false
}
