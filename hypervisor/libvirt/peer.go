package libvirt

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path"
	"strings"
	"sync"
	"time"

	"libvirt.org/go/libvirt"

	"evenkeel/hypervisor"
)

// CheckPeer connects to the libvirt of a target as this host's daemon does for a migration: as root, with root's keys. What goes by
// other ways than TLS and plain TCP is not checked.
func (h *Host) CheckPeer(ctx context.Context, to string) (hypervisor.Obstacle, error) {
	if err := ctx.Err(); err != nil {
		return hypervisor.Obstacle{}, fmt.Errorf("check the way to %s: %w", to, err)
	}
	switch transportOf(to) {
	case "tls", "tcp":
	default:
		return hypervisor.Obstacle{}, nil
	}
	return obstacleOf(to, h.missingKeys(to), h.peers.connect(ctx, h.peerURI(to))), nil
}

// transportOf libvirt's address of another host; "" if it is that of this one, or no address.
func transportOf(to string) string {
	u, err := url.Parse(to)
	if err != nil || u.Host == "" {
		return ""
	}
	if _, transport, named := strings.Cut(u.Scheme, "+"); named {
		return transport
	}
	return "tls" // libvirt's default
}

// keys are the files that libvirt needs to reach an address by TLS as root.
type keys struct{ ca, cert, key string }

// keysFor an address; the zero value if it needs none.
func keysFor(to string) keys {
	if transportOf(to) != "tls" {
		return keys{}
	}
	u, _ := url.Parse(to) // it was parsed before
	if dir := u.Query().Get("pkipath"); dir != "" {
		return keys{path.Join(dir, "cacert.pem"), path.Join(dir, "clientcert.pem"), path.Join(dir, "clientkey.pem")}
	}
	return keys{"/etc/pki/CA/cacert.pem", "/etc/pki/libvirt/clientcert.pem", "/etc/pki/libvirt/private/clientkey.pem"}
}

// missingKeys of those that an address needs; none where this host's files are not this process's.
func (h *Host) missingKeys(to string) []string {
	if !h.local {
		return nil
	}
	return missingOf(keysFor(to), func(name string) bool {
		_, err := os.Stat(name)
		return errors.Is(err, fs.ErrNotExist)
	})
}

func missingOf(k keys, missing func(string) bool) (out []string) {
	for _, name := range []string{k.ca, k.cert, k.key} {
		if name != "" && missing(name) {
			out = append(out, name)
		}
	}
	return out
}

// obstacleOf judges an attempt to reach an address that ended with err. A file that is missing here is the cause. If the other side was
// not even reached by TCP, only the CA's certificate can be: libvirt reads no other file before it connects.
func obstacleOf(to string, missing []string, err error) hypervisor.Obstacle {
	if err == nil {
		return hypervisor.Obstacle{} // a server may ask for no certificate
	}
	text := causeOf(err)
	k := keysFor(to)
	switch {
	case len(missing) > 0 && (missing[0] == k.ca || !notReached(err, text)):
		is := " is missing"
		if len(missing) > 1 {
			is = " are missing"
		}
		return hypervisor.Obstacle{Why: strings.Join(missing, ", ") + is, Here: true}
	case names(text, k):
		return hypervisor.Obstacle{Why: text, Here: true}
	}
	return hypervisor.Obstacle{Why: text}
}

// explainPeer names the side that a migration failed on for want of a connection.
func explainPeer(to string, missing []string, err error) error {
	if o := obstacleOf(to, missing, err); o.Here {
		return fmt.Errorf("this host cannot send VMs: %s", o.Why)
	}
	return fmt.Errorf("the target's libvirt was lost, or cannot be reached: %w", err)
}

// causeOf an error of libvirt is its own message.
func causeOf(err error) string {
	var e libvirt.Error
	if errors.As(err, &e) {
		return e.Message
	}
	return err.Error()
}

// notReached says whether no connection came about at all.
func notReached(err error, text string) bool {
	return errors.Is(err, errSilent) || strings.HasPrefix(text, "unable to connect to server at") || strings.HasPrefix(text, "unable to resolve address")
}

// names says whether a text is about one of this host's key files.
func names(text string, k keys) bool {
	for _, name := range []string{k.ca, k.cert, k.key} {
		if name != "" && strings.Contains(text, name) {
			return true
		}
	}
	return false
}

// errSilent: the other side does not answer.
var errSilent = errors.New("no answer")

// peers are the attempts to connect to other hosts' libvirts that go on. One to a host that hangs has no end that could be set: there
// is at most one for each address.
type peers struct {
	mu    sync.Mutex
	since map[string]time.Time
}

// connect to a libvirt and let go of it again.
func (p *peers) connect(ctx context.Context, uri string) error {
	p.mu.Lock()
	if since, goes := p.since[uri]; goes {
		p.mu.Unlock()
		return fmt.Errorf("%w for %s", errSilent, time.Since(since).Round(time.Second))
	}
	if p.since == nil {
		p.since = map[string]time.Time{}
	}
	begun := time.Now()
	p.since[uri] = begun
	p.mu.Unlock()
	done := make(chan error, 1)
	go func() {
		c, err := libvirt.NewConnect(uri)
		if err == nil {
			_, _ = c.Close()
		}
		p.mu.Lock()
		delete(p.since, uri)
		p.mu.Unlock()
		done <- err
	}()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return fmt.Errorf("%w for %s", errSilent, time.Since(begun).Round(time.Second))
	}
}
