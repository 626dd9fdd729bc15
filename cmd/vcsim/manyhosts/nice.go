package manyhosts

import (
	"fmt"
	"os"
	"strconv"
	"syscall"
)

// giveWay sets by how much all threads of this process give way to others, 0 to 19; those that it makes later do so,
// too. To go back down to 0 takes root's rights.
func giveWay(by int) error {
	tasks, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return err
	}
	for _, t := range tasks {
		id, err := strconv.Atoi(t.Name())
		if err != nil {
			return fmt.Errorf("threads of this process: %w", err)
		}
		if err := syscall.Setpriority(syscall.PRIO_PROCESS, id, by); err != nil && err != syscall.ESRCH { // it ended meanwhile
			return fmt.Errorf("have the hosts give way by %d: %w", by, err)
		}
	}
	return nil
}
