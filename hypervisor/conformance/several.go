package conformance

import (
	"sync"
	"testing"
	"time"

	"evenkeel/hypervisor"
)

// manyVCPUs checks that a cap is on the whole VM, whichever of its vCPUs work.
func manyVCPUs(t *testing.T, s Setup) {
	spec := s.Busy(s.Spec("ek-conf-many-0"), 2)
	spec.VCPUs = 2
	spec.CPU = hypervisor.CPU{Cap: 0.8 * s.Cores, Weight: 0.8 * s.Cores}
	s.boot(t, spec)
	s.busy(t, spec.VM, spec.CPU.Cap)
	s.uses(t, spec.VM, spec.CPU.Cap)
	cpu := hypervisor.CPU{Cap: 0.4 * s.Cores, Weight: 0.4 * s.Cores}
	if err := s.Host.SetCPU(t.Context(), spec.VM, cpu); err != nil {
		t.Fatalf("SetCPU: %v", err)
	}
	if vm := must(t, s.Host, spec.VM); !near(vm.CPU.Cap, cpu.Cap) || !near(vm.CPU.Weight, cpu.Weight) {
		t.Errorf("CPU read back is %+v, want %+v", vm.CPU, cpu)
	}
	s.uses(t, spec.VM, cpu.Cap)
	if err := s.Host.Destroy(t.Context(), spec.VM); err != nil {
		t.Fatalf("Destroy: %v", err)
	}

	t.Run("OneBusyThread", func(t *testing.T) {
		// One thread must be able to use the allocation of the whole VM: no
		// quota per vCPU (a share of a half each would stop it at half).
		one := s.Busy(s.Spec("ek-conf-thread-0"), 1)
		one.VCPUs = 2
		one.CPU = hypervisor.CPU{Cap: 0.8 * s.Cores, Weight: 0.8 * s.Cores}
		s.boot(t, one)
		s.busy(t, one.VM, one.CPU.Cap)
		s.uses(t, one.VM, one.CPU.Cap)
	})
}

// migration moves a busy VM to a second host.
func migration(t *testing.T, s Setup) {
	if s.Second == nil {
		lacking(t, "Second")
	}
	spec := s.Busy(s.Spec("ek-conf-move-0"), 1)
	spec.CPU = hypervisor.CPU{Cap: 0.5 * s.Cores, Weight: 0.5 * s.Cores}
	here, there := watch(t, t.Context(), s.Host), watch(t, t.Context(), s.Second.Host)
	s.boot(t, spec)
	take(t, s.Second.Host, spec, s.Wait)
	s.busy(t, spec.VM, spec.CPU.Cap)

	t.Run("OverBudget", func(t *testing.T) { overBudget(t, s, spec) })
	t.Run("Aborted", func(t *testing.T) { aborted(t, s, spec) })
	moves(t, s, spec, here, there)
	if s.Second.Back == "" {
		return
	}

	t.Run("PausedWithPostCopy", func(t *testing.T) {
		_, err := s.Second.Host.Migrate(t.Context(), spec.VM, hypervisor.Migration{To: s.Second.Back, Paused: true, PostCopy: true})
		is(t, "Migrate of a guest that is to arrive paused, by post-copy", err, hypervisor.ErrInvalid)
		must(t, s.Second.Host, spec.VM)
	})

	t.Run("PostCopy", func(t *testing.T) { postCopy(t, s, spec) })
	t.Run("Paused", func(t *testing.T) { arrivesPaused(t, s, spec, here, there) })
}

// overBudget: a move that may not send as much as it takes ends, and the VM runs on where it was.
func overBudget(t *testing.T, s Setup, spec hypervisor.Spec) {
	moved, err := s.Host.Migrate(t.Context(), spec.VM, hypervisor.Migration{To: s.Second.Address, Bandwidth: s.Link / 16, MaxBytes: 2 << 20})
	if err == nil {
		t.Fatalf("a move of more than MaxBytes is no error: %+v", moved)
	}
	if moved.Bytes > 2<<20 {
		t.Errorf("sent %d bytes of at most %d", moved.Bytes, 2<<20)
	}
	must(t, s.Host, spec.VM)
	s.gone(t, s.Second.Host, spec.VM)
}

// aborted: a move ends at an abort, whichever connection it comes by, and the VM runs on where it was.
func aborted(t *testing.T, s Setup, spec hypervisor.Spec) {
	began, result := make(chan struct{}), make(chan error, 1)
	var once sync.Once
	go func() {
		_, err := s.Host.Migrate(t.Context(), spec.VM, hypervisor.Migration{To: s.Second.Address, Bandwidth: 1 << 20,
			Progress: func(m hypervisor.Moved) {
				if m.Bytes > 0 {
					once.Do(func() { close(began) })
				}
			}})
		result <- err
	}()
	select {
	case <-began:
	case err := <-result:
		t.Fatalf("Migrate at 1 MiB/s ended: %v", err)
	case <-time.After(s.Wait):
		t.Fatal("Migrate does not begin")
	}
	from := s.Host
	if s.Reconnect != nil { // also one that another process began
		from = s.Reconnect(t)
		defer from.Close()
	}
	if moved, found, err := from.Abort(t.Context(), spec.VM); err != nil || !found || moved.Bytes <= 0 {
		t.Errorf("Abort of a migration: %+v, %v, %v", moved, found, err)
	}
	if err := <-result; err == nil {
		t.Error("Migrate that was aborted is no error")
	}
	must(t, s.Host, spec.VM)
	s.gone(t, s.Second.Host, spec.VM)
	if _, found, err := from.Abort(t.Context(), spec.VM); err != nil || found {
		t.Errorf("Abort of no migration: %v, %v", found, err)
	}
	if err := s.Host.SetCPU(t.Context(), spec.VM, spec.CPU); err != nil {
		t.Errorf("SetCPU afterwards: %v", err)
	}
}

// moves moves a busy VM to the second host, where it runs on as it was.
func moves(t *testing.T, s Setup, spec hypervisor.Spec, here, there *events) {
	mark, markThere := here.mark(), there.mark()
	moved, err := s.Host.Migrate(t.Context(), spec.VM, hypervisor.Migration{To: s.Second.Address})
	if err != nil {
		t.Fatalf("Migrate: %v", err)
	}
	if moved.Bytes <= 0 || moved.Remaining != 0 {
		t.Errorf("a complete move reports %+v", moved)
	}
	here.await(t, s.Wait, mark, hypervisor.MovedOut, spec.VM)
	there.await(t, s.Wait, markThere, hypervisor.MovedIn, spec.VM)
	here.none(t, mark, hypervisor.Stopped, spec.VM)
	if there, err := s.Second.Host.Arrival(t.Context(), spec.VM); err != nil || there.Bytes < moved.Bytes*9/10 || there.Bytes > moved.Bytes*11/10 {
		t.Errorf("Arrival: %+v, %v; the source counted %+v", there, err, moved)
	}
	if vm, ok := find(t, s.Host, spec.VM); ok {
		t.Errorf("the source still lists %+v", vm)
	}
	vm := must(t, s.Second.Host, spec.VM)
	if vm.Identity != spec.Identity || !near(vm.CPU.Cap, spec.CPU.Cap) || vm.State != hypervisor.Running {
		t.Errorf("the target lists %+v, want %+v running with %+v", vm, spec.Identity, spec.CPU)
	}
	on := s
	on.Host = s.Second.Host
	on.uses(t, spec.VM, spec.CPU.Cap)
}

// postCopy moves the VM home by post-copy.
func postCopy(t *testing.T, s Setup, spec hypervisor.Spec) {
	// So little bandwidth that what the guest writes keeps it from an end for a while; the budget bounds it.
	m := hypervisor.Migration{To: s.Second.Back, Bandwidth: s.Link, MaxBytes: 3 * spec.Memory, PostCopy: true, AutoConverge: true}
	moved, err := s.Second.Host.Migrate(t.Context(), spec.VM, m)
	if err != nil {
		t.Fatalf("Migrate: %v", err)
	}
	if moved.Bytes <= 0 || moved.Bytes > m.MaxBytes || moved.Remaining != 0 {
		t.Errorf("a complete move reports %+v", moved)
	}
	t.Logf("%+v", moved)
	if vm := must(t, s.Host, spec.VM); vm.Identity != spec.Identity || vm.State != hypervisor.Running {
		t.Errorf("back home there is %+v", vm)
	}
	s.gone(t, s.Second.Host, spec.VM)
	s.uses(t, spec.VM, spec.CPU.Cap)
}

// arrivesPaused moves a busy VM to the second host, where its guest stands still until it is resumed.
func arrivesPaused(t *testing.T, s Setup, spec hypervisor.Spec, here, there *events) {
	before := must(t, s.Host, spec.VM)
	mark, markThere := here.mark(), there.mark()
	moved, err := s.Host.Migrate(t.Context(), spec.VM, hypervisor.Migration{To: s.Second.Address, Paused: true})
	if err != nil {
		t.Fatalf("Migrate: %v", err)
	}
	if moved.Bytes <= 0 || moved.Remaining != 0 {
		t.Errorf("a complete move reports %+v", moved)
	}
	if vm, ok := find(t, s.Host, spec.VM); ok {
		t.Errorf("the source still lists %+v", vm)
	}
	on := s
	on.Host = s.Second.Host
	if vm := must(t, on.Host, spec.VM); vm.Identity != spec.Identity || vm.State != hypervisor.Paused || vm.Leftover || !vm.Standing || !near(vm.CPU.Cap, before.CPU.Cap) {
		t.Errorf("the target lists %+v, want %+v paused with %+v", vm, spec.Identity, before.CPU)
	}
	here.await(t, s.Wait, mark, hypervisor.MovedOut, spec.VM)
	there.await(t, s.Wait, markThere, hypervisor.Suspended, spec.VM) // libvirt sends no other event of the arrival
	if arrival, err := on.Host.Arrival(t.Context(), spec.VM); err != nil || arrival.Bytes < moved.Bytes*9/10 || arrival.Bytes > moved.Bytes*11/10 {
		t.Errorf("Arrival: %+v, %v; the source counted %+v", arrival, err, moved)
	}
	cpu := hypervisor.CPU{Cap: 0.4 * s.Cores, Weight: 0.4 * s.Cores}
	if err := on.Host.SetCPU(t.Context(), spec.VM, cpu); err != nil {
		t.Errorf("SetCPU of a paused VM: %v", err)
	}
	if used, _ := on.rate(t, spec.VM, s.Window); used > 0.01 {
		t.Errorf("a guest that arrived paused uses %.3f cores", used)
	}
	if vm := must(t, on.Host, spec.VM); vm.State != hypervisor.Paused {
		t.Errorf("after a while the target lists %+v, want it paused", vm)
	}

	markThere = there.mark()
	for range 2 {
		if err := on.Host.Resume(t.Context(), spec.VM); err != nil {
			t.Fatalf("Resume: %v", err)
		}
		if vm := must(t, on.Host, spec.VM); vm.State != hypervisor.Running {
			t.Errorf("Resume returned, and the target lists %+v", vm)
		}
	}
	there.await(t, s.Wait, markThere, hypervisor.Resumed, spec.VM)
	on.uses(t, spec.VM, cpu.Cap)
	s.gone(t, s.Host, spec.VM)
}
