package lab

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestMain: as the child of TestClockShifts the test binary prints the time.
func TestMain(m *testing.M) {
	if os.Getenv("EVENKEEL_TELL_TIME") != "" {
		begun := time.Now()
		for {
			fmt.Println(time.Now().UnixNano(), time.Since(begun).Nanoseconds())
			time.Sleep(time.Millisecond) // sleep: prints the time until it is killed
		}
	}
	os.Exit(m.Run())
}

// TestClockShifts sets the wall clock of one process off, again and again, and its monotonic clock goes on.
func TestClockShifts(t *testing.T) {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "EVENKEEL_TELL_TIME=1")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	lines := bufio.NewScanner(out)
	read := func() (off, mono time.Duration) {
		t.Helper()
		if !lines.Scan() {
			t.Fatal("the child has ended: ", lines.Err())
		}
		now, up, _ := strings.Cut(lines.Text(), " ")
		ns, err := strconv.ParseInt(now, 10, 64)
		m, err2 := strconv.ParseInt(up, 10, 64)
		if err := errors.Join(err, err2); err != nil {
			t.Fatal(err)
		}
		return time.Until(time.Unix(0, ns)), time.Duration(m)
	}
	_, last := read()
	for _, d := range []time.Duration{0, time.Hour, -2 * time.Hour, 400 * 24 * time.Hour, 0} {
		err := errBusy
		for try := 0; errors.Is(err, errBusy) && try < 50; try++ {
			if err := cmd.Process.Signal(syscall.SIGSTOP); err != nil {
				t.Fatal(err)
			}
			err = shiftClock(cmd.Process.Pid, d)
			if err := cmd.Process.Signal(syscall.SIGCONT); err != nil {
				t.Fatal(err)
			}
		}
		if err != nil {
			t.Fatal(err)
		}
		var off time.Duration
		for range 100_000 { // what it said before is read first
			var mono time.Duration
			if off, mono = read(); mono < last {
				t.Fatalf("its monotonic clock went from %v to %v", last, mono)
			} else if last = mono; (off - d).Abs() < 30*time.Second {
				break
			}
		}
		if (off - d).Abs() > 30*time.Second {
			t.Errorf("shifted by %v, it is off by %v", d, off)
		}
	}
}
