package state

import "evenkeel/cluster/capacity"

// charged returns the values from which a VM's charge on its host follows. g is the VM's group, nil if the group is gone.
func charged(vm *VM, g *Group) capacity.VM {
	v := capacity.VM{Reported: vm.ChargedMemory, Boot: vm.BootMemory, Frozen: vm.Frozen, Stopping: vm.Phase == Stopping && !vm.RestartsInPlace()}
	if vm.KeepsMemory() {
		return capacity.VM{Reported: vm.ChargedMemory, Stopping: true}
	}
	if g != nil {
		v.Target, v.Share = vm.due(g), g.Allocation
	}
	return v
}

// CountedMemory is the memory that counts as the VM's, bytes, g being its group.
func (v VM) CountedMemory(g Group) int64 { return charged(&v, &g).Memory() }

// ChargeOn is what the VM takes of a host that it is on, or is to come to, g being its group.
func (v VM) ChargeOn(h Host, g Group) capacity.Charge { return charged(&v, &g).Charge(h.VMOverhead) }

// LedgerOf adds up the VMs that take CPU and memory of a host, and the memory that it keeps for those that were stopped alone.
func (s *Snapshot) LedgerOf(host string) capacity.Ledger {
	return s.ledgerOf(host, func(id string) *VC { vc, _ := s.SharedVC(id); return vc })
}

// KeptMemory is what a host keeps for VMs that were stopped alone, bytes.
func (s *Snapshot) KeptMemory(host string) (bytes int64) {
	h, _ := s.Host(host)
	s.EachVMOn(host, func(vm *VM) bool {
		if vm.KeepsMemory() {
			bytes += vm.ChargedMemory + h.VMOverhead
		}
		return true
	})
	return bytes
}

// rightsizes says whether a stage of rightsizing is on.
func (s *Snapshot) rightsizes(stage string) bool {
	m, ok := final[Meta](s, tMeta, "id")
	return !ok || m.Settings.Rightsizing.Runs(stage)
}

// LoadOf is the load in a host's ledger.
func (s *Snapshot) LoadOf(host string) capacity.Load { return s.LedgerOf(host).Load }

// ledgerOf is LedgerOf with the caller's way to read VCs.
func (s *Snapshot) ledgerOf(host string, see func(id string) *VC) capacity.Ledger {
	var l capacity.Ledger
	h, ok := peek[Host](s, tHosts, "id", host)
	if !ok {
		h = &Host{}
	}
	l.Usable = h.Usable()
	l.Reserve.LargestOnly = !s.rightsizes(StageReserve)
	s.EachVMOn(host, func(vm *VM) bool {
		if vm.ConsumesResources() {
			l.Add(charged(vm, see(vm.VC).SharedGroup(vm.Group)).Charge(h.VMOverhead))
		} else if vm.KeepsMemory() {
			l.Keep(charged(vm, nil).Charge(h.VMOverhead))
		}
		return true
	})
	return l
}
