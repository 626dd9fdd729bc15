package main

import (
	"path/filepath"
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
