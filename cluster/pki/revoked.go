package pki

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"evenkeel/internal/statefile"
)

// Revocation is a certificate that was revoked before it expired.
type Revocation struct {
	Serial string    `json:"serial"` // as SerialOf gives it
	Until  time.Time `json:"until"`  // when the certificate ends by itself
}

// RevokedFile is a list of revoked certificates, kept in a file, for a member that may be started where it can ask no server
// that knows them. It only grows, until the certificates on it have expired by themselves: an attacker who could take from it
// could make a stolen certificate good again. It is safe for concurrent use.
type RevokedFile struct {
	path string

	writing sync.Mutex
	list    []Revocation // by serial; under writing
	serials atomic.Pointer[map[string]bool]
}

// OpenRevoked reads the list in a file. A file that does not exist is an empty list. One that cannot be read is an error:
// without it all members that were shut out would be let in.
func OpenRevoked(path string) (*RevokedFile, error) {
	f := &RevokedFile{path: path}
	f.replace(nil)
	var list []Revocation
	_, err := statefile.Read(path, func(b []byte) error {
		list = nil
		return json.Unmarshal(b, &list)
	})
	if damaged := new(statefile.Damaged); errors.As(err, &damaged) {
		damaged.Way = fmt.Sprintf("remove it and its copy, and the cluster sends the list again: rm -f %s %s.copy", path, path)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("certificates that count no more: %w", err)
	}
	f.replace(list)
	return f, nil
}

// replace replaces the list from now on.
func (f *RevokedFile) replace(list []Revocation) {
	f.list = list
	serials := make(map[string]bool, len(list))
	for _, r := range list {
		serials[r.Serial] = true
	}
	f.serials.Store(&serials)
}

// Has says whether the certificate of that serial is on the list.
func (f *RevokedFile) Has(serial string) bool { return (*f.serials.Load())[serial] }

// Add adds what is not on the list yet. news: there was something; it is in force from now on, also if an error says that it
// could not be written. Certificates that have expired are dropped.
func (f *RevokedFile) Add(more []Revocation, now time.Time) (news bool, err error) {
	f.writing.Lock()
	defer f.writing.Unlock()
	list := slices.Clone(f.list)
	for _, r := range more {
		if !f.Has(r.Serial) && now.Before(r.Until) && r.Serial != "" {
			list = append(list, r)
			news = true
		}
	}
	if !news {
		return false, nil
	}
	list = slices.DeleteFunc(list, func(r Revocation) bool { return !now.Before(r.Until) })
	slices.SortFunc(list, func(a, b Revocation) int { return strings.Compare(a.Serial, b.Serial) })
	list = slices.CompactFunc(list, func(a, b Revocation) bool { return a.Serial == b.Serial })
	f.replace(list)
	b, err := json.Marshal(list)
	if err != nil {
		return true, fmt.Errorf("certificates that count no more: %w", err)
	}
	if len(b) > maxFile {
		return true, fmt.Errorf("certificates that count no more: the list of %d is too long to be kept", len(list))
	}
	if err := statefile.Write(f.path, b); err != nil {
		return true, fmt.Errorf("certificates that count no more: %w", err)
	}
	return true, nil
}
