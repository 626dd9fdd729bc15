package libvirt

import (
	"errors"
	"slices"
	"testing"

	"libvirt.org/go/libvirt"
	"libvirt.org/go/libvirtxml"

	"evenkeel/hypervisor"
)

// The machine that new VMs get comes first, versions follow in order, and each is there once.
func TestMachinesOf(t *testing.T) {
	const text = `<capabilities><host/><guest><os_type>hvm</os_type><arch name='x86_64'><wordsize>64</wordsize>
		<machine canonical='pc-i440fx-9.2'>pc</machine><machine canonical='pc-q35-9.2'>q35</machine>
		<machine>pc-q35-9.2</machine><machine>pc-q35-8.0</machine><machine>pc-q35-10.0</machine><machine>microvm</machine>
		<domain type='qemu'/><domain type='kvm'><machine canonical='pc-q35-9.2'>q35</machine><machine>pc-q35-7.2</machine></domain>
		</arch></guest><guest><os_type>hvm</os_type><arch name='i686'><wordsize>32</wordsize><machine>pc-q35-1.0</machine></arch></guest></capabilities>`
	var caps libvirtxml.Caps
	if err := caps.Unmarshal(text); err != nil {
		t.Fatal(err)
	}
	for kvm, want := range map[bool][]string{false: {"pc-q35-9.2", "pc-q35-10.0", "pc-q35-8.0"}, true: {"pc-q35-9.2", "pc-q35-7.2"}} {
		if got := machinesOf(caps, kvm); !slices.Equal(got, want) {
			t.Errorf("KVM %v: %q, want %q", kvm, got, want)
		}
	}
	if got := machinesOf(libvirtxml.Caps{}, false); len(got) > 0 {
		t.Errorf("of nothing: %q", got)
	}
}

func TestMigrationFlags(t *testing.T) {
	const always = libvirt.MIGRATE_LIVE | libvirt.MIGRATE_PEER2PEER | libvirt.MIGRATE_ABORT_ON_ERROR
	disk := hypervisor.Spec{Disk: hypervisor.Disk{Size: 1 << 30}}
	for _, c := range []struct {
		m    hypervisor.Migration
		want libvirt.DomainMigrateFlags
	}{
		{hypervisor.Migration{To: "qemu+tcp://h2/system"}, 0},
		{hypervisor.Migration{To: "qemu+tls://h2:16514/system"}, libvirt.MIGRATE_TLS},
		{hypervisor.Migration{To: "qemu+ssh://h2/system", AutoConverge: true, PostCopy: true}, libvirt.MIGRATE_AUTO_CONVERGE | libvirt.MIGRATE_POSTCOPY},
		{hypervisor.Migration{To: "qemu+tcp://h2/system", SharedDisk: true, Spec: disk, PostCopy: true}, libvirt.MIGRATE_UNSAFE | libvirt.MIGRATE_POSTCOPY},
		// A guest that runs elsewhere before its disk is there would lose what it wrote if the link broke.
		{hypervisor.Migration{To: "qemu+tcp://h2/system", CopyStorage: true, Spec: disk, PostCopy: true}, libvirt.MIGRATE_NON_SHARED_INC},
		{hypervisor.Migration{To: "qemu+tcp://h2/system", CopyStorage: true, PostCopy: true}, libvirt.MIGRATE_POSTCOPY},
	} {
		if got, err := migrationFlags(c.m); err != nil || got != always|c.want {
			t.Errorf("%+v: %b, %v, want %b", c.m, got, err, always|c.want)
		}
	}
	if _, err := migrationFlags(hypervisor.Migration{To: "qemu+tcp://h2:port/"}); !errors.Is(err, hypervisor.ErrInvalid) {
		t.Errorf("an address that is none: %v", err)
	}
	for to, want := range map[string]string{"qemu+tls://h2/system?pkipath=/x": "h2", "qemu+tls://[fd00::2]:16514/system": "[fd00::2]", "qemu+tcp://192.0.2.12:1/system": "192.0.2.12", "qemu:///system": ""} {
		if got := hostOf(to); got != want {
			t.Errorf("host of %s: %q, want %q", to, got, want)
		}
	}
}
