package libvirt

import (
	"encoding/binary"
	"io"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// Of libvirt's protocol (src/remote/remote_protocol.x, src/rpc/virnetprotocol.x): a message begins with its length, program,
// version, procedure, type and serial, four bytes each.
const (
	remoteProgram   = 0x20008086
	domainCreateXML = 10
	messageHead     = 24
)

// swallowing is a libvirt socket in front of another that takes calls of one procedure and never answers them.
func swallowing(t *testing.T, path, to string, procedure uint32) {
	t.Helper()
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	t.Cleanup(func() { _ = l.Close(); wg.Wait() })
	wg.Go(func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			daemon, err := net.Dial("unix", to)
			if err != nil {
				_ = client.Close()
				continue
			}
			t.Cleanup(func() { _, _ = client.Close(), daemon.Close() })
			wg.Go(func() { defer client.Close(); _, _ = io.Copy(client, daemon) })
			wg.Go(func() {
				defer daemon.Close()
				for {
					head := make([]byte, messageHead)
					if _, err := io.ReadFull(client, head); err != nil {
						return
					}
					text := func(i int) uint32 { return binary.BigEndian.Uint32(head[4*i:]) }
					rest := make([]byte, max(0, int64(text(0))-messageHead))
					if _, err := io.ReadFull(client, rest); err != nil {
						return
					}
					if text(1) == remoteProgram && text(3) == procedure {
						continue
					}
					if _, err := daemon.Write(append(head, rest...)); err != nil {
						return
					}
				}
			})
		}
	})
}

// A libvirtd that takes connections, answers lists, and hangs in a start.
func TestRealStartHangs(t *testing.T) {
	b := realHost(t)
	_, to, _ := strings.Cut(b.lab.URI(), "socket=")
	path := filepath.Join(t.TempDir(), "sock")
	swallowing(t, path, to, domainCreateXML)
	b.opts.URI, b.opts.CallTimeout = "qemu+unix:///system?socket="+path, 2*time.Second
	b.Host = b.open(t)
	s := b.spec("ek-stuck-0", "")
	if err := b.Define(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	err := b.Start(t.Context(), s)
	if !isUnavailable(err) || !strings.Contains(err.Error(), "libvirt does not answer: virDomainCreateXML of ek-stuck-0 has been waiting for 8") {
		t.Errorf("start: %v", err)
	}
	if got := b.Hanging(); len(got) != 1 || got[0].VM != s.VM {
		t.Errorf("hanging: %+v", got)
	}
	if vms, err := b.List(t.Context()); err != nil || len(vms) != 0 {
		t.Errorf("list: %+v, %v", vms, err)
	}
}
