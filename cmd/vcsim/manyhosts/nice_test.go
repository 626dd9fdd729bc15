package manyhosts

import (
	"os"
	"strconv"
	"sync"
	"syscall"
	"testing"
)

// setNice lowers the priority of all threads, also of those that are made meanwhile, and setNice(0) restores it for all.
func TestSetNice(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("not without root's rights")
	}
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				_, _ = os.ReadFile("/proc/self/stat") // system calls have the runtime make threads
			}
		})
	}
	for _, by := range []int{5, 0} {
		if err := setNice(by); err != nil {
			t.Fatal(err)
		}
		tasks, err := os.ReadDir("/proc/self/task")
		if err != nil {
			t.Fatal(err)
		}
		for _, task := range tasks {
			id, _ := strconv.Atoi(task.Name())
			if now, err := syscall.Getpriority(syscall.PRIO_PROCESS, id); err == nil && now != 20-by {
				t.Errorf("a thread's priority is lower by %d, not %d", 20-now, by)
			}
		}
	}
	close(stop)
	wg.Wait()
}
