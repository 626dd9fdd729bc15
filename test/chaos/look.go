package chaos

import (
	"fmt"
	"slices"
	"strings"

	"evenkeel/api/v1"
	"evenkeel/test/watch"
)

// Cluster is what its API and the watcher say at one moment.
type Cluster struct {
	Hosts      []string // that there are to be
	Status     v1.ClusterStatus
	VMs        []v1.VM
	VCs        []v1.VirtualCluster
	Migrations []v1.Migration
	Plans      []v1.Plan
	Drains     map[string]v1.Drain // by host
	Processes  []watch.Instance
}

// Stuck is what is not as it must be in a cluster that no fault has disturbed for a while. The function wait says which virtual
// clusters may wait.
func Stuck(c Cluster, wait func(vc string) bool) (stuck []string) {
	add := func(format string, args ...any) { stuck = append(stuck, fmt.Sprintf(format, args...)) }
	if c.Status.Leader == "" {
		add("no server leads")
	}
	if c.Status.RecoveryFreeze != "" {
		add("the cluster is held (%s) for %s", c.Status.RecoveryFreeze, strings.Join(c.Status.RecoveryFreezeHosts, ", "))
	}
	for _, name := range c.Hosts {
		n := slices.IndexFunc(c.Status.Members, func(m v1.Member) bool { return m.Name == name })
		if n < 0 {
			add("member %s is not there", name)
			continue
		}
		if m := c.Status.Members[n]; !m.Healthy || !m.Voter || m.Lease != "held" {
			add("member %s: healthy %v (%s), voter %v, lease %s", name, m.Healthy, m.Trouble, m.Voter, m.Lease)
		}
	}
	if n := c.Status.Hosts["ready"]; n != len(c.Hosts) {
		add("hosts: %v, %d are to be ready", c.Status.Hosts, len(c.Hosts))
	}
	for _, k := range c.Status.Conditions {
		add("condition of %s %s: %s: %s", k.Object, k.Name, k.Severity, k.Text)
	}
	runs := map[string][]watch.Instance{}
	for _, p := range c.Processes {
		runs[p.Domain] = append(runs[p.Domain], p)
	}
	for _, vm := range c.VMs {
		of := runs[vm.Domain]
		delete(runs, vm.Domain)
		switch {
		case vm.State != "running":
			add("VM %s is %s on %s (%s)", vm.Name, vm.State, vm.Host, vm.Reason)
		case vm.MovingTo != "":
			add("VM %s is moving to %s", vm.Name, vm.MovingTo)
		case len(of) != 1 || of[0].Host != vm.Host:
			add("VM %s runs on %s, its processes are %v", vm.Name, vm.Host, of)
		}
	}
	for _, of := range runs {
		add("processes of no VM: %v", of)
	}
	for _, vc := range c.VCs {
		if want := "running"; vc.State != want && !(vc.State == "queued" && wait(vc.Name)) {
			add("virtual cluster %s is %s: %s", vc.Name, vc.State, vc.Reason)
		}
	}
	for _, m := range c.Migrations {
		if !m.Ended() {
			add("migration of %s from %s to %s is %s since %s", m.VM, m.From, m.To, m.State, m.OpenedAt)
		}
	}
	for _, p := range c.Plans {
		if !p.Ended() {
			add("plan %s (%s %s) is %s since %s: %s", p.ID, p.Kind, p.Host, p.State, p.CreatedAt, p.Reason)
		}
	}
	for name, d := range c.Drains {
		if d.State != "none" && !d.Ended() {
			add("drain of %s is %s: %s", name, d.State, d.Text)
		}
	}
	slices.Sort(stuck)
	return stuck
}
