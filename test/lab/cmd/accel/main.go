// Command accel prints "kvm" or "qemu": what kind of VM really boots the test
// guest on this machine. The answer is found by booting it, and remembered.
package main

import (
	"context"
	"fmt"
	"os"

	"evenkeel/test/lab"
)

func main() {
	guest, err := lab.FindGuest()
	kvm := false
	if err == nil {
		kvm, err = lab.KVM(context.Background(), guest)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "accel:", err)
		os.Exit(1)
	}
	if kvm {
		fmt.Println("kvm")
	} else {
		fmt.Println("qemu")
	}
}
