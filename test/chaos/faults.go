package chaos

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"evenkeel/api/client"
	"evenkeel/api/v1"
	"evenkeel/test/patience"
)

// Disturb carries a plan out, and returns when all of it is undone. Faults of one host come one after another, and so do those
// of the network; others may come at once.
func (s *Site) Disturb(ctx context.Context, plan []Fault) {
	begun := time.Now()
	var all sync.WaitGroup
	var network sync.Mutex
	for _, f := range plan {
		select {
		case <-ctx.Done():
		case <-time.After(time.Until(begun.Add(f.At))):
		}
		if ctx.Err() != nil {
			break
		}
		all.Go(func() {
			if f.Kind == "net" {
				network.Lock()
				defer network.Unlock()
			}
			s.strike(ctx, f)
		})
	}
	all.Wait()
}

// strike one fault, and undo it.
func (s *Site) strike(ctx context.Context, f Fault) {
	h, err := s.target(ctx, f)
	if err != nil {
		s.log.Strike("skipped", f.On, f, err)
		return
	}
	h.struck.Lock()
	defer h.struck.Unlock()
	for limit := time.Now().Add(20 * time.Second); (!h.Up() || !h.Runs()) && f.Kind != "net" && time.Now().Before(limit); {
		time.Sleep(100 * time.Millisecond) // sleep: a fault cannot strike what is down; its keeper starts it
	}
	if f.Phase != "" {
		time.Sleep(f.After) // sleep: so far into the phase
	}
	s.log.Strike("strike", h.Name, f, nil)
	undo, err := h.apply(ctx, f)
	if err != nil {
		s.log.Strike("failed", h.Name, f, err)
		return
	}
	if undo == nil {
		return
	}
	select {
	case <-ctx.Done():
	case <-time.After(f.For):
	}
	s.log.Strike("undone", h.Name, f, undo())
}

// target that a fault strikes. For a fault of a migration it waits until there is one.
func (s *Site) target(ctx context.Context, f Fault) (*Host, error) {
	if f.Phase != "" {
		const wait = 20 * time.Second // for a migration
		ctx, cancel := context.WithTimeout(ctx, wait)
		defer cancel()
		m, err := s.migrating(ctx, f.Phase)
		if err != nil {
			return nil, fmt.Errorf("no migration within %v: %w", wait, err)
		}
		switch f.On {
		case "source":
			return s.Host(m.From), nil
		case "target":
			return s.Host(m.To), nil
		}
	}
	if h := s.Host(f.On); h != nil {
		return h, nil
	}
	st, err := ask(ctx, s, f.N, func(ctx context.Context, c *client.Client) (v1.ClusterStatus, error) { return c.Status(ctx) })
	if err != nil {
		return s.Hosts[f.N%len(s.Hosts)], nil //nolint:nilerr // nothing leads: then any
	}
	if f.On == "leader" {
		if h := s.Host(st.Leader); h != nil {
			return h, nil
		}
	}
	for n := range s.Hosts {
		if h := s.Hosts[(f.N+n)%len(s.Hosts)]; h.Name != st.Leader {
			return h, nil
		}
	}
	return nil, errors.New("no follower")
}

// migrating waits until a VM is copied, or is at its hand-over: its guest stands still on the source.
func (s *Site) migrating(ctx context.Context, phase string) (v1.Migration, error) {
	for {
		all, err := ask(ctx, s, 0, func(ctx context.Context, c *client.Client) ([]v1.Migration, error) {
			return c.Migrations(ctx, "", "", "running", 0)
		})
		if err == nil && len(all) > 0 {
			m := all[0]
			if phase == "copying" {
				return m, nil
			}
			return m, s.Host(m.From).says(ctx, handOver)
		}
		select {
		case <-ctx.Done():
			return v1.Migration{}, errors.Join(ctx.Err(), err)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// says waits until libvirt of the host reports such an event.
func (h *Host) says(ctx context.Context, what *regexp.Regexp) error {
	cmd := exec.CommandContext(ctx, "stdbuf", "-oL", "virsh", "-c", h.URI(), "event", "--all", "--loop")
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	defer func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // it was killed: that is its status
	}()
	var output []byte
	for buffer := make([]byte, 4096); ; {
		n, err := out.Read(buffer)
		output = append(output, buffer[:n]...)
		if what.Match(output) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("events of libvirt on %s: %w: %s", h.Name, err, bytes.TrimSpace(output))
		}
	}
}

// Lines of virsh at the hand-over: the guest is stopped on the source at the end of its migration; and the target has
// taken it over, where it is paused until it is resumed.
var (
	handOver = regexp.MustCompile(`'lifecycle' for domain '[^']*': (Suspended Migrated|Suspended Post-copy)`)
	takeOver = regexp.MustCompile(`'lifecycle' for domain '[^']*': Suspended Paused`)
)

// apply a fault to the host; undo ends it, unless the fault ends by itself.
func (h *Host) apply(ctx context.Context, f Fault) (undo func() error, err error) {
	switch f.Kind + " " + f.What {
	case "kill vcd":
		h.blockRestart(vcd, f.For)
		return nil, h.Vcd().Kill()
	case "kill libvirtd":
		h.blockRestart(libvirtd, f.For)
		h.site.log.DaemonKilled(h.Name)
		return nil, h.KillDaemon()
	case "net cut":
		return func() error { return h.CutCable(false) }, h.CutCable(true)
	case "net one-way":
		return h.site.Lab.Heal, h.site.Lab.Block(h.Host.Host, h.site.Host(f.Peer).Host.Host)
	case "net pair":
		return h.site.Lab.Heal, errors.Join(h.site.Lab.Block(h.Host.Host, h.site.Host(f.Peer).Host.Host), h.site.Lab.Block(h.site.Host(f.Peer).Host.Host, h.Host.Host))
	case "net loss":
		if !h.Up() {
			return nil, errors.New("it has no power")
		}
		return h.whileUp(func() error { return h.Lose(0) }), h.Lose(f.Amount)
	case "net delay":
		if !h.Up() {
			return nil, errors.New("it has no power")
		}
		return h.whileUp(func() error { return h.Delay(0) }), h.Delay(time.Duration(f.Amount * float64(time.Second)))
	case "stop vcd":
		p := h.Vcd()
		return func() error {
			if !h.Up() || h.Vcd() != p { // its watchdog has reset the host
				return nil
			}
			return p.Resume()
		}, p.Pause()
	case "stop libvirtd":
		return h.whileUp(h.ResumeDaemon), h.HangDaemon()
	case "power off":
		h.blockRestart(power, f.For)
		h.blockRestart(vcd, time.Second) // it is not its own end
		return nil, h.PowerOff()
	case "disk full":
		return h.FreeDisk, h.FillDisk()
	case "slow fsync":
		return h.slow(f.Amount)
	case "clock jump":
		p := h.Vcd()
		return func() error {
			if !h.Up() || h.Vcd() != p {
				return nil // it was started again, with the machine's clock
			}
			return p.ShiftClock(0)
		}, p.ShiftClock(time.Duration(f.Amount * float64(time.Second)))
	case "files damage":
		return nil, h.damage(ctx, f)
	}
	return nil, fmt.Errorf("no such fault: %s", f)
}

// whileUp undoes what ends with the host's power.
func (h *Host) whileUp(undo func() error) func() error {
	return func() error {
		if !h.Up() {
			return nil
		}
		if err := undo(); err != nil && h.Up() {
			return err
		}
		return nil
	}
}

// slow delays every fsync of the host's vcd, by strace.
func (h *Host) slow(by float64) (func() error, error) {
	micros := int(by * 1e6)
	cmd := exec.Command("strace", "-f", "-q", "-o", "/dev/null", "-p", fmt.Sprint(h.Vcd().PID()), "-e", "trace=fsync,fdatasync",
		"-e", fmt.Sprintf("inject=fsync,fdatasync:delay_exit=%d", micros))
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	return func() error {
		_ = cmd.Process.Signal(syscall.SIGINT) // it lets go of the process, and ends
		_ = cmd.Wait()
		return nil
	}, nil
}

// damage a file while vcd is down, start vcd, and do what its message asks for if it does not start.
func (h *Host) damage(ctx context.Context, f Fault) error {
	h.blockRestart(vcd, time.Hour)
	if err := h.Vcd().Kill(); err != nil {
		h.blockRestart(vcd, 0)
		return err
	}
	files, err := filepath.Glob(filepath.Join(h.State(), f.File))
	if err == nil && len(files) == 0 {
		err = fmt.Errorf("no file %s", f.File)
	}
	if err == nil {
		err = damaged(files[0], f.Damage)
	}
	if err != nil {
		h.blockRestart(vcd, 0)
		return err
	}
	size, _ := os.Stat(h.LogFile())
	h.ended(true)
	h.blockRestart(vcd, f.For)
	h.site.log.Say("damaged", h.Name, fmt.Sprintf("%s: %s", files[0], f.Damage))
	const tries = 3 // that vcd ends by itself before its message counts
	up := time.Time{}
	err = patience.Until(ctx, time.Minute, "vcd runs on a damaged file, or ends and says why", func() any { return []any{h.ended(false), h.Up()} }, func() bool {
		if !h.Up() || !h.Runs() {
			up = time.Time{}
		} else if up.IsZero() {
			up = time.Now()
		}
		return h.ended(false) >= tries || !up.IsZero() && time.Since(up) > 10*time.Second
	})
	if err != nil {
		h.site.log.Say("violation", h.Name, fmt.Sprintf("%s %s: %v", f.File, f.Damage, err))
		return nil
	}
	if h.ended(false) < tries {
		return nil // vcd ran on what was left of the file, or restored it
	}
	text, err := os.ReadFile(h.LogFile())
	if err != nil {
		return err
	}
	output := string(text[min(size.Size(), int64(len(text))):])
	way := WayOut(output)
	h.site.log.Say("way-out", h.Name, fmt.Sprintf("%s %s: %s: vcd says: %s", f.File, f.Damage, way, last(output)))
	switch way {
	case "remove":
		h.blockRestart(vcd, time.Hour)
		err = os.Remove(files[0])
		h.blockRestart(vcd, 0)
	case "join":
		err = h.rejoin(ctx)
	default:
		h.site.log.Say("violation", h.Name, fmt.Sprintf("%s %s: vcd does not come up, and names no way out: %s", f.File, f.Damage, last(output)))
		err = h.rejoin(ctx)
	}
	if err != nil {
		h.site.log.Say("violation", h.Name, fmt.Sprintf("%s %s: the way out is none: %v", f.File, f.Damage, err))
	}
	return nil
}

// last line of the program's output that has a text.
func last(output string) string {
	lines := strings.Split(strings.TrimSpace(output), "\n")
	for _, line := range slices.Backward(lines) {
		if strings.HasPrefix(line, "vcd: ") || strings.Contains(line, "panic:") {
			return line
		}
	}
	return lines[len(lines)-1]
}

// WayOut is what the message of a vcd that does not start asks the operator to do: "remove" the file, let the
// member in again ("join"), or "" if it asks for neither.
func WayOut(output string) string {
	line := last(output)
	switch {
	case strings.Contains(line, "join-token") && strings.Contains(line, "--for "):
		return "join"
	case strings.Contains(line, "remove the file"):
		return "remove"
	}
	return ""
}

// damaged damages a file: cut in half, a byte in each 256 flipped, empty.
func damaged(path, how string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	switch how {
	case "cut":
		text = text[:len(text)/2]
	case "flipped":
		for n := 17; n < len(text); n += 256 {
			text[n] ^= 0x55
		}
	case "empty":
		text = nil
	}
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	return os.WriteFile(path, text, info.Mode())
}

// kept in the data directory of a member that lost what it knew: disks and images of VMs.
var kept = []string{"libvirt", "images"}

// rejoin lets the member in again, as docs/how-to/repair-damaged-files.md says: a token for its name, its data directory emptied, join.
func (h *Host) rejoin(ctx context.Context) error {
	h.blockRestart(vcd, time.Hour)
	defer h.blockRestart(vcd, 0)
	if h.Runs() {
		if err := h.Vcd().Kill(); err != nil {
			return err
		}
	}
	entries, err := os.ReadDir(h.State())
	if err != nil {
		return err
	}
	for _, e := range entries {
		if !slices.Contains(kept, e.Name()) {
			err = errors.Join(err, os.RemoveAll(filepath.Join(h.State(), e.Name())))
		}
	}
	if err != nil {
		return err
	}
	h.blockRestart(vcd, 0)
	var failed error
	err = patience.Until(ctx, 2*time.Minute, "the member is let in again", nil, func() bool {
		if !h.Up() || !h.Runs() {
			failed = errors.New("its host or its vcd is down")
			return false
		}
		for _, other := range h.site.Hosts {
			if other == h {
				continue
			}
			short, cancel := context.WithTimeout(ctx, 10*time.Second)
			token, err := other.API.MakeJoinToken(short, v1.JoinTokenRequest{Server: true, Agent: true, For: h.Name, Seconds: new(300.0)})
			cancel()
			if failed = err; failed != nil {
				continue
			}
			bounded, cancel := context.WithTimeout(ctx, time.Minute)
			_, failed = h.Vcctl(bounded, token.Token, "cluster", "join", other.Port())
			cancel()
			if failed == nil {
				return true
			}
		}
		time.Sleep(time.Second) // sleep: an operator does not ask more often
		return false
	})
	if err != nil {
		return errors.Join(err, failed)
	}
	return nil
}
