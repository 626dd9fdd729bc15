package chaos

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"evenkeel/api/client"
	"evenkeel/test/lab"
	"evenkeel/test/patience"
	"evenkeel/test/watch"
)

// Site is a cluster of three hosts, each with a server and an agent, and what stands in for their mains, watchdogs and inits.
type Site struct {
	Lab   *lab.Lab
	Watch *watch.Watcher
	Hosts []*Host

	bin, out  string // directories of programs, of logs
	emulation bool
	log       *Log
	end       []func()
}

// Host of a site. Its keeper starts what is down: the host itself, its libvirtd, its vcd, each as soon as it may.
type Host struct {
	*lab.Host
	API *client.Client // from the desk

	site *Site
	dog  *os.Process
	// struck keeps faults off one another.
	struck sync.Mutex

	mu     sync.Mutex
	vcd    *lab.Program
	wasUp  bool
	notYet [3]time.Time // before which power, libvirtd, vcd are not started
	ends   int          // of vcd by itself, since ended was told to forget
}

// What a host's keeper starts.
const (
	power = iota
	libvirtd
	vcd
)

// hosts of a site.
const hosts = 3

// watchEvery is how often the machine's processes are looked at.
const watchEvery = 50 * time.Millisecond

// StartSite starts three hosts and makes a cluster of them, as docs/install.md says. Close it.
func StartSite(ctx context.Context, l *lab.Lab, guest lab.Guest, bin, out string, log *Log) (s *Site, err error) {
	s = &Site{Lab: l, bin: bin, out: out, log: log}
	defer func() {
		if err != nil {
			s.Close()
		}
	}()
	for _, program := range []string{"cmd/vcd", "cmd/vcctl", "test/lab/cmd/labhost", "test/lab/cmd/watchdog"} {
		said, err := exec.CommandContext(ctx, "go", "build", "-tags", "libvirt_dlopen,hashicorpmetrics", "-o", bin+"/", "evenkeel/"+program).CombinedOutput()
		if err != nil {
			return s, fmt.Errorf("build %s: %w\n%s", program, err, said)
		}
	}
	kvm, err := lab.KVM(ctx, guest)
	if err != nil {
		return s, err
	}
	s.emulation = !kvm
	if s.Watch, err = watch.Start(l.Dir(), watchEvery); err != nil {
		return s, err
	}
	s.end = append(s.end, s.Watch.Close)
	for _, h := range l.Hosts() {
		s.Hosts = append(s.Hosts, &Host{Host: h, site: s, wasUp: true})
	}
	for _, h := range s.Hosts {
		if err := errors.Join(h.guard(), h.configure()); err != nil {
			return s, err
		}
		if err := h.launch(); err != nil {
			return s, err
		}
	}
	first := s.Hosts[0]
	err = patience.Until(ctx, patience.Stall, "the first vcd listens on its local socket", nil, func() bool {
		_, err := os.Stat(filepath.Join(first.Run(), "evenkeel", "vcd.sock"))
		return err == nil
	})
	if err != nil {
		return s, err
	}
	if _, err := first.vcctl(ctx, "", "cluster", "init", "--min-yield", "0.05"); err != nil {
		return s, err
	}
	for _, h := range s.Hosts[1:] {
		token, err := first.vcctl(ctx, "", "cluster", "join-token", "--ttl", "5m")
		if err == nil {
			_, err = h.vcctl(ctx, token, "cluster", "join", first.port())
		}
		if err != nil {
			return s, err
		}
	}
	admin := filepath.Join(first.Config(), "root", "evenkeel")
	token, err := os.ReadFile(filepath.Join(admin, "admin.token"))
	if err != nil {
		return s, err
	}
	for _, h := range s.Hosts {
		if h != first { // the operator works on any of them
			if err := os.CopyFS(filepath.Join(h.Config(), "root", "evenkeel"), os.DirFS(admin)); err != nil {
				return s, err
			}
		}
		h.API, err = client.New(client.Config{Address: "https://" + h.port(), Token: strings.TrimSpace(string(token)), CAFile: filepath.Join(admin, "ca.pem"), Timeout: 10 * time.Second,
			Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
				ctx, cancel := context.WithTimeout(ctx, time.Second)
				defer cancel()
				return l.Dial(ctx, network, address)
			}})
		if err != nil {
			return s, err
		}
	}
	for _, args := range [][]string{
		{"image", "add", "guest-initrd", "--kind", "initrd", "--file", guest.Initrd},
		{"image", "add", "guest", "--kind", "kernel", "--file", guest.Kernel, "--initrd", "guest-initrd", "--cmdline", guest.Cmdline("")},
	} {
		if _, err := first.vcctl(ctx, "", args...); err != nil {
			return s, err
		}
	}
	for _, h := range s.Hosts {
		stop, done := make(chan struct{}), make(chan struct{})
		go h.keep(stop, done)
		s.end = append(s.end, func() {
			close(stop)
			<-done
		})
	}
	return s, nil
}

// Close ends what stands beside the lab.
func (s *Site) Close() {
	for n := len(s.end) - 1; n >= 0; n-- {
		s.end[n]()
	}
	s.end = nil
}

// Host of that name.
func (s *Site) Host(name string) *Host {
	for _, h := range s.Hosts {
		if h.Name == name {
			return h
		}
	}
	return nil
}

// ask one server after another, from the given one on, until one answers.
func ask[T any](ctx context.Context, s *Site, from int, f func(context.Context, *client.Client) (T, error)) (T, error) {
	var out T
	var errs []error
	for n := range s.Hosts {
		h := s.Hosts[(from+n)%len(s.Hosts)]
		short, cancel := context.WithTimeout(ctx, 4*time.Second)
		v, err := f(short, h.API)
		cancel()
		if err == nil {
			return v, nil
		}
		errs = append(errs, fmt.Errorf("%s: %w", h.Name, err))
	}
	return out, errors.Join(errs...)
}

// port is the one port of the host's vcd.
func (h *Host) port() string { return h.Address() + ":7480" }

// guard starts the stand-in for the host's watchdog, outside of all hosts.
func (h *Host) guard() error {
	log, err := os.Create(filepath.Join(h.site.out, h.Name+"-watchdog.log"))
	if err != nil {
		return err
	}
	dog := exec.Command(filepath.Join(h.site.bin, "watchdog"), "-socket", filepath.Join(h.Board(), "watchdog"),
		filepath.Join(h.site.bin, "labhost"), "-dir", h.site.Lab.Dir(), "off", h.Name)
	dog.Stdout, dog.Stderr = log, log
	dog.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL}
	if err := dog.Start(); err != nil {
		return err
	}
	h.dog = dog.Process
	h.site.end = append(h.site.end, func() {
		_ = dog.Process.Kill()
		_ = dog.Wait() // it was killed: that is its status
		_ = log.Close()
	})
	return nil
}

// configure writes the host's vcd.yaml.
func (h *Host) configure() error {
	text := fmt.Sprintf("server: true\nagent: true\nadvertise: %s\nmigrateURI: %s\nemulation: %v\nsharedPools: [shared]\nconsoleLogs: true\n", h.port(), h.MigrationURI(), h.site.emulation) +
		"allowance: {cpu: 1.5, memory: 3GiB}\nsnapshots: {every: 1h, keep: 2}\nwatchdog: {device: /run/board/watchdog}\n"
	return os.WriteFile(filepath.Join(h.Config(), "vcd.yaml"), []byte(text), 0o644)
}

// LogFile is what the host's vcd said, all its lives.
func (h *Host) LogFile() string { return filepath.Join(h.site.out, h.Name+"-vcd.log") }

// launch starts the host's vcd, as the init of a real host does.
func (h *Host) launch() error {
	p, err := h.Launch(h.LogFile(), filepath.Join(h.site.bin, "vcd"), "run", "--config", "/etc/evenkeel/vcd.yaml")
	h.mu.Lock()
	defer h.mu.Unlock()
	if err == nil {
		h.vcd = p
	}
	return err
}

func (h *Host) program() *lab.Program {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.vcd
}

// runs says whether the host's vcd has a process.
func (h *Host) runs() bool {
	select {
	case <-h.program().Done():
		return false
	default:
		return true
	}
}

// hold keeps the keeper from starting something for so long.
func (h *Host) hold(what int, d time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.notYet[what] = time.Now().Add(d)
}

// ended is how often vcd has ended by itself; forget begins to count anew.
func (h *Host) ended(forget bool) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	if forget {
		h.ends = 0
	}
	return h.ends
}

// keep the host going, as its board, its init and its watchdog do, until it is stopped.
func (h *Host) keep(stop, done chan struct{}) {
	defer close(done)
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	running := true // vcd, when it was last looked at
	for {
		select {
		case <-stop:
			return
		case <-tick.C:
		}
		up, runs := h.Up(), h.runs()
		h.mu.Lock()
		if h.wasUp && !up {
			h.site.log.Lost(h.Name, "it has no power")
			if time.Now().After(h.notYet[power]) {
				h.notYet[power] = time.Now().Add(5 * time.Second) // a machine that its watchdog has reset takes its time
			}
		}
		if running && !runs && up && h.wasUp && time.Now().After(h.notYet[vcd]) { // nothing killed it
			h.endedItself(h.vcd.Err())
		}
		h.wasUp, running = up, runs
		now, may := time.Now(), h.notYet
		h.mu.Unlock()
		switch {
		case !up && now.After(may[power]):
			if err := errors.Join(h.dog.Signal(syscall.SIGHUP), h.PowerOn(context.Background())); err != nil {
				h.site.log.Say("error", h.Name, err.Error())
				continue
			}
			h.site.log.Say("on", h.Name, "it has power again")
		case up && now.After(may[libvirtd]) && !h.DaemonRuns():
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			err := h.StartDaemon(ctx)
			cancel()
			if err != nil {
				h.site.log.Say("error", h.Name, err.Error())
			}
		case up && now.After(may[vcd]) && !runs:
			if err := h.launch(); err != nil && h.Up() {
				h.mu.Lock()
				h.endedItself(err)
				h.mu.Unlock()
				continue
			}
			running = true
		}
	}
}

// endedItself notes the end of a vcd that nothing killed; h.mu is held.
func (h *Host) endedItself(err error) {
	h.ends++
	h.site.log.Say("ended", h.Name, "vcd ended by itself: "+last(fmt.Sprint(err)))
	h.notYet[vcd] = time.Now().Add(time.Second) // as its unit says
}

// vcctl runs in the host, as its root.
func (h *Host) vcctl(ctx context.Context, stdin string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	cmd := h.Command(ctx, filepath.Join(h.site.bin, "vcctl"), args...)
	cmd.Env = append(cmd.Env, "XDG_CONFIG_HOME=/etc/evenkeel/root") // the machine's files are everybody's, but for some
	cmd.Stdin = strings.NewReader(stdin)
	var said strings.Builder
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		err = fmt.Errorf("vcctl %s on %s: %w: %s", strings.Join(args, " "), h.Name, err, strings.TrimSpace(said.String()))
	}
	return string(out), err
}
