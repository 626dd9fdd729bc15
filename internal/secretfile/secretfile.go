// Package secretfile reads files that hold tokens, keys and passwords, and refuses those that another user could have read or
// written. It also writes them, whole or not at all.
//
// It checks the file that it has open, never a path that could lead elsewhere a moment later. It never changes owners or
// modes of what is there, and its errors never hold what a file says.
package secretfile

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// ErrExposed: a user other than root and the user of this process can read, write or replace the file. The text says how.
var ErrExposed = errors.New("not safe as a secret")

// Rule is what a file must meet besides its owner.
type Rule struct {
	MaxBytes int64       // of the file
	OpenTo   fs.FileMode // rights of group and others that are fine, such as 0o040; none by default
}

// Read reads a secret. It refuses (ErrExposed) what is no regular file, belongs to neither root nor the user of this process,
// gives group or others rights that the rule does not allow, or can be replaced by another user: it is a link of theirs, or lies in a
// directory that they can write to, unless that is sticky.
func Read(path string, rule Rule) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0) // a pipe is an error below, not a hang
	if err != nil {
		return nil, err
	}
	defer f.Close() //nolint:errcheck // it was read only
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is not a regular file: %w", path, ErrExposed)
	}
	if err := check(path, info, rule.OpenTo); err != nil {
		return nil, err
	}
	content, err := io.ReadAll(io.LimitReader(f, rule.MaxBytes+1))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	if int64(len(content)) > rule.MaxBytes {
		return nil, fmt.Errorf("%s has more than %d bytes", path, rule.MaxBytes)
	}
	return content, nil
}

// Check says what Read would refuse a file for, without opening it: for warnings. Pipes, devices and files that are not there
// are nothing to warn of.
func Check(path string) error {
	info, err := os.Stat(path)
	if err != nil || !info.Mode().IsRegular() {
		return nil
	}
	return check(path, info, 0)
}

func check(path string, info fs.FileInfo, openTo fs.FileMode) error {
	around, err := surroundings(path)
	if err != nil {
		return err
	}
	seen := append([]entry{{path, info.Mode(), ownerOf(info)}}, around...)
	if why := fault(seen, openTo, reader{os.Geteuid(), os.Getegid()}); why != "" {
		return fmt.Errorf("%s: %w", why, ErrExposed)
	}
	return nil
}

// surroundings are what decides which file a path leads to: its directory and, where the path is a link, the link and the
// directory in which it ends.
func surroundings(path string) ([]entry, error) {
	paths := []string{filepath.Dir(path)}
	info, err := os.Lstat(path)
	if err != nil {
		return nil, err
	}
	if info.Mode()&fs.ModeSymlink != 0 {
		target, err := filepath.EvalSymlinks(path)
		if err != nil {
			return nil, err
		}
		paths = append(paths, path, filepath.Dir(target))
	}
	var out []entry
	for _, p := range paths {
		info, err := os.Lstat(p)
		if err == nil && info.Mode()&fs.ModeSymlink != 0 && p != path { // a directory that is itself a link
			info, err = os.Stat(p)
		}
		if err != nil {
			return nil, err
		}
		out = append(out, entry{p, info.Mode(), ownerOf(info)})
	}
	return out, nil
}

// entry of a directory: a file, a link or a directory.
type entry struct {
	path string
	mode fs.FileMode
	owner
}

// owner of a file; -1 is unknown and equals no user.
type owner struct{ uid, gid int }

func ownerOf(info fs.FileInfo) owner {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return owner{int(st.Uid), int(st.Gid)}
	}
	return owner{-1, -1}
}

// reader is the process that reads, by its effective ids.
type reader struct{ uid, gid int }

// trusts says whether what belongs to a user is no threat: root could read and write all files anyway.
func (r reader) trusts(uid int) bool { return uid == 0 || uid == r.uid }

// fault says how another user can read, write or replace the first entry, a regular file, given the directories and links that
// lead to it; "" = not at all.
func fault(seen []entry, openTo fs.FileMode, r reader) string {
	for i, e := range seen {
		mode := e.mode.Perm()
		switch {
		case i == 0 && mode&0o077&^openTo != 0:
			return fmt.Sprintf("%s has mode %04o, so others may have read or changed it: if none has, `chmod %o %s`", e.path, mode, mode&(0o700|openTo), e.path)
		case !r.trusts(e.uid) && e.mode.IsDir() && e.mode&fs.ModeSticky == 0:
			return fmt.Sprintf("directory %s belongs to user %d, who can replace what is in it: `chown %d %s` if it should not", e.path, e.uid, r.uid, e.path)
		case !r.trusts(e.uid) && !e.mode.IsDir():
			return fmt.Sprintf("%s belongs to user %d, not to root or user %d: if its content is right, `chown %d %s`", e.path, e.uid, r.uid, r.uid, e.path)
		case !e.mode.IsDir() || e.mode&fs.ModeSticky != 0:
		case mode&0o002 != 0, mode&0o020 != 0 && e.gid != r.gid && e.gid != 0:
			return fmt.Sprintf("directory %s has mode %04o, so others can replace what is in it: `chmod go-w %s`", e.path, mode, e.path)
		}
	}
	return ""
}
