package machines

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync/atomic"
	"syscall"
	"time"

	"evenkeel/test/freeport"
)

// devices are what every machine has, in QEMU's terms. The accelerator stands there alone, so that no other is taken in
// silence. qemu64, not max: a guest that inherits all that emulation offers stops in its kernel's set-up of the FPU.
var devices = []string{
	"-accel", "tcg,thread=multi", "-machine", "q35", "-cpu", "qemu64,+svm,+npt,+nx", "-smp", "2", "-m", "2048",
	"-device", "i6300esb", "-action", "watchdog=reset", "-global", "ICH9-LPC.enable_tco=off", "-device", "virtio-rng-pci", // one watchdog, not that of the chipset as well
	"-nodefaults", "-display", "none", "-no-user-config", "-rtc", "base=utc",
}

// cmdline is the kernel's. A CPU that runs a guest under emulated SVM and gets an NMI resets the machine. The kernel sends one to a
// CPU that is late, as CPUs are on a busy computer: hence nothing that watches for that, and no khugepaged, which stalls others.
const cmdline = "root=/dev/vda rw console=ttyS0 systemd.show_status=1 rcupdate.rcu_cpu_stall_suppress=1 nmi_watchdog=0 nosoftlockup transparent_hugepage=never module_blacklist=iTCO_wdt"

// Limits on no progress, in the machine's own time.
const (
	bootStall    = 2 * time.Minute
	restoreStall = time.Minute
)

// Machine is one that runs.
type Machine struct {
	img     Image
	dir     string
	address string // on loopback, that leads to its sshd
	cmd     *exec.Cmd
	monitor *monitor
	ended   chan struct{}
	err     error // once ended

	together []*Machine // those of its test, itself included; nil: it alone
	hung     atomic.Bool
	watched  atomic.Bool // a vcd was given its watchdog
}

// start starts QEMU with the disk of dir.
func start(ctx context.Context, img Image, dir string, on lan, more ...string) (*Machine, error) {
	address, err := freeport.Address()
	if err != nil {
		return nil, err
	}
	m := &Machine{img: img, dir: dir, address: address, ended: make(chan struct{})}
	args := append(append([]string{}, img.QEMU[1:]...), devices...)
	args = append(args, "-kernel", filepath.Join(img.Dir, "vmlinuz"), "-initrd", filepath.Join(img.Dir, "initrd.img"), "-append", cmdline,
		"-drive", "if=virtio,format=qcow2,cache=unsafe,file="+m.disk(),
		"-netdev", "user,id=net,restrict=on,hostfwd=tcp:"+address+"-:22", "-device", "virtio-net-pci,netdev=net,romfile=",
		"-netdev", on.netdev(), "-device", "virtio-net-pci,netdev=lan,romfile=,mac="+lanMAC,
		"-chardev", "file,id=console,append=on,path="+m.console(), "-serial", "chardev:console",
		"-qmp", "unix:"+m.path("qmp")+",server=on,wait=off",
		"-d", "cpu_reset,guest_errors", "-D", m.path("resets.log"))
	log, err := os.OpenFile(m.path("qemu.log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	m.cmd = exec.Command(img.QEMU[0], append(args, more...)...)
	m.cmd.Stdout, m.cmd.Stderr = log, log
	m.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL}
	begun := make(chan error)
	go func() {
		runtime.LockOSThread() // the signal at this process's end is really one at the thread's end
		begun <- m.cmd.Start()
		if m.cmd.Process != nil {
			m.err = m.cmd.Wait()
			close(m.ended)
		}
	}()
	if err := <-begun; err != nil {
		return nil, fmt.Errorf("start QEMU: %w", err)
	}
	err = m.Until(ctx, restoreStall, "QEMU's monitor answers", func() string { return "" }, func() bool {
		var err error
		m.monitor, err = dialMonitor(ctx, m.path("qmp"))
		return err == nil
	})
	if err != nil {
		return nil, errors.Join(err, m.Close())
	}
	return m, nil
}

func (m *Machine) path(name string) string { return filepath.Join(m.dir, name) }
func (m *Machine) disk() string            { return m.path("disk.qcow2") }
func (m *Machine) console() string         { return m.path("console.log") }
func (m *Machine) pid() int                { return m.cmd.Process.Pid }

// output is the end of what QEMU itself printed.
func (m *Machine) output() string {
	text, _ := os.ReadFile(m.path("qemu.log"))
	return string(bytes.TrimSpace(text[max(0, len(text)-1000):]))
}

// Console is all that the machine printed on its serial console.
func (m *Machine) Console() string {
	text, _ := os.ReadFile(m.console())
	return string(text)
}

func (m *Machine) consoleSize() string {
	info, err := os.Stat(m.console())
	if err != nil {
		return ""
	}
	return fmt.Sprint(info.Size(), " bytes on the console")
}

// Boot boots a machine with the disk in dir, a new one on top of the image if there is none, and waits until it takes commands.
func Boot(ctx context.Context, img Image, dir string) (*Machine, error) {
	if _, err := os.Stat(filepath.Join(dir, "disk.qcow2")); errors.Is(err, os.ErrNotExist) {
		if err := overlay(ctx, filepath.Join(img.Dir, "disk.qcow2"), filepath.Join(dir, "disk.qcow2")); err != nil {
			return nil, err
		}
	}
	m, err := start(ctx, img, dir, "")
	if err != nil {
		return nil, err
	}
	if err := m.Ready(ctx); err != nil {
		return nil, errors.Join(err, m.Close())
	}
	return m, nil
}

// Ready waits until the machine that boots has its sshd up.
func (m *Machine) Ready(ctx context.Context) error {
	return m.Until(ctx, bootStall, "the machine boots", m.consoleSize, m.answers)
}

// answers says whether sshd greets. QEMU's own network takes connections before the machine does.
func (m *Machine) answers() bool {
	conn, err := net.DialTimeout("tcp", m.address, time.Second)
	if err != nil {
		return false
	}
	defer conn.Close()
	_ = conn.SetReadDeadline(time.Now().Add(2 * time.Second))
	greeting := make([]byte, 4)
	_, err = conn.Read(greeting)
	return err == nil && string(greeting) == "SSH-"
}

// errEmulator says that a machine was lost by no fault of what was tested in it.
var errEmulator = errors.New("the emulator reset the machine, or it answers no more")

// tripleFault is what QEMU logs when a CPU of the machine cannot deliver an exception any more. It then resets the machine. What is
// tested runs in user space, and cannot cause it; the watchdog and the kernel reset the machine in other ways.
const tripleFault = "Triple fault"

// lost says whether the machine, or another of its test, was reset by the emulator, or does not answer any more.
func (m *Machine) lost() bool { return m.loss() != "" }

// loss says how the machine, or another of its test, was lost; "" if none was.
func (m *Machine) loss() string {
	for _, m := range append([]*Machine{m}, m.together...) {
		if why := m.reset(); why != "" {
			return why
		}
		if m.hung.Load() {
			return "it answers no more"
		}
	}
	return ""
}

// stopped says whether a machine in which something failed does not answer at all any more: its kernel takes no connection, or starts no process of sshd
// for it. What is tested cannot cause that either. Where its CPUs are, is in the file "registers" of its directory.
func (m *Machine) stopped(ctx context.Context) bool {
	var stall *StallError
	if !errors.As(m.Until(ctx, restoreStall, "the machine answers", func() string { return "" }, m.answers), &stall) {
		return m.lost()
	}
	m.hung.Store(true)
	var registers string
	if err := m.monitor.call(ctx, "human-monitor-command", map[string]any{"command-line": "info registers -a"}, &registers); err != nil {
		registers = err.Error()
	}
	_ = os.WriteFile(m.path("registers"), []byte(registers), 0o644) // a help for readers
	return true
}

// reset says how the machine was reset by no fault of what was tested in it: by a triple fault, or by its watchdog though no vcd had been
// given that. Nothing else in it opens the device. "" is no such reset.
func (m *Machine) reset() string {
	if len(m.Events("RESET")) == 0 {
		return ""
	}
	if len(m.Events("WATCHDOG")) > 0 && !m.watched.Load() {
		return "its watchdog reset it, and no vcd had that"
	}
	if text, err := os.ReadFile(m.path("resets.log")); err == nil && bytes.Contains(text, []byte(tripleFault)) {
		return "a triple fault reset it"
	}
	return ""
}

// Events are those of QEMU of that name, such as WATCHDOG and RESET; all of them if it is "".
func (m *Machine) Events(name string) []Event { return m.monitor.seen(name) }

// Cut cuts the power and gives it back at once. What the machine's kernel had not written to the disk is lost.
func (m *Machine) Cut(ctx context.Context) error {
	m.hangUp()
	return m.monitor.call(ctx, "system_reset", nil, nil)
}

// Close cuts the machine's power. Its disk stays as it is.
func (m *Machine) Close() error {
	m.hangUp()
	if m.monitor != nil {
		_ = m.monitor.conn.Close()
	}
	if err := m.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	<-m.ended
	return nil
}

// cpuTime is what the machine, once it has ended, took of the computer's CPUs.
func (m *Machine) cpuTime() time.Duration {
	return m.cmd.ProcessState.UserTime() + m.cmd.ProcessState.SystemTime()
}
