package lab

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestKeys: hosts talk to one another with libvirt's keys, and not with QEMU's, which a guest that breaks out of QEMU can read.
func TestKeys(t *testing.T) {
	Real(t)
	l := New(t, Options{Hosts: 2, TLS: true})
	h1, h2 := l.Host(1), l.Host(2)
	list := func(path string) (string, error) {
		out, err := h1.Command(t.Context(), "virsh", "-c", "qemu+tls://"+h2.Name+"/system?pkipath="+path, "list", "--all").CombinedOutput()
		return strings.TrimSpace(string(out)), err
	}
	if out, err := list(keysPath); err != nil {
		t.Fatalf("with libvirt's keys: %v: %s", err, out)
	}
	read := func(path string) []byte {
		b, err := os.ReadFile(filepath.Join(h1.dir, "etc", strings.TrimPrefix(path, "/etc/libvirt/")))
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	stolen := keyFiles{"/etc/libvirt/stolen", "cacert.pem", []string{"clientcert.pem"}, []string{"clientkey.pem"}}
	if err := h1.writeKeys(stolen, read(keysPath+"/cacert.pem"), read(qemuKeysPath+"/client-cert.pem"), read(qemuKeysPath+"/client-key.pem")); err != nil {
		t.Fatal(err)
	}
	// libvirt's own check of a client's keys stops at a certificate of another authority, so it is left out as an attacker would.
	if out, err := list(stolen.path + "&no_sanity=1"); err == nil {
		t.Errorf("libvirt on %s obeys QEMU's key: %s", h2.Name, out)
	} else {
		t.Logf("refused: %s", out)
	}
}
