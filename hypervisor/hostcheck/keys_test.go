package hostcheck

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"slices"
	"testing"
	"time"
)

var now = time.Date(2026, 11, 27, 0, 0, 0, 0, time.UTC)

// certificate is one that is valid until then.
func certificate(t *testing.T, until time.Time) string {
	t.Helper()
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: now.AddDate(-1, 0, 0), NotAfter: until}
	der, err := x509.CreateCertificate(rand.Reader, c, c, public, private)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
}

// The files are where the configurations of libvirt, QEMU and vcd say.
func TestMoves(t *testing.T) {
	good, old := certificate(t, now.AddDate(1, 0, 0)), certificate(t, now.AddDate(0, 0, -1))
	usual := map[string]string{"/etc/libvirt/qemu.conf": "#migrate_tls_x509_verify = 0\nmigrate_tls_x509_verify = 1\n",
		"/proc/net/tcp6": "  sl  local_address\n   0: 00000000000000000000000000000000:4082 00000000000000000000000000000000:0000 0A 0\n"}
	for _, name := range []string{"/etc/pki/CA/cacert.pem", "/etc/pki/libvirt/clientcert.pem", "/etc/pki/libvirt/servercert.pem", "/etc/pki/qemu/ca-cert.pem", "/etc/pki/qemu/client-cert.pem", "/etc/pki/qemu/server-cert.pem"} {
		usual[name] = good
	}
	for _, name := range []string{"/etc/pki/libvirt/private/clientkey.pem", "/etc/pki/libvirt/private/serverkey.pem", "/etc/pki/qemu/client-key.pem", "/etc/pki/qemu/server-key.pem"} {
		usual[name] = "a key"
	}
	elsewhere := map[string]string{
		"/etc/libvirt/qemu.conf":     "migrate_tls_x509_cert_dir = \"/k/qemu\"\nmigrate_tls_x509_verify = 1\n",
		"/etc/libvirt/libvirtd.conf": "ca_file = \"/k/cacert.pem\"\ncert_file = \"/k/servercert.pem\"\nkey_file = \"/k/serverkey.pem\"\n",
		"/proc/net/tcp":              "   0: 0100007F:4082 00000000:0000 0A 0\n",
		"/k/cacert.pem":              good, "/k/servercert.pem": good, "/k/serverkey.pem": "a key", "/k/clientcert.pem": good, "/k/clientkey.pem": "a key",
		"/k/qemu/ca-cert.pem": good, "/k/qemu/client-cert.pem": good, "/k/qemu/server-cert.pem": good, "/k/qemu/client-key.pem": "a key", "/k/qemu/server-key.pem": "a key",
	}
	for _, tt := range []struct {
		name  string
		files map[string]string
		uri   string
		more  map[string]string // "" removes a file
		want  Moves
	}{
		{"as the page has it", usual, "qemu+tls://192.0.2.11:16514/system", nil, Moves{Port: 16514, Listens: true, Verifies: true}},
		{"no address yet", usual, "", nil, Moves{Port: 16514, Listens: true, Verifies: true}},
		{"elsewhere", elsewhere, "qemu+tls://192.0.2.11/system?pkipath=/k", nil, Moves{Port: 16514, Listens: true, Verifies: true}},
		{"elsewhere, and migrateURI does not say so", elsewhere, "qemu+tls://192.0.2.11/system", nil,
			Moves{Missing: []string{"/etc/pki/CA/cacert.pem", "/etc/pki/libvirt/clientcert.pem", "/etc/pki/libvirt/private/clientkey.pem"}, Port: 16514, Listens: true, Verifies: true}},
		{"a key is missing", usual, "", map[string]string{"/etc/pki/qemu/client-key.pem": ""}, Moves{Missing: []string{"/etc/pki/qemu/client-key.pem"}, Port: 16514, Listens: true, Verifies: true}},
		{"a certificate has run out", usual, "", map[string]string{"/etc/pki/qemu/client-cert.pem": old}, Moves{Expired: []string{"/etc/pki/qemu/client-cert.pem"}, Port: 16514, Listens: true, Verifies: true}},
		{"no certificate", usual, "", map[string]string{"/etc/pki/libvirt/servercert.pem": "x"}, Moves{Expired: []string{"/etc/pki/libvirt/servercert.pem"}, Port: 16514, Listens: true, Verifies: true}},
		{"another port", usual, "qemu+tls://192.0.2.11:17000/system", nil, Moves{Port: 17000, Verifies: true}},
		{"the port of the daemon", usual, "", map[string]string{"/etc/libvirt/libvirtd.conf": "tls_port = \"17000\"\n"}, Moves{Port: 17000, Verifies: true}},
		{"no TLS", nil, "qemu+tcp://192.0.2.11/system", nil, Moves{Keyless: true}},
		{"no address", usual, "::", nil, Moves{Port: 16514, Listens: true, Verifies: true}},
	} {
		got := moves(func(name string) string {
			if text, is := tt.more[name]; is {
				return text
			}
			return tt.files[name]
		}, tt.uri, now)
		same := got.Keyless == tt.want.Keyless && slices.Equal(got.Missing, tt.want.Missing) && slices.Equal(got.Expired, tt.want.Expired) && got.Port == tt.want.Port && got.Listens == tt.want.Listens && got.Verifies == tt.want.Verifies
		if !same {
			t.Errorf("%s: %+v, want %+v", tt.name, got, tt.want)
		}
	}
}

func TestListens(t *testing.T) {
	for line, want := range map[string]bool{
		"   0: 0100007F:4082 00000000:0000 0A 0": true,
		"   0: 0100007F:4082 00000000:0000 01 0": false, // a connection
		"   0: 0100007F:0016 0100007F:4082 0A 0": false,
		"":                                       false,
	} {
		if got := listens(line, 16514); got != want {
			t.Errorf("%q: %v, want %v", line, got, want)
		}
	}
}
