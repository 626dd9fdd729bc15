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
func Stuck(c Cluster, wait func(vc string) bool) []string {
	var f findings
	if c.Status.Leader == "" {
		f.add("no server leads")
	}
	if c.Status.RecoveryFreeze != "" {
		f.add("the cluster is held (%s) for %s", c.Status.RecoveryFreeze, strings.Join(c.Status.RecoveryFreezeHosts, ", "))
	}
	f.members(c)
	for _, k := range c.Status.Conditions {
		f.add("condition of %s %s: %s: %s", k.Object, k.Name, k.Severity, k.Text)
	}
	f.vms(c)
	for _, vc := range c.VCs {
		if want := "running"; vc.State != want && !(vc.State == "queued" && wait(vc.Name)) {
			f.add("virtual cluster %s is %s: %s", vc.Name, vc.State, vc.Reason)
		}
	}
	f.work(c)
	slices.Sort(f)
	return f
}

// findings are sentences on what is not as it must be.
type findings []string

func (f *findings) add(format string, args ...any) { *f = append(*f, fmt.Sprintf(format, args...)) }

// members: each host is a healthy voter with a lease, and ready.
func (f *findings) members(c Cluster) {
	for _, name := range c.Hosts {
		n := slices.IndexFunc(c.Status.Members, func(m v1.Member) bool { return m.Name == name })
		if n < 0 {
			f.add("member %s is not there", name)
			continue
		}
		if m := c.Status.Members[n]; !m.Healthy || !m.Voter || m.Lease != "held" {
			f.add("member %s: healthy %v (%s), voter %v, lease %s", name, m.Healthy, m.Trouble, m.Voter, m.Lease)
		}
	}
	if n := c.Status.Hosts["ready"]; n != len(c.Hosts) {
		f.add("hosts: %v, %d are to be ready", c.Status.Hosts, len(c.Hosts))
	}
}

// vms: each runs once, on its host, and no process runs that is of no VM.
func (f *findings) vms(c Cluster) {
	runs := map[string][]watch.Instance{}
	for _, p := range c.Processes {
		runs[p.Domain] = append(runs[p.Domain], p)
	}
	for _, vm := range c.VMs {
		of := runs[vm.Domain]
		delete(runs, vm.Domain)
		switch {
		case vm.State != "running":
			f.add("VM %s is %s on %s (%s)", vm.Name, vm.State, vm.Host, vm.Reason)
		case vm.MovingTo != "":
			f.add("VM %s is moving to %s", vm.Name, vm.MovingTo)
		case len(of) != 1 || of[0].Host != vm.Host:
			f.add("VM %s runs on %s, its processes are %v", vm.Name, vm.Host, of)
		}
	}
	for _, of := range runs {
		f.add("processes of no VM: %v", of)
	}
}

// work: migrations, plans and drains have ended.
func (f *findings) work(c Cluster) {
	for _, m := range c.Migrations {
		if !m.Ended() {
			f.add("migration of %s from %s to %s is %s since %s", m.VM, m.From, m.To, m.State, m.OpenedAt)
		}
	}
	for _, p := range c.Plans {
		if !p.Ended() {
			f.add("plan %s (%s %s) is %s since %s: %s", p.ID, p.Kind, p.Host, p.State, p.CreatedAt, p.Reason)
		}
	}
	for name, d := range c.Drains {
		if d.State != "none" && !d.Ended() {
			f.add("drain of %s is %s: %s", name, d.State, d.Text)
		}
	}
}
