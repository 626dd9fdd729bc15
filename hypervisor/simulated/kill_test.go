package simulated_test

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"evenkeel/hypervisor/simulated"
	"evenkeel/test/scratch"
)

// childEnv makes the test's own binary the process that gets killed, and has the path of
// its state file.
const childEnv = "EVENKEEL_SIMULATED_TEST_CHILD"

func TestMain(m *testing.M) {
	if file := os.Getenv(childEnv); file != "" {
		if err := child(file); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	os.Exit(m.Run())
}

// child starts VMs for ever and says so after each.
func child(file string) error {
	w, err := simulated.New(simulated.Options{Hosts: 1, StateFile: file, Timing: &simulated.Timing{}})
	if err != nil {
		return err
	}
	for i := 0; ; i++ {
		s := sized(fmt.Sprint("vm", i), 1, 0, 1)
		if err := w.Host("h1").Define(ctx, s); err != nil {
			return err
		}
		if err := w.Host("h1").Start(ctx, s); err != nil {
			return err
		}
		if _, err := fmt.Println(s.VM); err != nil {
			return err
		}
	}
}

// A process is killed while it starts VMs: each that it knew to be started is
// found running, with the CPU time of a VM that ran all the while.
func TestKilledProcess(t *testing.T) {
	t.Parallel()
	exe, err := os.Executable()
	must(t, err)
	file := scratch.Dir(t) + "/state"
	cmd := exec.Command(exe)
	cmd.Env = append(os.Environ(), childEnv+"="+file)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	var acknowledged []string
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		acknowledged = append(acknowledged, strings.TrimSpace(lines.Text()))
		if len(acknowledged) == 200 {
			must(t, cmd.Process.Kill()) // what is still in the pipe counts too
		}
	}
	if err := cmd.Wait(); err == nil {
		t.Error("the process ended by itself")
	}
	if len(acknowledged) < 200 {
		t.Fatalf("only %d VMs were started", len(acknowledged))
	}
	// One CPU for each, so that all have run without a break.
	w, err := simulated.New(simulated.Options{Machines: []simulated.Machine{{Name: "h1", CPU: 1e6, Memory: 1 << 40}}, StateFile: file, Timing: &simulated.Timing{}})
	must(t, err)
	before := used(t, w, "h1")
	for _, id := range acknowledged {
		if _, ok := before[id]; !ok {
			t.Errorf("%s was started and is lost", id)
		}
	}
	if len(before) > len(acknowledged)+1 {
		t.Errorf("%d VMs run, %d were acknowledged", len(before), len(acknowledged))
	}
	if before["vm0"] <= 0 || before["vm0"] > time.Hour {
		t.Errorf("vm0 has used %v", before["vm0"])
	}
	must(t, w.Close())
}
