package server

import (
	"evenkeel/api/v1"
	"evenkeel/cluster/state"
)

// status of the cluster for a restricted scope: whether it serves requests, and what the tenant itself has and may use. Nothing in it
// depends on hosts, servers or other tenants.
func (x scopedView) status(version string, ready bool) v1.ClusterStatus {
	meta, _ := x.v.Meta()
	quota := quotaOf(x.v, x.tenant)
	vms := []state.VM{}
	x.eachVM(func(vm *state.VM) { vms = append(vms, *vm) })
	out := v1.ClusterStatus{Version: version, Ready: ready, MinYield: 1, VirtualClusters: map[string]int{},
		Settings: x.settings(meta.Settings), Quota: &quota, Epoch: meta.Epoch, RecoveryFreeze: meta.RecoveryFreeze.Reason, Conditions: []v1.Condition{}}
	if !ready {
		out.NotReady = restrictedTexts[v1.ProblemUnavailable]
	}
	unknown := 0
	x.eachVC(func(row *state.VC) {
		vc := x.v.VCView(*row)
		unknown += vc.Unknown
		out.VirtualClusters[string(vc.State)]++
		if vc.Count.Starting+vc.Count.Running > 0 {
			out.MinYield = min(out.MinYield, vc.Yield)
		}
	})
	out.VMs = count(state.CountPhases(vms), unknown)
	for _, row := range vms {
		vm := x.v.VMView(row)
		out.Allocated.CPU += vm.Allocation
		out.Used.CPU += vm.Used
		out.Used.Memory += v1.Size(vm.Resident)
		if row.ConsumesResources() {
			out.Allocated.Memory += v1.Size(vm.Memory)
		}
	}
	return out
}

// settings as the scope shows them: to a tenant those that bound its requests, and of networks, pools and images what it may name.
func (x scopedView) settings(all state.Settings) v1.ClusterSettings {
	out := settings(all)
	if !x.restricted {
		return out
	}
	out = v1.ClusterSettings{MinYield: out.MinYield, OnFull: out.OnFull, Pool: out.Pool, MinMemory: out.MinMemory, MaxVMs: out.MaxVMs, Periodic: out.Periodic,
		Networks: append([]string{}, state.OpenTo(all.Networks, x.tenant, state.DefaultNetwork)...), Pools: append([]string{}, state.OpenTo(all.Pools, x.tenant, all.Pool)...), SharedPools: []string{}}
	if _, ok := x.imageNamed(imageOut(all.Image)); ok && all.Image != "" {
		out.Image = imageOut(all.Image)
	}
	for _, pool := range all.SharedPools {
		if state.MayName(all.Pools, x.tenant, pool, all.Pool) {
			out.SharedPools = append(out.SharedPools, pool)
		}
	}
	return out
}
