package libvirt

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"libvirt.org/go/libvirt"

	"evenkeel/hypervisor"
)

// Options of a Host.
type Options struct {
	URI    string       // libvirt URI; default qemu:///system
	Logger *slog.Logger // default: slog.Default()

	// ForceEmulation runs VMs in software even if libvirt offers KVM: a
	// /dev/kvm that is there can still be unable to boot a kernel.
	ForceEmulation bool

	// StateDir is an absolute path, readable by QEMU's user, that holds the
	// storage pool "default" where the host has none, and console logs.
	// Without it there is neither.
	StateDir string

	// ConsoleLogs keeps what VMs write to their serial console in
	// StateDir/console/ID.log. virtlogd bounds these files if libvirt's
	// stdio_handler is "logd" (its default); with "file" nothing does.
	ConsoleLogs bool

	// Cgroup is the version of the control groups libvirt uses for CPU: 1 or
	// 2; 0 finds out.
	Cgroup int

	// CallTimeout bounds one call of libvirt; default 15 s. Starting and
	// destroying a VM may take four times as long.
	CallTimeout time.Duration
}

// consoleDir is where console logs are kept; "" = nowhere.
func (o Options) consoleDir() string {
	if !o.ConsoleLogs || o.StateDir == "" {
		return ""
	}
	return filepath.Join(o.StateDir, "console")
}

// Host is one host's libvirt. Make it with Open. Many fields: its parts share one session and one lock.
type Host struct {
	opts   Options
	log    *slog.Logger
	local  bool // libvirt runs on this machine: paths can be checked here
	cgroup int
	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu       sync.Mutex
	session  *session // nil while disconnected
	last     error    // why there is no session
	caps     *hostCaps
	known    map[string]knownVM   // by libvirt UUID: our VMs, to name them in events after they are gone
	stats    map[string]lastStats // by libvirt UUID
	consoles map[string]*console
	moves    map[string]chan hypervisor.Moved // by libvirt UUID: final figures of a migration from here

	// peerURI is how this process reaches the daemon that others reach at that address.
	peerURI func(string) string
	peers   peers

	calls calls // under way

	storage sync.Mutex // held while pools and volumes are looked at and made

	raw  rawQueue
	subs subscribers
}

var _ hypervisor.Host = (*Host)(nil)

// knownVM is what is remembered of a VM of ours to name it in events, and to report each of its troubles once.
type knownVM struct {
	hypervisor.Identity
	name     string
	incoming bool // on its way in by live migration
	noShare  bool // its CPU share could not be read when it was last listed
}

// Open connects to libvirt and keeps connected until Close. It is an error
// (ErrUnavailable) if there is no answer at first; later losses are mended.
func Open(ctx context.Context, opts Options) (*Host, error) {
	if opts.URI == "" {
		opts.URI = "qemu:///system"
	}
	if opts.Logger == nil {
		opts.Logger = slog.Default()
	}
	if opts.CallTimeout <= 0 {
		opts.CallTimeout = 15 * time.Second
	}
	if opts.StateDir != "" && !filepath.IsAbs(opts.StateDir) {
		return nil, fmt.Errorf("libvirt %s: state directory %q is not an absolute path: %w", opts.URI, opts.StateDir, hypervisor.ErrInvalid)
	}
	u, err := url.Parse(opts.URI)
	if err != nil {
		return nil, fmt.Errorf("libvirt URI %q: %w: %w", opts.URI, err, hypervisor.ErrInvalid)
	}
	cgroup := opts.Cgroup
	if cgroup == 0 {
		cgroup = detectCgroup("/sys/fs/cgroup")
	}
	if cgroup != 1 && cgroup != 2 {
		return nil, fmt.Errorf("libvirt %s: cgroup version %d: %w", opts.URI, opts.Cgroup, hypervisor.ErrInvalid)
	}
	if dir := opts.consoleDir(); dir != "" && u.Host == "" {
		// Also for VMs that come from elsewhere, with the paths they had there.
		if err := os.MkdirAll(dir, 0o711); err != nil {
			return nil, fmt.Errorf("libvirt %s: console logs: %w", opts.URI, err)
		}
	}
	if err := startEventLoop(opts.Logger); err != nil {
		return nil, fmt.Errorf("libvirt %s: %w: %w", opts.URI, err, hypervisor.ErrUnavailable)
	}
	hctx, cancel := context.WithCancel(context.Background())
	h := &Host{
		opts: opts, log: opts.Logger.With("libvirt", opts.URI), local: u.Host == "", cgroup: cgroup,
		ctx: hctx, cancel: cancel,
		known: map[string]knownVM{}, stats: map[string]lastStats{}, consoles: map[string]*console{},
		moves: map[string]chan hypervisor.Moved{}, peerURI: func(uri string) string { return uri },
		last: errors.New("not connected yet"),
	}
	h.raw.wake = make(chan struct{}, 1)
	s, err := h.connect(ctx)
	if err != nil {
		cancel()
		return nil, fmt.Errorf("libvirt %s: connect: %w", opts.URI, err)
	}
	h.setSession(s, nil)
	h.wg.Add(2)
	go h.dispatch()
	go h.keepConnected(s)
	return h, nil
}

// Close lets go of libvirt. VMs run on.
func (h *Host) Close() error {
	h.cancel()
	h.wg.Wait()
	h.mu.Lock()
	consoles := h.consoles
	h.consoles = map[string]*console{}
	h.mu.Unlock()
	for _, c := range consoles {
		_ = c.Close()
	}
	return nil
}

// slow is the time-out of calls that are slower than most: starting QEMU, and making
// sure that it is gone.
func (h *Host) slow() time.Duration { return 4 * h.opts.CallTimeout }

// call runs fn with the present connection in a goroutine of its own and
// waits for it no longer than limit or ctx. fn must not touch anything the
// caller uses: it may outlive the call. A call that hangs is reported by the name that ctx
// gives it (calling). While another call hangs, this one is given CallTimeout at most.
func call[T any](ctx context.Context, h *Host, limit time.Duration, fn func(*libvirt.Connect) (T, error)) (T, error) {
	var zero T
	if err := ctx.Err(); err != nil {
		return zero, err
	}
	s, err := h.acquire()
	if err != nil {
		return zero, err
	}
	type result struct {
		v   T
		err error
	}
	done := make(chan result, 1)
	p := calledBy(ctx)
	ended := h.calls.begin(p)
	go func() {
		defer s.release()
		v, err := fn(s.conn)
		ended()
		done <- result{v, translate(s, err)}
	}()
	if limit < unlimited && len(h.Hanging()) > 0 {
		limit = min(limit, h.opts.CallTimeout)
	}
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case r := <-done:
		return r.v, r.err
	case <-ctx.Done():
		return zero, ctx.Err()
	case <-timer.C:
		return zero, h.calls.giveUp(p)
	}
}

// do is call for what has no result.
func do(ctx context.Context, h *Host, limit time.Duration, fn func(*libvirt.Connect) error) error {
	_, err := call(ctx, h, limit, func(c *libvirt.Connect) (struct{}, error) { return struct{}{}, fn(c) })
	return err
}

// errAbandoned: the caller does not wait for the call any more.
var errAbandoned = errors.New("the call was given up meanwhile")

// doAwaited is do for changes that must not be made once the caller has given up: the VM may have been started
// elsewhere since, on the same disk. fn asks wanted before each step that changes something.
func doAwaited(ctx context.Context, h *Host, limit time.Duration, fn func(c *libvirt.Connect, wanted func() error) error) error {
	var over atomic.Bool
	defer over.Store(true)
	return do(ctx, h, limit, func(c *libvirt.Connect) error {
		return fn(c, func() error {
			if over.Load() {
				return errAbandoned
			}
			return nil
		})
	})
}

// onVM runs fn on our running VM of that id. ErrNotFound if there is none that
// carries our mark.
func onVM[T any](ctx context.Context, h *Host, limit time.Duration, id string, fn func(*libvirt.Connect, *libvirt.Domain, mark) (T, error)) (T, error) {
	return call(ctx, h, limit, func(c *libvirt.Connect) (T, error) {
		var zero T
		dom, m, err := ourDomain(c, id)
		if err != nil {
			return zero, err
		}
		defer dom.Free()
		return fn(c, dom, m)
	})
}

// ourDomain finds our VM of that id; the caller frees the domain.
func ourDomain(c *libvirt.Connect, id string) (*libvirt.Domain, mark, error) {
	dom, err := c.LookupDomainByUUIDString(uuidOf(id))
	if err != nil {
		return nil, mark{}, err
	}
	m, err := markOf(dom)
	if err == nil && m.ID == id {
		var active bool
		if active, err = dom.IsActive(); err == nil && active {
			return dom, m, nil
		}
	}
	dom.Free()
	if err == nil || isCode(err, libvirt.ERR_NO_DOMAIN_METADATA) {
		err = hypervisor.ErrNotFound
	}
	return nil, mark{}, err
}
