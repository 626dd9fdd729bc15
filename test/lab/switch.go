package lab

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"time"
)

// ErrInside is the error of Open in a host of the lab, which can neither see nor do
// anything to the others but through AskPower.
var ErrInside = errors.New("this process is inside a host of the lab, or in another container")

// powerAddress is where ServePower listens: at the desk, on the port that power switches have in
// the world.
const powerAddress = deskAddress + ":623"

// ServePower serves the hosts' power switches to the hosts, over the lab's network, as the
// management controllers of a rack do: each host that has its cable can switch every other. It ends with
// stop, which waits for what is being done. Call it once at a time.
//
// A connection is a line, "off HOST", "on HOST" or "state HOST", and a line for an answer: "on" or
// "off", which is how the host is after it, or "error: REASON".
func (l *Lab) ServePower() (stop func() error, err error) {
	listener, err := l.Listen("tcp", powerAddress)
	if err != nil {
		return nil, fmt.Errorf("serve power: %w", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	all.Go(func() {
		for {
			c, err := listener.Accept()
			if err != nil {
				return // closed
			}
			all.Go(func() {
				defer c.Close()
				_ = c.SetReadDeadline(time.Now().Add(patience))
				line, err := bufio.NewReader(c).ReadString('\n')
				if err != nil {
					return
				}
				answer, err := l.power(ctx, line)
				if err != nil {
					answer = "error: " + strings.ReplaceAll(err.Error(), "\n", " ")
				}
				_, _ = fmt.Fprintln(c, answer) // a host without power hears nothing
			})
		}
	})
	return func() error {
		cancel()
		err := listener.Close()
		all.Wait()
		return err
	}, nil
}

// power does what a line asks for, and says how the host is then.
func (l *Lab) power(ctx context.Context, line string) (string, error) {
	verb, name, _ := strings.Cut(strings.TrimSpace(line), " ")
	for _, h := range l.hosts {
		if h.Name != name {
			continue
		}
		var err error
		switch verb {
		case "off":
			err = h.PowerOff()
		case "on":
			err = h.PowerOn(ctx)
		case "state":
		default:
			return "", fmt.Errorf("unknown command %q", verb)
		}
		if err != nil {
			return "", err
		}
		if h.Up() {
			return "on", nil
		}
		return "off", nil
	}
	return "", fmt.Errorf("no host %q", name)
}

// AskPower is for programs inside a host: it asks ServePower to switch a host "off" or "on", or for
// its "state". It returns how that host is afterwards, "on" or "off".
func AskPower(ctx context.Context, verb, host string) (string, error) {
	c, err := (&net.Dialer{Timeout: 15 * time.Second}).DialContext(ctx, "tcp", powerAddress) // where no switch serves, nothing answers at all
	if err != nil {
		return "", fmt.Errorf("%s %s: the power switch: %w", verb, host, err)
	}
	defer c.Close()
	defer context.AfterFunc(ctx, func() { _ = c.Close() })()
	if _, err = fmt.Fprintln(c, verb, host); err != nil {
		return "", fmt.Errorf("%s %s: the power switch: %w", verb, host, err)
	}
	answer, err := bufio.NewReader(c).ReadString('\n')
	if err != nil {
		return "", fmt.Errorf("%s %s: the power switch: %w", verb, host, err)
	}
	answer = strings.TrimSpace(answer)
	if answer != "on" && answer != "off" {
		return "", fmt.Errorf("%s %s: the power switch says: %s", verb, host, answer)
	}
	return answer, nil
}
