package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"evenkeel/api/client"
	"evenkeel/api/v1"
)

// wipe loses the data directory, but for what the hypervisor has there: its VMs run on.
func (h *host) wipe() {
	h.t.Helper()
	files, err := os.ReadDir(h.dir)
	if err != nil {
		h.t.Fatal(err)
	}
	for _, f := range files {
		if strings.HasPrefix(f.Name(), "simulated.journal") {
			continue
		}
		if err := os.RemoveAll(filepath.Join(h.dir, f.Name())); err != nil {
			h.t.Fatal(err)
		}
	}
}

// dial this host's API.
func (h *host) dial(ca, token string) *client.Client {
	h.t.Helper()
	file := filepath.Join(h.t.TempDir(), "ca.pem")
	if err := os.WriteFile(file, []byte(ca), 0o600); err != nil {
		h.t.Fatal(err)
	}
	c, err := client.New(client.Config{Address: h.advertise, CAFile: file, Token: token})
	if err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(c.Close)
	return c
}

// report logs the cluster's hosts, VMs and latest events, for a test that failed.
func (h *host) report(api *client.Client) {
	ctx := context.WithoutCancel(h.t.Context())
	hosts, err := api.Hosts(ctx)
	h.t.Logf("hosts, %v: %+v", err, hosts)
	vms, err := api.VMs(ctx, "", "")
	h.t.Logf("VMs, %v: %+v", err, vms)
	events, err := api.ListEvents(ctx, client.EventQuery{Limit: 100})
	h.t.Logf("events, %v", err)
	for _, e := range events.Items {
		h.t.Logf("%+v", e)
	}
}

// enter a cluster by a token for this host.
func (h *host) enter(api *client.Client, through *host, q v1.JoinTokenRequest) error {
	h.t.Helper()
	k, err := api.MakeJoinToken(h.t.Context(), q)
	if err != nil {
		h.t.Fatal(err)
	}
	_, err = client.NewLocal(h.socket).Join(h.t.Context(), v1.SetupJoin{Token: k.Token, Addresses: []string{through.advertise}})
	return err
}

// All servers are killed and their disks lost, and a snapshot is left: a new cluster takes the old state over, with the VMs that run on.
func TestRestoreWithNoServerLeft(t *testing.T) {
	h1, h2, h3 := newHost(t, "h1"), newHost(t, "h2"), newHost(t, "h3")
	h3.write("agent: true\n")
	all, program := []*host{h1, h2, h3}, buildVcd(t)
	for _, h := range all {
		h.program = program
		h.start()
	}
	made, err := client.NewLocal(h1.socket).Init(t.Context(), v1.SetupInit{})
	if err != nil {
		t.Fatal(err)
	}
	api := h1.dial(made.CA, made.AdminToken)
	if err := h2.enter(api, h1, v1.JoinTokenRequest{Server: true, Agent: true}); err != nil {
		t.Fatal(err)
	}
	if err := h3.enter(api, h1, v1.JoinTokenRequest{Agent: true}); err != nil {
		t.Fatal(err)
	}
	if _, err := api.AddImage(t.Context(), v1.ImageSpec{Name: "tiny", Kind: "kernel", File: "/boot/tiny"}); err != nil {
		t.Fatal(err)
	}
	create := func(api *client.Client, name, loss string, count int) {
		t.Helper()
		group := v1.GroupSpec{Name: "w", Count: count, CPU: 0.1, Memory: 64 << 20, Image: "tiny", Affinity: &v1.Affinity{Spread: "host"}}
		h1.await(name+" is created", func() bool {
			_, err := api.Create(t.Context(), v1.VirtualClusterSpec{Name: name, OnHostLoss: loss, Groups: []v1.GroupSpec{group}})
			return err == nil
		})
	}
	running := func(api *client.Client) map[string]string {
		vms, err := api.VMs(t.Context(), "", "")
		if err != nil {
			return nil
		}
		on := map[string]string{}
		for _, vm := range vms {
			if vm.State == "running" {
				on[vm.Name] = fmt.Sprint(vm.ID, " on ", vm.Host)
			}
		}
		return on
	}
	h1.await("three hosts are ready", func() bool {
		hosts, err := api.Hosts(t.Context())
		n := 0
		for _, h := range hosts {
			if h.State == "ready" {
				n++
			}
		}
		return err == nil && n == 3
	})
	create(api, "kept", "keep", 3)
	create(api, "again", "restart", 1)
	h1.await("four VMs run", func() bool { return len(running(api)) == 4 })
	before := running(api)
	var saved bytes.Buffer
	if _, err := api.SaveSnapshot(t.Context(), &saved); err != nil {
		t.Fatal(err)
	}
	create(api, "late", "keep", 1)
	h1.await("five VMs run", func() bool { return len(running(api)) == 5 })
	late := strings.Fields(running(api)["late-w-0"])[2]
	unknown, err := api.VM(t.Context(), "late-w-0")
	if err != nil {
		t.Fatal(err)
	}

	for _, h := range all {
		h.end() // it is killed
	}
	for _, h := range all {
		h.wipe()
		h.start()
	}
	again, err := client.NewLocal(h1.socket).Init(t.Context(), v1.SetupInit{})
	if err != nil {
		t.Fatal(err)
	}
	api = h1.dial(again.CA, again.AdminToken)
	if _, err := api.RestoreSnapshot(t.Context(), saved.Bytes(), false); !client.IsProblem(err, v1.ProblemConflict) {
		t.Errorf("the snapshot of another cluster is put in force unasked: %v", err)
	}
	if _, err := api.RestoreSnapshot(t.Context(), saved.Bytes(), true); err != nil {
		t.Fatal(err)
	}
	// The operator who restored the snapshot still has access, and so have the tokens in the snapshot.
	for principal, c := range map[string]*client.Client{"new": api, "old": h1.dial(again.CA, made.AdminToken)} {
		h1.await("the "+principal+" admin token is good", func() bool { _, err := c.Status(t.Context()); return err == nil })
	}
	h1.await("h1 is heard of, and the others are waited for", func() bool {
		s, err := api.Status(t.Context())
		return err == nil && s.RecoveryFreeze == "restore" && len(s.RecoveryFreezeHosts) == 2
	})
	for _, h := range []*host{h2, h3} {
		q := v1.JoinTokenRequest{Server: h == h2, Agent: true}
		if err := h.enter(api, h1, q); !client.IsProblem(err, v1.ProblemConflict) || !strings.Contains(err.Error(), "--for "+h.name) {
			t.Errorf("any token takes the name of %s: %v", h.name, err)
		}
		q.For = h.name
		if err := h.enter(api, h1, q); err != nil {
			t.Fatal(err)
		}
	}
	defer func() {
		if t.Failed() {
			h1.report(api)
		}
	}()
	h1.await("the hold is over", func() bool { s, err := api.Status(t.Context()); return err == nil && s.RecoveryFreeze == "" })
	h1.await("the VMs of the snapshot run", func() bool { return len(running(api)) == 4 })
	for name, where := range running(api) {
		if strings.HasPrefix(name, "kept-") && where != before[name] {
			t.Errorf("%s is %s, was %s", name, where, before[name])
		}
	}
	h1.await("what the snapshot does not know is reported", func() bool {
		h, err := api.Host(t.Context(), late)
		return err == nil && strings.Join(h.Unmanaged, " ") == unknown.Domain
	})
	create(api, "more", "keep", 3)
	h1.await("seven VMs run", func() bool { return len(running(api)) == 7 })
	// The new server is registered as it is now, so that it can be removed with its certificates like any other.
	members, err := api.Members(t.Context())
	if err != nil || len(members) != 3 {
		t.Errorf("members are %+v, %v", members, err)
	}
}
