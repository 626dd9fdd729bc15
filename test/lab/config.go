package lab

import (
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// The hosts of a lab with Options.Shared see its shared directory here; the images are below it.
const (
	sharedMount = "/var/lib/libvirt/shared"
	locksPath   = sharedMount + "/locks"
	sharedPool  = "shared"

	// SharedPath is the directory of the storage pool "shared" as the hosts see it.
	SharedPath = sharedMount + "/images"
)

// Shared is the directory of the storage pool "shared" as it is seen from outside the lab.
func (l *Lab) Shared() string { return filepath.Join(l.dir, "shared", "images") }

func (l *Lab) makeShared() error {
	return errors.Join(os.MkdirAll(l.Shared(), 0o755), os.MkdirAll(filepath.Join(l.dir, "shared", "locks"), 0o755))
}

// install makes what the host keeps over a power failure.
func (h *Host) install() error {
	for _, d := range []string{"etc/qemu", "etc/storage/autostart", "lib", "log/qemu", "cache", "config", "board", "disk", "programs"} {
		if err := os.MkdirAll(filepath.Join(h.dir, d), 0o755); err != nil {
			return err
		}
	}
	id := strings.ReplaceAll(uuid(), "-", "") + "\n"
	if err := os.WriteFile(filepath.Join(h.dir, "machine-id"), []byte(id), 0o444); err != nil {
		return err
	}
	if h.lab.state.Shared {
		link := filepath.Join(h.dir, "etc/storage/autostart", sharedPool+".xml")
		err := errors.Join(
			os.Symlink(filepath.Join("..", "shared"), filepath.Join(h.dir, "shared")),
			os.Symlink("/etc/libvirt/storage/"+sharedPool+".xml", link))
		if err != nil {
			return err
		}
	}
	return h.makeDisk()
}

// uuid is a random UUID of version 4.
func uuid() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

// configure makes what is new each time the host is started, and writes its libvirt's configuration.
func (h *Host) configure() error {
	if err := os.RemoveAll(h.Run()); err != nil { // nothing of /run outlives a power failure
		return err
	}
	if err := os.Mkdir(h.Run(), 0o755); err != nil {
		return err
	}
	acl := `"/dev/null", "/dev/full", "/dev/zero", "/dev/random", "/dev/urandom", "/dev/ptmx", "/dev/userfaultfd"`
	if _, err := os.Stat("/dev/kvm"); err == nil {
		acl += `, "/dev/kvm"`
	}
	hosts := "127.0.0.1 localhost\n"
	for _, other := range h.lab.hosts {
		hosts += other.Address() + " " + other.Name + "\n"
	}
	files := map[string]string{
		// The network of a lab is its own: only the lab can reach a host without authentication.
		"etc/libvirtd.conf": fmt.Sprintf(`host_uuid = "e7e2ee1a-0000-4000-8000-%012d"
listen_tls = 0
listen_tcp = 1
auth_tcp = "none"
auth_unix_ro = "none"
auth_unix_rw = "none"
log_outputs = "2:file:/var/log/libvirt/libvirtd.log"
keepalive_interval = 1
keepalive_count = 3
`, h.number),
		"etc/qemu.conf": fmt.Sprintf(`user = "root"
group = "root"
dynamic_ownership = 0
remember_owner = 0
security_driver = "none"
namespaces = [ ]
stdio_handler = "file"
cgroup_controllers = [ "cpu", "cpuacct", "memory", "cpuset" ]
cgroup_device_acl = [ %s ]
keepalive_interval = 1
keepalive_count = 3
migration_host = "%s"
`, acl, h.Address()),
		"etc/libvirt.conf": "",
		"hosts":            hosts,
		"boot-id":          uuid() + "\n",
	}
	if h.lab.state.TLS {
		conf := files["etc/libvirtd.conf"]
		conf = strings.Replace(conf, "listen_tls = 0\nlisten_tcp = 1\n", "listen_tls = 1\nlisten_tcp = 0\n", 1)
		var allowed []string
		for _, other := range h.lab.hosts {
			allowed = append(allowed, fmt.Sprintf("%q", "CN="+other.Name))
		}
		files["etc/libvirtd.conf"] = conf + fmt.Sprintf("ca_file = %q\ncert_file = %q\nkey_file = %q\ntls_allowed_dn_list = [ %s ]\n",
			keysPath+"/cacert.pem", keysPath+"/servercert.pem", keysPath+"/serverkey.pem", strings.Join(allowed, ", "))
		files["etc/qemu.conf"] += fmt.Sprintf("migrate_tls_x509_cert_dir = %q\nmigrate_tls_x509_verify = 1\n", qemuKeysPath)
	}
	if h.lab.state.Shared {
		files["etc/qemu.conf"] += "lock_manager = \"lockd\"\n"
		files["etc/qemu-lockd.conf"] = fmt.Sprintf("auto_disk_leases = 1\nfile_lockspace_dir = %q\n", locksPath)
		files["etc/storage/"+sharedPool+".xml"] = fmt.Sprintf("<pool type='dir'><name>%s</name><target><path>%s</path></target></pool>\n", sharedPool, SharedPath)
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(h.dir, name), []byte(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}
