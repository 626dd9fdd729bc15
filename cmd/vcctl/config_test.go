package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Without HOME, as in the first-boot scripts of some images, access to a cluster is kept below the home of the user
// and not in whatever directory the command was run.
func TestConfigFileWithoutHome(t *testing.T) {
	t.Setenv("HOME", "")
	t.Setenv("XDG_CONFIG_HOME", "")
	if path := configFile(); !filepath.IsAbs(path) || filepath.Base(path) != "config.yaml" {
		t.Errorf("the configuration is at %q", path)
	}
	t.Setenv("XDG_CONFIG_HOME", "here") // a path that is not absolute says nothing, by the specification of these directories
	if path := configFile(); !filepath.IsAbs(path) {
		t.Errorf("the configuration is at %q", path)
	}
}

// Aliases could make a few lines of configuration stand for gigabytes.
func TestConfigFileWithAliases(t *testing.T) {
	path := filepath.Join(t.TempDir(), "config.yaml")
	for _, text := range []string{"address: &a h1:7480\ntoken: *a\n", "cacert: &a ca.pem\n"} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if c, err := readConfig(path); err == nil || !strings.Contains(err.Error(), "line 1") || !strings.Contains(err.Error(), "anchors and aliases") {
			t.Errorf("%q: %+v, %v", text, c, err)
		}
	}
}
