package libvirt

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	libvirt "libvirt.org/go/libvirt"

	"evenkeel/hypervisor"
)

// A call that had its time is named in its error, and as hanging until it ends after all. While it hangs no other call is given more than
// CallTimeout.
func TestHanging(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &Host{session: &session{refs: 1}, opts: Options{CallTimeout: 15 * time.Second}}
		end := make(chan struct{})
		ctx := calling(t.Context(), "virStoragePoolLookupByName", "vm-1", "ek-x")
		now := calledBy(ctx)
		err := do(ctx, h, h.slow(), func(*libvirt.Connect) error {
			now.becomes("virDomainCreateXML")
			<-end
			return nil
		})
		if !isUnavailable(err) || !strings.Contains(err.Error(), "libvirt does not answer: virDomainCreateXML of ek-x has been waiting for 1m0s") {
			t.Errorf("error %v", err)
		}
		if got := h.Hanging(); len(got) != 1 || got[0].Call != "virDomainCreateXML of ek-x" || got[0].VM != "vm-1" || time.Since(got[0].Since) != time.Minute {
			t.Errorf("hanging: %+v", got)
		}
		begun := time.Now()
		err = do(calling(t.Context(), "virConnectGetAllDomainStats", "", ""), h, h.slow(), func(*libvirt.Connect) error { <-end; return nil })
		if took := time.Since(begun); !isUnavailable(err) || took != 15*time.Second {
			t.Errorf("the next call: %v after %s", err, took)
		}
		if got := h.Hanging(); len(got) != 2 || got[1].Call != "virConnectGetAllDomainStats" || got[1].VM != "" {
			t.Errorf("hanging: %+v", got)
		}
		close(end)
		synctest.Wait()
		if got := h.Hanging(); len(got) != 0 {
			t.Errorf("they have ended: %+v", got)
		}
		begun = time.Now()
		if err := do(calling(t.Context(), "virDomainShutdownFlags", "vm-2", ""), h, h.slow(), func(*libvirt.Connect) error {
			time.Sleep(20 * time.Second) // sleep: a slow libvirt, in simulated time
			return nil
		}); err != nil {
			t.Errorf("a slow call: %v after %s", err, time.Since(begun))
		}
	})
}

var _ hypervisor.Hanging = (*Host)(nil)
