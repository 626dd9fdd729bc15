// Package statefile keeps small files that a program must find whole when it is started again. Each has a checksum and a second
// copy beside it (NAME.copy), and is written whole or not at all.
//
// Write returns once both copies are on the disk, the file before its copy. Read prefers the file, falls back to the copy, and
// makes the two equal before it returns, or removes the one that is not. So whatever Read returned, or was in a Write that returned, is in both copies: one
// damaged copy loses nothing that was acted on, and none of the two is an older version in that sense.
package statefile

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"evenkeel/internal/secretfile"
)

// Damaged is the error of a file that cannot be read, nor its copy.
type Damaged struct {
	Path string
	Err  error
	// Way out of it: what an operator does; "" = the caller adds it.
	Way string
}

// Error implements error.
func (d *Damaged) Error() string {
	text := fmt.Sprintf("%s is damaged: %v", d.Path, d.Err)
	if d.Way != "" {
		text += "; " + d.Way
	}
	return text
}

// Unwrap implements the errors package's interface.
func (d *Damaged) Unwrap() error { return d.Err }

// maxBytes bounds what is read.
const maxBytes = 64 << 20

// copyOf a file is beside it.
func copyOf(path string) string { return path + ".copy" }

// Read decodes a file, or its copy where the file is damaged or missing; fallback says why the copy was needed, nil if it was not.
// decode must refuse what is no content of the file. A file that an operator wrote has no checksum. The error wraps fs.ErrNotExist
// where neither is there, and is a *Damaged where neither can be read.
func Read(path string, decode func([]byte) error) (fallback, err error) {
	content, plain, mainErr := load(path, decode)
	if mainErr == nil {
		second, _, err := load(copyOf(path), func([]byte) error { return nil })
		if err == nil && bytes.Equal(second, content) && !plain {
			return nil, nil
		}
		if writeOne(copyOf(path), content) == nil {
			return nil, nil
		}
		// There is no room for it, perhaps. A copy that may be older must not be read in the place of what is read now.
		if err := os.Remove(copyOf(path)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		return nil, nil
	}
	content, _, copyErr := load(copyOf(path), decode)
	switch {
	case copyErr == nil:
		return errors.Join(mainErr, writeOne(path, content)), nil // the copy is as good, if it must be
	case errors.Is(mainErr, fs.ErrNotExist) && errors.Is(copyErr, fs.ErrNotExist):
		return nil, mainErr
	case errors.Is(copyErr, fs.ErrNotExist):
		return nil, &Damaged{Path: path, Err: mainErr}
	}
	return nil, &Damaged{Path: path, Err: fmt.Errorf("%w; its copy: %w", mainErr, copyErr)}
}

// load one of the two. plain: it has no checksum.
func load(path string, decode func([]byte) error) (content []byte, plain bool, err error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, false, err
	}
	if info.Size() > maxBytes {
		return nil, false, fmt.Errorf("it has more than %d bytes", maxBytes)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, false, err
	}
	content, plain, err = unseal(b)
	if err == nil {
		err = decode(content)
	}
	return content, plain, err
}

// mark begins the last line of a file, before the checksum of all that comes before that line.
const mark = "# sha256 "

func seal(content []byte) []byte {
	out := bytes.Clone(content)
	if !bytes.HasSuffix(out, []byte("\n")) {
		out = append(out, '\n')
	}
	sum := sha256.Sum256(out)
	return fmt.Appendf(out, "%s%s\n", mark, hex.EncodeToString(sum[:]))
}

// unseal the content of a file. plain: it has no line with a checksum, and decoding it must do.
func unseal(b []byte) (content []byte, plain bool, err error) {
	if len(b) == 0 {
		return nil, false, errors.New("it is empty")
	}
	at := bytes.LastIndex(b, []byte("\n"+mark))
	if at < 0 {
		return b, true, nil
	}
	content = b[:at+1]
	sum := sha256.Sum256(content)
	if string(b[at+1:]) != mark+hex.EncodeToString(sum[:])+"\n" {
		return nil, false, errors.New("its checksum is of other content")
	}
	return content, false, nil
}

// Write puts content in the place of what was there, in both copies. The directory must be there.
func Write(path string, content []byte) error {
	if err := writeOne(path, content); err != nil {
		return err
	}
	return writeOne(copyOf(path), content)
}

func writeOne(path string, content []byte) error {
	return secretfile.Write(path, seal(content), 0o600)
}

// WriteIn is Write that makes the directory if it is not there.
func WriteIn(path string, content []byte) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	return Write(path, content)
}
