package server

import (
	"strings"
	"testing"

	"evenkeel/cluster/leader"
	"evenkeel/cluster/state"
)

func TestHangingSaysTheWayOut(t *testing.T) {
	h := leader.HostView{Host: state.Host{Name: "h1"}, Hangs: []string{"virDomainCreateXML of ek-x has been waiting for 1m0s", "virConnectGetAllDomainStats has been waiting for 15s"}}
	got := hanging(h)
	for _, want := range []string{"libvirt does not answer: virDomainCreateXML of ek-x has been waiting for 1m0s, and 1 more calls wait", "restart libvirtd on h1 (its VMs run on)", "vcctl host fence h1"} {
		if !strings.Contains(got, want) {
			t.Errorf("%q lacks %q", got, want)
		}
	}
}
