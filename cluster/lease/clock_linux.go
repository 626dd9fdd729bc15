package lease

import (
	"time"

	"golang.org/x/sys/unix"
)

// Boottime reads CLOCK_BOOTTIME.
func Boottime() Instant {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &t); err != nil {
		panic("lease: CLOCK_BOOTTIME: " + err.Error()) // the kernel has it since 2.6.39
	}
	return time.Duration(t.Nano())
}
