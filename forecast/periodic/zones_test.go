package periodic

import (
	"debug/elf"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
)

// TestZonesOfABareHost: rules keep to their zone's clock on a host that has no time zones, as Debian's smallest installations have none.
// This test runs TestBetween in a directory that has nothing but its program.
func TestZonesOfABareHost(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can leave the machine's files behind")
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if program, err := elf.Open(self); err != nil {
		t.Fatal(err)
	} else if libraries, err := program.ImportedLibraries(); err != nil || len(libraries) > 0 {
		t.Skip("built with the race detector: it needs libraries of the machine: ", libraries, err)
	}
	code, err := os.ReadFile(self)
	if err != nil {
		t.Fatal(err)
	}
	root := t.TempDir()
	if err := os.WriteFile(filepath.Join(root, "test"), code, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(root, "tmp"), 0o700); err != nil { // a test that counts coverage keeps its counts there
		t.Fatal(err)
	}
	bare := exec.Command("/test", "-test.run", "^TestBetween$")
	bare.Dir, bare.Env, bare.SysProcAttr = "/", []string{}, &syscall.SysProcAttr{Chroot: root}
	if out, err := bare.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
