package e2e

import (
	"os"
	"testing"

	"evenkeel/api/v1"
	"evenkeel/test/daemon"
	"evenkeel/test/lab"
)

func TestMain(m *testing.M) { os.Exit(daemon.Main(m)) }

// spec of a VC of n idle guests.
func spec(name string, n int, cpu float64) v1.VirtualClusterSpec {
	return v1.VirtualClusterSpec{Name: name, OnFull: "reject", Groups: []v1.GroupSpec{{Name: "g", Count: n, CPU: cpu, Memory: 96 << 20,
		Boot: &v1.Boot{Kernel: "tiny", Cmdline: lab.Guest{}.Cmdline("")}}}}
}
