package main

import (
	"bytes"
	"context"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"evenkeel/api/client"
	"evenkeel/api/v1"
	"evenkeel/test/patience"
)

// damages are what a crash or a disk does to a file.
var damages = map[string]func([]byte) []byte{
	"cut":     func(b []byte) []byte { return b[:len(b)/3] },
	"empty":   func([]byte) []byte { return nil },
	"garbage": func(b []byte) []byte { return bytes.Repeat([]byte("x\x00\xff "), 2+len(b)/4) },
	"flipped": func(b []byte) []byte {
		for i := 3; i < len(b); i += 1 + len(b)/40 {
			b[i] ^= 0x15
		}
		return b
	},
}

// Every file of a member's data directory, damaged in each way: vcd runs all the same, or ends with a message that names the file
// and what to do, and that does not take disks of VMs away.
func TestDamagedFiles(t *testing.T) {
	h := newHost(t, "h1")
	h.start()
	made, err := client.NewLocal(h.socket).Init(t.Context(), v1.SetupInit{})
	if err != nil {
		t.Fatal(err)
	}
	api := h.dial(made.CA, made.AdminToken)
	h.await("the agent keeps what it must know", func() bool {
		_, err := os.Stat(filepath.Join(h.dir, "agents", "h1.json"))
		return err == nil
	})
	h.await("a snapshot is taken", func() bool {
		taken, err := filepath.Glob(filepath.Join(h.dir, "snapshots", "*.snapshot"))
		return err == nil && len(taken) > 0
	})
	h.end()
	const rejoin, other, renew = "join-token --server --agent --for h1", "copy it from", "the cluster sends the list again"
	says := map[string]string{ // by file; "runs": it is not needed, or there is another copy
		"agents/h1.json": rejoin, "servers.json": "write where servers", "revoked.json": renew, "gossip.key": other, "ca.key": other,
		"pki/member.pem": rejoin, "pki/member.key": rejoin, "pki/ca.pem": other, "raft/raft.db": rejoin,
		"raft.used": "runs", "audit.log": "runs", "gossip.keys": "runs",
	}
	whole := filepath.Join(t.TempDir(), "whole")
	if err := os.CopyFS(whole, os.DirFS(h.dir)); err != nil {
		t.Fatal(err)
	}
	chmod := func(root string) { // CopyFS keeps no modes
		_ = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
			if err == nil && !d.IsDir() {
				err = os.Chmod(path, 0o600)
			} else if err == nil {
				err = os.Chmod(path, 0o700)
			}
			return err
		})
	}
	if err := os.WriteFile(filepath.Join(whole, "revoked.json"), []byte(`[{"serial":"0a","until":"2100-01-01T00:00:00Z"}]`+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	var files []string
	err = fs.WalkDir(os.DirFS(whole), ".", func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() && !strings.HasSuffix(path, ".copy") && !strings.HasPrefix(path, "simulated.") {
			files = append(files, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	// begin on a directory in which a file and, if asked for, its copy are damaged, and return what vcd says when it ends; "" = it runs, its agent too.
	begin := func(t *testing.T, file string, damage func([]byte) []byte, both bool) string {
		if err := os.RemoveAll(h.dir); err != nil {
			t.Fatal(err)
		}
		if err := os.CopyFS(h.dir, os.DirFS(whole)); err != nil {
			t.Fatal(err)
		}
		chmod(h.dir)
		for _, name := range []string{file, file + ".copy"} {
			path := filepath.Join(h.dir, name)
			if b, err := os.ReadFile(path); err == nil && (name == file || both) {
				if err := os.WriteFile(path, damage(b), 0o600); err != nil {
					t.Fatal(err)
				}
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var out, errs bytes.Buffer
		ended := make(chan int, 1)
		go func() { ended <- run(ctx, []string{"vcd", "run", "--config", h.config}, &out, &errs) }()
		said := ""
		patience.Eventually(t, patience.Stall, "vcd ends, or its host has a lease", h.doing, func() bool {
			select {
			case <-ended:
				said = "ended: " + errs.String()
				return true
			default:
			}
			host, err := api.Host(ctx, "h1")
			return err == nil && host.State == "ready" && host.Lease == "held"
		})
		if said == "" {
			cancel()
			<-ended
		}
		return said
	}
	for _, file := range files {
		want, known := says[file]
		switch {
		case strings.HasPrefix(file, "agents/h1.histories/"), strings.HasPrefix(file, "snapshots/"):
			want = "runs"
		case !known:
			t.Errorf("it is not said what becomes of %s if it is damaged", file)
			continue
		}
		for name, damage := range damages {
			t.Run(file+" "+name, func(t *testing.T) {
				said := begin(t, file, damage, true)
				switch quiet := name == "flipped" && file == "gossip.key"; {
				case quiet: // 32 random bytes: other members refuse it
				case want == "runs" && said != "":
					t.Errorf("vcd does not run: %s", said)
				case want == "runs":
				case !strings.Contains(said, want) || !strings.Contains(said, filepath.Join(h.dir, file)):
					t.Errorf("it must name %s and say %q: %q", file, want, said)
				case strings.Count(said, "\n") > 1 || strings.Contains(said, "goroutine "):
					t.Errorf("more than a message: %s", said)
				case want == rejoin && !strings.Contains(said, "! -name 'libvirt' ! -name 'images'"):
					t.Errorf("the way out does not keep the disks of VMs: %s", said)
				}
				if _, err := os.Stat(filepath.Join(whole, file+".copy")); err == nil && name == "cut" {
					if said := begin(t, file, damage, false); said != "" {
						t.Errorf("its copy is whole: %s", said)
					}
				}
			})
		}
	}
}

// What a removed member's log says to do is what the other messages say, and names the certificate where that is the operator's own.
func TestIfRemoved(t *testing.T) {
	c := &config{Name: "h7", DataDir: "/var/lib/evenkeel", Agent: true}
	said := c.ifRemoved()
	for _, want := range []string{"stop vcd for good, or ", c.rejoin(), "join-token --agent --for h7", "! -name 'libvirt'"} {
		if !strings.Contains(said, want) {
			t.Errorf("%q is not in %q", want, said)
		}
	}
	if strings.Contains(said, "certificate") {
		t.Errorf("the cluster issues another one: %s", said)
	}
	c.PKI.Cert = "/etc/pki/h7.pem"
	if said := c.ifRemoved(); !strings.Contains(said, "with another certificate") {
		t.Errorf("%s", said)
	}
}
