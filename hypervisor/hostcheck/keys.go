package hostcheck

import (
	"cmp"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Where libvirt and QEMU look for keys unless their configuration says otherwise: docs/how-to/set-up-live-migration.md.
const (
	defaultCA  = "/etc/pki/CA/cacert.pem"
	defaultPKI = "/etc/pki/libvirt"
	qemuPKI    = "/etc/pki/qemu"
	tlsPort    = 16514 // of libvirt
)

// Moves is what a host has for live migration.
type Moves struct {
	Keyless  bool     `json:"keyless"`  // other hosts reach its libvirt without TLS
	Missing  []string `json:"missing"`  // files that are not there
	Expired  []string `json:"expired"`  // certificates that are not valid now
	Port     int      `json:"port"`     // on which other hosts reach its libvirt by TLS
	Listens  bool     `json:"listens"`  // something listens there
	Verifies bool     `json:"verifies"` // QEMU asks for the certificate of the other side
}

// moves reads what a host has. uri is where other hosts reach its libvirt; "" is qemu+tls and the usual files.
func moves(in func(string) string, uri string, now time.Time) Moves {
	u, err := url.Parse(uri)
	if err != nil {
		u = &url.URL{}
	}
	if _, transport, named := strings.Cut(u.Scheme, "+"); named && transport != "tls" {
		return Moves{Keyless: true}
	}
	daemon, qemu := settings(in("/etc/libvirt/libvirtd.conf")), settings(in("/etc/libvirt/qemu.conf"))
	if f := settings(in("/etc/libvirt/virtproxyd.conf")); in("/etc/libvirt/libvirtd.conf") == "" { // the daemon of many parts
		daemon = f
	}
	own := []string{defaultCA, defaultPKI + "/clientcert.pem", defaultPKI + "/private/clientkey.pem"}
	if dir := u.Query().Get("pkipath"); dir != "" {
		own = []string{path.Join(dir, "cacert.pem"), path.Join(dir, "clientcert.pem"), path.Join(dir, "clientkey.pem")}
	}
	files := append(own, cmp.Or(daemon["ca_file"], defaultCA), cmp.Or(daemon["cert_file"], defaultPKI+"/servercert.pem"), cmp.Or(daemon["key_file"], defaultPKI+"/private/serverkey.pem"))
	dir := cmp.Or(qemu["migrate_tls_x509_cert_dir"], qemu["default_tls_x509_cert_dir"], qemuPKI)
	for _, name := range []string{"ca-cert.pem", "client-cert.pem", "client-key.pem", "server-cert.pem", "server-key.pem"} {
		files = append(files, path.Join(dir, name))
	}
	m := Moves{Port: tlsPort, Verifies: qemu["migrate_tls_x509_verify"] == "1" || qemu["default_tls_x509_verify"] == "1"}
	slices.Sort(files)
	for _, name := range slices.Compact(files) {
		switch text := in(name); {
		case text == "":
			m.Missing = append(m.Missing, name)
		case !strings.Contains(path.Base(name), "key") && !valid(text, now):
			m.Expired = append(m.Expired, name)
		}
	}
	if port, err := strconv.Atoi(cmp.Or(u.Port(), daemon["tls_port"])); err == nil {
		m.Port = port
	}
	m.Listens = listens(in("/proc/net/tcp")+"\n"+in("/proc/net/tcp6"), m.Port)
	return m
}

// settings are those of a configuration file of libvirt, lists left out.
func settings(file string) map[string]string {
	values := map[string]string{}
	for line := range strings.Lines(file) {
		key, value, ok := strings.Cut(strings.TrimSpace(line), "=")
		if ok && !strings.HasPrefix(key, "#") {
			values[strings.TrimSpace(key)] = strings.Trim(strings.TrimSpace(value), `"'`)
		}
	}
	return values
}

// valid says whether the first certificate of a file is, now. A file that holds none is not.
func valid(file string, now time.Time) bool {
	block, _ := pem.Decode([]byte(file))
	if block == nil {
		return false
	}
	cert, err := x509.ParseCertificate(block.Bytes)
	return err == nil && !now.Before(cert.NotBefore) && !now.After(cert.NotAfter)
}

// listens reads proc_net_tcp(5): a line has the local address, the other, and 0A as the state of a socket that listens.
func listens(tables string, port int) bool {
	for line := range strings.Lines(tables) {
		f := strings.Fields(line)
		if len(f) > 3 && f[3] == "0A" && strings.HasSuffix(f[1], fmt.Sprintf(":%04X", port)) {
			return true
		}
	}
	return false
}

// reader reads files below root: their text without white space around it, "" of a file that is not there. A file that must not be read counts as
// there.
func reader(root string) func(string) string {
	return func(name string) string {
		b, err := os.ReadFile(filepath.Join(root, name))
		if errors.Is(err, os.ErrPermission) {
			return "(not readable)"
		}
		return strings.TrimSpace(string(b))
	}
}
