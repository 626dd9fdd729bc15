package pki

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"evenkeel/internal/secretfile"
	"evenkeel/internal/statefile"
)

// maxFile is more than any certificate or key takes, bytes.
const maxFile = 1 << 20

// Files are where a member's certificate lies.
type Files struct {
	Cert string // the member's certificate, and those between it and the CA if there are any
	Key  string // its key, mode 0600
	CA   string // the CAs whose certificates are believed; several while one replaces another
}

// FilesIn is member.pem, member.key and ca.pem in a directory.
func FilesIn(dir string) Files {
	return Files{Cert: filepath.Join(dir, "member.pem"), Key: filepath.Join(dir, "member.key"), CA: filepath.Join(dir, "ca.pem")}
}

// Material is what the files hold, PEM.
type Material struct {
	Cert []byte
	Key  []byte
	CA   []byte
}

// Write puts a member's certificate, key and CAs in place of what was there. A crash in
// between leaves the old or the new: the new key waits beside the old one until the
// new certificate is there.
func (f Files) Write(m Material) error {
	if err := replaceFile(f.CA, m.CA, 0o644); err != nil {
		return err
	}
	if err := replaceFile(f.next(), m.Key, 0o600); err != nil {
		return err
	}
	if err := replaceFile(f.Cert, m.Cert, 0o644); err != nil {
		return err
	}
	return f.promote()
}

// next is the key of a certificate that is about to be written.
func (f Files) next() string { return f.Key + ".next" }

// promote puts the waiting key in the place of the old one.
func (f Files) promote() error {
	if err := os.Rename(f.next(), f.Key); err != nil {
		return fmt.Errorf("put a new key in place: %w", err)
	}
	if err := secretfile.SyncDir(filepath.Dir(f.Key)); err != nil {
		return fmt.Errorf("put a new key in place: %w", err)
	}
	return nil
}

// read reads the files; m is what was read, also with an error. waiting is a key that a crash left beside the one in place, nil
// if there is none.
func (f Files) read(openTo fs.FileMode) (m Material, waiting []byte, err error) {
	if m.Cert, err = readFile(f.Cert); err != nil {
		return Material{}, nil, err
	}
	if m.CA, err = readFile(f.CA); err != nil {
		return m, nil, err
	}
	m.Key, err = readKey(f.Key, openTo)
	missing := errors.Is(err, fs.ErrNotExist)
	if err != nil && !missing {
		return m, nil, err
	}
	waiting, nextErr := readKey(f.next(), openTo)
	if nextErr != nil && !errors.Is(nextErr, fs.ErrNotExist) {
		return m, nil, nextErr
	}
	if missing && waiting == nil {
		return m, nil, err
	}
	return m, waiting, nil
}

// damaged names the one of a member's files, of which m was read, that is at fault.
func (f Files) damaged(m Material, err error) error {
	d := &statefile.Damaged{Path: f.Cert, Err: err}
	if _, bad := ParseKey(m.Key); bad != nil {
		d.Path = f.Key
	}
	if _, bad := ParseCertificates(m.CA); bad != nil {
		d.Path, d.Way = f.CA, "all members have the same one: copy it from pki/ in another's data directory"
	}
	return d
}

// stamp changes when one of the files does.
func (f Files) stamp() (string, error) {
	var out string
	for _, name := range []string{f.Cert, f.Key, f.CA} {
		info, err := os.Stat(name)
		if err != nil {
			return "", fmt.Errorf("certificates: %w", err)
		}
		out += fmt.Sprintf("%d %s\n", info.Size(), info.ModTime().Format(time.RFC3339Nano))
	}
	return out, nil
}

func readFile(path string) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("certificates: %w", err)
	}
	if info.Size() > maxFile {
		return nil, fmt.Errorf("certificates: %s has more than %d bytes", path, maxFile)
	}
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("certificates: %w", err)
	}
	return content, nil
}

// readKey reads a file that only its owner may read or write; openTo are rights of others that are allowed.
func readKey(path string, openTo fs.FileMode) ([]byte, error) {
	content, err := secretfile.Read(path, secretfile.Rule{MaxBytes: maxFile, OpenTo: openTo})
	if err != nil {
		return nil, fmt.Errorf("certificates: key: %w", err)
	}
	return content, nil
}

// replaceFile replaces a file, whole or not at all, unless it has that content already.
func replaceFile(path string, content []byte, mode fs.FileMode) error {
	if old, err := os.ReadFile(path); err == nil && bytes.Equal(old, content) {
		if info, err := os.Stat(path); err == nil && info.Mode().Perm() == mode {
			return nil
		}
	}
	return secretfile.Write(path, content, mode)
}
