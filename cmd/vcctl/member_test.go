package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"evenkeel/api/v1"
)

// After a join vcctl on that host has the way into the cluster, or says what it lacks. A configuration that is there stays.
func TestWayAfterJoin(t *testing.T) {
	dir := t.TempDir()
	token := filepath.Join(dir, "operator")
	if err := os.WriteFile(token, []byte("secret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	addresses := []string{"192.0.2.1:7480", "192.0.2.2:7480"}
	for _, c := range []struct {
		name, config, ca, token string
		want                    way
		says                    string
	}{
		{"without a home", "", "CA", "", wayNone, "copy ~/.config/evenkeel"},
		{"of a vcd that says no CA", "none", "", "", wayNone, "copy ~/.config/evenkeel"},
		{"without a token", "open", "CA", "", wayOpen, "has no token yet"},
		{"with one", "whole", "CA", token, wayWhole, ""},
		{"where a configuration is", "whole", "other", "", wayThere, ""},
	} {
		config := c.config
		if config != "" {
			config = filepath.Join(dir, c.config, "config.yaml")
		}
		kept, err := keepWay(config, addresses, c.ca, c.token)
		if err != nil || kept != c.want {
			t.Errorf("%s: %v, %v, want %v", c.name, kept, err, c.want)
		}
		text := joinedText(v1.SetupAnswer{}, kept)
		if lines := strings.Count(text, "\n"); !strings.Contains(text, c.says) || c.says == "" && lines != 1 {
			t.Errorf("%s: says %q", c.name, text)
		}
	}
	text := joinedText(v1.SetupAnswer{Host: []v1.HostFinding{{Check: "watchdog", Level: "warning", Text: "there is none", Mend: "a page"}, {Check: "swap", Level: "problem", Text: "none"}}}, wayWhole)
	if want := "warning  watchdog     there is none\n                      -> a page\nproblem  swap         none\n"; !strings.HasSuffix(text, "says it again):\n"+want) {
		t.Errorf("of a host that lacks something: %q", text)
	}
	for name, want := range map[string]string{"open/config.yaml": "address: https://192.0.2.1:7480,https://192.0.2.2:7480\ncacert: ca.pem\n", "open/ca.pem": "CA",
		"whole/config.yaml": "address: https://192.0.2.1:7480,https://192.0.2.2:7480\ncacert: ca.pem\ntokenFile: token\n", "whole/ca.pem": "CA", "whole/token": "secret\n"} {
		got, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil || string(got) != want {
			t.Errorf("%s: %q, %v, want %q", name, got, err, want)
		}
		if info, err := os.Stat(filepath.Join(dir, name)); err == nil && info.Mode().Perm() != 0o600 {
			t.Errorf("%s: mode %o", name, info.Mode().Perm())
		}
	}
	if _, err := keepWay(filepath.Join(dir, "new", "config.yaml"), addresses, "CA", filepath.Join(dir, "nosuch")); err == nil {
		t.Error("a token file that is not there is no error")
	}
	if _, err := os.Stat(filepath.Join(dir, "new", "config.yaml")); err == nil {
		t.Error("half a way is kept")
	}
}
