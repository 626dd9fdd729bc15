package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/goccy/go-yaml"

	"evenkeel/api/oidc"
	"evenkeel/api/server"
	"evenkeel/api/v1"
	"evenkeel/cluster/fence"
	"evenkeel/cluster/pki"
	"evenkeel/internal/secretfile"
)

// maxConfigBytes bounds vcd.yaml.
const maxConfigBytes = 1 << 20

// config is vcd.yaml. vcd.yaml(5) describes every key.
// Many fields: they are the keys of the file, and those at its top level are not renamed.
type config struct {
	Name       string `yaml:"name"`
	Server     bool   `yaml:"server"`
	Agent      bool   `yaml:"agent"`
	Listen     string `yaml:"listen"`
	APIListen  string `yaml:"apiListen"`
	Advertise  string `yaml:"advertise"`
	Gossip     string `yaml:"gossip"`
	DataDir    string `yaml:"dataDir"`
	Socket     string `yaml:"socket"`
	Hypervisor string `yaml:"hypervisor"`
	Emulation  bool   `yaml:"emulation"`
	Consoles   bool   `yaml:"consoleLogs"`
	Allowance  struct {
		CPU    float64 `yaml:"cpu"`
		Memory string  `yaml:"memory"`
	} `yaml:"allowance"`
	Lease    duration `yaml:"lease"`
	Watchdog struct {
		Device  string   `yaml:"device"`
		Timeout duration `yaml:"timeout"`
	} `yaml:"watchdog"`
	Fence map[string]fence.Config `yaml:"fence"`
	OIDC  *oidc.Config            `yaml:"oidc"`
	PKI   struct {
		CA   string `yaml:"ca"`
		Cert string `yaml:"cert"`
		Key  string `yaml:"key"`
	} `yaml:"pki"`
	Snapshots struct {
		Every duration `yaml:"every"`
		Keep  int      `yaml:"keep"`
		Days  int      `yaml:"days"`
		Dir   string   `yaml:"dir"`
	} `yaml:"snapshots"`
	SharedPools      []string `yaml:"sharedPools"`
	MigrationNetwork string   `yaml:"migrationNetwork"`
	MigrateURI       string   `yaml:"migrateURI"`
	RemoveDead       duration `yaml:"removeDeadServersAfter"`
	RequestRate      float64  `yaml:"requestRate"`
	LogLevel         string   `yaml:"logLevel"`
	LogFormat        string   `yaml:"logFormat"`
	BootID           string   `yaml:"bootID"` // a file; for hosts that share a kernel
}

// ownPKI says whether the member's certificate is of a PKI of the operator's own.
func (c config) ownPKI() bool { return c.PKI.Cert != "" }

// apiAddress is where clients find the API of this server: at the host of advertise, whose name its certificate has.
func (c config) apiAddress() string {
	host, _, err := net.SplitHostPort(c.Advertise)
	_, port, err2 := net.SplitHostPort(c.APIListen)
	if c.APIListen == "" || err != nil || err2 != nil {
		return c.Advertise
	}
	return net.JoinHostPort(host, port)
}

// pkiFiles of the operator's own PKI; zero: there are none.
func (c config) pkiFiles() pki.Files {
	return pki.Files{CA: c.PKI.CA, Cert: c.PKI.Cert, Key: c.PKI.Key}
}

// duration in Go's syntax.
type duration time.Duration

// UnmarshalYAML implements yaml.BytesUnmarshaler.
func (d *duration) UnmarshalYAML(b []byte) error {
	text := strings.Trim(strings.TrimSpace(string(b)), `"'`)
	v, err := time.ParseDuration(text)
	if err != nil {
		return fmt.Errorf("%q is not a duration such as 20s or 1h", text)
	}
	*d = duration(v)
	return nil
}

// readConfig reads and checks vcd.yaml. Errors name the file, and the line or the key.
func readConfig(path string) (config, error) {
	// The file holds no secrets, but decides what vcd runs: all users may read it, only its owner may write it.
	b, err := secretfile.Read(path, secretfile.Rule{MaxBytes: maxConfigBytes, OpenTo: 0o044})
	if err != nil {
		return config{}, fmt.Errorf("configuration: %w", err)
	}
	c, err := parseConfig(b)
	if err != nil {
		return config{}, fmt.Errorf("configuration %s: %w", path, err)
	}
	return c, nil
}

func parseConfig(b []byte) (config, error) {
	if len(b) > maxConfigBytes {
		return config{}, fmt.Errorf("more than %d bytes", maxConfigBytes)
	}
	c := config{Listen: "0.0.0.0:7480", Gossip: "0.0.0.0:7481", DataDir: "/var/lib/evenkeel", Socket: v1.SetupSocket, Hypervisor: systemURI,
		Lease: duration(20 * time.Second), RequestRate: server.DefaultRate, LogLevel: "info", LogFormat: "text"}
	c.Snapshots.Every, c.Snapshots.Keep, c.Snapshots.Days = duration(time.Hour), 24, 14
	c.Watchdog.Timeout = duration(15 * time.Second)
	if len(bytes.TrimSpace(b)) > 0 {
		if err := v1.PlainYAML(b); err != nil {
			return c, err
		}
		d := yaml.NewDecoder(bytes.NewReader(b), yaml.Strict())
		if err := d.Decode(&c); err != nil && !errors.Is(err, io.EOF) {
			return c, errors.New(yaml.FormatError(err, false, true))
		}
		if err := d.Decode(new(any)); !errors.Is(err, io.EOF) {
			return c, errors.New("more than one document: there is a line of --- in it")
		}
	}
	if c.Name == "" {
		name, err := os.Hostname()
		if err != nil {
			return c, fmt.Errorf("name: not given, and the host's own is not known: %w", err)
		}
		c.Name, _, _ = strings.Cut(strings.ToLower(name), ".")
	}
	if c.Snapshots.Dir == "" {
		c.Snapshots.Dir = filepath.Join(c.DataDir, "snapshots")
	}
	if c.Advertise == "" {
		c.Advertise = c.Listen
	}
	return c, c.check(func(key string) int { return lineOf(b, key) })
}

// lineOf a key such as allowance.memory in a document; 0: it is not there.
func lineOf(doc []byte, key string) int {
	path, err := yaml.PathString("$." + key)
	if err != nil {
		return 0
	}
	node, err := path.ReadNode(bytes.NewReader(doc))
	if err != nil || node == nil || node.GetToken() == nil {
		return 0
	}
	return node.GetToken().Position.Line
}

// devices are the fence devices of the configuration, checked before.
func (c *config) devices(log *slog.Logger) *fence.Hosts {
	levels := map[string][]fence.Level{}
	for host, f := range c.Fence {
		levels[host], _ = f.Check(host)
	}
	return fence.NewHosts(fence.New(fence.Options{Log: log}), levels)
}

// bootID distinguishes one run of this machine from the next.
func (c *config) bootID() (string, error) {
	path := c.BootID
	if path == "" {
		path = "/proc/sys/kernel/random/boot_id"
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("boot id of this machine: %w", err)
	}
	return strings.TrimSpace(string(b)), nil
}

// migrateURI is where other hosts reach this one's libvirt, "" where they cannot.
func (c *config) migrateURI() string {
	if c.MigrateURI != "" {
		return c.MigrateURI
	}
	if c.Hypervisor == "simulated" {
		return c.Name
	}
	host, _, err := net.SplitHostPort(c.Advertise)
	if err != nil {
		return ""
	}
	if ip := inNetwork(c.MigrationNetwork); ip != "" {
		host = ip
	}
	return "qemu+tls://" + net.JoinHostPort(host, "16514") + "/system"
}

// inNetwork is this host's address in a network, "" if it has none.
func inNetwork(cidr string) string {
	_, want, err := net.ParseCIDR(cidr)
	if err != nil {
		return ""
	}
	addresses, err := net.InterfaceAddrs()
	if err != nil {
		return ""
	}
	for _, a := range addresses {
		if n, ok := a.(*net.IPNet); ok && want.Contains(n.IP) {
			return n.IP.String()
		}
	}
	return ""
}
