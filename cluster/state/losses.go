package state

import (
	"fmt"
	"slices"
)

// HostFencing records how the host enforces its lease, as a renewal reported it.
type HostFencing struct {
	Host    string  `json:"host"`
	Fencing Fencing `json:"fencing"`
	// Machine is the run of the machine that it renewed for; zero: as before.
	Machine Machine `json:"machine,omitzero"`
}

// HostLost records a proof that the host runs no VM, or none of its restartable ones.
type HostLost struct {
	Host  string `json:"host"`
	Proof Proof  `json:"proof"`
	Text  string `json:"text"` // how it was proved, and by which server or operator
	// Basis is the log index of the state when the proof began. The proof does not cover a VM that moves to this host and was proved
	// gone from its source only after Basis: that VM may have arrived since.
	Basis uint64 `json:"basis"`
}

// Inventory is the list of VMs that a host runs, reported during a recovery freeze. A VM takes the generation of the instance that
// runs, even if the state knows a later one: the permit of the later generation is of an earlier epoch and not valid any more.
type Inventory struct {
	Host string     `json:"host"`
	VMs  []Instance `json:"vms"`
}

// Instance is a VM that a host runs, as its hypervisor lists it.
type Instance struct {
	VM         string `json:"vm"`
	Generation uint64 `json:"generation"`
	// Leftover: the host does not run it. A migration left it there, paused, and the next start is of a later generation.
	Leftover bool `json:"leftover,omitempty"`
}

// SetFencing enables or disables fencing in the whole cluster.
type SetFencing struct {
	FencingDisabled bool   `json:"fencingDisabled"`
	Reason          string `json:"reason,omitempty"`
}

// Values of VC.OnHostLoss.
const (
	KeepOnLoss    = "keep"
	RestartOnLoss = "restart"
)

// Restartable says whether the VC's VMs are started elsewhere if their host is lost.
func (v VC) Restartable() bool { return v.OnHostLoss == RestartOnLoss }

func (w *writer) fencing(b *HostFencing) error {
	h, ok := w.read().Host(b.Host)
	if !ok {
		return fmt.Errorf("host %s: %w", b.Host, ErrNotFound)
	}
	if b.Machine == (Machine{}) {
		b.Machine = h.Machine
	}
	if h.Fencing == b.Fencing && h.Machine == b.Machine {
		return nil
	}
	old := h.Fencing
	h.Fencing, h.Machine = b.Fencing, b.Machine
	w.put(tHosts, &h)
	switch {
	case old.Watchdog == 0 && b.Fencing.Watchdog > 0:
		w.event("watchdog-armed", "host", h.Name, "its watchdog turns it off after %.3g s without a word of its agent", float64(b.Fencing.Watchdog)/1000)
	case old.Watchdog > 0 && b.Fencing.Watchdog == 0:
		w.event("watchdog-disarmed", "host", h.Name, "no watchdog guards its leases now")
	}
	return nil
}

func (w *writer) hostLost(b *HostLost) error {
	h, ok := w.read().Host(b.Host)
	if !ok {
		return fmt.Errorf("host %s: %w", b.Host, ErrNotFound)
	}
	switch b.Proof {
	case ProofLease:
		if m, _ := w.read().Meta(); m.FencingDisabled {
			return fmt.Errorf("host %s: fencing was disabled: %w", b.Host, ErrConflict)
		}
		if !h.Fencing.Enforcing || h.Fencing.Watchdog == 0 {
			return fmt.Errorf("host %s: no watchdog guards its leases now: %w", b.Host, ErrConflict)
		}
	case ProofFence, ProofOperator:
	default:
		return fmt.Errorf("host %s: proof %q: %w", b.Host, b.Proof, ErrInvalid)
	}
	h.Lost = Loss{At: w.at, Proof: b.Proof, Text: b.Text}
	if b.Proof != ProofLease {
		h.Fencing, h.Machine = Fencing{}, Machine{} // its agent reports both again when it comes back
	}
	w.put(tHosts, &h)
	w.event("host-lost", "host", h.Name, "%s", b.Text)
	n := 0
	for _, vm := range append(w.read().VMsOn(h.Name), w.read().VMsMovingTo(h.Name)...) {
		vc, _ := w.read().VC(vm.VC)
		if m, _ := w.read().MigrationOf(vm.ID); vm.MovingTo == h.Name && m.SourceLostSince() > b.Basis {
			continue
		}
		if vm.ConsumesResources() && (b.Proof != ProofLease || vc.Restartable()) && w.sourceLost(vm, h.Name, "host "+h.Name+" was lost: "+b.Text) {
			n++
		}
	}
	w.touch(h.Name)
	if b.Proof != ProofLease {
		w.inventoryTaken(h.Name)
	}
	return nil
}

// sourceLost records that the VM is proved not to run on that host. The VM is lost once this is proved of every host that may
// hold it: see Migration.lostAt.
func (w *writer) sourceLost(vm VM, host, why string) bool {
	if vm.MovingTo == "" {
		w.markLost(vm, why)
		return true
	}
	m, _ := w.read().MigrationOf(vm.ID)
	next, lost := m.lostAt(host, w.index)
	if lost {
		w.markLost(vm, why)
		return true
	}
	w.changeMigration(m, next)
	return false
}

// markLost records that no host runs the VM any more. The leader starts it again if its goal was to run.
func (w *writer) markLost(vm VM, why string) {
	hosts := []string{vm.Host, vm.MovingTo}
	w.endMigration(vm, outcome{text: why})
	vm = vm.lost(why)
	vm.ModifyIndex = w.index
	w.put(tVMs, &vm)
	for _, h := range hosts {
		w.touch(h)
	}
	w.runOf(vm)
	w.event("vm-"+string(vm.Phase), "vm", vm.Name, "%s", why)
}

func (w *writer) setFencing(b *SetFencing) error {
	m, ok := w.read().Meta()
	if !ok {
		return fmt.Errorf("cluster: %w", ErrNotFound)
	}
	if m.FencingDisabled == b.FencingDisabled {
		return nil
	}
	m.FencingDisabled, m.FencingDisabledReason = b.FencingDisabled, b.Reason
	w.put(tMeta, &m)
	// A host may already act by the new setting without having reported that. So what it reported of its lease before proves nothing
	// until it reports again.
	for _, h := range w.read().Hosts() {
		if h.Fencing != (Fencing{}) {
			h.Fencing = Fencing{}
			w.put(tHosts, &h)
		}
	}
	if b.FencingDisabled {
		w.event("fencing-disabled", "cluster", m.ID, "leases that run out stop no VM and prove nothing%s", because(b.Reason))
	} else {
		w.event("fencing-enabled", "cluster", m.ID, "leases stop VMs again")
	}
	return nil
}

// inventory takes in what a host runs, during a recovery freeze: a VM is where it runs, whatever the state says.
func (w *writer) inventory(b *Inventory) error {
	m, _ := w.read().Meta()
	if _, ok := w.read().Host(b.Host); !ok {
		return fmt.Errorf("host %s: %w", b.Host, ErrNotFound)
	}
	if !slices.Contains(m.RecoveryFreeze.Pending, b.Host) {
		return nil
	}
	here := map[string]bool{}
	for _, r := range b.VMs {
		vm, ok := w.read().VM(r.VM)
		if r.Leftover {
			if ok && r.Generation > vm.Generation && !vm.InventoryConfirmed(m) {
				vm.Generation, vm.ModifyIndex = r.Generation, w.index
				w.put(tVMs, &vm)
			}
			continue
		}
		if !ok {
			w.event("vm-unmanaged", "vm", r.VM, "runs on host %s, but the state does not know it: it is left alone", b.Host)
			continue
		}
		if vm.InventoryConfirmed(m) && vm.Host != b.Host {
			w.event("vm-duplicate", "vm", vm.Name, "runs on host %s (generation %d) and on host %s (generation %d)", vm.Host, vm.Generation, b.Host, r.Generation)
			if r.Generation < vm.Generation { // of the same generation the later report counts: the VM may have moved between the two
				continue
			}
		}
		here[vm.ID] = true
		old := vm.Host
		g, _ := mustVC(w, vm).GroupOf(vm)
		w.endMigration(vm, outcome{arrived: b.Host == vm.MovingTo, text: "host " + b.Host + " says so after the " + m.RecoveryFreeze.Reason})
		vm = vm.found(b.Host, r.Generation, g)
		vm.InventoryEpoch, vm.ModifyIndex = m.Epoch, w.index
		w.put(tVMs, &vm)
		w.touch(old)
		w.touch(b.Host)
	}
	w.inventoryTaken(b.Host)
	return nil
}

// InventoryConfirmed says whether a host has reported in this epoch that it runs the VM.
func (v VM) InventoryConfirmed(m Meta) bool { return v.InventoryEpoch == m.Epoch && m.Epoch > 0 }

func mustVC(w *writer, vm VM) VC {
	vc, _ := w.read().VC(vm.VC)
	return vc
}

// inventoryTaken records that the recovery freeze does not wait for the host any more. With the last host the recovery freeze
// ends, and a VM that no host runs is lost.
func (w *writer) inventoryTaken(host string) {
	m, ok := w.read().Meta()
	if !ok || !m.RecoveryFreeze.On() || !slices.Contains(m.RecoveryFreeze.Pending, host) {
		return
	}
	m.RecoveryFreeze.Pending = slices.DeleteFunc(slices.Clone(m.RecoveryFreeze.Pending), func(name string) bool { return name == host })
	if len(m.RecoveryFreeze.Pending) > 0 {
		w.put(tMeta, &m)
		return
	}
	w.put(tMeta, &m)
	for _, vm := range w.read().VMs() {
		if vm.ConsumesResources() && !vm.InventoryConfirmed(m) {
			w.markLost(vm, "no host runs it after the "+m.RecoveryFreeze.Reason)
		}
	}
	w.event("recovery-freeze-ended", "cluster", m.ID, "every host has said what it runs: the cluster goes on after the %s", m.RecoveryFreeze.Reason)
	m.RecoveryFreeze = RecoveryFreeze{}
	w.put(tMeta, &m)
}
