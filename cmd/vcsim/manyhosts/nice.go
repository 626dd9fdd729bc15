package manyhosts

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"syscall"
)

// setNice sets the nice value of all threads of this process, 0 to 19. Threads that it makes later and processes that it
// starts inherit the value. To go back down to 0 takes root's rights.
func setNice(by int) error {
	for again := true; again; { // a thread that still has the old value may make another one meanwhile
		again = false
		tasks, err := os.ReadDir("/proc/self/task")
		if err != nil {
			return err
		}
		for _, t := range tasks {
			id, err := strconv.Atoi(t.Name())
			if err != nil {
				return fmt.Errorf("threads of this process: %w", err)
			}
			if now, err := syscall.Getpriority(syscall.PRIO_PROCESS, id); err == nil && now == 20-by { // the kernel's way to say it
				continue
			}
			again = true
			if err := syscall.Setpriority(syscall.PRIO_PROCESS, id, by); err != nil && !errors.Is(err, syscall.ESRCH) { // it ended meanwhile
				return fmt.Errorf("lower the priority of the hosts by %d: %w", by, err)
			}
		}
	}
	return nil
}
