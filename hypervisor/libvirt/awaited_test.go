package libvirt

import (
	"errors"
	"testing"
	"time"

	libvirt "libvirt.org/go/libvirt"
)

// The goroutine of a call that was given up learns that it was: after libvirt hung it must not start a VM, or remove a
// disk, long after the VM was started elsewhere.
func TestCallGivenUp(t *testing.T) {
	h := &Host{session: &session{refs: 1}}
	hang, after := make(chan struct{}), make(chan error, 1)
	var first error
	err := doAwaited(t.Context(), h, 10*time.Millisecond, func(_ *libvirt.Connect, wanted func() error) error {
		first = wanted()
		<-hang
		after <- wanted()
		return nil
	})
	if !isUnavailable(err) {
		t.Errorf("a call that hangs: %v", err)
	}
	close(hang)
	if got := <-after; !errors.Is(got, errAbandoned) || first != nil {
		t.Errorf("wanted at first: %v, after it was given up: %v", first, got)
	}
}
