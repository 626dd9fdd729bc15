package libvirt

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"evenkeel/hypervisor"
)

// What is listed several times a second is reported once, and not at all of a VM that libvirt starts or receives.
func TestUnreadShareIsReportedOnce(t *testing.T) {
	var log bytes.Buffer
	h := &Host{log: slog.New(slog.NewTextHandler(&log, nil)), known: map[string]knownVM{}}
	bad := errors.New("no control group")
	reports := func() int { return strings.Count(log.String(), "CPU share cannot be read") }
	for _, step := range []struct {
		name  string
		state hypervisor.State
		uuid  string
		err   error
		want  int // reports so far
	}{
		{"it starts", hypervisor.Incoming, "a", bad, 0},
		{"it starts still", hypervisor.Incoming, "a", bad, 0},
		{"it runs without groups", hypervisor.Running, "a", bad, 1},
		{"it does so still", hypervisor.Running, "a", bad, 1},
		{"so does another", hypervisor.Running, "b", bad, 2},
		{"it has its groups", hypervisor.Running, "a", nil, 2},
		{"they are gone again", hypervisor.Paused, "a", bad, 3},
	} {
		vm := hypervisor.VM{Identity: hypervisor.Identity{VM: step.uuid}, State: step.state}
		h.remember(step.uuid, knownVM{Identity: vm.Identity, name: step.uuid}) // as each listing does
		h.shareRead(step.uuid, vm, step.err)
		if got := reports(); got != step.want {
			t.Errorf("%s: %d reports, want %d", step.name, got, step.want)
		}
	}
	h.shareRead("c", hypervisor.VM{Foreign: true, State: hypervisor.Running}, bad)
	if reports() != 3 {
		t.Error("a report of a foreign VM")
	}
}
