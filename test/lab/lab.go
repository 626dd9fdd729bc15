package lab

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"
)

//go:embed host.sh
var hostScript []byte

// maxDir bounds the length of a lab's directory: a unix socket's path has 108
// bytes, and libvirt's is below it.
const maxDir = 70

// Options of a lab.
type Options struct {
	Hosts int // how many; default 1

	// QEMU is a directory of unpacked packages (DIR/usr/bin/...) that is laid
	// over /usr in every host: another QEMU, or another libvirt.
	QEMU string

	// Dir is where the lab keeps its state; default: a new directory among
	// the temporary files. It is removed by Close.
	Dir string

	// Stay keeps the lab up when the process that started it ends. Take it
	// down through Open.
	Stay bool

	// Shared gives the hosts a directory in common, SharedPath, as libvirt's storage pool
	// "shared", and libvirt's lock manager: virtlockd of each host holds locks in that
	// directory, so that a disk image is used by one VM at a time, whatever its host.
	Shared bool

	// TLS gives every host a certificate: libvirtds speak TLS with one another, and so does QEMU when it
	// moves a VM. Without it both are in the clear.
	TLS bool

	// StateSize, in bytes, bounds what fits on each host's own disk, which holds
	// /var/lib/evenkeel; see Host.FillDisk. Such a disk is in memory. 0: the disk is
	// part of this machine's.
	StateSize int64
}

// Lab is a number of hosts.
type Lab struct {
	dir   string
	state state
	hosts []*Host
	mains *os.File // see power.go; nil in a lab that was opened
}

// state is what another process needs to know of a lab to take it down.
type state struct {
	ID    string  // prefix of the names of its network namespaces and cgroups
	Owner process // who started it
	Stay  bool
	QEMU  string
	Hosts int

	Shared    bool
	TLS       bool
	StateSize int64

	PIDs string // PID namespace of the process ids in the lab's files
}

// process names a process beyond doubt: a process id alone is used again.
type process struct {
	PID   int
	Start string // kernel's start time, in ticks since boot
}

// Start starts a lab. The caller closes it.
func Start(ctx context.Context, opts Options) (*Lab, error) {
	if opts.Hosts == 0 {
		opts.Hosts = 1
	}
	if opts.Hosts < 1 || opts.Hosts > 99 || opts.StateSize < 0 {
		return nil, fmt.Errorf("lab of %d hosts with disks of %d bytes", opts.Hosts, opts.StateSize)
	}
	if err := ready(); err != nil {
		return nil, fmt.Errorf("lab: %w", err)
	}
	root := filepath.Join(os.TempDir(), "evenkeel-lab")
	if err := os.MkdirAll(root, 0o711); err != nil {
		return nil, fmt.Errorf("lab: %w", err)
	}
	unlock, err := lock(filepath.Join(root, "lock"))
	if err != nil {
		return nil, fmt.Errorf("lab: %w", err)
	}
	sweep(root)
	l, err := reserve(root, opts)
	unlock()
	if err != nil {
		return nil, fmt.Errorf("lab: %w", err)
	}
	if err := l.bringUp(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("lab in %s: %w", l.dir, err), l.Close())
	}
	return l, nil
}

// Open finds a lab that another process started.
func Open(dir string) (*Lab, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	text, err := os.ReadFile(filepath.Join(dir, "lab.json"))
	if err != nil {
		return nil, fmt.Errorf("no lab in %s: %w", dir, err)
	}
	l := &Lab{dir: dir}
	if err := json.Unmarshal(text, &l.state); err != nil {
		return nil, fmt.Errorf("lab in %s: %w", dir, err)
	}
	if !strings.HasPrefix(l.state.ID, idPrefix) {
		return nil, fmt.Errorf("lab in %s: unknown id %q", dir, l.state.ID)
	}
	// Elsewhere all hosts would seem to have no power.
	if pids, err := os.Readlink(ownPIDs); err != nil || pids != l.state.PIDs {
		return nil, errors.Join(fmt.Errorf("lab in %s: %w", dir, ErrInside), err)
	}
	l.addHosts()
	return l, nil
}

// ownPIDs names this process's PID namespace.
const ownPIDs = "/proc/self/ns/pid"

// idPrefix begins the names of all network namespaces and cgroups of labs.
const idPrefix = "ekl"

// reserve makes the lab's directory, with what is needed to take it down.
func reserve(root string, opts Options) (*Lab, error) {
	dir := opts.Dir
	var err error
	if dir == "" {
		dir, err = os.MkdirTemp(root, "")
	} else if dir, err = filepath.Abs(dir); err == nil {
		err = os.MkdirAll(dir, 0o711)
	}
	if err != nil {
		return nil, err
	}
	if len(dir) > maxDir {
		return nil, fmt.Errorf("directory %s is longer than the %d bytes that leave room for a unix socket", dir, maxDir)
	}
	if _, err := os.Stat(filepath.Join(dir, "lab.json")); err == nil {
		return nil, fmt.Errorf("there is a lab in %s already", dir)
	}
	if err := os.Chmod(dir, 0o711); err != nil {
		return nil, err
	}
	owner, err := processOf(os.Getpid())
	if err != nil {
		return nil, err
	}
	pids, err := os.Readlink(ownPIDs)
	if err != nil {
		return nil, err
	}
	l := &Lab{dir: dir, state: state{
		ID: fmt.Sprintf("%s%x", idPrefix, uint32(time.Now().UnixNano())), Owner: owner, Stay: opts.Stay, QEMU: opts.QEMU, Hosts: opts.Hosts,
		Shared: opts.Shared, TLS: opts.TLS, StateSize: opts.StateSize, PIDs: pids,
	}}
	text, err := json.Marshal(l.state)
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(filepath.Join(dir, "lab.json"), text, 0o644); err != nil {
		return nil, err
	}
	if err := os.WriteFile(filepath.Join(dir, "host.sh"), hostScript, 0o755); err != nil {
		return nil, err
	}
	if l.mains, err = makeMains(dir); err != nil {
		return nil, err
	}
	if opts.Dir == "" {
		// Labs in places of their own are found by their link.
		return l, l.addHosts()
	}
	return l, errors.Join(os.Symlink(dir, filepath.Join(root, l.state.ID)), l.addHosts())
}

func (l *Lab) addHosts() error {
	for i := 1; i <= l.state.Hosts; i++ {
		name := fmt.Sprintf("h%d", i)
		l.hosts = append(l.hosts, &Host{lab: l, number: i, Name: name, dir: filepath.Join(l.dir, name)})
	}
	return nil
}

func (l *Lab) bringUp(ctx context.Context) error {
	if err := l.makeSwitch(); err != nil {
		return err
	}
	if l.state.Shared {
		if err := l.makeShared(); err != nil {
			return err
		}
	}
	for _, h := range l.hosts {
		if err := h.install(); err != nil {
			return fmt.Errorf("host %s: %w", h.Name, err)
		}
	}
	if l.state.TLS {
		if err := l.makeKeys(); err != nil {
			return err
		}
	}
	// libvirt asks QEMU what it can do once, and hosts of one QEMU may share the answer:
	// the first host finds it, and the others start with it, all at once.
	first := l.hosts[0]
	if err := first.PowerOn(ctx); err != nil {
		return err
	}
	// Without it one process beside the lab has as much as all hosts together.
	if err := weigh(l.cgroups(""), len(l.hosts)); err != nil {
		return err
	}
	errs := make([]error, len(l.hosts))
	var all sync.WaitGroup
	for i, h := range l.hosts[1:] {
		all.Go(func() {
			if errs[i] = copyTree(filepath.Join(first.dir, "cache"), filepath.Join(h.dir, "cache")); errs[i] == nil {
				errs[i] = h.PowerOn(ctx)
			}
		})
	}
	all.Wait()
	return errors.Join(errs...)
}

// Host is the i-th host, from 1.
func (l *Lab) Host(i int) *Host { return l.hosts[i-1] }

// Hosts are all hosts.
func (l *Lab) Hosts() []*Host { return l.hosts }

// Dir is the lab's directory.
func (l *Lab) Dir() string { return l.dir }

// Precede gives the lab's hosts the CPU before anything else that runs on this
// machine, so that what is measured in them is theirs. Limit them, so as to leave
// something for others.
func (l *Lab) Precede() error {
	if err := precede(l.cgroups("")); err != nil {
		return fmt.Errorf("lab in %s: precede other work: %w", l.dir, err)
	}
	return nil
}

// Close takes the lab down: every process in it is killed, and nothing is left. To close it again does nothing.
func (l *Lab) Close() error {
	if _, err := os.Stat(filepath.Join(l.dir, "lab.json")); errors.Is(err, os.ErrNotExist) {
		return nil
	}
	// From here on no process starts a host.
	errs := []error{os.WriteFile(filepath.Join(l.dir, "closed"), nil, 0o644)}
	for _, h := range l.hosts {
		errs = append(errs, h.PowerOff())
	}
	for _, h := range l.hosts {
		errs = append(errs, removeNetns(h.netns()), removeCgroups(l.cgroups(h.Name)), h.removeDisk())
	}
	errs = append(errs, removeNetns(l.switchNetns()), removeCgroups(l.cgroups("")))
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("take down the lab in %s: %w", l.dir, err)
	}
	if l.mains != nil {
		_ = l.mains.Close()
		l.mains = nil
	}
	_ = os.Remove(filepath.Join(os.TempDir(), "evenkeel-lab", l.state.ID))
	// lab.json goes last, so that an interrupted removal can be taken up again.
	entries, err := os.ReadDir(l.dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.Name() != "lab.json" {
			errs = append(errs, os.RemoveAll(filepath.Join(l.dir, e.Name())))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	return os.RemoveAll(l.dir)
}

// sweep takes down labs whose process is no more.
func sweep(root string) {
	entries, err := os.ReadDir(root)
	if err != nil {
		return
	}
	for _, e := range entries {
		l, err := Open(filepath.Join(root, e.Name()))
		if err != nil {
			if e.Type()&os.ModeSymlink != 0 && errors.Is(err, os.ErrNotExist) {
				_ = os.Remove(filepath.Join(root, e.Name())) // of a lab that was removed by hand
			}
			continue
		}
		if l.state.Stay || l.state.Owner.alive() {
			continue
		}
		if dir, err := filepath.EvalSymlinks(l.dir); err == nil {
			l.dir = dir
		}
		if err := l.Close(); err != nil {
			fmt.Fprintf(os.Stderr, "lab left behind by process %d: %v\n", l.state.Owner.PID, err)
		}
	}
}

// ready says what is missing on this machine.
func ready() error {
	if os.Geteuid() != 0 {
		return errors.New("needs root")
	}
	var missing []string
	for _, tool := range []string{"ip", "nsenter", "unshare", "libvirtd", "qemu-system-x86_64", "bash"} {
		if _, err := find(tool); err != nil {
			missing = append(missing, tool)
		}
	}
	if len(missing) > 0 {
		return fmt.Errorf("%s not found: run make setup", strings.Join(missing, ", "))
	}
	return nil
}

// find looks a program up, also where administrators' programs are.
func find(tool string) (string, error) {
	if path, err := exec.LookPath(tool); err == nil {
		return path, nil
	}
	for _, dir := range []string{"/usr/sbin", "/sbin"} {
		if path, err := exec.LookPath(filepath.Join(dir, tool)); err == nil {
			return path, nil
		}
	}
	return "", exec.ErrNotFound
}

func lock(path string) (func(), error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return func() { _ = f.Close() }, nil
}

func copyTree(from, to string) error {
	if err := os.MkdirAll(to, 0o755); err != nil {
		return err
	}
	return run("cp", "-a", from+"/.", to)
}

// run runs a program to its end; its complaints become the error.
func run(tool string, args ...string) error {
	path, err := find(tool)
	if err != nil {
		return fmt.Errorf("%s: %w: run make setup", tool, err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.WaitDelay = time.Second // what it left behind may hold its output open
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s %s: %w: %s", tool, strings.Join(args, " "), err, strings.TrimSpace(string(out)))
	}
	return nil
}

func ip(args ...string) error { return run("ip", args...) }

func removeNetns(name string) error {
	if _, err := os.Stat(filepath.Join("/run/netns", name)); errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return ip("netns", "del", name)
}
