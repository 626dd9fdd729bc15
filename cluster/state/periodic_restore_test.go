package state_test

import (
	"testing"

	"evenkeel/cluster/state"
)

// A tenant that was made again under the name of a deleted one gets none of its jobs and runs with a saved state, and is suspended if that
// has images of the other.
func TestRestoreGivesNoJobsToAnotherTenant(t *testing.T) {
	k := small(t, 2)
	k.must(t, state.KindTenantPut, state.TenantPut{Tenant: state.Tenant{Name: "acme", Salt: "ab"}})
	k.oneRun(t, "acme/x-1", "acme/secret")
	k.must(t, state.KindPeriodic, state.PeriodicPut{Job: "acme/secret", SignOff: contract(), Verb: "accept"})
	saved := save(t, k.Snapshot())
	k.must(t, state.KindTenantDrop, state.TenantDrop{Name: "acme"})
	k.must(t, state.KindTenantPut, state.TenantPut{Tenant: state.Tenant{Name: "acme", Salt: "ab"}})
	for _, p := range parts("r", saved, 2) {
		k.must(t, state.KindRestore, p)
	}
	if jobs := k.Snapshot().PeriodicJobs(); len(jobs) != 0 || len(k.Snapshot().Runs("acme/secret")) != 0 {
		t.Errorf("the new tenant has %+v", jobs)
	}
	if tenant, _ := k.Snapshot().Tenant("acme"); tenant.Suspended {
		t.Errorf("%+v", tenant)
	}
}

// The images of the other are not the new tenant's to use.
func TestRestoreSuspendsATenantWithImagesOfAnother(t *testing.T) {
	k := small(t, 1)
	acme := state.TenantPut{Tenant: state.Tenant{Name: "acme", Salt: "ab"}}
	k.must(t, state.KindTenantPut, acme)
	k.must(t, state.KindImagePut, state.Image{Name: "acme/secret", Kind: state.KernelImage})
	saved := save(t, k.Snapshot())
	k.must(t, state.KindImageDrop, state.ImageDrop{Name: "acme/secret"})
	k.must(t, state.KindTenantDrop, state.TenantDrop{Name: "acme"})
	k.must(t, state.KindTenantPut, acme)
	for _, p := range parts("r", saved, 2) {
		k.must(t, state.KindRestore, p)
	}
	if tenant, _ := k.Snapshot().Tenant("acme"); !tenant.Suspended {
		t.Errorf("%+v", tenant)
	}
}
