package lab

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"
)

// followEvery is how often the consoles are read. It is the precision of the times of beats.
const followEvery = 5 * time.Millisecond

// Beat is one line of a guest's heartbeat, and when it was seen, and on which host's console.
type Beat struct {
	At     time.Time
	Host   string
	Seq    int64
	Uptime time.Duration
}

// Beats follows a guest's heartbeat through its console's logs on all hosts. So it sees for how long the guest stands
// still when it is moved, whether it is the same guest afterwards, and whether it runs twice.
type Beats struct {
	logs map[string]*follow // by host
	stop chan struct{}
	done chan struct{}

	mu     sync.Mutex
	beats  []Beat
	wrongs []string
}

type follow struct {
	path   string
	offset int64
	rest   []byte    // of a line whose end is yet to come
	began  time.Time // when that was seen
}

// FollowBeats begins to follow the logs, by the name of the host that each is on. They need not be there yet.
func FollowBeats(logs map[string]string) *Beats {
	b := &Beats{logs: map[string]*follow{}, stop: make(chan struct{}), done: make(chan struct{})}
	for host, path := range logs {
		b.logs[host] = &follow{path: path}
	}
	go func() {
		defer close(b.done)
		look := time.NewTicker(followEvery)
		defer look.Stop()
		for {
			select {
			case <-b.stop:
				return
			case now := <-look.C:
				for host, f := range b.logs {
					began := f.began
					b.take(host, f.more(now), now, began)
				}
			}
		}
	}()
	return b
}

// Close ends it. What was seen can still be asked for.
func (b *Beats) Close() {
	select {
	case <-b.stop:
	default:
		close(b.stop)
	}
	<-b.done
}

// more are the whole lines that were added since the last look.
func (f *follow) more(now time.Time) []string {
	info, err := os.Stat(f.path)
	if err != nil || info.Size() == f.offset {
		return nil
	}
	if info.Size() < f.offset { // made again
		f.offset, f.rest, f.began = 0, nil, time.Time{}
	}
	file, err := os.Open(f.path)
	if err != nil {
		return nil
	}
	defer file.Close()
	text := make([]byte, info.Size()-f.offset)
	n, _ := file.ReadAt(text, f.offset)
	f.offset += int64(n)
	if text = append(f.rest, text[:n]...); f.began.IsZero() {
		f.began = now
	}
	last := bytes.LastIndexByte(text, '\n')
	f.rest = bytes.Clone(text[last+1:])
	if last < 0 {
		return nil
	}
	if f.began = now; len(f.rest) == 0 {
		f.began = time.Time{}
	}
	return strings.Split(string(text[:last]), "\n")
}

// take lines in. The first of them may have begun earlier. A guest that leaves in the middle of a line ends it on
// another host, so what it writes once it is back does not continue that line.
func (b *Beats) take(host string, lines []string, now, began time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if n := len(b.beats); n > 0 && len(lines) > 0 && !began.IsZero() && b.beats[n-1].Host != host && b.beats[n-1].At.After(began) {
		lines = lines[1:]
	}
	for _, line := range lines {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "CORRUPT ") {
			b.wrongs = append(b.wrongs, fmt.Sprintf("on %s: %s", host, line))
		}
		beat, ok := parseBeat(line)
		if !ok {
			continue
		}
		beat.At, beat.Host = now, host
		if n := len(b.beats); n > 0 {
			last := b.beats[n-1]
			switch {
			case beat.Seq <= last.Seq && beat.Uptime >= last.Uptime/2:
				b.wrongs = append(b.wrongs, fmt.Sprintf("beat %d on %s after beat %d on %s: there are two", beat.Seq, host, last.Seq, last.Host))
			case beat.Seq <= last.Seq:
				b.wrongs = append(b.wrongs, fmt.Sprintf("beat %d on %s after beat %d on %s: it was booted again", beat.Seq, host, last.Seq, last.Host))
			}
		}
		b.beats = append(b.beats, beat)
	}
}

// parseBeat reads "BEAT SEQ uptime_ms=N ...".
func parseBeat(line string) (Beat, bool) {
	fields := strings.Fields(line)
	if len(fields) < 3 || fields[0] != "BEAT" {
		return Beat{}, false
	}
	seq, err := strconv.ParseInt(fields[1], 10, 64)
	ms, ok := strings.CutPrefix(fields[2], "uptime_ms=")
	up, err2 := strconv.ParseInt(ms, 10, 64)
	return Beat{Seq: seq, Uptime: time.Duration(up) * time.Millisecond}, err == nil && err2 == nil && ok
}

// Last is the latest beat; false while there is none.
func (b *Beats) Last() (Beat, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.beats) == 0 {
		return Beat{}, false
	}
	return b.beats[len(b.beats)-1], true
}

// Gap is the longest time between two beats of which the later was seen within that time.
func (b *Beats) Gap(from, to time.Time) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	var gap time.Duration
	for i := 1; i < len(b.beats); i++ {
		if at := b.beats[i].At; !at.Before(from) && !at.After(to) {
			gap = max(gap, at.Sub(b.beats[i-1].At))
		}
	}
	return gap
}

// Wrongs are beats that one guest, moved but never stopped, cannot have given, and errors that the guest itself found in
// its memory.
func (b *Beats) Wrongs() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return append([]string(nil), b.wrongs...)
}

// All beats so far, in the order in which they were seen.
func (b *Beats) All() []Beat {
	b.mu.Lock()
	defer b.mu.Unlock()
	return append([]Beat(nil), b.beats...)
}
