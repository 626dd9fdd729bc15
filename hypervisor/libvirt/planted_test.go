package libvirt

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"libvirt.org/go/libvirt"
	"libvirt.org/go/libvirtxml"

	"evenkeel/hypervisor"
)

// TestPlantedHeader: QEMU can write anything into the file of a VM's disk, its header too. At the next start neither libvirt
// nor QEMU may open another file because the header names it.
func TestPlantedHeader(t *testing.T) {
	b := realHost(t)
	const size = 32 << 20
	cases := []struct {
		name    string
		header  []string // options of qemu-img; OTHER stands for the other file
		refused bool     // or else the VM starts without that file
	}{
		{"backing", []string{"-b", "OTHER", "-F", "raw"}, false},
		{"data", []string{"-o", "data_file=OTHER,data_file_raw=on"}, true},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			s := b.spec("ek-planted-"+c.name+"-0", "")
			s.Disk = hypervisor.Disk{Size: size}
			other := filepath.Join(t.TempDir(), "other.raw")
			if err := os.WriteFile(other, make([]byte, size), 0o666); err != nil {
				t.Fatal(err)
			}
			plant := func() {
				args := []string{"create", "-q", "-f", "qcow2"}
				for _, a := range c.header {
					args = append(args, strings.ReplaceAll(a, "OTHER", other))
				}
				args = append(args, b.volume(diskName(s.VM)), fmt.Sprint(size))
				if out, err := exec.CommandContext(t.Context(), "qemu-img", args...).CombinedOutput(); err != nil {
					t.Fatalf("qemu-img: %v: %s", err, out)
				}
			}
			b.run(t, s)
			if err := b.Destroy(t.Context(), s.VM); err != nil {
				t.Fatal(err)
			}
			plant()
			err := b.Start(t.Context(), s)
			if c.refused {
				if !errors.Is(err, hypervisor.ErrInvalid) || !strings.Contains(err.Error(), "in another file") {
					t.Errorf("start: %v, want ErrInvalid that names the fault", err)
				}
			} else if err != nil {
				t.Fatal(err)
			}
			disks, files := b.opened(t, s.Name)
			if slices.Contains(files, other) {
				t.Errorf("QEMU has opened the other file: %q", files)
			}
			for _, d := range disks {
				if d.BackingStore == nil || d.BackingStore.Source != nil && d.BackingStore.Source.File != nil {
					t.Errorf("the chain of %s does not end with the image: %+v", d.Source.File.File, d.BackingStore)
				}
			}
			if !c.refused && (len(disks) != 1 || !slices.Contains(files, b.volume(diskName(s.VM)))) {
				t.Errorf("%d disks, files %q, want the VM's own", len(disks), files)
			}
		})
	}
}

// opened are the disks of a VM as libvirt knows them, and the files that QEMU has open for them; nothing if there is no such VM.
func (b bench) opened(t *testing.T, name string) (disks []libvirtxml.DomainDisk, files []string) {
	t.Helper()
	conn, err := libvirt.NewConnect(b.lab.URI())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	dom, err := conn.LookupDomainByName(name)
	if isCode(err, libvirt.ERR_NO_DOMAIN) {
		return nil, nil
	}
	if err != nil {
		t.Fatal(err)
	}
	defer dom.Free()
	text, err := dom.GetXMLDesc(0)
	if err != nil {
		t.Fatal(err)
	}
	var d libvirtxml.Domain
	if err := d.Unmarshal(text); err != nil {
		t.Fatal(err)
	}
	answer, err := dom.QemuMonitorCommand(`{"execute":"query-named-block-nodes"}`, 0)
	if err != nil {
		t.Fatal(err)
	}
	var nodes struct {
		Return []struct{ Drv, File string }
	}
	if err := json.Unmarshal([]byte(answer), &nodes); err != nil {
		t.Fatal(err)
	}
	for _, n := range nodes.Return {
		if n.Drv == "file" {
			files = append(files, n.File)
		}
	}
	return d.Devices.Disks, files
}
