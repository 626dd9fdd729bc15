package fence

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestCheck(t *testing.T) {
	with := func(options ...string) Device {
		d := Device{Agent: "fence_ipmilan", Options: map[string]string{"ip": "192.0.2.7", "lanplus": "1"}}
		for i := 0; i < len(options); i += 2 {
			d.Options[options[i]] = options[i+1]
		}
		return d
	}
	slow, secretTwice := with(), with("passwd_script", "x")
	slow.Timeout = time.Hour
	secretTwice.PasswordFile, secretTwice.SecretFiles = "a", map[string]string{"password": "b", "passwd_script": "c", "action": "d", "e": ""}
	tests := []struct {
		name string
		d    Device
		want []string // none: it is fine
	}{
		{"plain", with(), nil},
		{"with blanks inside", with("plug", "rack 2, outlet 7"), nil},
		{"empty", Device{}, []string{`agent ""`}},
		{"a path", Device{Agent: "/usr/sbin/fence_ipmilan"}, []string{"without a path"}},
		{"a path from below", Device{Agent: "../sbin/fence_ipmilan"}, []string{"without a path"}},
		{"another program", Device{Agent: "rm"}, []string{"without a path"}},
		{"asks a person", Device{Agent: "fence_ack_manual"}, []string{"confirm-dead"}},
		{"cuts storage only", Device{Agent: "fence_scsi"}, []string{"the VMs run on"}},
		{"action", with("action", "on"), []string{"option action"}},
		{"a missing host counts as off", with("missing_as_off", "1"), []string{"misspelt"}},
		{"writes to the system's log", with("verbose", "1"), []string{"system's log"}},
		{"password in the file of all", with("password", "hunter2"), []string{"passwordFile"}},
		{"Pacemaker's", with("pcmk_host_map", "h1:7"), []string{"Pacemaker"}},
		{"two lines", with("plug", "7\naction=on"), []string{"line break"}},
		{"a name with a line", with("plug=1\naction", "on"), []string{"no name of an option"}},
		{"quotes", with("plug", `"7"`), []string{"quotes"}},
		{"too slow", slow, []string{"at most 10m"}},
		{"secrets", secretTwice, []string{"option password is given twice", "option passwd_script is given twice", "secret action", "secret e has no file"}},
		{"all at once", Device{Agent: "x", Options: map[string]string{"action": "on", "method": "cycle"}}, []string{"agent", "option action", "option method"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			err := Check([]Level{{tt.d}})
			if (err == nil) != (len(tt.want) == 0) {
				t.Fatalf("Check = %v, want %q", err, tt.want)
			}
			for _, want := range tt.want {
				if !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "level 1, device 1") {
					t.Errorf("Check = %v, want %q", err, want)
				}
			}
			if err != nil && strings.Contains(err.Error(), "hunter2") {
				t.Errorf("the error shows a password: %v", err)
			}
		})
	}
	if Check(nil) == nil || Check([]Level{{}}) == nil {
		t.Error("no device is fine with Check")
	}
}

// TestInput: whatever passes Check arrives as one line for each option, and nothing else does.
func TestInput(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := Device{Agent: "fence_x", Options: rapid.MapOfN(rapid.StringMatching(`[a-z_]{1,6}[a-z_\n= -]?`),
			rapid.OneOf(rapid.StringMatching(`[a-z0-9 ="#]{0,8}`), rapid.String()), 1, 4).Draw(t, "options")}
		if d.Check() != nil {
			t.Skip("refused")
		}
		lines := strings.Split(strings.TrimSuffix(d.input("status", nil), "\n"), "\n")
		if len(lines) != 1+len(d.Options) || lines[0] != "action=status" {
			t.Fatalf("input %q", lines)
		}
		for _, line := range lines[1:] {
			name, value, _ := strings.Cut(line, "=")
			if got, ok := d.Options[name]; !ok || got != value || name == "action" {
				t.Fatalf("line %q", line)
			}
		}
	})
}

// TestScrub: a secret is in no text that is shown, wherever it stood and wherever the text was cut.
func TestScrub(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		secret := rapid.StringMatching(`[#-~]{6,30}`).Draw(t, "secret")
		if strings.Contains(hidden, secret) {
			t.Skip()
		}
		s := newScrubber(map[string]string{"password": secret}, map[string]string{"username": "ann"})
		text := rapid.StringN(0, 50, -1).Draw(t, "before") + secret + rapid.StringN(0, 50, -1).Draw(t, "between") + secret
		n := rapid.IntRange(0, len(text)).Draw(t, "cut at")
		for _, shown := range []string{s.text([]byte(text), false), s.text([]byte(text[:n]), true)} {
			if strings.Contains(shown, secret) {
				t.Fatalf("%q is shown of %q", shown, text)
			}
		}
		// The beginning of a secret that was cut in two.
		if shown := s.text([]byte(secret[:len(secret)-1]), true); strings.Contains(shown, secret[:len(secret)-1]) {
			t.Fatalf("%q is shown of a secret that was cut off", shown)
		}
	})
}

func TestLookUp(t *testing.T) {
	dir := t.TempDir()
	for name, mode := range map[string]os.FileMode{"fence_good": 0o755, "fence_open": 0o777, "fence_text": 0o644} {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte("#!/bin/sh\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(dir, "fence_dir"), 0o755); err != nil {
		t.Fatal(err)
	}
	r := New(Options{Dirs: []string{filepath.Join(dir, "nowhere"), dir}})
	for name, want := range map[string]string{"fence_good": "", "fence_open": "mode 0777", "fence_text": "no program", "fence_dir": "no program", "fence_none": "fence-agents"} {
		path, err := r.lookUp(name)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("lookUp(%s) = %s, %v; want %q", name, path, err, want)
		}
	}
}
