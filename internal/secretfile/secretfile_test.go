package secretfile

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

func TestFault(t *testing.T) {
	const me, mine, other = 1000, 1000, 1234
	good := func() []entry {
		return []entry{{"/d/key", 0o600, owner{me, mine}}, {"/d", fs.ModeDir | 0o755, owner{me, mine}}}
	}
	link := func() []entry {
		return append(good(), entry{"/d/link", fs.ModeSymlink | 0o777, owner{me, mine}}, entry{"/e", fs.ModeDir | 0o755, owner{0, 0}})
	}
	cases := []struct {
		name   string
		seen   []entry
		change func(e []entry)
		openTo fs.FileMode
		says   string // "" = good
	}{
		{"good", good(), func([]entry) {}, 0, ""},
		{"of root", good(), func(e []entry) { e[0].owner, e[1].owner = owner{0, 0}, owner{0, 0} }, 0, ""},
		{"read only", good(), func(e []entry) { e[0].mode = 0o400 }, 0, ""},
		{"group may read", good(), func(e []entry) { e[0].mode = 0o640 }, 0, "mode 0640"},
		{"group may read, as allowed", good(), func(e []entry) { e[0].mode = 0o640 }, 0o040, ""},
		{"group may write, where reading is allowed", good(), func(e []entry) { e[0].mode = 0o660 }, 0o040, "mode 0660"},
		{"others may read, where the group may", good(), func(e []entry) { e[0].mode = 0o644 }, 0o040, "chmod 640 "},
		{"others may write", good(), func(e []entry) { e[0].mode = 0o602 }, 0, "mode 0602"},
		{"of another user", good(), func(e []entry) { e[0].uid = other }, 0, "belongs to user 1234"},
		{"of an unknown owner", good(), func(e []entry) { e[0].owner = owner{-1, -1} }, 0, "belongs to user -1"},
		{"directory of all", good(), func(e []entry) { e[1].mode = fs.ModeDir | 0o777 }, 0, "directory /d has mode 0777"},
		{"sticky directory of all", good(), func(e []entry) { e[1].mode = fs.ModeDir | fs.ModeSticky | 0o777 }, 0, ""},
		{"directory of a group", good(), func(e []entry) { e[1].mode, e[1].gid = fs.ModeDir|0o770, other }, 0, "directory /d has mode 0770"},
		{"directory of one's own group", good(), func(e []entry) { e[1].mode = fs.ModeDir | 0o770 }, 0, ""},
		{"directory of another user", good(), func(e []entry) { e[1].uid = other }, 0, "directory /d belongs to user 1234"},
		{"link", link(), func([]entry) {}, 0, ""},
		{"link of another user", link(), func(e []entry) { e[2].uid = other }, 0, "/d/link belongs to user 1234"},
		{"link into a directory of all", link(), func(e []entry) { e[3].mode = fs.ModeDir | 0o707 }, 0, "directory /e"},
	}
	for _, c := range cases {
		c.change(c.seen)
		got := fault(c.seen, c.openTo, reader{me, mine})
		if (got == "") != (c.says == "") || !strings.Contains(got, c.says) {
			t.Errorf("%s: %q, want %q", c.name, got, c.says)
		}
	}
}

func TestRead(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "key")
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(Write(path, []byte("secret"), 0o600))
	rule := Rule{MaxBytes: 6}
	if got, err := Read(path, rule); err != nil || string(got) != "secret" {
		t.Fatalf("%q, %v", got, err)
	}
	if _, err := Read(path, Rule{MaxBytes: 5}); err == nil || errors.Is(err, ErrExposed) {
		t.Errorf("a file that is too large: %v", err)
	}
	if _, err := Read(path+"x", rule); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a file that is not there: %v", err)
	}
	link := filepath.Join(dir, "link")
	must(os.Symlink(path, link))
	if _, err := Read(link, rule); err != nil {
		t.Errorf("one's own link: %v", err)
	}
	pipe := filepath.Join(dir, "pipe")
	must(syscall.Mkfifo(pipe, 0o600))
	for _, p := range []string{pipe, dir} {
		if _, err := Read(p, rule); !errors.Is(err, ErrExposed) {
			t.Errorf("%s: %v", p, err)
		}
	}
	for _, p := range []string{path, link, pipe, path + "x"} {
		if err := Check(p); err != nil {
			t.Errorf("%s: a check says %v", p, err)
		}
	}
	for _, c := range []struct {
		name string
		path string
		mode fs.FileMode
	}{{"a file that others may read", path, 0o644}, {"a directory of all", dir, 0o777}} {
		info, err := os.Stat(c.path)
		must(err)
		must(os.Chmod(c.path, c.mode))
		for _, p := range []string{path, link} {
			if got, err := Read(p, rule); !errors.Is(err, ErrExposed) || got != nil {
				t.Errorf("%s, %s: %q, %v", c.name, p, got, err)
			}
			if err := Check(p); !errors.Is(err, ErrExposed) {
				t.Errorf("%s, %s: a check says %v", c.name, p, err)
			}
		}
		must(os.Chmod(c.path, info.Mode()))
	}
	if os.Geteuid() != 0 {
		return // only root gives files away
	}
	must(os.Chown(path, 12345, -1))
	if _, err := Read(path, rule); !errors.Is(err, ErrExposed) || !strings.Contains(err.Error(), "user 12345") {
		t.Errorf("a file of another user: %v", err)
	}
	must(os.Chown(path, 0, -1))
	must(os.Lchown(link, 12345, -1))
	if _, err := Read(link, rule); !errors.Is(err, ErrExposed) {
		t.Errorf("a link of another user: %v", err)
	}
}

func TestWrite(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "key")
	for _, mode := range []fs.FileMode{0o600, 0o644} {
		content := "content of mode " + mode.String()
		if err := Write(path, []byte(content), mode); err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(path)
		if info, e := os.Stat(path); err != nil || e != nil || string(got) != content || info.Mode() != mode {
			t.Errorf("%q, %v, %v", got, err, e)
		}
	}
	if err := Write(filepath.Join(dir, "no", "key"), nil, 0o600); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("into a directory that is not there: %v", err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 1 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}
