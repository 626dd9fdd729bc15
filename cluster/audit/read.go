package audit

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"syscall"
	"time"
)

// Answer is the answer to a query.
type Answer struct {
	Server string   `json:"server,omitempty"` // the server whose log it is from; "" = of several
	Items  []Record `json:"items"`            // newest last
	// Missing servers, and why they are: "s2: not reachable".
	Missing []string `json:"missing,omitempty"`
	// Damaged lines were passed over.
	Damaged int `json:"damaged,omitempty"`
	// Cut: there are more records that match, and fewer than the limit were taken, because of their size.
	Cut bool `json:"cut,omitempty"`
}

const (
	chunk = 64 << 10
	// maxAnswer bounds the lines of one answer, bytes: it fits into the 16 MiB that another server reads of it.
	maxAnswer = 12 << 20
	// clockSlack is how far a server's clock may have been set back without hiding records from a query.
	clockSlack = time.Hour
)

// Query answers with the newest records that match. It reads the files from their ends, and keeps no more of them than
// it answers with. The files are opened at the same time, so that a rotation meanwhile neither hides nor repeats records.
func (l *Log) Query(ctx context.Context, f Filter) (Answer, error) {
	if l == nil {
		return Answer{Items: []Record{}}, nil
	}
	out := Answer{Server: l.o.Server, Items: []Record{}}
	select {
	case l.queries <- struct{}{}:
		defer func() { <-l.queries }()
	case <-ctx.Done():
		return out, fmt.Errorf("read the audit log: %w", ctx.Err())
	}
	l.mu.Lock()
	files, err := l.files()
	l.mu.Unlock()
	if err != nil {
		return out, fmt.Errorf("read the audit log: %w", err)
	}
	defer closeAll(files)
	size, more := 0, true
	for _, file := range files {
		if !more {
			break
		}
		err := backwards(file, func(line []byte) bool {
			var r Record
			if len(line) == 0 || json.Unmarshal(line, &r) != nil || r.Seq == 0 {
				out.Damaged++
				more = ctx.Err() == nil
				return more
			}
			r = r.bounded() // the file may have been written by another program
			if f.Match(r) {
				if size += len(line); size > maxAnswer {
					out.Cut, more = true, false
					return false
				}
				out.Items = append(out.Items, r)
			}
			more = len(out.Items) < f.limit() && ctx.Err() == nil && (f.Since.IsZero() || !r.At.Before(f.Since.Add(-clockSlack)))
			return more
		})
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return out, fmt.Errorf("read the audit log: %s: %w", file.Name(), err)
		}
	}
	slices.Reverse(out.Items)
	return out, nil
}

// files opens the files of the log, the newest first. It leaves out those that do not exist.
func (l *Log) files() ([]*os.File, error) {
	var out []*os.File
	for n := range l.o.Files {
		name := l.o.Path
		if n > 0 {
			name += "." + strconv.Itoa(n)
		}
		f, err := os.OpenFile(name, os.O_RDONLY|syscall.O_NOFOLLOW, 0)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			closeAll(out)
			return nil, err
		}
		out = append(out, f)
	}
	return out, nil
}

func closeAll(files []*os.File) {
	for _, f := range files {
		_ = f.Close() // it was only read
	}
}

// backwards calls with for each line of a file as it is now, the last one first, until with returns false. A line that has more
// than maxLine bytes, or no end, is given as an empty one.
func backwards(f *os.File, with func(line []byte) bool) error {
	info, err := f.Stat()
	if err != nil {
		return err
	}
	at := info.Size()
	var rest []byte // the end of a line whose beginning lies in the next chunk to read
	ended, long := false, false
	buf := make([]byte, chunk)
	give := func(line []byte) bool {
		line = append(slices.Clone(line), rest...)
		whole := ended && !long && len(line) <= maxLine
		rest, ended, long = rest[:0], true, false
		if !whole {
			line = nil
		}
		return with(line)
	}
	first := true // nothing was read yet: the file's last byte ends the last line
	for at > 0 {
		n := min(int64(len(buf)), at)
		at -= n
		if _, err := f.ReadAt(buf[:n], at); err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		b := buf[:n]
		for {
			i := bytes.LastIndexByte(b, '\n')
			if i < 0 {
				break
			}
			if first && i == len(b)-1 && len(rest) == 0 {
				ended = true
			} else if !give(b[i+1:]) {
				return nil
			}
			first = false
			b = b[:i]
		}
		first = false
		if long = long || len(b)+len(rest) > maxLine; long {
			rest = rest[:0]
		} else {
			rest = append(slices.Clone(b), rest...)
		}
	}
	if info.Size() > 0 {
		give(nil)
	}
	return nil
}

// Notes say what is missing in an answer, and why.
func (a Answer) Notes() []string {
	out := slices.Clone(a.Missing)
	if a.Damaged > 0 {
		out = append(out, fmt.Sprintf("%s: %d lines of its log are damaged", a.Server, a.Damaged))
	}
	if a.Cut {
		out = append(out, a.Server+": there are more records than fit into an answer; ask for a shorter time")
	}
	return out
}

// Merge merges the answers of several servers by time into one, with the newest records up to the filter's limit.
func Merge(answers []Answer, f Filter) Answer {
	out := Answer{Items: []Record{}}
	for _, a := range answers {
		out.Items = append(out.Items, a.Items...)
		out.Missing = append(out.Missing, a.Notes()...)
	}
	slices.SortFunc(out.Items, func(a, b Record) int {
		return cmp.Or(a.At.Compare(b.At), cmp.Compare(a.Server, b.Server), cmp.Compare(a.Seq, b.Seq))
	})
	out.Items = out.Items[max(0, len(out.Items)-f.limit()):]
	slices.Sort(out.Missing)
	return out
}
