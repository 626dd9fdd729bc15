package browser

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"evenkeel/api/client"
	"evenkeel/api/v1"
)

// TestLeaderDies: the process of the leader is killed under an open page of another server. The page shows what happens afterwards, without a reload.
func TestLeaderDies(t *testing.T) {
	t.Parallel()
	b := Start(t, required)
	h := serveOf(t, "4,8,2")
	api, err := client.New(client.Config{Address: strings.Join(h.Servers, ","), Token: h.Token, CAFile: h.CAFile, Patience: limit})
	must(t, err)
	t.Cleanup(api.Close)
	status, err := api.Status(t.Context())
	must(t, err)
	members, err := api.Members(t.Context())
	must(t, err)
	leader, other := "", ""
	for _, m := range members {
		switch {
		case m.Name == status.Leader:
			leader = m.Address
		case m.Voter:
			other = m.Address
		}
	}
	tab := b.Open(t, "https://"+other+"/ui/virtual-clusters")
	tab.Fill(`input[name=token]`, h.Token)
	tab.Press("Log in")
	tab.Until("the pages", func() bool { return tab.At() == "/ui/virtual-clusters" })
	tab.has("the page", "New virtual cluster")
	tab.Inject(`window.same = true;`)
	died := time.Now()
	must(t, syscall.Kill(processAt(t, leader), syscall.SIGKILL))
	_, err = api.Create(t.Context(), v1.VirtualClusterSpec{Name: "late", Groups: []v1.GroupSpec{{Name: "vm", CPU: 0.1, Memory: 256 << 20, Image: "tiny"}}})
	must(t, err)
	tab.Until("the page shows what happened since", func() bool {
		return strings.Contains(tab.Text(), "late") && tab.Is(`lost.hidden && window.same === true`)
	})
	t.Logf("the page shows what was made %s after the leader died", time.Since(died).Round(time.Millisecond))
	tab.Clean()
}

// processAt is the server that listens at an address, by its command line.
func processAt(t *testing.T, address string) int {
	t.Helper()
	lines, err := filepath.Glob("/proc/[0-9]*/cmdline")
	must(t, err)
	for _, path := range lines {
		args, err := os.ReadFile(path)
		if err != nil || !bytes.Contains(args, []byte("cluster-server\x00")) || !bytes.Contains(args, []byte(address+"\x00")) {
			continue
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		must(t, err)
		return pid
	}
	t.Fatalf("no server listens at %s", address)
	return 0
}
