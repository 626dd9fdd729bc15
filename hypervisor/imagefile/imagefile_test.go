package imagefile

import (
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// qcow2 header of version 3 with one field changed.
func qcow2(change func(head []byte)) []byte {
	head := make([]byte, 512)
	copy(head, qcowMagic)
	binary.BigEndian.PutUint32(head[4:], 3)
	binary.BigEndian.PutUint32(head[20:], 16)
	binary.BigEndian.PutUint64(head[qcowSize:], 3<<30)
	if change != nil {
		change(head)
	}
	return head
}

func TestCheck(t *testing.T) {
	kernel := make([]byte, 0x210)
	copy(kernel[0x202:], "HdrS")
	for _, c := range []struct {
		name, kind string
		content    []byte
		good       bool
	}{
		{"qcow2", Disk, qcow2(nil), true},
		{"version 2", Disk, qcow2(func(h []byte) { h[7] = 2 }), true},
		{"version 9", Disk, qcow2(func(h []byte) { h[7] = 9 }), false},
		{"backing file", Disk, qcow2(func(h []byte) { h[qcowBackingOff+7] = 104 }), false},
		{"disk of no size", Disk, qcow2(func(h []byte) { copy(h[qcowSize:], make([]byte, 8)) }), false},
		{"disk of 2^63 bytes", Disk, qcow2(func(h []byte) { h[qcowSize] = 0x80 }), false},
		{"encrypted", Disk, qcow2(func(h []byte) { h[qcowCrypt+3] = 2 }), false},
		{"data file", Disk, qcow2(func(h []byte) { h[qcowIncompatible+7] = 4 }), false},
		{"short header", Disk, qcow2(nil)[:80], false},
		{"raw disk", Disk, make([]byte, 512), false},
		{"kernel", Kernel, kernel, true},
		{"text as kernel", Kernel, []byte("#!/bin/sh\n"), false},
		{"gzip initrd", Initrd, []byte("\x1f\x8b\x08\x00rest"), true},
		{"kernel as initrd", Initrd, kernel, false},
		{"empty", Initrd, nil, false},
		{"unknown kind", "iso", qcow2(nil), false},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "image")
			if err := os.WriteFile(path, c.content, 0o600); err != nil {
				t.Fatal(err)
			}
			info, err := Check(path, c.kind)
			want := Info{Size: int64(len(c.content))}
			if c.kind == Disk {
				want.DiskSize = 3 << 30
			}
			if c.good && (err != nil || info != want) {
				t.Errorf("%+v, %v; want it accepted as %+v", info, err, want)
			}
			if !c.good && !errors.Is(err, ErrNot) {
				t.Errorf("got %v, want it refused", err)
			}
		})
	}
	if _, err := Check(t.TempDir(), Disk); !errors.Is(err, ErrNot) {
		t.Errorf("a folder: %v", err)
	}
	if _, err := Check(filepath.Join(t.TempDir(), "none"), Disk); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
}

func FuzzHead(f *testing.F) {
	f.Add(qcow2(nil), Disk)
	f.Add([]byte("070701"), Initrd)
	f.Fuzz(func(_ *testing.T, head []byte, kind string) { _ = checkHead(head, kind) })
}

func TestCheckOwnData(t *testing.T) {
	for _, c := range []struct {
		name    string
		content []byte
		good    bool
	}{
		{"empty disk", qcow2(nil), true},
		{"overlay", qcow2(func(h []byte) { h[qcowBackingOff+7] = 104 }), true},
		{"version 2", qcow2(func(h []byte) { h[7] = 2 }), true},
		{"version 4", qcow2(func(h []byte) { h[7] = 4 }), false},
		{"data file", qcow2(func(h []byte) { h[qcowIncompatible+7] = 4 }), false},
		{"data file of an overlay", qcow2(func(h []byte) { h[qcowBackingOff+7], h[qcowIncompatible+7] = 104, 5 }), false},
		{"short header", qcow2(nil)[:qcowHeader3-1], false},
		{"raw", make([]byte, 512), false},
		{"no bytes", nil, false},
	} {
		path := filepath.Join(t.TempDir(), "disk")
		if err := os.WriteFile(path, c.content, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := CheckOwnData(path); c.good != (err == nil) || !c.good && !errors.Is(err, ErrNot) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := CheckOwnData(pipe); !errors.Is(err, ErrNot) {
		t.Errorf("a pipe: %v", err)
	}
}
