// Package freeport gives tests the addresses that programs are to listen at. A port that the kernel chose and the test closed again
// may be given to any connection before the program listens; these are below those that the kernel chooses.
package freeport

import (
	"fmt"
	"net"
	"os"
	"sync/atomic"
)

// Ports from first on are tried. Linux chooses 32768 and above by default.
const first, ports = 20000, 12000

var next atomic.Uint32

// Address is one on loopback on which nothing listens. No other call of this process gives it; tests of several processes begin at
// places apart.
func Address() (string, error) {
	var last error
	for range ports {
		port := first + (61*os.Getpid()+int(next.Add(1)))%ports
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err != nil {
			last = err
			continue
		}
		return l.Addr().String(), l.Close()
	}
	return "", fmt.Errorf("find a free port: %w", last)
}
