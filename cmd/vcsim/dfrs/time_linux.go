package dfrs

import (
	"runtime"
	"syscall"
)

// processorTime is the user time that work takes, seconds, on the thread that it runs on.
func processorTime(work func()) float64 {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	now := func() float64 {
		var u syscall.Rusage
		if err := syscall.Getrusage(syscall.RUSAGE_THREAD, &u); err != nil {
			return 0
		}
		return float64(u.Utime.Nano()) / 1e9
	}
	begin := now()
	work()
	return now() - begin
}
