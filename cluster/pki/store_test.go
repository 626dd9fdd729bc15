package pki

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"evenkeel/internal/secretfile"
)

func material(t testing.TB, ca *CA, id Identity, n byte) Material {
	t.Helper()
	cert, key := issue(t, ca, id, n)
	text, err := EncodeKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return Material{Cert: EncodeCertificates(cert), Key: text, CA: ca.CertPEM()}
}

func TestCertificateStore(t *testing.T) {
	ca, next := newCA(t, "c", 1), newCA(t, "c", 2)
	id := Identity{Cluster: "c", Name: "h1", Server: true}
	files := FilesIn(t.TempDir())
	if _, err := OpenStore(files, false, epoch); err == nil {
		t.Fatal("opened what is not there")
	}
	first := material(t, ca, id, 3)
	if err := files.Write(first); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(files.Key); err != nil || info.Mode().Perm() != 0o600 {
		t.Fatalf("the key's mode: %v, %v", info.Mode(), err)
	}
	k, err := OpenStore(files, false, epoch)
	if err != nil {
		t.Fatal(err)
	}
	if k.Identity() != id {
		t.Fatal(k.Identity())
	}
	old, err := k.GetCertificate(nil)
	if err != nil || len(old.Certificate) != 2 {
		t.Fatalf("%d certificates, want the member's and the CA's", len(old.Certificate))
	}
	life := k.Leaf().NotAfter.Sub(k.Leaf().NotBefore)
	due := k.Leaf().NotBefore.Add(life - life/3)
	if k.RenewDue(due.Add(-time.Second)) || !k.RenewDue(due) {
		t.Error("renewal is not due at two thirds")
	}

	// The CA changes, and the certificate with it.
	second := material(t, next, id, 4)
	second.CA = append(slices.Clone(first.CA), second.CA...)
	if err := k.Replace(second, epoch); err != nil {
		t.Fatal(err)
	}
	if now, _ := k.GetCertificate(nil); now == old || now.Leaf.Equal(old.Leaf) || len(k.CAs()) != 2 {
		t.Error("the old certificate is still handed out")
	}
	if changed, err := k.Refresh(epoch); changed || err != nil {
		t.Errorf("its own change is read again: %v, %v", changed, err)
	}
	again, err := OpenStore(files, false, epoch)
	if err != nil || !again.Leaf().Equal(k.Leaf()) {
		t.Fatalf("not what was written: %v", err)
	}
	for what, m := range map[string]Material{
		"another's":  material(t, ca, Identity{Cluster: "c", Name: "h2", Server: true}, 5),
		"more roles": material(t, ca, Identity{Cluster: "c", Name: "h1", Server: true, Agent: true}, 5),
		"wrong key":  {Cert: first.Cert, Key: second.Key, CA: first.CA},
		"wrong CA":   {Cert: first.Cert, Key: first.Key, CA: next.CertPEM()},
		"nothing":    {},
	} {
		if err := k.Replace(m, epoch); err == nil {
			t.Errorf("%s was taken", what)
		}
	}
	if _, err := OpenStore(files, false, epoch.Add(caLife)); err != nil {
		t.Errorf("an expired certificate must be shown, for others to refuse: %v", err)
	}
	if err := os.Chmod(files.Key, 0o640); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenStore(files, false, epoch); err == nil {
		t.Error("took a key that others may read")
	}
	f, err := OpenStore(files, true, epoch)
	if err != nil {
		t.Errorf("the operator's own key may be readable for its group: %v", err)
	} else if f.RenewDue(epoch.Add(caLife)) || f.Replace(second, epoch) == nil {
		t.Error("would renew a certificate of the operator's own PKI")
	}
}

// A crash at any step of a replacement leaves the old or the new.
func TestCrashWhileReplacing(t *testing.T) {
	ca := newCA(t, "c", 1)
	id := Identity{Cluster: "c", Name: "h1", Agent: true}
	first, second := material(t, ca, id, 3), material(t, ca, id, 4)
	for step := range 4 {
		files := FilesIn(t.TempDir())
		if err := files.Write(first); err != nil {
			t.Fatal(err)
		}
		if step >= 1 {
			if err := replaceFile(files.next(), second.Key, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if step >= 2 {
			if err := replaceFile(files.Cert, second.Cert, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if step >= 3 {
			if err := files.promote(); err != nil {
				t.Fatal(err)
			}
		}
		k, err := OpenStore(files, false, epoch)
		if err != nil {
			t.Fatalf("after step %d: %v", step, err)
		}
		want := first
		if step >= 2 {
			want = second
		}
		if got := EncodeCertificates(k.Leaf()); !slices.Equal(got, want.Cert) {
			t.Errorf("after step %d: another certificate", step)
		}
	}
	// The first certificate of all, and the crash before its key was in place.
	files := FilesIn(t.TempDir())
	if err := files.Write(first); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(files.Key, files.next()); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenStore(files, false, epoch); err != nil {
		t.Errorf("the first key was not in place: %v", err)
	}
}

func TestRefresh(t *testing.T) {
	ca := newCA(t, "c", 1)
	id := Identity{Cluster: "c", Name: "h1", Agent: true}
	files := FilesIn(t.TempDir())
	if err := files.Write(material(t, ca, id, 3)); err != nil {
		t.Fatal(err)
	}
	k, err := OpenStore(files, true, epoch)
	if err != nil {
		t.Fatal(err)
	}
	before := k.Leaf()
	bad := material(t, ca, Identity{Cluster: "c", Name: "h2", Agent: true}, 5)
	if err := files.Write(bad); err != nil {
		t.Fatal(err)
	}
	if changed, err := k.Refresh(epoch); err == nil || changed || !k.Leaf().Equal(before) {
		t.Errorf("another member's certificate was taken: %v, %v", changed, err)
	}
	if err := files.Write(material(t, ca, id, 4)); err != nil {
		t.Fatal(err)
	}
	if changed, err := k.Refresh(epoch); err != nil || !changed || k.Leaf().Equal(before) {
		t.Errorf("the new certificate was not taken: %v, %v", changed, err)
	}
}

func TestKeyFiles(t *testing.T) {
	ca := newCA(t, "c", 1)
	dir := t.TempDir()
	key := filepath.Join(dir, "ca.key")
	content, err := ca.KeyPEM()
	if err != nil {
		t.Fatal(err)
	}
	if err := replaceFile(key, content, 0o600); err != nil {
		t.Fatal(err)
	}
	if got, err := readKey(key, 0); err != nil || string(got) != string(content) {
		t.Fatal(got, err)
	}
	if err := os.Chmod(key, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := readKey(key, 0); err == nil {
		t.Error("took a CA's key that others may read")
	}
	if err := errors.Join(os.Chmod(key, 0o600), os.Chmod(dir, 0o777)); err != nil {
		t.Fatal(err)
	}
	if _, err := readKey(key, 0); !errors.Is(err, secretfile.ErrExposed) {
		t.Errorf("a CA's key in a directory that all may write: %v", err)
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if os.Geteuid() != 0 {
		return
	}
	if err := os.Chown(key, 65534, 65534); err != nil {
		t.Fatal(err)
	}
	if _, err := readKey(key, 0); !errors.Is(err, secretfile.ErrExposed) {
		t.Errorf("a CA's key of another user: %v", err)
	}
}
