package state

import (
	"errors"
	"fmt"
	"strings"
)

// ErrInvalid says that no state can have what the command says (a row without a name, an unknown phase, negative memory). Its
// proposer has a fault; the state stays as it is.
var ErrInvalid = errors.New("malformed command")

// maxVMMemory bounds one amount of memory, bytes, so that sums do not overflow.
const maxVMMemory = 1 << 56

// valid says what is wrong with a command that decodes. Such a command is in the log for ever. So every program that reads it
// must refuse it the same way, and never panic.
func valid(body any) error {
	switch b := body.(type) {
	case interface{ valid() error }:
		return b.valid()
	case *Init:
		return check("cluster", b.ID, "id", b.ID)
	case *ImagePut:
		return errors.Join(check("image", b.Name, "name", b.Name), validRemembered(nil, b.Remembered))
	case *ImageDrop:
		return validRemembered(nil, b.Remembered)
	case *Member:
		return check("member", b.Name, "name", b.Name)
	case *JoinToken:
		return check("join token", b.ID, "id", b.ID, "hash", b.Hash)
	case *Join:
		return check("member", b.Member.Name, "name", b.Member.Name, "token", b.Token)
	case *Certificate:
		return check("certificate", b.Serial.Number, "member", b.Member, "number", b.Serial.Number)
	case *MigrationReport:
		if !isMemory(b.Bytes) || b.DowntimeMs < 0 {
			return fmt.Errorf("migration %q: %d bytes, %d ms: %w", b.ID, b.Bytes, b.DowntimeMs, ErrInvalid)
		}
	case *MigrationAbort:
		return check("migration", b.ID, "id", b.ID, "reason", b.Reason)
	case *Audit:
		return check("event", b.Name, "kind", b.Kind, "object", b.Object)
	}
	return nil
}

// check says which of the names is missing or cannot be a key: pairs of field and value.
func check(object, name string, pairs ...string) error {
	for i := 0; i < len(pairs); i += 2 {
		if pairs[i+1] == "" || strings.ContainsRune(pairs[i+1], 0) {
			return fmt.Errorf("%s %q: %s %q: %w", object, name, pairs[i], pairs[i+1], ErrInvalid)
		}
	}
	return nil
}

func (b *HostReport) valid() error {
	for _, r := range []Resources{b.Capacity, b.Allowance, b.Foreign, {Memory: b.VMOverhead}} {
		if r.CPU < 0 || !isMemory(r.Memory) {
			return fmt.Errorf("host %q: %v cores, %d bytes: %w", b.Name, r.CPU, r.Memory, ErrInvalid)
		}
	}
	return check("host", b.Name, "name", b.Name)
}

func isMemory(bytes int64) bool { return bytes >= 0 && bytes <= maxVMMemory }

func (b *Plan) valid() error {
	if vc := b.VC; vc != nil {
		if err := check("virtual cluster", vc.Name, "id", vc.ID, "name", vc.Name); err != nil {
			return err
		}
		if !vc.Goal.known() {
			return fmt.Errorf("virtual cluster %q: goal %q: %w", vc.Name, vc.Goal, ErrInvalid)
		}
		for _, g := range vc.Groups {
			if g.CPU < 0 || g.Allocation < 0 || g.Estimated < 0 || !isMemory(g.Memory) {
				return fmt.Errorf("virtual cluster %q: group %q: need %v, allocation %v, %d bytes: %w", vc.Name, g.Name, g.CPU, g.Allocation, g.Memory, ErrInvalid)
			}
			if err := g.Affinity.valid(); err != nil {
				return fmt.Errorf("virtual cluster %q: group %q: %w", vc.Name, g.Name, err)
			}
		}
	}
	if b.Version != nil {
		if err := b.Version.valid(); err != nil {
			return err
		}
	}
	for _, vm := range b.VMs {
		if err := vm.valid(); err != nil {
			return err
		}
	}
	for _, a := range b.Allocations {
		if a.CPU < 0 {
			return fmt.Errorf("allocation to virtual cluster %q: %v cores: %w", a.VC, a.CPU, ErrInvalid)
		}
	}
	if op := b.Operation; op != nil {
		if err := check("operation", op.ID, "id", op.ID, "virtual cluster", op.VC); err != nil {
			return err
		}
	}
	if r := b.Remembered; r != nil {
		return check("idempotency key", r.Key, "key", r.Key)
	}
	return nil
}

func (a Affinity) valid() error {
	if a.Spread != "" && a.Spread != "host" {
		return fmt.Errorf("affinity: spread %q: %w", a.Spread, ErrInvalid)
	}
	for _, terms := range [][]string{a.Require, a.Prefer, a.Avoid} {
		for _, term := range terms {
			if !strings.ContainsAny(term, ":=") || strings.ContainsRune(term, 0) {
				return fmt.Errorf("affinity: %q: %w", term, ErrInvalid)
			}
		}
	}
	return nil
}

func (v *VM) valid() error {
	if err := check("VM", v.Name, "id", v.ID, "name", v.Name, "virtual cluster", v.VC); err != nil {
		return err
	}
	if !v.Goal.known() || v.Phase.rank() < 0 || v.Frozen < 0 || !isMemory(v.ChargedMemory) || !isMemory(v.BootMemory) || !isMemory(v.Target) {
		return fmt.Errorf("VM %q: goal %q, phase %q, %v cores, %d of %d bytes: %w", v.Name, v.Goal, v.Phase, v.Frozen, v.ChargedMemory, v.BootMemory, ErrInvalid)
	}
	if v.ConsumesResources() || v.Host != "" {
		return check("VM", v.Name, "host", v.Host)
	}
	return nil
}

func (g Goal) known() bool { return g == GoalRun || g == GoalStop || g == GoalDelete }

// rank is the rank of a phase within a generation: a VM only goes up. -1 is no phase.
func (p Phase) rank() int {
	switch p {
	case Starting:
		return 0
	case Running:
		return 1
	case Stopping:
		return 2
	case Stopped, Failed, Lost:
		return 3
	}
	return -1
}
