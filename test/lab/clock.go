package lab

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"time"
)

// ShiftClock sets the program's wall clock off by d from the machine's, as a clock that jumps does; 0 ends it. Its monotonic
// clock, timers and all other processes go on as they are; what it starts later has the machine's clock.
//
// No namespace of the kernel's shifts CLOCK_REALTIME, and vcd is a program that takes no library in before libc. So the code by which a process asks
// the kernel for the time, the vDSO, is replaced in this process alone: pages of it are copied when they are written to.
func (p *Program) ShiftClock(d time.Duration) error {
	err := eventually(patience, func() error {
		if err := p.Pause(); err != nil {
			return err
		}
		return errors.Join(shiftClock(p.inner.PID, d), p.Resume())
	})
	if err != nil {
		return fmt.Errorf("shift the clock of %s on %s: %w", p.name, p.host.Name, err)
	}
	return nil
}

// clockCode asks the kernel for the time, and adds a number of seconds to CLOCK_REALTIME, which is clock 0. By the calling convention
// of amd64 the clock's number is in edi and where the time goes in rsi; rcx and r11 may be changed.
var clockCode = []byte{
	0xb8, 0xe4, 0x00, 0x00, 0x00, // mov $228, %eax: clock_gettime
	0x0f, 0x05, // syscall
	0x85, 0xff, // test %edi, %edi
	0x75, 0x0d, // jne to ret
	0x48, 0xb9, 0, 0, 0, 0, 0, 0, 0, 0, // mov $SECONDS, %rcx
	0x48, 0x01, 0x0e, // add %rcx, (%rsi)
	0xc3, // ret
}

// secondsAt is where in clockCode the number of seconds is.
const secondsAt = 13

// stopped waits until all threads of a process that was sent SIGSTOP stand, and returns where.
func stopped(pid int) (at []uint64, err error) {
	err = eventually(patience, func() error {
		at = at[:0]
		files, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/syscall", pid))
		if err != nil || len(files) == 0 {
			return errors.Join(fmt.Errorf("process %d has no threads", pid), err)
		}
		for _, f := range files {
			text, err := os.ReadFile(f)
			fields := strings.Fields(string(text))
			if err != nil || len(fields) < 3 { // "running", or it has just ended
				return fmt.Errorf("%s: %q: %w", f, text, err)
			}
			pc, err := strconv.ParseUint(fields[len(fields)-1], 0, 64)
			if err != nil {
				return fmt.Errorf("%s: %q: %w", f, text, err)
			}
			at = append(at, pc)
		}
		return nil
	})
	return at, err
}

// patched are the processes whose clockCode is in place, and where.
var patched = struct {
	sync.Mutex
	at map[process]uint64
}{at: map[process]uint64{}}

// errBusy: a thread stands in the code that is to be replaced.
var errBusy = errors.New("a thread is just asking for the time")

// shiftClock of a process that is stopped.
func shiftClock(pid int, d time.Duration) error {
	if runtime.GOARCH != "amd64" {
		return errors.ErrUnsupported
	}
	principal, err := processOf(pid)
	if err != nil {
		return err
	}
	mem, err := os.OpenFile(fmt.Sprintf("/proc/%d/mem", pid), os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer mem.Close()
	seconds := binary.LittleEndian.AppendUint64(nil, uint64(int64(d/time.Second)))
	patched.Lock()
	defer patched.Unlock()
	if at := patched.at[principal]; at != 0 {
		_, err := mem.WriteAt(seconds, int64(at)+secondsAt)
		return err
	}
	entry, err := clockEntry(pid, mem)
	if err != nil {
		return err
	}
	code := bytes.Clone(clockCode)
	copy(code[secondsAt:], seconds)
	at, err := stopped(pid)
	if err != nil {
		return err
	}
	for _, pc := range at {
		if pc > entry && pc < entry+uint64(len(code)) { // at the entry itself it reads the new code
			return errBusy
		}
	}
	if _, err := mem.WriteAt(code, int64(entry)); err != nil {
		return err
	}
	patched.at[principal] = entry
	return nil
}

// clockEntry finds clock_gettime in a process's vDSO.
func clockEntry(pid int, mem *os.File) (uint64, error) {
	maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(maps)) {
		if !strings.HasSuffix(strings.TrimSpace(line), "[vdso]") {
			continue
		}
		var from, to uint64
		if _, err := fmt.Sscanf(line, "%x-%x", &from, &to); err != nil {
			return 0, fmt.Errorf("maps: %q: %w", line, err)
		}
		image := make([]byte, to-from)
		if _, err := mem.ReadAt(image, int64(from)); err != nil {
			return 0, err
		}
		f, err := elf.NewFile(bytes.NewReader(image))
		if err != nil {
			return 0, fmt.Errorf("vDSO: %w", err)
		}
		symbols, err := f.DynamicSymbols()
		if err != nil {
			return 0, fmt.Errorf("vDSO: %w", err)
		}
		for _, s := range symbols {
			if s.Name == "__vdso_clock_gettime" {
				return from + s.Value, nil
			}
		}
	}
	return 0, errors.New("it has no vDSO with clock_gettime")
}
