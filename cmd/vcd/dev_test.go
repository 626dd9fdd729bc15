package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"evenkeel/hypervisor"
)

type neverReady struct{}

func (neverReady) AwaitReady(ctx context.Context) error {
	<-ctx.Done()
	return fmt.Errorf("not ready yet (host h1 has not reported yet): %w", ctx.Err())
}

// hangs is a host whose first look hangs.
type hangs struct{ hypervisor.Host }

func (hangs) Hanging() []hypervisor.Hung {
	return []hypervisor.Hung{{Call: "virConnectGetAllDomainStats", Since: time.Now().Add(-time.Minute)}}
}

// vcd dev does not wait for ever for a libvirt that hangs: it ends and says which call of which libvirt, and where to look.
func TestDevEndsWhenLibvirtHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fleet{kind: "qemu:///system", hosts: map[string]hypervisor.Host{"h1": hangs{}}}
		begun := time.Now()
		err := awaitReady(t.Context(), neverReady{}, f)
		if !errors.Is(err, context.DeadlineExceeded) || time.Since(begun) != readyWithin {
			t.Fatalf("after %s: %v", time.Since(begun), err)
		}
		for _, want := range []string{"host h1 has not reported yet", "host h1: virConnectGetAllDomainStats has been waiting for 1m0s", "virsh -c 'qemu:///system' list --all", "log"} {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%v\nlacks %q", err, want)
			}
		}
	})
}
