package main

import (
	"bytes"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// What is wrong with a command line ends vcd at once: status 2, one line on
// standard error, nothing on standard output, which is for the line "ready".
func TestWrongUsage(t *testing.T) {
	for _, args := range [][]string{
		{"dev", "--bogus"},
		{"dev", "--hosts", "x"},
		{"dev", "--data-dir", ""},
		{"dev", "extra"},
		{"dev", "--allowance-cpu", "NaN"},
		{"dev", "--allowance-memory", "12parsecs"},
		{"dev", "--min-yield", "2"},
		{"dev", "--log-level", "loud"},
		{"--bogus"},
		{"bogus"},
	} {
		t.Run(strings.Join(args, " "), func(t *testing.T) {
			t.Chdir(t.TempDir())
			var out, errs bytes.Buffer
			if status := run(t.Context(), append([]string{"vcd"}, args...), &out, &errs); status != 2 {
				t.Errorf("exit status %d, want 2", status)
			}
			if out.Len() > 0 || strings.Count(errs.String(), "\n") != 1 {
				t.Errorf("standard output %q, standard error %q, want nothing and one line", out.String(), errs.String())
			}
			if left, err := os.ReadDir("."); err != nil || len(left) > 0 {
				t.Errorf("left in the current directory: %v, %v", left, err)
			}
		})
	}
}

// A port that is taken ends vcd before it has chosen a hypervisor for the data directory.
func TestPortTaken(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close() //nolint:errcheck // a test's
	dir := t.TempDir()
	var out, errs bytes.Buffer
	status := run(t.Context(), []string{"vcd", "dev", "--data-dir", dir, "--hypervisor", "simulated", "--listen", listener.Addr().String()}, &out, &errs)
	if status != 1 || out.Len() > 0 || !strings.Contains(errs.String(), "listen for the API") {
		t.Errorf("exit status %d, %q, %q", status, out.String(), errs.String())
	}
	if _, err := os.Stat(filepath.Join(dir, "hypervisor")); !os.IsNotExist(err) {
		t.Errorf("the data directory is bound to a hypervisor: %v", err)
	}
}
