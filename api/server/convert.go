package server

import (
	"time"

	"github.com/oklog/ulid/v2"

	"evenkeel/api/v1"
	"evenkeel/cluster/leader"
	"evenkeel/cluster/state"
	"evenkeel/hypervisor"
)

func resources(r state.Resources) v1.Resources {
	return v1.Resources{CPU: r.CPU, Memory: v1.Size(r.Memory)}
}

func hostReasons(in []state.HostReason) []v1.HostReason {
	out := make([]v1.HostReason, len(in))
	for i, h := range in {
		out[i] = v1.HostReason{Host: h.Host, Cordoned: h.Cordoned, CPUMissing: h.CPUMissing, MemoryMissing: v1.Size(h.MemoryMissing), Rule: h.Rule, Text: h.Text}
	}
	return out
}

// decision is nil where admission was never asked.
func decision(d state.Decision) *v1.Decision {
	if d.Summary == "" && d.At.IsZero() {
		return nil
	}
	return &v1.Decision{At: d.At, Admitted: d.Admitted, Summary: d.Summary, Hosts: hostReasons(d.Hosts), Advice: d.Advice,
		MinYield: d.MinYield, UpperBound: d.UpperBound, Basis: d.Basis}
}

// count of phases; unknown of the running VMs are on hosts that cannot report.
func count(c state.Count, unknown int) v1.VMCount {
	return v1.VMCount{Total: c.Starting + c.Running + c.Stopping + c.Stopped + c.Failed + c.Lost, Lost: c.Lost,
		Starting: c.Starting, Running: c.Running - unknown, Unknown: unknown, Stopping: c.Stopping, Stopped: c.Stopped, Failed: c.Failed}
}

func virtualCluster(v leader.VCView) v1.VirtualCluster {
	out := v1.VirtualCluster{
		ID: v.ID, Name: v.Name, State: string(v.State), Reason: v.Reason, MinYield: v.MinYield, Yield: v.Yield,
		OnFull: string(v.OnFull), OnHostLoss: v.OnHostLoss, Needs: v.Estimates, Aggressiveness: v.Aggressiveness, Priority: v.Priority,
		Groups: make([]v1.Group, 0, len(v.Groups)), VMs: count(v.Count, v.Unknown), Decision: decision(v.Decision),
		CreatedAt: v.CreatedAt, QueuedAt: v.QueuedAt, ModifyIndex: v.ModifyIndex,
	}
	for _, g := range v.Groups {
		if g.Count == 0 { // it was removed, and its VMs leave
			continue
		}
		to := v1.Group{
			Name: g.Name, Count: g.Count, CPU: g.CPU, Need: g.Need(), VCPUs: g.VCPUs, Memory: v1.Size(g.Memory), MemoryMin: v1.Size(g.MemoryMin),
			Role: g.Role, Image: imageOut(g.Image), Network: g.Network, CloudInit: g.CloudInit != (state.CloudInit{}), Labels: g.Labels,
			Allocation: g.Allocation, Yield: g.Yield(),
		}
		if v.Count.Starting+v.Count.Running == 0 { // what it had is free for others
			to.Allocation, to.Yield = 0, 0
		}
		if g.Boot != (state.Boot{}) {
			to.Boot = &v1.Boot{Kernel: imageOut(g.Boot.Kernel), Initrd: imageOut(g.Boot.Initrd), Cmdline: g.Boot.Cmdline}
		}
		if a := g.Affinity; !a.Empty() {
			to.Affinity = &v1.Affinity{Spread: a.Spread, Require: a.Require, Prefer: a.Prefer, Avoid: a.Avoid}
		}
		to.Disk = disk(g.Disk)
		out.Groups = append(out.Groups, to)
	}
	return out
}

// disk of a group's VMs; nil: they have none.
func disk(d state.Disk) *v1.Disk {
	if d.Size == 0 && !d.Ephemeral {
		return nil
	}
	return &v1.Disk{Size: v1.Size(d.Size), Pool: d.Pool, Ephemeral: d.Ephemeral}
}

// createdAt is when an id was made: ids of the cluster are ULIDs, which hold it; the zero time for any other.
func createdAt(id string) time.Time {
	u, err := ulid.ParseStrict(id)
	if err != nil {
		return time.Time{}
	}
	return u.Timestamp().UTC()
}

// vmOf a view, with the migration that moves it.
func vmOf(all *leader.View, v leader.VMView) v1.VM {
	out := v1.VM{
		ID: v.ID, Name: v.Name, Domain: v.Domain, VirtualCluster: v.VCName, Group: v.Group, Task: v.Task, Host: v.Host, MovingTo: v.MovingTo,
		State: v.State, Reason: v.Reason, Need: v.Need, Allocation: v.Allocation, Yield: v.Yield, Cap: v.Cap, Used: v.Used,
		Memory: v1.Size(v.Memory), Balloon: v1.Size(v.Balloon), Resident: v1.Size(v.Resident), MemoryUsed: v1.Size(v.MemoryUsed), VCPUs: v.VCPUs,
		Generation: v.Generation, SampledAt: v.SampledAt, CreatedAt: createdAt(v.ID), StartedAt: v.StartedAt, MinYield: v.MinYield,
		Image: imageOut(v.Image), Disk: disk(v.Disk), Network: v.Network, Labels: v.Labels,
	}
	for _, a := range v.Addresses[:min(len(v.Addresses), hypervisor.MaxAddresses)] {
		out.Addresses = append(out.Addresses, a.String())
	}
	if v.MovingTo != "" {
		m, _ := all.MigrationOf(v.ID)
		out.Migration = m.ID
	}
	return out
}

// reportedOrNil is nil for a figure that is not reported.
func reportedOrNil(v float64) *float64 {
	if v < 0 {
		return nil
	}
	return &v
}

func host(v leader.HostView) v1.Host {
	out := v1.Host{
		Name: v.Name, State: v.State, Lease: v.Lease, Heard: v.Heard.Seconds(), Watchdog: float64(v.Fencing.Watchdog) / 1000, Capacity: resources(v.Capacity), Allowance: resources(v.Allowance),
		Allocated: resources(v.Allocated), Used: resources(v.Used), Foreign: resources(v.Foreign), ForeignVMs: v.ForeignVMs,
		VMs: v.VMs, Cordoned: v.Cordoned, CordonReason: v.CordonReason, KVM: v.KVM, Software: v.Software, Error: v.Error,
		Unmanaged: v.Unmanaged, Synced: v.Synced, BootedAt: v.BootedAt,
	}
	if p := v.Pressure; p != nil {
		out.Pressure = &v1.Pressure{CPU: reportedOrNil(p.CPU), Memory: reportedOrNil(p.Memory), IO: reportedOrNil(p.IO)}
	}
	if w := v.Availability; w != nil {
		out.Available = availabilityOf(w.HostAvailability, w.Ignored)
	}
	if v.Drain.State != "" {
		if out.State == "cordoned" && (v.Drain.State == state.DrainRunning || v.Drain.State == state.DrainDone) {
			out.State = string(v.Drain.State)
		}
	}
	return out
}

func operation(v *leader.View, op state.Operation) v1.Operation {
	p := v.Progress(op)
	return v1.Operation{ID: op.ID, Kind: op.Kind, VirtualCluster: operand(op), VM: op.VMName, Plan: op.MovePlan, Host: op.Host, State: string(p.State),
		Done: p.Done, Total: p.Total, Text: p.Text, At: op.At, Index: op.Index}
}

// operand is the name of the virtual cluster that an operation is about, "" if it is about a plan or a host.
func operand(op state.Operation) string {
	if op.VC == "" {
		return ""
	}
	return op.Name
}

func event(e state.Event) v1.Event {
	return v1.Event{Seq: e.Seq, Index: e.Index, At: e.At, Kind: e.Kind, Severity: v1.EventSeverity(e.Kind), Object: e.Object, Name: e.Name, Text: e.Text}
}

func image(i state.Image) v1.Image {
	return v1.Image{Name: imageOut(i.Name), Tenant: ownerOf(i.Name), Kind: string(i.Kind), File: i.File, Size: v1.Size(i.Size), DiskSize: v1.Size(i.DiskSize), Initrd: imageOut(i.Initrd), Cmdline: i.Cmdline, AddedAt: i.AddedAt}
}

// each maps a slice; the result is never nil, so that JSON shows [] and not null.
func each[A, B any](in []A, f func(A) B) []B {
	out := make([]B, len(in))
	for i, a := range in {
		out[i] = f(a)
	}
	return out
}

// specOf a VC file, as the cluster wants it. Defaults that depend on the
// cluster are left to it.
func specOf(in v1.VirtualClusterSpec) state.VC {
	vc := state.VC{Name: in.Name, MinYield: -1, OnFull: state.OnFull(in.OnFull), OnHostLoss: in.OnHostLoss, Needs: in.Needs, Aggressiveness: in.Aggressiveness, Priority: in.Priority}
	if in.MinYield != nil {
		vc.MinYield = *in.MinYield
	}
	if p := in.Periodic; p != nil {
		vc.Periodic = state.Periodic{Name: p.Name, Deadline: secondsOf(p.Deadline)}
	}
	vc.Duration = secondsOf(in.Duration)
	for _, g := range in.Groups {
		to := state.Group{Name: g.Name, Count: max(1, g.Count), CPU: g.CPU, VCPUs: g.VCPUs, Memory: int64(g.Memory), MemoryMin: int64(g.MemoryMin),
			Role: g.Role, Image: g.Image, Network: g.Network, Labels: g.Labels}
		if g.Boot != nil {
			to.Boot = state.Boot{Kernel: g.Boot.Kernel, Initrd: g.Boot.Initrd, Cmdline: g.Boot.Cmdline}
		}
		if g.Disk != nil {
			to.Disk = state.Disk{Size: int64(g.Disk.Size), Pool: g.Disk.Pool, Ephemeral: g.Disk.Ephemeral}
		}
		if a := g.Affinity; a != nil {
			to.Affinity = state.Affinity{Spread: a.Spread, Require: a.Require, Prefer: a.Prefer, Avoid: a.Avoid}
		}
		if c := g.CloudInit; c != nil {
			to.CloudInit = state.CloudInit{UserData: c.UserData, MetaData: c.MetaData, NetworkConfig: c.NetworkConfig}
		}
		vc.Groups = append(vc.Groups, to)
	}
	return vc
}

// drain of a host without its VMs; the state is none where no drain is requested.
func drain(host string, d state.Drain) v1.Drain {
	out := v1.Drain{Host: host, State: string(d.State), Reason: d.Reason, By: d.By, Text: d.Text, Since: d.Since, Deadline: d.Deadline,
		OnBlocked: d.OnBlocked, BytesMoved: v1.Size(d.Moved), Plan: d.Plan}
	if d.State == "" {
		out.State = "none"
		return out
	}
	out.BytesBudget = budget(d.MaxBytes)
	return out
}

// secondsOf a duration that was read; the file's reader has refused what is none.
func secondsOf(text string) int64 {
	d, _ := v1.ParseDuration(text)
	return int64(d / time.Second)
}

// durationText is the inverse of secondsOf.
func durationText(seconds int64) string {
	if seconds == 0 {
		return ""
	}
	return v1.FormatDuration(time.Duration(seconds) * time.Second)
}
