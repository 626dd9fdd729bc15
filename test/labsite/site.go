// Package labsite makes a cluster of the programs themselves on the hosts of a lab, as docs/tutorials/three-hosts.md says: each host has a server
// and an agent, and a stand-in for its watchdog.
package labsite

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"evenkeel/api/client"
	"evenkeel/test/lab"
	"evenkeel/test/patience"
)

// Programs that a site needs in Site.Bin.
var Programs = []string{"cmd/vcd", "cmd/vcctl", "test/lab/cmd/labhost", "test/lab/cmd/watchdog"}

// Build programs of this module into a directory.
func Build(ctx context.Context, bin string, programs ...string) error {
	args := []string{"build", "-tags", "libvirt_dlopen,hashicorpmetrics", "-o", bin + "/"}
	for _, program := range programs {
		args = append(args, "evenkeel/"+program)
	}
	if output, err := exec.CommandContext(ctx, "go", args...).CombinedOutput(); err != nil {
		return fmt.Errorf("build %s: %w\n%s", strings.Join(programs, ", "), err, output)
	}
	return nil
}

// Site is a lab with the programs for its hosts.
type Site struct {
	Lab       *lab.Lab
	Bin       string // directory of Programs
	Emulation bool   // there is no KVM
}

// New site on a lab that runs.
func New(ctx context.Context, l *lab.Lab, guest lab.Guest, bin string) (*Site, error) {
	kvm, err := lab.KVM(ctx, guest)
	return &Site{Lab: l, Bin: bin, Emulation: !kvm}, err
}

// Host of a site, with its vcd.
type Host struct {
	*lab.Host
	API *client.Client // from the desk; Found sets it

	site *Site
	dog  *os.Process

	mu  sync.Mutex
	vcd *lab.Program
}

// Host of a site, as the lab has it.
func (s *Site) Host(h *lab.Host) *Host { return &Host{Host: h, site: s} }

// foundingTime bounds the time to make a cluster.
const foundingTime = 5 * time.Minute

// Found a cluster on the first of the hosts that run vcd, let the others join it, and add an image of a guest. The function operator may
// work on each of them.
func (s *Site) Found(ctx context.Context, guest lab.Guest, hosts ...*Host) error {
	ctx, cancel := context.WithTimeout(ctx, patience.Within(foundingTime))
	defer cancel()
	first := hosts[0]
	err := patience.Until(ctx, patience.Stall, "the first vcd listens on its local socket", nil, func() bool {
		_, err := os.Stat(filepath.Join(first.Run(), "evenkeel", "vcd.sock"))
		return err == nil
	})
	if err != nil {
		return err
	}
	if _, err := first.Vcctl(ctx, "", "cluster", "init", "--min-yield", "0.05"); err != nil {
		return err
	}
	for _, h := range hosts[1:] {
		token, err := first.Vcctl(ctx, "", "cluster", "join-token", "--ttl", "5m")
		if err == nil {
			_, err = h.Vcctl(ctx, token, "cluster", "join", first.Port())
		}
		if err != nil {
			return err
		}
	}
	admin := filepath.Join(first.Config(), "root", "evenkeel")
	token, err := os.ReadFile(filepath.Join(admin, "admin.token"))
	if err != nil {
		return err
	}
	ca, err := os.ReadFile(filepath.Join(admin, "ca.pem"))
	if err != nil {
		return err
	}
	for i, h := range hosts {
		own := filepath.Join(h.Config(), "root", "evenkeel")
		err := errors.Join(os.MkdirAll(own, 0o700), os.WriteFile(filepath.Join(own, "admin.token"), token, 0o600),
			os.WriteFile(filepath.Join(own, "ca.pem"), ca, 0o644)) // as cluster join leaves it, unless vcd is of an earlier version
		if err != nil {
			return err
		}
		var servers []string // its own first: the others while that is away
		for _, s := range slices.Concat(hosts[i:], hosts[:i]) {
			servers = append(servers, "https://"+s.Port())
		}
		conf := fmt.Sprintf("address: %s\ntokenFile: admin.token\ncacert: ca.pem\n", strings.Join(servers, ","))
		if err := os.WriteFile(filepath.Join(own, "config.yaml"), []byte(conf), 0o600); err != nil {
			return err
		}
		if h.API, err = s.Client(h, strings.TrimSpace(string(token)), filepath.Join(admin, "ca.pem")); err != nil {
			return err
		}
	}
	for _, args := range [][]string{
		{"image", "add", "guest-initrd", "--kind", "initrd", "--file", guest.Initrd},
		{"image", "add", "guest", "--kind", "kernel", "--file", guest.Kernel, "--initrd", "guest-initrd", "--cmdline", guest.Cmdline("")},
	} {
		if _, err := first.Vcctl(ctx, "", args...); err != nil {
			return err
		}
	}
	return nil
}

// Client of one host's server, from the desk.
func (s *Site) Client(h *Host, token, ca string) (*client.Client, error) {
	return client.New(client.Config{Address: "https://" + h.Port(), Token: token, CAFile: ca, Timeout: 10 * time.Second,
		Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
			ctx, cancel := context.WithTimeout(ctx, time.Second)
			defer cancel()
			return s.Lab.Dial(ctx, network, address)
		}})
}

// Port is the one port of the host's vcd.
func (h *Host) Port() string { return h.Address() + ":7480" }

// Guard starts the stand-in for the host's watchdog, outside of all hosts, until end is called.
func (h *Host) Guard(logFile string) (end func(), err error) {
	log, err := os.Create(logFile)
	if err != nil {
		return nil, err
	}
	dog := exec.Command(filepath.Join(h.site.Bin, "watchdog"), "-socket", filepath.Join(h.Board(), "watchdog"),
		filepath.Join(h.site.Bin, "labhost"), "-dir", h.site.Lab.Dir(), "off", h.Name)
	dog.Stdout, dog.Stderr = log, log
	dog.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL}
	if err := dog.Start(); err != nil {
		return nil, errors.Join(err, log.Close())
	}
	h.dog = dog.Process
	return func() {
		_ = dog.Process.Kill()
		_ = dog.Wait() // it was killed: that is its status
		_ = log.Close()
	}, nil
}

// Unguard ends the count of the host's watchdog: the host has no power.
func (h *Host) Unguard() error { return h.dog.Signal(syscall.SIGHUP) }

// Watchdog is the line of vcd.yaml about the host's watchdog.
const Watchdog = "watchdog: {device: /run/board/watchdog}\n"

// Configure writes the host's vcd.yaml, with more at its end.
func (h *Host) Configure(more string) error {
	text := fmt.Sprintf("server: true\nagent: true\nadvertise: %s\nmigrateURI: %s\nemulation: %v\nsharedPools: [shared]\nconsoleLogs: true\n", h.Port(), h.MigrationURI(), h.site.Emulation) +
		"allowance: {cpu: 1.5, memory: 3GiB}\nsnapshots: {every: 1h, keep: 2}\n"
	return os.WriteFile(filepath.Join(h.Config(), "vcd.yaml"), []byte(text+more), 0o644)
}

// StartVcd starts the host's vcd, as the init of a real host does. What it says goes to the file; "" = one in the lab.
func (h *Host) StartVcd(logFile string) error {
	p, err := h.Launch(logFile, filepath.Join(h.site.Bin, "vcd"), "run", "--config", "/etc/evenkeel/vcd.yaml")
	if err != nil {
		return err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.vcd = p
	return nil
}

// Vcd is the host's vcd, as it was started last.
func (h *Host) Vcd() *lab.Program {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.vcd
}

// Runs says whether the host's vcd has a process.
func (h *Host) Runs() bool {
	select {
	case <-h.Vcd().Done():
		return false
	default:
		return true
	}
}

// Vcctl runs in the host, as its root, until ctx ends.
func (h *Host) Vcctl(ctx context.Context, stdin string, args ...string) (string, error) {
	cmd := h.Command(ctx, filepath.Join(h.site.Bin, "vcctl"), args...)
	cmd.Env = append(cmd.Env, "XDG_CONFIG_HOME=/etc/evenkeel/root") // most files of the machine are shared
	cmd.Stdin = strings.NewReader(stdin)
	var output strings.Builder
	cmd.Stderr = &output
	out, err := cmd.Output()
	if err != nil {
		err = fmt.Errorf("vcctl %s on %s: %w: %s", strings.Join(args, " "), h.Name, err, strings.TrimSpace(output.String()))
	}
	return string(out), err
}
