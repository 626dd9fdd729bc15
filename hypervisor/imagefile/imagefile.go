// Package imagefile checks a file that is to enter the image catalogue: whether it
// exists, has the format that was stated, and refers to no other file.
//
// It reads headers only, never writes, and never follows what a header points to. A
// qcow2 image that names a backing or data file is refused: a user who may add images
// could otherwise read any file of the host through a guest.
package imagefile

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
)

// Kind of file, as package state names them.
const (
	Disk   = "disk"
	Kernel = "kernel"
	Initrd = "initrd"
)

// ErrNot: the file has not the format that was stated. The text says what is wrong with it.
var ErrNot = errors.New("not a usable image")

// Info is what a file says of itself, in bytes.
type Info struct {
	Size     int64 // of the file
	DiskSize int64 // of the disk that a guest sees; 0 = the file is no disk
}

// Check the file at path and return its sizes.
func Check(path, kind string) (Info, error) {
	info, err := os.Stat(path)
	if err != nil {
		return Info{}, fmt.Errorf("look at image file: %w", err)
	}
	if !info.Mode().IsRegular() || info.Size() == 0 {
		return Info{}, fmt.Errorf("image file %s is empty or no regular file: %w", path, ErrNot)
	}
	f, err := os.Open(path)
	if err != nil {
		return Info{}, fmt.Errorf("open image file: %w", err)
	}
	defer f.Close()
	head := make([]byte, 1024)
	n, err := io.ReadFull(f, head)
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
		return Info{}, fmt.Errorf("read image file %s: %w", path, err)
	}
	if err := checkHead(head[:n], kind); err != nil {
		return Info{}, fmt.Errorf("image file %s: %w", path, err)
	}
	out := Info{Size: info.Size()}
	if kind == Disk {
		out.DiskSize = int64(binary.BigEndian.Uint64(head[qcowSize:])) // checkQcow2 has seen to its range
	}
	return out, nil
}

// CheckOwnData refuses a qcow2 image whose header names an external data file, which QEMU would open. What the header
// says of a backing file does not matter here: the caller names the backing file itself.
func CheckOwnData(path string) error {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0) // does not wait at a pipe
	if err != nil {
		return fmt.Errorf("open image file: %w", err)
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil {
		return fmt.Errorf("look at image file: %w", err)
	} else if !info.Mode().IsRegular() {
		return fmt.Errorf("image file %s is no regular file: %w", path, ErrNot)
	}
	head := make([]byte, qcowHeader3)
	n, err := io.ReadFull(f, head)
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, io.EOF) {
		return fmt.Errorf("read image file %s: %w", path, err)
	}
	if err := checkData(head[:n]); err != nil {
		return fmt.Errorf("image file %s: %w", path, err)
	}
	return nil
}

// checkHead of a file of that kind.
func checkHead(head []byte, kind string) error {
	switch kind {
	case Disk:
		return checkQcow2(head)
	case Kernel:
		// "HdrS" at 0x202: Linux x86 boot protocol.
		if len(head) < 0x206 || string(head[0x202:0x206]) != "HdrS" {
			return fmt.Errorf("is no Linux kernel (bzImage): %w", ErrNot)
		}
	case Initrd:
		// gzip, xz, zstd, lz4 (legacy), bzip2, or a bare cpio archive.
		for _, magic := range []string{"\x1f\x8b", "\xfd7zXZ\x00", "\x28\xb5\x2f\xfd", "\x02\x21\x4c\x18", "BZh", "070701", "070702"} {
			if len(head) >= len(magic) && string(head[:len(magic)]) == magic {
				return nil
			}
		}
		return fmt.Errorf("is no initrd (a cpio archive, plain or compressed): %w", ErrNot)
	default:
		return fmt.Errorf("unknown kind %q: %w", kind, ErrNot)
	}
	return nil
}

// Fields of a qcow2 header, by QEMU's docs/interop/qcow2.txt.
const (
	qcowMagic        = "QFI\xfb"
	qcowBackingOff   = 8  // u64: offset of the backing file's name, 0 = none
	qcowSize         = 24 // u64: bytes of the disk
	qcowCrypt        = 32 // u32: 0 = none
	qcowIncompatible = 72 // u64, version 3: bit 2 = external data file
	qcowHeader2      = 72
	qcowHeader3      = 104
)

// maxDisk is more than QEMU's own limit for any size of cluster.
const maxDisk = 1 << 62

func checkQcow2(head []byte) error {
	if len(head) < qcowHeader2 || string(head[:4]) != qcowMagic {
		return fmt.Errorf("is no qcow2 image (convert it: qemu-img convert -O qcow2): %w", ErrNot)
	}
	if err := checkData(head); err != nil {
		return err
	}
	if binary.BigEndian.Uint64(head[qcowBackingOff:]) != 0 {
		return fmt.Errorf("has a backing file; flatten it first (qemu-img convert -O qcow2): %w", ErrNot)
	}
	if size := binary.BigEndian.Uint64(head[qcowSize:]); size == 0 || size > maxDisk {
		return fmt.Errorf("is a disk of %d bytes: %w", size, ErrNot)
	}
	if binary.BigEndian.Uint32(head[qcowCrypt:]) != 0 {
		return fmt.Errorf("is encrypted: %w", ErrNot)
	}
	return nil
}

// checkData refuses a qcow2 header whose image keeps its data in another file.
func checkData(head []byte) error {
	if len(head) < qcowHeader2 || string(head[:4]) != qcowMagic {
		return fmt.Errorf("is no qcow2 image: %w", ErrNot)
	}
	switch version := binary.BigEndian.Uint32(head[4:]); version {
	case 2:
		return nil
	case 3:
		if len(head) < qcowHeader3 {
			return fmt.Errorf("ends within its header: %w", ErrNot)
		}
		if binary.BigEndian.Uint64(head[qcowIncompatible:])&4 != 0 {
			return fmt.Errorf("keeps its data in another file; flatten it first (qemu-img convert -O qcow2): %w", ErrNot)
		}
		return nil
	default:
		return fmt.Errorf("is qcow2 version %d, only 2 and 3 are known: %w", version, ErrNot)
	}
}
