package lab

import (
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// A detour stands in for the kernel's sch_netem: in the host the cable is taken out of the bridge, and this process carries each
// frame between the two, some time later. Frames go as they are, with the kernel's own header that says which of them are
// yet to be split and summed (PACKET_VNET_HDR).

// inside is the bridge's end of the pair that stands in for the cable, outside the end that this process reads.
const inside, outside = "late1", "late0"

// queued bounds the frames that are under way in one direction; more are lost, as on any cable.
const queued = 4096

type redirects struct {
	mu  sync.Mutex
	now *redirect
}

type redirect struct {
	sockets [2]*os.File
	done    sync.WaitGroup
}

// redirect sends what the host's cable carries by way of this process.
func (h *Host) redirect(d time.Duration) error {
	h.detoured.mu.Lock()
	defer h.detoured.mu.Unlock()
	ns := h.netns()
	for _, args := range [][]string{
		{"-n", ns, "link", "add", outside, "type", "veth", "peer", "name", inside},
		{"-n", ns, "link", "set", "eth0", "nomaster"},
		{"-n", ns, "link", "set", "eth0", "promisc", "on"},
		{"-n", ns, "link", "set", outside, "up", "promisc", "on"},
		{"-n", ns, "link", "set", inside, "master", "br0", "up"},
	} {
		if err := ip(args...); err != nil {
			return errors.Join(fmt.Errorf("host %s: delay: %w", h.Name, err), h.direct())
		}
	}
	now := &redirect{}
	err := within(ns, func() error {
		for n, name := range []string{"eth0", outside} {
			s, err := frames(name)
			if err != nil {
				return fmt.Errorf("frames of %s: %w", name, err)
			}
			now.sockets[n] = s
		}
		return nil
	})
	if err != nil {
		now.close()
		return errors.Join(fmt.Errorf("host %s: delay: %w", h.Name, err), h.direct())
	}
	now.relay(now.sockets[0], now.sockets[1], d)
	now.relay(now.sockets[1], now.sockets[0], d)
	h.detoured.now = now
	return nil
}

// endRedirect puts the cable back where it belongs. It says whether there was a detour.
func (h *Host) endRedirect() (bool, error) {
	h.detoured.mu.Lock()
	defer h.detoured.mu.Unlock()
	if h.detoured.now == nil {
		return false, nil
	}
	h.detoured.now.close()
	h.detoured.now = nil
	if err := h.direct(); err != nil {
		return true, fmt.Errorf("host %s: end its delay: %w", h.Name, err)
	}
	return true, nil
}

// direct is the host's network without a detour; it may have gone with the host's power.
func (h *Host) direct() error {
	if !h.Up() || ip("-n", h.netns(), "link", "show", outside) != nil {
		return nil
	}
	return errors.Join(ip("-n", h.netns(), "link", "del", outside), ip("-n", h.netns(), "link", "set", "eth0", "promisc", "off"),
		ip("-n", h.netns(), "link", "set", "eth0", "master", "br0"))
}

// frames are all that arrives at an interface of this network namespace, and what is written leaves by it.
func frames(name string) (*os.File, error) {
	link, err := net.InterfaceByName(name)
	if err != nil {
		return nil, err
	}
	all := uint16(unix.ETH_P_ALL)<<8 | unix.ETH_P_ALL>>8 // in the network's order
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	err = errors.Join(
		unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_VNET_HDR, 1),
		unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_IGNORE_OUTGOING, 1),
		unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 16<<20),
		unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: all, Ifindex: link.Index}))
	if err != nil {
		return nil, errors.Join(err, unix.Close(fd))
	}
	return os.NewFile(uintptr(fd), name), nil
}

// relay frames from one socket to the other, each so much later, until the sockets are closed.
func (d *redirect) relay(from, to *os.File, late time.Duration) {
	type frame struct {
		due   time.Time
		bytes []byte
	}
	way := make(chan frame, queued)
	d.done.Go(func() {
		defer close(way)
		buffer := make([]byte, 1<<17) // an unsplit frame has at most 64 KiB and a header
		for {
			n, err := from.Read(buffer)
			if errors.Is(err, os.ErrClosed) || errors.Is(err, unix.ENETDOWN) && n <= 0 && closed(from) {
				return
			}
			if err != nil || n <= 0 {
				time.Sleep(time.Millisecond) // sleep: an interface that is down for a moment
				continue
			}
			select {
			case way <- frame{time.Now().Add(late), append([]byte(nil), buffer[:n]...)}:
			default:
			}
		}
	})
	d.done.Go(func() {
		for f := range way {
			time.Sleep(time.Until(f.due)) // sleep: that is the delay
			_, _ = to.Write(f.bytes)      // or it is lost
		}
	})
}

// closed says whether the file is.
func closed(f *os.File) bool {
	return errors.Is(f.SetReadDeadline(time.Time{}), os.ErrClosed)
}

func (d *redirect) close() {
	for _, s := range d.sockets {
		if s != nil {
			_ = s.Close()
		}
	}
	d.done.Wait()
}
