package solvers

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"evenkeel/allocator"
)

// Ganeti's hbal moves VMs one after another, each time the one that lowers most
// a score of how unequally memory and load lie on the hosts. It knows nothing of
// yields or of a bound on bytes. Package is Debian's.
const (
	Hbal        = "hbal"
	HbalPackage = "ganeti-htools"
)

// WriteHbal writes a problem of groups of one VM, each on a host, memory in MiB,
// as hbal's text back end reads it: groups of hosts, hosts, VMs, tags, policies,
// an empty line between each two. Disks lie on shared storage (template ext), so
// that a move is one live migration. load gets what VMs need of CPU, a line each.
func WriteHbal(state, load io.Writer, p allocator.Problem) error {
	free := make([]float64, len(p.Hosts))
	for j := range free {
		free[j] = p.Hosts[j].Memory
	}
	for i := range p.Groups {
		free[p.Groups[i].Hosts[0]] -= p.Groups[i].Memory
	}
	b, l := bufio.NewWriter(state), bufio.NewWriter(load)
	fmt.Fprint(b, "all|all|preferred||\n\n")
	for j := range p.Hosts {
		role := "N"
		if j == 0 {
			role = "M"
		}
		// Memory, used by the host, free; disk, free; cores; the last but one: cores the host uses itself.
		fmt.Fprintf(b, "h%d|%.0f|0|%.0f|1000000|1000000|64|%s|all|1||N|0|0|1\n", j, p.Hosts[j].Memory, free[j], role)
	}
	fmt.Fprintln(b)
	for i := range p.Groups {
		fmt.Fprintf(b, "v%d|%.0f|0|1|running|Y|h%d||ext||1|-\n", i, p.Groups[i].Memory, p.Groups[i].Hosts[0])
		fmt.Fprintf(l, "v%d %g 0 0 0\n", i, p.Groups[i].CPU)
	}
	// Sizes that VMs may have, and how many cores and spindles of theirs a host's may be.
	fmt.Fprint(b, "\n\n|1024,1,1,1,1,1|1,1,0,0,0,1;1000000,64,1000000,100,100,64|ext|1000|1000\n")
	if err := l.Flush(); err != nil {
		return err
	}
	return b.Flush()
}

// Balance runs hbal with nothing but its defaults. on is the host of every VM
// afterwards. Its files are in dir.
func Balance(ctx context.Context, dir string, p allocator.Problem) (on []int, took time.Duration, err error) {
	state, load, out := filepath.Join(dir, "state"), filepath.Join(dir, "load"), filepath.Join(dir, "out")
	var s, l strings.Builder
	if err := WriteHbal(&s, &l, p); err != nil {
		return nil, 0, err
	}
	for name, text := range map[string]string{state: s.String(), load: l.String()} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			return nil, 0, fmt.Errorf("problem for hbal: %w", err)
		}
	}
	begin := time.Now()
	command := exec.CommandContext(ctx, Hbal, "-t", state, "-U", load, "-S", out)
	output, err := command.CombinedOutput()
	if err != nil {
		return nil, time.Since(begin), fmt.Errorf("hbal: %w: %s", err, output)
	}
	took = command.ProcessState.UserTime() + command.ProcessState.SystemTime()
	text, err := os.ReadFile(out + ".balanced")
	if err != nil {
		return nil, took, fmt.Errorf("answer of hbal: %w", err)
	}
	on, err = placed(string(text), len(p.Groups), len(p.Hosts))
	return on, took, err
}

// placed reads the hosts of VMs from a state of hbal.
func placed(text string, vms, hosts int) ([]int, error) {
	on := make([]int, vms)
	for i := range on {
		on[i] = -1
	}
	for line := range strings.Lines(text) {
		field := strings.Split(strings.TrimSpace(line), "|")
		if len(field) < 9 || !strings.HasPrefix(field[0], "v") || field[8] != "ext" {
			continue
		}
		i, err := strconv.Atoi(field[0][1:])
		j, err2 := strconv.Atoi(strings.TrimPrefix(field[6], "h"))
		if err != nil || err2 != nil || i < 0 || i >= vms || j < 0 || j >= hosts {
			return nil, fmt.Errorf("answer of hbal: line %q", line)
		}
		on[i] = j
	}
	for i, j := range on {
		if j < 0 {
			return nil, fmt.Errorf("answer of hbal: VM %d is not in it", i)
		}
	}
	return on, nil
}
