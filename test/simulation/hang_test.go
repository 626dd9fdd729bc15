package simulation

import (
	"fmt"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// A run that takes longer than this in real time hangs: a run takes a few seconds.
const runTime = 10 * time.Minute

var bubbleOf = regexp.MustCompile(`synctest bubble \d+`)

// bubble that the caller is in, as stacks name it.
func bubble() string {
	buf := make([]byte, 256)
	return bubbleOf.FindString(string(buf[:runtime.Stack(buf, false)]))
}

// guardRun ends the tests when a run hangs: a goroutine that waits for a lock whose holder waits for simulated time makes that time stand still. It
// prints in one line which goroutine keeps the time from going on. To be called outside of the bubble, whose name comes over the channel; call what it returns at the end.
func guardRun(t *testing.T, seed uint64, name <-chan string) (done func()) {
	timer := time.AfterFunc(runTime, func() {
		panic(fmt.Sprintf("%s with seed %d hangs: %s", t.Name(), seed, busy(stacks(), <-name)))
	})
	return func() { timer.Stop() }
}

func stacks() string {
	for size := 1 << 20; ; size *= 2 {
		buf := make([]byte, size)
		if n := runtime.Stack(buf, true); n < size {
			return string(buf[:n])
		}
	}
}

// busy goroutines of a bubble: all that do not wait for simulated time or for each other, with the functions they are in.
func busy(stacks, bubble string) string {
	var out []string
	for _, g := range goroutines(stacks, bubble) {
		lines := strings.Split(g, "\n")
		if strings.Contains(lines[0], "(durable)") {
			continue
		}
		var calls []string
		for _, l := range lines[1:] {
			if l = strings.TrimSpace(l); strings.HasPrefix(l, "/") { // a place: the file's name and line will do
				place, _, _ := strings.Cut(l[strings.LastIndexByte(l, '/')+1:], " ")
				calls = append(calls, place)
			}
		}
		out = append(out, lines[0]+" "+strings.Join(calls, " < "))
	}
	return strings.Join(out, " | ")
}

// goroutines of a bubble.
func goroutines(stacks, bubble string) []string {
	return slices.DeleteFunc(strings.Split(stacks, "\n\n"), func(g string) bool {
		head, _, _ := strings.Cut(g, "\n")
		return !strings.Contains(head, bubble+"]")
	})
}

// onlyTransfers says whether all that is left of a bubble are transfers of leadership that raft 1.7.3 never ends: one to a server that is
// removed meanwhile waits for that server's replication, which has ended, to take a message.
func onlyTransfers(stacks, bubble string) bool {
	left := goroutines(stacks, bubble)
	return len(left) > 0 && !slices.ContainsFunc(left, func(g string) bool {
		return !strings.Contains(g, "raft.(*Raft).leadershipTransfer(") && !strings.Contains(g, "raft.(*Raft).leaderLoop.func2(")
	})
}

// A run that hangs reports which goroutine waits for a lock.
func TestBusy(t *testing.T) {
	got := busy("goroutine 7 [sleep (durable), synctest bubble 3]:\na.b()\n\t/x/y/held.go:5 +0x3\n\n"+
		"goroutine 8 [sync.Mutex.Lock, 7 minutes, synctest bubble 3]:\na.c(...)\n\t/x/y/wait.go:12 +0x3\na.d()\n\t/x/y/main_test.go:1\n\n"+
		"goroutine 9 [sync.Mutex.Lock, 7 minutes, synctest bubble 33]:\na.e()\n\t/x/y/other.go:12", "synctest bubble 3")
	if want := "goroutine 8 [sync.Mutex.Lock, 7 minutes, synctest bubble 3]: wait.go:12 < main_test.go:1"; got != want {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

// The test ignores the transfers that raft never ends; it finds anything else that is left of a run.
func TestOnlyTransfers(t *testing.T) {
	const transfer = "goroutine 7 [chan send (durable), synctest bubble 3]:\ngithub.com/hashicorp/raft.(*Raft).leadershipTransfer(0x1)\n\t/x/raft.go:1002"
	const other = "goroutine 8 [select (durable), synctest bubble 3]:\nevenkeel/x.f()\n\t/x/x.go:1"
	const elsewhere = "goroutine 9 [select (durable), synctest bubble 31]:\nevenkeel/x.f()\n\t/x/x.go:1"
	for stacks, want := range map[string]bool{transfer: true, transfer + "\n\n" + elsewhere: true, transfer + "\n\n" + other: false, elsewhere: false, "": false} {
		if onlyTransfers(stacks, "synctest bubble 3") != want {
			t.Errorf("want %v of %s", want, stacks)
		}
	}
	synctest.Test(t, func(t *testing.T) {
		if name := bubble(); !strings.Contains(stacks(), name+"]") || name == "" {
			t.Errorf("this bubble's name: %q", name)
		}
	})
}
