package chaos

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"evenkeel/api/client"
	"evenkeel/test/lab"
	"evenkeel/test/labsite"
	"evenkeel/test/watch"
)

// Site is a cluster of three hosts, each with a server and an agent, and with stand-ins for their power supplies, watchdogs and inits.
type Site struct {
	Lab   *lab.Lab
	Watch *watch.Watcher
	Hosts []*Host

	out string // directory of logs
	log *Log
	end []func()
}

// Host of a site. Its keeper starts what is down, as soon as it may: the host itself, its libvirtd, its vcd.
type Host struct {
	*labsite.Host

	site *Site
	// struck keeps faults off one another.
	struck sync.Mutex

	mu     sync.Mutex
	wasUp  bool
	notYet [3]time.Time // before which power, libvirtd, vcd are not started
	ends   int          // of vcd by itself, since ended was asked to forget
}

// What a host's keeper starts.
const (
	power = iota
	libvirtd
	vcd
)

// hosts of a site.
const hosts = 3

// watchEvery is how often the machine's processes are looked at.
const watchEvery = 50 * time.Millisecond

// StartSite starts three hosts and makes a cluster of them, as docs/tutorials/three-hosts.md says. Close it.
func StartSite(ctx context.Context, l *lab.Lab, guest lab.Guest, bin, out string, log *Log) (s *Site, err error) {
	s = &Site{Lab: l, out: out, log: log}
	defer func() {
		if err != nil {
			s.Close()
		}
	}()
	if err := labsite.Build(ctx, bin, labsite.Programs...); err != nil {
		return s, err
	}
	on, err := labsite.New(ctx, l, guest, bin)
	if err != nil {
		return s, err
	}
	if s.Watch, err = watch.Start(l.Dir(), watchEvery); err != nil {
		return s, err
	}
	s.end = append(s.end, s.Watch.Close)
	var members []*labsite.Host
	for _, h := range l.Hosts() {
		members = append(members, on.Host(h))
		s.Hosts = append(s.Hosts, &Host{Host: members[len(members)-1], site: s, wasUp: true})
	}
	for _, h := range s.Hosts {
		end, err := h.Guard(filepath.Join(out, h.Name+"-watchdog.log"))
		if err != nil {
			return s, err
		}
		s.end = append(s.end, end)
		if err := h.Configure(labsite.Watchdog); err != nil {
			return s, err
		}
		if err := os.Remove(h.LogFile()); err != nil && !errors.Is(err, os.ErrNotExist) { // of an earlier run
			return s, err
		}
		if err := h.StartVcd(h.LogFile()); err != nil {
			return s, err
		}
	}
	if err := on.Found(ctx, guest, members...); err != nil {
		return s, err
	}
	for _, h := range s.Hosts {
		stop, done := make(chan struct{}), make(chan struct{})
		go h.keep(stop, done)
		s.end = append(s.end, func() {
			close(stop)
			<-done
		})
	}
	return s, nil
}

// Close ends what stands beside the lab.
func (s *Site) Close() {
	for n := len(s.end) - 1; n >= 0; n-- {
		s.end[n]()
	}
	s.end = nil
}

// Host of that name.
func (s *Site) Host(name string) *Host {
	for _, h := range s.Hosts {
		if h.Name == name {
			return h
		}
	}
	return nil
}

// ask one server after another, from the given one on, until one answers.
func ask[T any](ctx context.Context, s *Site, from int, f func(context.Context, *client.Client) (T, error)) (T, error) {
	var out T
	var errs []error
	for n := range s.Hosts {
		h := s.Hosts[(from+n)%len(s.Hosts)]
		short, cancel := context.WithTimeout(ctx, 4*time.Second)
		v, err := f(short, h.API)
		cancel()
		if err == nil {
			return v, nil
		}
		errs = append(errs, fmt.Errorf("%s: %w", h.Name, err))
	}
	return out, errors.Join(errs...)
}

// LogFile has the output of the host's vcd, over all its starts.
func (h *Host) LogFile() string { return filepath.Join(h.site.out, h.Name+"-vcd.log") }

// blockRestart stops the keeper from starting something for the given time.
func (h *Host) blockRestart(what int, d time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.notYet[what] = time.Now().Add(d)
}

// ended is how often vcd has ended by itself; forget begins to count again.
func (h *Host) ended(forget bool) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	if forget {
		h.ends = 0
	}
	return h.ends
}

// keep the host going, as its board, its init and its watchdog do, until it is stopped.
func (h *Host) keep(stop, done chan struct{}) {
	defer close(done)
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	running := true // vcd, when it was last looked at
	for {
		select {
		case <-stop:
			return
		case <-tick.C:
		}
		up, runs := h.Up(), h.Runs()
		h.mu.Lock()
		if h.wasUp && !up {
			h.site.log.Lost(h.Name, "it has no power")
			if time.Now().After(h.notYet[power]) {
				h.notYet[power] = time.Now().Add(5 * time.Second) // a machine that its watchdog has reset takes its time
			}
		}
		if running && !runs && up && h.wasUp && time.Now().After(h.notYet[vcd]) { // nothing killed it
			h.endedItself(h.Vcd().Err())
		}
		h.wasUp, running = up, runs
		now, may := time.Now(), h.notYet
		h.mu.Unlock()
		switch {
		case !up && now.After(may[power]):
			if err := errors.Join(h.Unguard(), h.PowerOn(context.Background())); err != nil {
				h.site.log.Say("error", h.Name, err.Error())
				continue
			}
			h.site.log.Say("on", h.Name, "it has power again")
		case up && now.After(may[libvirtd]) && !h.DaemonRuns():
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			err := h.StartDaemon(ctx)
			cancel()
			if err != nil {
				h.site.log.Say("error", h.Name, err.Error())
			}
		case up && now.After(may[vcd]) && !runs:
			if err := h.StartVcd(h.LogFile()); err != nil && h.Up() {
				h.mu.Lock()
				h.endedItself(err)
				h.mu.Unlock()
				continue
			}
			running = true
		}
	}
}

// endedItself notes the end of a vcd that nothing killed; h.mu is held.
func (h *Host) endedItself(err error) {
	h.ends++
	h.site.log.Say("ended", h.Name, "vcd ended by itself: "+last(fmt.Sprint(err)))
	h.notYet[vcd] = time.Now().Add(time.Second) // as its unit says
}
