package dfrs

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"io/fs"
	"os"
	"sync"
)

// State remembers replays that were done, so that a run that was ended can go on. It is a file of one JSON object a line.
// It is safe for concurrent use. The nil State remembers nothing.
type State struct {
	mu   sync.Mutex
	file *os.File
	done map[string]Outcome
}

// line of the file. What is replayed is distinguished by all that goes into it.
type line struct {
	Key     string
	Outcome Outcome
}

// OpenState reads what a file remembers, and makes it if it is not there. A last line that was cut off is dropped.
func OpenState(name string) (*State, error) {
	s := &State{done: map[string]Outcome{}}
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o644)
	if err != nil {
		return nil, err
	}
	whole := int64(0)
	r := bufio.NewReader(f)
	for {
		text, err := r.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			break
		}
		var l line
		if err == nil {
			err = json.Unmarshal(text, &l)
		}
		if err != nil {
			return nil, errors.Join(fmt.Errorf("%s, after byte %d: %w", name, whole, err), f.Close())
		}
		s.done[l.Key] = l.Outcome
		whole += int64(len(text))
	}
	if err := f.Truncate(whole); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	s.file = f
	return s, nil
}

// Close closes the file.
func (s *State) Close() error {
	if s == nil {
		return nil
	}
	if err := s.file.Close(); err != nil && !errors.Is(err, fs.ErrClosed) {
		return err
	}
	return nil
}

// key of a replay.
func key(in *Instance, e *Entry) string {
	h := fnv.New128a()
	fmt.Fprintf(h, "%+v %v %T%+v", in.Cluster, in.Jobs, e.Policy, e.Policy)
	return fmt.Sprintf("%x", h.Sum(nil))
}

func (s *State) get(key string) (o Outcome, ok bool) {
	if s == nil {
		return o, false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	o, ok = s.done[key]
	return o, ok
}

func (s *State) put(key string, o Outcome) error {
	if s == nil {
		return nil
	}
	text, err := json.Marshal(line{key, o})
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.done[key] = o
	if _, err := s.file.Write(append(text, '\n')); err != nil {
		return fmt.Errorf("remembering a replay: %w", err)
	}
	return nil
}
