package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"evenkeel/api/client"
	"evenkeel/api/v1"
)

// boots sets the boot id, which distinguishes this run of the host's machine from others: the machines of these tests are one.
func (h *host) boots(id string) {
	h.t.Helper()
	file := filepath.Join(filepath.Dir(h.config), "boot")
	text, err := os.ReadFile(h.config)
	if err == nil && !strings.Contains(string(text), "bootID:") {
		err = os.WriteFile(h.config, append(text, "bootID: "+file+"\n"...), 0o600)
	}
	if err == nil {
		err = os.WriteFile(file, []byte(id), 0o600)
	}
	if err != nil {
		h.t.Fatal(err)
	}
}

// A server whose raft.db is damaged while VMs run on it comes back by the commands of its own message: its VMs run on, also those that
// are restarted when their host is lost, and it votes again. In another run of the machine it is refused, and keeps its vote.
func TestRejoinWhileVMsRun(t *testing.T) {
	h1, h2, h3 := newHost(t, "h1"), newHost(t, "h2"), newHost(t, "h3")
	all := []*host{h1, h2, h3}
	for _, h := range all {
		h.boots("boot-1-of-" + h.name)
		h.start()
	}
	made, err := client.NewLocal(h1.socket).Init(t.Context(), v1.SetupInit{})
	if err != nil {
		t.Fatal(err)
	}
	api := h1.dial(made.CA, made.AdminToken)
	for _, h := range []*host{h2, h3} {
		if err := h.enter(api, h1, v1.JoinTokenRequest{Server: true, Agent: true}); err != nil {
			t.Fatal(err)
		}
	}
	votes := func(name string) bool {
		members, err := api.Members(t.Context())
		for _, m := range members {
			if m.Name == name {
				return err == nil && m.Voter && m.Healthy
			}
		}
		return false
	}
	h1.await("three servers vote", func() bool { return votes("h1") && votes("h2") && votes("h3") })
	if _, err := api.AddImage(t.Context(), v1.ImageSpec{Name: "tiny", Kind: "kernel", File: "/boot/tiny"}); err != nil {
		t.Fatal(err)
	}
	for _, loss := range []string{"keep", "restart"} {
		group := v1.GroupSpec{Name: "w", Count: 3, CPU: 0.1, Memory: 64 << 20, Image: "tiny", Affinity: &v1.Affinity{Spread: "host"}}
		h1.await(loss+" is created", func() bool {
			_, err := api.Create(t.Context(), v1.VirtualClusterSpec{Name: loss, OnHostLoss: loss, Groups: []v1.GroupSpec{group}})
			return err == nil
		})
	}
	running := func() map[string]string {
		vms, err := api.VMs(t.Context(), "", "")
		if err != nil {
			return nil
		}
		on := map[string]string{}
		for _, vm := range vms {
			if vm.State == "running" {
				on[vm.Name] = fmt.Sprint(vm.ID, " generation ", vm.Generation, " on ", vm.Host)
			}
		}
		return on
	}
	defer func() {
		if t.Failed() {
			h1.report(api)
		}
	}()
	h1.await("six VMs run", func() bool { return len(running()) == 6 })
	before := running()
	h2.end()
	db := filepath.Join(h2.dir, "raft", "raft.db")
	b, err := os.ReadFile(db)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(db, damages["flipped"](b), 0o600); err != nil {
		t.Fatal(err)
	}
	said := h2.fails()
	if !strings.Contains(said, db) {
		t.Fatalf("it must name %s: %s", db, said)
	}
	_, command, _ := strings.Cut(said, "here: ")
	command, _, found := strings.Cut(command, " ; start vcd")
	if !found {
		t.Fatalf("no command in %s", said)
	}
	for _, disk := range []string{"libvirt/pool/a.qcow2", "images/debian.qcow2"} {
		path := filepath.Join(h2.dir, disk)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte("a disk"), 0o600); err != nil {
			t.Fatal(err)
		}
		defer func() {
			if _, err := os.Stat(path); err != nil {
				t.Errorf("the command of the message took a disk away: %v", err)
			}
		}()
	}
	if out, err := exec.CommandContext(t.Context(), "sh", "-c", command).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v: %s", command, err, out)
	}
	again := v1.JoinTokenRequest{Server: true, Agent: true, For: "h2"}
	h2.boots("boot-2-of-h2")
	h2.start()
	if err := h2.enter(api, h1, again); !client.IsProblem(err, v1.ProblemConflict) || !strings.Contains(err.Error(), "started again") || !strings.Contains(err.Error(), "confirm-dead h2") {
		t.Fatalf("in another run of the machine: %v", err)
	}
	members, err := api.Members(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range members {
		if m.Name == "h2" && !m.Voter {
			t.Errorf("it was refused, and its vote is gone: %+v", m)
		}
	}
	h2.end()
	h2.boots("boot-1-of-h2")
	h2.start()
	if err := h2.enter(api, h1, again); err != nil {
		t.Fatal(err)
	}
	h1.await("h2 votes again, and is ready", func() bool {
		h, err := api.Host(t.Context(), "h2")
		return err == nil && h.State == "ready" && h.Lease == "held" && votes("h2")
	})
	// What its agent makes of the VMs that it found shows once it has carried out orders that came later.
	spec := v1.VirtualClusterSpec{Name: "later", OnHostLoss: "restart", Groups: []v1.GroupSpec{{Name: "w", Count: 3, CPU: 0.1, Memory: 64 << 20, Image: "tiny", Affinity: &v1.Affinity{Spread: "host"}}}}
	h1.await("later is created", func() bool {
		_, err := api.Create(t.Context(), spec, client.IdempotencyKey("later"))
		return err == nil
	})
	h1.await("three more VMs run, one on each host", func() bool {
		now := running()
		for name, vm := range before {
			if now != nil && now[name] != vm {
				t.Fatalf("there run %v, want %v", now, before)
			}
		}
		return len(now) == 9
	})
	events, err := api.ListEvents(t.Context(), client.EventQuery{Limit: 1000})
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range events.Items {
		if e.Kind == "vm-lost" || e.Kind == "vm-failed" || e.Kind == "vm-duplicate" {
			t.Errorf("%+v", e)
		}
	}
}

// fails runs vcd until it ends, and returns what it says.
func (h *host) fails() string {
	h.t.Helper()
	var errs strings.Builder
	if status := run(h.t.Context(), []string{"vcd", "run", "--config", h.config}, h.out, &errs); status == 0 {
		h.t.Fatal("vcd runs")
	}
	return errs.String()
}
