// Package hypervisor is the only interface between Evenkeel and the hypervisor
// of a host: start a VM with its CPU cap and balloon already in
// place, change them while it runs, list what really runs, get an event of each
// change.
//
// The package has the interface and its types, in Evenkeel's terms
// and units (cores, bytes). Two implementations live below it: libvirt (the
// real one) and simulated (many hosts, workloads over time, faults to inject).
// Both must pass the suite in package conformance.
//
// It never decides: it does not choose hosts, caps or the order of changes,
// and never acts on a VM that does not carry the owner's mark (Identity).
package hypervisor

import (
	"cmp"
	"context"
	"errors"
	"io"
	"net/netip"
	"time"
)

var (
	// ErrNotFound: the host has no running VM of that id.
	ErrNotFound = errors.New("no such VM on this host")
	// ErrExists: a VM of that id runs on the host already, or a foreign one has its name.
	ErrExists = errors.New("VM exists on this host already")
	// ErrUnavailable: the hypervisor cannot be reached now (daemon stopped,
	// connection lost, call timed out). Nothing is known about its VMs:
	// in particular not that they are gone.
	ErrUnavailable = errors.New("hypervisor is not reachable")
	// ErrEndUnknown: a migration was under way when the hypervisor's daemon of its source was lost. The guest runs on here, or
	// is left paused on either side (VM.Leftover), or was handed over.
	ErrEndUnknown = errors.New("what became of the migration is not known")
	// ErrInvalid: the hypervisor can never do what was asked (no such pool, network or image file).
	ErrInvalid = errors.New("the host cannot do this")
)

// Host drives the VMs of one host. All methods are safe for concurrent use,
// honour ctx, and add a time-out of their own, so that a hung daemon is an
// error (ErrUnavailable) and not a hang. Errors wrap one of the sentinels
// above where one fits, and name the VM and what was being done.
type Host interface {
	// Capacity is what the machine has, before any allowance.
	Capacity(ctx context.Context) (Capacity, error)

	// List is every VM on the host that is not shut off, ours and foreign
	// alike, with the caps and balloons that are in force now.
	List(ctx context.Context) ([]VM, error)

	// Define makes what a VM needs on the host before it can start (disk
	// overlay, cloud-init seed). It runs nothing and is idempotent. An existing
	// disk is kept.
	Define(ctx context.Context, spec Spec) error

	// Start boots a defined VM, with spec's CPU share, balloon and generation in
	// force from its first instruction. ErrExists if the VM runs here already, whatever
	// its generation.
	Start(ctx context.Context, spec Spec) error

	// Stop asks the guest to power off and returns at once.
	Stop(ctx context.Context, id string) error

	// Destroy pulls the plug and returns once the VM is gone. A VM that is not
	// there is no error.
	Destroy(ctx context.Context, id string) error

	// Reset has a running guest boot again at once, as its reset button would: the instance and its generation stay. ErrNotFound
	// if that generation does not run here.
	Reset(ctx context.Context, id string, generation uint64) error

	// Undefine removes what Define made (disks included) and is idempotent.
	// A VM that still runs is an error.
	Undefine(ctx context.Context, spec Spec) error

	// SetCPU puts a cap and a weight in force on a running VM. They hold when
	// it returns.
	SetCPU(ctx context.Context, id string, cpu CPU) error

	// SetBalloon sets the memory a running VM is to have, in bytes, at most
	// its Spec.Memory. The guest follows in its own time, or not at all: see VM.Balloon.
	SetBalloon(ctx context.Context, id string, bytes int64) error

	// Stats samples every VM of ours on the host in one call.
	Stats(ctx context.Context) ([]Stats, error)

	// Pressure is how much work on the whole machine waits for CPU, memory and disks now.
	Pressure(ctx context.Context) (Pressure, error)

	// Events says what happens on the host until ctx ends, when it closes
	// the channel. A reader that falls behind, and every reader after a
	// reconnect, gets an event of kind Resync: List again.
	Events(ctx context.Context) (<-chan Event, error)

	// Console attaches to the serial console of a running VM. One reader at a
	// time; a new one takes the console over from the old.
	Console(ctx context.Context, id string) (io.ReadWriteCloser, error)

	// Migrate moves a running VM to another host while it runs. It returns when the
	// hand-over is complete, or the VM is known to run on here, or with ErrEndUnknown.
	Migrate(ctx context.Context, id string, m Migration) (Moved, error)

	// Resume has a paused VM go on, and returns once it does. A VM that runs is no error. A VM that a migration under way
	// is about to bring, or to take away, is one (ErrInvalid).
	Resume(ctx context.Context, id string) error

	// Abort ends a migration of the VM away from here, whichever process began it. It returns when that has ended:
	// the VM runs on here, or has left all the same. It reports whether there was a migration, and how far it got.
	Abort(ctx context.Context, id string) (Moved, bool, error)

	// Arrival is what the migration took that brought a VM here, by this host's count; the zero value if the VM came by
	// none, or the host does not know any more. Arrival reports it once for a VM that runs, and for a VM that is Standing
	// until it is resumed.
	Arrival(ctx context.Context, id string) (Moved, error)

	// Partner is what the host has that VMs need where they move to.
	Partner(ctx context.Context) (Partner, error)

	// CheckPeer finds out what keeps VMs from being sent to an address (as Migration.To): it connects there as a migration
	// would, and changes nothing. An error says that it could not be found out. Where ctx ends while the other side
	// does not answer, that is an obstacle.
	CheckPeer(ctx context.Context, to string) (Obstacle, error)

	// Close lets go of the hypervisor. VMs run on.
	Close() error
}

// Capacity of a host: CPU in cores, memory in bytes.
type Capacity struct {
	Name     string // the machine's own host name
	CPU      float64
	Memory   int64
	KVM      bool   // hardware virtualization is used; else software emulation
	Software string // "libvirt 9.0.0, QEMU 7.2.22"
	Cgroup   int    // 1 or 2; 0: none (simulated)
}

// Identity marks a VM as ours: written into it at its start, found again by
// List for as long as it lives. Never derived from the VM's name.
type Identity struct {
	Cluster    string // id of the cluster that owns it
	VM         string // id of the VM, unique for ever within the cluster
	Generation uint64 // how many times the leader had this VM started
}

// Spec is a VM as it is to be started.
type Spec struct {
	Identity
	Name      string // name the hypervisor gives it: ek-<id>
	Title     string `json:",omitempty"` // its full name, for people; "" = none: one line, at most MaxTitle bytes
	VCPUs     int
	Memory    int64 // bytes; what the guest boots with and the most its balloon can give back
	Balloon   int64 // bytes; memory target, <= Memory
	CPU       CPU
	Boot      Boot
	Disk      Disk
	Network   string // libvirt network by name, "bridge:NAME", or "" for no network
	CloudInit CloudInit
	// Leased: the VM may run only while its host holds a lease. Written into it like its Identity.
	Leased bool
}

// MaxTitle is the most bytes of a title.
const MaxTitle = 256

// Label is what people call the VM.
func (s Spec) Label() string { return cmp.Or(s.Title, s.Name) }

// CPU is an allocation as a host enforces it.
type CPU struct {
	Cap    float64 // cores; 0 = no cap
	Weight float64 // cores; the share in contention is proportional to it
}

// Boot by kernel, if Kernel is set; else the VM boots from its disk.
// Paths are files on the host, out of the image catalogue.
type Boot struct {
	Kernel  string
	Initrd  string
	Cmdline string
}

// Disk of a VM: an overlay over Base in a storage pool. The zero value is no disk.
type Disk struct {
	Base      string // path of the qcow2 base image on the host; "" for an empty disk
	Size      int64  // bytes; 0 = as large as Base
	Pool      string // libvirt storage pool
	Ephemeral bool   // made again at every start, removed with the VM
}

// Present says whether there is a disk at all.
func (d Disk) Present() bool { return d.Base != "" || d.Size > 0 }

// CloudInit is the NoCloud data handed to the guest; the zero value is none.
type CloudInit struct {
	UserData      string
	MetaData      string
	NetworkConfig string
}

// State of a VM on its host.
type State string

// The states List reports. A VM that is shut off is not listed at all: ours are transient.
const (
	Running  State = "running"
	Paused   State = "paused"
	Incoming State = "incoming" // target side of a live migration: not a second instance
	Crashed  State = "crashed"
	Stopping State = "stopping" // asked to power off
)

// VM is what a host says of one of its VMs.
type VM struct {
	Identity        // zero if Foreign
	Foreign  bool   // not created by an Evenkeel cluster: counted, never touched
	Leased   bool   // Spec.Leased, as it was started
	Name     string // the hypervisor's name for it
	State    State
	// Leftover: State is Incoming, and the hypervisor reports no migration of the VM, in or out. The source of a migration is
	// left so if its daemon is lost in the last phase. Its guest stands still until it is resumed.
	Leftover bool
	// Standing: State is Paused, and the hypervisor reports that a migration left it so (Migration.Paused); it was not resumed since. A
	// hypervisor whose daemon was restarted may not know that any more.
	Standing bool
	Started  time.Time // when it was started, by the clock of the host that did; zero: not known
	VCPUs    int
	Memory   int64 // bytes; most it can have
	Balloon  int64 // bytes; what it has now (the balloon's actual size)
	CPU      CPU   // in force now; Cap 0 = none
}

// Unknown stands in Stats and Pressure for a figure that is not reported. It differs from 0, which is a measured value.
const Unknown = -1

// Stats is one sample of one VM. Counters count since it was started on this host, or in the guest since it booted.
type Stats struct {
	Identity
	Name      string
	At        time.Time
	VCPUTime  time.Duration // CPU time its vCPUs have used
	TotalTime time.Duration // VCPUTime and that of the emulator's own threads
	// Throttled is how long its threads were held back by its cap, each counted for itself; Unknown where the host does not say.
	Throttled                   time.Duration
	Balloon                     int64 // bytes; actual size
	Resident                    int64 // bytes of host memory in use for it
	ReadBytes, WriteBytes       int64 // disk
	ReceiveBytes, TransmitBytes int64 // network

	// The guest's own report, which its balloon driver makes: each is Unknown without one. Reported is when this report was
	// first observed, or earlier where the balloon may have changed since. It is zero where that is not known, or there is no
	// report.
	Reported        time.Time
	Unused          int64 // bytes that hold nothing
	Available       int64 // bytes that it could take into use without swapping: Unused, and caches that it can drop
	SwapIn, SwapOut int64 // bytes read from and written to its swap
	MajorFaults     int64 // pages that it had to read from a disk
}

// Pressure of a machine: the share of the last ten seconds in which at least one task waited for the resource, 0 to 1; each
// Unknown where the kernel does not measure it (PSI).
type Pressure struct {
	CPU, Memory, IO float64
	// Available memory, by the kernel: bytes that could be taken into use without swapping; Unknown where it is not reported.
	Available int64 `json:",omitempty"`
}

// EventKind says what happened.
type EventKind string

// Kinds of events.
const (
	Started      EventKind = "started"
	Stopped      EventKind = "stopped" // by whatever cause: see Reason
	Suspended    EventKind = "suspended"
	Resumed      EventKind = "resumed"
	MovedIn      EventKind = "moved-in"
	MovedOut     EventKind = "moved-out"
	BalloonMoved EventKind = "balloon"
	Disconnected EventKind = "disconnected" // the hypervisor is out of reach; VM is empty
	Resync       EventKind = "resync"       // List again; VM is empty
)

// Event is one thing that happened on a host.
type Event struct {
	At     time.Time
	Kind   EventKind
	VM     string // id of our VM; "" for foreign ones and for the host itself
	Name   string
	Reason string // "shutdown", "destroyed", "crashed", "failed", "migrated", ... for people
}

// Migration says where a VM is to go, how fast, and by which means. How long it may take is for
// the context to say.
type Migration struct {
	To        string // the target's address, in the form the implementation wants (libvirt: a URI reachable from here)
	Bandwidth int64  // bytes per second; 0 = no limit
	MaxBytes  int64  // abort before more than this was sent, memory and disk; 0 = no limit

	// AutoConverge slows the guest down, more and more, as long as it writes faster than can be sent.
	AutoConverge bool
	// PostCopy lets the guest run on at the target before all of its memory is there, once that was
	// tried without and what is left fits MaxBytes. From then on nothing can abort the move.
	PostCopy bool
	// CopyStorage sends the VM's own disk, too, into the pool of that name at the target. What its base image
	// holds is not sent: the target must have the same file.
	CopyStorage bool
	// SharedDisk: the caller states that both hosts see the same disk, where the hypervisor cannot find that out.
	SharedDisk bool
	// Paused: the guest stays paused at the target until it is resumed there. If the source's hypervisor gets no answer
	// whether the target took the guest over, it resumes the guest at the source; without Paused the guest may then run on
	// both. Not with PostCopy.
	Paused bool
	// Spec is the VM as it was defined. Needed with CopyStorage alone.
	Spec Spec

	Progress func(Moved)
}

// Obstacle is why no VM can be sent to an address. The zero value: nothing is known to be in the way.
type Obstacle struct {
	Why  string // the cause, in words that name no host but by its address
	Here bool   // it lies on the host that would send, such as a file that is missing: the other side is not to blame
}

// Moved is how far a migration got.
type Moved struct {
	Bytes     int64 // sent so far, memory and disk, as the hypervisor counts them
	Remaining int64
	Downtime  time.Duration
	Rate      float64 // bytes per second that are sent now
	Dirty     float64 // bytes per second that the guest writes again
	PostCopy  bool    // the guest runs at the target, and the rest follows
}

// Hung is a call that had its time and has no answer yet. What it did, or will do, is not known.
type Hung struct {
	Call  string    // as the hypervisor names it, with its object: "virDomainCreateXML of web-vm-0"
	VM    string    // id of our VM that it is about; "" = of none
	Since time.Time // when it was made
}

// Hanging is a Host that knows which of its calls hang. A call leaves the list when it is answered after all, or its
// connection ends.
type Hanging interface {
	// Hanging calls, the one made first at first.
	Hanging() []Hung
}

// HangingOf a host; nil for one that does not know.
func HangingOf(h Host) []Hung {
	if h, is := h.(Hanging); is {
		return h.Hanging()
	}
	return nil
}

// MaxAddresses of one VM are reported.
const MaxAddresses = 8

// Addressing is a Host that knows network addresses of its VMs.
type Addressing interface {
	// Addresses of VMs of ours that run, by id: IPv4 and IPv6, without those of loopback and of the link alone, at most
	// MaxAddresses each. Guests and neighbours on the network state them: they are for people, and prove nothing. A VM of
	// which none is known is left out.
	Addresses(ctx context.Context) (map[string][]netip.Addr, error)
}

// Partner is what a host has that VMs need where they move to.
type Partner struct {
	CPUModel string            // that VMs are given: a model's name, "host-model NAME" where it is the machine's own
	Machines []string          // types of machine that can be run; the first is what new VMs get
	QEMU     string            // version of the emulator
	Networks []string          // by the names that Spec.Network takes, those that are started; nil = not known
	Pools    map[string]string // storage pools that are started: name -> "kind path"; nil = not known
	KVM      bool
}
