package member_test

import (
	"crypto/rand"
	"crypto/tls"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"evenkeel/cluster/leader"
	"evenkeel/cluster/member"
	"evenkeel/cluster/node"
	"evenkeel/cluster/pki"
	"evenkeel/cluster/state"
	"evenkeel/cluster/transport"
)

const mib = 1 << 20

// Three servers and a plain agent: VMs start on all, the leader goes, another one takes over, nothing of the VMs changes.
func TestCluster(t *testing.T) {
	bubble(t, 4, func(t *testing.T, s *site) {
		s.first()
		s.join("h2", true)
		s.join("h3", true)
		s.join("h4", false)
		s.eventually("three voters", func() bool {
			nodes, _ := s.leader().Nodes()
			n := 0
			for _, v := range nodes {
				if v.Voter {
					n++
				}
			}
			return n == 3
		})
		s.eventually("four hosts report", func() bool { return s.ready() == 4 })
		if _, _, err := s.leader().AddImage(t.Context(), state.Image{Name: "tiny", Kind: state.KernelImage, File: "/images/tiny"}, leader.Call{}); err != nil {
			t.Fatal(err)
		}
		s.create("a", 24, "keep")
		s.running("a", 24)

		old := s.leader().Identity().Name
		s.stop(old)
		s.eventually("another leader", func() bool { return s.leader().Identity().Name != old })
		s.create("b", 3, "keep")
		s.running("b", 3)
		s.start(old, s.listen(old))
		s.eventually("four hosts report again", func() bool { return s.ready() == 4 })
		s.create("c", 3, "keep")
		s.running("c", 3)
		if after := s.world.Audit(); len(after.Doubled) > 0 {
			t.Errorf("VMs in two places: %+v", after)
		}
		v, err := s.leader().View(t.Context(), false)
		if err != nil {
			t.Fatal(err)
		}
		for _, vm := range v.VMs() {
			if vm.Generation != 1 {
				t.Errorf("VM %s was started again: %+v", vm.Name, vm)
			}
		}
		s.eventually("servers are registered as they are", func() bool {
			v, err := s.leader().View(t.Context(), false)
			if err != nil {
				return false
			}
			for _, row := range v.Members() {
				if row.Server && (row.Version != "test" || row.Format != state.FormatVersion || len(row.Serials) == 0) {
					return false
				}
			}
			return true
		})
	})
}

// A token works once; a removed member is not heard any more.
func TestJoinAndRemove(t *testing.T) {
	bubble(t, 3, func(t *testing.T, s *site) {
		m := s.first()
		token, _, err := m.NewJoinToken(t.Context(), false, true, false, time.Hour, "")
		if err != nil {
			t.Fatal(err)
		}
		l := s.listen("h2")
		if _, err := member.Join(t.Context(), s.dirs["h2"], "h2", s.at["h2"], member.JoinOptions{Token: token, Addresses: m.Servers(), Connect: s.connect}); err != nil {
			t.Fatal(err)
		}
		if _, err := member.Join(t.Context(), t.TempDir(), "h3", "127.0.0.1:1", member.JoinOptions{Token: token, Addresses: m.Servers(), Connect: s.connect}); err == nil {
			t.Error("a token let in two members")
		}
		s.start("h2", l)
		s.eventually("two hosts report", func() bool { return s.ready() == 2 })
		if err := m.Remove(t.Context(), "h2", false); err != nil {
			t.Fatal(err)
		}
		s.eventually("the refusal is an event", func() bool {
			for _, e := range m.State.Snapshot().EventsAfter(0, 0) {
				if e.Kind == "connection-refused" {
					return true
				}
			}
			return false
		})
		if _, ok := m.State.Snapshot().Host("h2"); ok {
			t.Error("the host of a removed member came back")
		}
	})
}

// A server without a vote follows the log and takes requests, however healthy it is.
func TestNonVotingServer(t *testing.T) {
	bubble(t, 3, func(t *testing.T, s *site) {
		m := s.first()
		s.joinAs("h2", state.JoinToken{Server: true, Agent: true, NoVote: true})
		s.join("h3", true)
		s.eventually("h3 has its vote", func() bool {
			votes := map[string]bool{}
			nodes, _ := s.leader().Nodes()
			for _, n := range nodes {
				votes[n.ID] = n.Voter
			}
			if votes["h2"] {
				t.Fatal("h2 was given a vote")
			}
			return votes["h3"]
		})
		s.eventually("h2 follows", func() bool { return s.up["h2"].Index() >= m.Index() && m.Index() > 0 })
	})
}

// A server whose disk is full runs its agent alone: the host reports, and keeps its lease.
func TestAgentOnly(t *testing.T) {
	bubble(t, 3, func(t *testing.T, s *site) {
		s.first()
		s.join("h2", true)
		s.join("h3", true)
		s.eventually("three hosts report", func() bool { return s.ready() == 3 })
		s.eventually("three voters", func() bool { // or h2 would take the quorum with it
			nodes, _ := s.leader().Nodes()
			return !slices.ContainsFunc(nodes, func(n node.Server) bool { return !n.Voter }) && len(nodes) == 3
		})
		s.leader() // h2 may lead: then another one takes over
		s.stop("h2")
		s.agentOnly = true
		m := s.start("h2", s.listen("h2"))
		if m.State != nil {
			t.Error("the server runs")
		}
		s.eventually("h2 holds a lease", func() bool {
			v, err := s.leader().View(t.Context(), false)
			if err != nil {
				return false
			}
			h, _ := v.Host("h2")
			view := v.HostView(h)
			return view.State == "ready" && view.Lease == "held" && view.Heard >= 0 && view.Heard < time.Second
		})
	})
}

// A thief with the certificate of a server that was removed cannot pose as the leader to an agent that is lured to it, also not
// to one that has just been started and knows of no revocation yet. The cluster records the attempt.
func TestRemovedServerIsNoLeader(t *testing.T) {
	bubble(t, 4, func(t *testing.T, s *site) {
		m := s.first()
		s.joinAs("h2", state.JoinToken{Server: true, Agent: true, NoVote: true})
		s.join("h3", false)
		s.eventually("three hosts report", func() bool { return s.ready() == 3 })
		stolen, err := tls.LoadX509KeyPair(filepath.Join(s.dirs["h2"], "pki", "member.pem"), filepath.Join(s.dirs["h2"], "pki", "member.key"))
		if err != nil {
			t.Fatal(err)
		}
		s.stop("h2")
		if err := m.Remove(t.Context(), "h2", true); err != nil {
			t.Fatal(err)
		}
		serial := pki.SerialOf(stolen.Leaf)
		for _, name := range []string{"h1", "h3"} {
			s.eventually(name+" has the serial on disk", func() bool {
				list, err := pki.OpenRevoked(filepath.Join(s.dirs[name], "revoked.json"))
				return err == nil && list.Has(serial)
			})
		}
		s.join("h4", false)
		if list, err := pki.OpenRevoked(filepath.Join(s.dirs["h4"], "revoked.json")); err != nil || !list.Has(serial) {
			t.Errorf("a member that joined since does not know it: %v", err)
		}
		s.stop("h4")
		s.stop("h3")
		s.stop("h1")

		lure, err := s.listenAt("127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		var came, stayed atomic.Int32
		var thief sync.WaitGroup
		thief.Go(func() {
			for {
				c, err := lure.Accept()
				if err != nil {
					return
				}
				came.Add(1)
				conn := tls.Server(c, &tls.Config{Certificates: []tls.Certificate{stolen}, NextProtos: []string{transport.ProtocolPeer}, ClientAuth: tls.RequestClientCert, MinVersion: tls.VersionTLS13})
				if conn.HandshakeContext(t.Context()) == nil {
					if _, err := conn.Read(make([]byte, 1)); err == nil { // a client that takes it for a server asks it something
						stayed.Add(1)
					}
				}
				_ = c.Close()
			}
		})
		t.Cleanup(func() { _ = lure.Close(); thief.Wait() })
		servers, err := json.Marshal([]string{lure.Addr().String(), s.at["h1"]})
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(s.dirs["h3"], "servers.json"), servers, 0o600); err != nil {
			t.Fatal(err)
		}
		s.start("h3", s.listen("h3"))
		s.eventually("h3 comes to the thief", func() bool { return came.Load() > 0 })
		m = s.start("h1", s.listen("h1"))
		s.eventually("the cluster hears of it", func() bool {
			for _, e := range m.State.Snapshot().EventsAfter(0, 0) {
				if e.Kind == "connection-refused" && strings.Contains(e.Text, "by agent h3: ") && strings.Contains(e.Text, string(pki.Revoked)) && strings.Contains(e.Text, serial) {
					return true
				}
			}
			return false
		})
		if n := stayed.Load(); n > 0 {
			t.Errorf("it was taken for a server %d times", n)
		}
	})
}

// A host that is dead for good, with VMs that were deleted since, can be removed once an operator confirms that it is dead.
func TestRemoveDeadHost(t *testing.T) {
	bubble(t, 2, func(t *testing.T, s *site) {
		s.lease = 3 * time.Second
		m := s.first()
		s.join("h2", false)
		s.eventually("two hosts report", func() bool { return s.ready() == 2 })
		if _, _, err := m.AddImage(t.Context(), state.Image{Name: "tiny", Kind: state.KernelImage, File: "/images/tiny"}, leader.Call{}); err != nil {
			t.Fatal(err)
		}
		s.create("a", 12, "keep")
		s.running("a", 12)
		s.stop("h2")
		if _, err := m.Delete(t.Context(), "a", leader.Call{}); err != nil {
			t.Fatal(err)
		}
		s.eventually("what h1 had is gone", func() bool { return len(m.State.Snapshot().VMsOn("h1")) == 0 })
		if n := len(m.State.Snapshot().VMsOn("h2")); n == 0 {
			t.Fatal("h2 had no VM")
		}
		if err := m.Remove(t.Context(), "h2", false); !errors.Is(err, leader.ErrConflict) || !strings.Contains(err.Error(), "confirm-dead h2") {
			t.Errorf("h2 may be alive: %v", err)
		}
		s.eventually("h2 is confirmed dead", func() bool { return m.ConfirmDead(t.Context(), "h2", "a test", "", false) == nil })
		if err := m.Remove(t.Context(), "h2", false); err != nil {
			t.Fatal(err)
		}
		if left := m.State.Snapshot(); len(left.VMs()) != 0 || len(left.VCs()) != 0 {
			t.Errorf("left: %+v, %+v", left.VMs(), left.VCs())
		}
	})
}

// A server whose certificate comes from a PKI of the operator's own goes on with what it has, also where members no longer
// believe the CA with which the cluster was made.
func TestOwnPKI(t *testing.T) {
	bubble(t, 1, func(t *testing.T, s *site) {
		m := s.first()
		principal := m.Identity()
		s.stop("h1")
		own, err := pki.NewCA("own", time.Now(), rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		key, err := pki.GenerateKey(rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		names, err := pki.NamesOf("127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		cert, err := own.Issue(key.Public(), principal, names, time.Now(), time.Hour, rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		keyPEM, err := pki.EncodeKey(key)
		if err != nil {
			t.Fatal(err)
		}
		s.pki = pki.FilesIn(t.TempDir())
		if err := s.pki.Write(pki.Material{Cert: pki.EncodeCertificates(cert), Key: keyPEM, CA: own.CertPEM()}); err != nil {
			t.Fatal(err)
		}
		m = s.start("h1", s.listen("h1"))
		s.eventually("h1 leads again, and its host reports", func() bool { return s.ready() == 1 })
		if _, err := m.RenewCertificate(t.Context(), "h1"); !errors.Is(err, transport.ErrOwnPKI) || !errors.Is(err, leader.ErrConflict) {
			t.Errorf("the cluster renews a certificate that is not its own: %v", err)
		}
		text, _, err := m.NewToken(t.Context(), time.Hour, state.JoinToken{Agent: true})
		if err != nil {
			t.Fatal(err)
		}
		token, err := pki.ParseJoinToken(text)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := m.Admit(t.Context(), transport.JoinRequest{ID: token.ID, Secret: token.Secret, Name: "h2", Address: "127.0.0.1:1"}); !errors.Is(err, member.ErrNoCA) {
			t.Errorf("a certificate from a CA that is not believed: %v", err)
		}
	})
}
