package watchdog

import (
	"bufio"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// peer is an outside watchdog of a test: it answers the first line, and keeps
// what came after it until the connection ended.
type peer struct {
	path  string
	first chan string
	rest  chan string
}

func newPeer(t *testing.T, answer string) *peer {
	t.Helper()
	p := &peer{path: filepath.Join(t.TempDir(), "dog"), first: make(chan string, 1), rest: make(chan string, 1)}
	l, err := net.Listen("unix", p.path)
	if err != nil {
		t.Fatal(err)
	}
	done, over := make(chan struct{}), make(chan struct{})
	t.Cleanup(func() {
		_ = l.Close()
		close(over)
		<-done
	})
	go func() {
		defer close(done)
		c, err := l.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		go func() { // a test that failed may leave the connection open
			<-over
			_ = c.SetDeadline(time.Now())
		}()
		r := bufio.NewReader(c)
		text, _ := r.ReadString('\n')
		p.first <- text
		if answer == "" {
			return
		}
		_, _ = io.WriteString(c, answer)
		rest, _ := io.ReadAll(r)
		p.rest <- string(rest)
	}()
	return p
}

func TestOutsideWatchdog(t *testing.T) {
	tests := []struct {
		name string
		do   func(*Watchdog) error
		want string // bytes after the first line
	}{
		{"pets, then disarmed", func(w *Watchdog) error {
			return errors.Join(w.Pet(), w.Pet(), w.Stop(), w.Close())
		}, "ppV"},
		{"closed without disarming keeps counting", func(w *Watchdog) error {
			return errors.Join(w.Pet(), w.Close(), w.Close())
		}, "p"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := newPeer(t, "armed 20 outlet 7\n")
			w, err := Open(p.path, 15*time.Second)
			if err != nil {
				t.Fatal(err)
			}
			if got := <-p.first; got != "timeout 15\n" {
				t.Errorf("first line %q, want the time-out that was asked for", got)
			}
			if w.Timeout() != 20*time.Second || w.Name() != "outlet 7" {
				t.Errorf("time-out %v of %q, want 20s of outlet 7, as the watchdog answered", w.Timeout(), w.Name())
			}
			if err := tt.do(w); err != nil {
				t.Error(err)
			}
			if got := <-p.rest; got != tt.want {
				t.Errorf("got the bytes %q, want %q", got, tt.want)
			}
			if err := w.Pet(); !errors.Is(err, ErrClosed) {
				t.Errorf("pet after the end: %v, want ErrClosed", err)
			}
			if err := w.Stop(); !errors.Is(err, ErrClosed) {
				t.Errorf("disarm after the end: %v, want ErrClosed", err)
			}
		})
	}
}

// TestUnclearAnswers: a watchdog whose answer does not say that it is armed is not armed. It is stopped only where that is
// certain to be right: else it may be guarding what a process before this one started.
func TestUnclearAnswers(t *testing.T) {
	tests := []struct{ name, answer, want, rest string }{
		{"refused", "refused 15 s is too long\n", `refused: "15 s is too long"`, ""},
		{"shorter than a restart", "armed 5 x\n", "took a time-out of 5s", "V"},
		{"absurdly long", "armed 2147483647 x\n", "took a time-out", "V"},
		{"no number", "armed soon\n", "no number of seconds", ""},
		{"negative", "armed -15 x\n", "no number of seconds", ""},
		{"another language", "HTTP/1.1 400 Bad Request\n", "neither armed nor refused", ""},
		{"no end", strings.Repeat("x", maxAnswer+1), "wait for its answer", ""},
		{"hangs up", "", "unexpected EOF", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := newPeer(t, tt.answer)
			w, err := Open(p.path, 15*time.Second)
			if err == nil || w != nil || !strings.Contains(err.Error(), tt.want) {
				t.Fatalf("Open = %v, %v; want an error with %q", w, err, tt.want)
			}
			if errors.Is(err, ErrUnsuitable) != (tt.rest == "V") {
				t.Errorf("ErrUnsuitable or not is wrong for %v", err)
			}
			if tt.answer != "" {
				if got := <-p.rest; got != tt.rest {
					t.Errorf("got the bytes %q after the failure, want %q", got, tt.rest)
				}
			}
		})
	}
}

// TestPetOfTheDead: a watchdog that went away is not petted in silence.
func TestPetOfTheDead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "dog")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		c, err := l.Accept()
		if err != nil {
			return
		}
		_, _ = bufio.NewReader(c).ReadString('\n')
		_, _ = io.WriteString(c, "armed 15 x\n")
		_ = c.Close()
	}()
	w, err := Open(path, 15*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	<-gone
	if err := w.Pet(); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("pet of a watchdog that hung up: %v, want an error that names it", err)
	}
}

func TestCheck(t *testing.T) {
	for timeout, want := range map[time.Duration]string{
		0:                              "too short",
		MinTimeout - time.Second:       "too short",
		MinTimeout:                     "",
		MinTimeout + time.Millisecond:  "whole seconds",
		time.Minute:                    "",
		MaxTimeout:                     "",
		MaxTimeout + time.Second:       "longer than",
		-time.Hour:                     "too short",
		time.Duration(1<<63 - 1):       "longer than",
		30*time.Second + 1:             "whole seconds",
		MinTimeout - time.Nanosecond*1: "too short",
	} {
		err := Check(timeout)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("Check(%v) = %v, want %q", timeout, err, want)
		}
	}
}

func TestOpenRefuses(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	gone := filepath.Join(dir, "gone")
	if l, err := net.ListenUnix("unix", &net.UnixAddr{Name: gone}); err != nil {
		t.Fatal(err)
	} else {
		l.SetUnlinkOnClose(false)
		_ = l.Close()
	}
	for _, tt := range []struct {
		name, path string
		timeout    time.Duration
		want       string
	}{
		{"too short", file, 9 * time.Second, "at least 10s"},
		{"not there", filepath.Join(dir, "none"), 15 * time.Second, "no such file"},
		{"a file", file, 15 * time.Second, "neither"},
		{"a folder", dir, 15 * time.Second, "neither"},
		{"no listener", gone, 15 * time.Second, "connection refused"},
		// A character device without the watchdog's calls: the real ioctl, answered with ENOTTY.
		{"another device", "/dev/null", 15 * time.Second, "ask what it supports: inappropriate ioctl"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w, err := Open(tt.path, tt.timeout)
			if err == nil || w != nil || !strings.Contains(err.Error(), tt.want) || !strings.Contains(err.Error(), tt.path) {
				t.Errorf("Open = %v, %v; want an error with %q that names %s", w, err, tt.want, tt.path)
			}
		})
	}
}

// driver is a kernel driver as the documentation describes it.
type driver struct {
	options  uint32
	timeout  int // in force
	max      int // larger ones are cut to it, as some drivers do; 0: EINVAL for all
	supports error
	gets     error
}

func (d *driver) support() (uint32, string, error) { return d.options, "iTCO_wdt", d.supports }
func (d *driver) getTimeout() (int, error)         { return d.timeout, d.gets }
func (d *driver) setTimeout(s int) error {
	if d.max == 0 {
		return unix.EINVAL
	}
	d.timeout = min(s, d.max)
	return nil
}

func TestSetUp(t *testing.T) {
	const good = unix.WDIOF_MAGICCLOSE | unix.WDIOF_SETTIMEOUT | unix.WDIOF_KEEPALIVEPING
	tests := []struct {
		name string
		d    driver
		took time.Duration
		want string
	}{
		{"takes it", driver{options: good, timeout: 30, max: 600}, 45 * time.Second, ""},
		{"takes less", driver{options: good, timeout: 30, max: 40}, 40 * time.Second, ""},
		{"has its own", driver{options: good &^ unix.WDIOF_SETTIMEOUT, timeout: 60}, 60 * time.Second, ""},
		{"takes none", driver{options: good, timeout: 30}, 0, "does not take a time-out of 45s: invalid argument"},
		{"stops at every close", driver{options: good &^ unix.WDIOF_MAGICCLOSE, max: 600}, 0, "no magic close"},
		{"alarm only", driver{options: good | unix.WDIOF_ALARMONLY, max: 600}, 0, "alarm only"},
		{"does not say what it can", driver{supports: unix.ENOTTY}, 0, "inappropriate ioctl"},
		{"does not say what it took", driver{options: good, max: 600, gets: unix.EOPNOTSUPP}, 0, "not supported"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			took, name, err := setUp(&tt.d, 45*time.Second)
			if tt.want != "" {
				unclear := tt.d.supports != nil || tt.d.gets != nil
				if err == nil || !strings.Contains(err.Error(), tt.want) || errors.Is(err, ErrUnsuitable) == unclear {
					t.Errorf("error %v, want %q, unsuitable %t", err, tt.want, !unclear)
				}
				return
			}
			if err != nil || took != tt.took || name != "iTCO_wdt" {
				t.Errorf("setUp = %v, %q, %v; want %v", took, name, err, tt.took)
			}
		})
	}
}

func FuzzParseAnswer(f *testing.F) {
	for _, s := range []string{"armed 15 x\n", "armed 15\n", "refused no\n", "armed\n", "", "armed 99999999999 \n"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		took, _, err := parseAnswer(text)
		if err == nil && (!strings.HasPrefix(text, "armed ") || took < 0 || took%time.Second != 0) {
			t.Errorf("parseAnswer(%q) = %v", text, took)
		}
	})
}

func TestIdentity(t *testing.T) {
	var field [32]byte
	copy(field[:], "Software Watchdog")
	if got := identity(field[:]); got != "Software Watchdog" {
		t.Errorf("identity = %q", got)
	}
}
