package node

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"

	"github.com/hashicorp/raft"

	"evenkeel/internal/statefile"
)

// bbolt ends the program, by a panic in a goroutine of its own or by a fault of its memory map, where it meets a damaged page.
// It passes over a damaged meta page: it takes the earlier one, and so forgets a vote or entries that this server has
// acknowledged. So the file's structure is checked before bbolt opens it.
//
// The format is that of bbolt's version 2 files, all numbers in the machine's byte order (little endian on all machines for
// which vcd is built).
const (
	boltMagic      = 0xED0CDAED
	boltVersion    = 2
	boltHeader     = 16 // bytes of a page before its elements: id, flags, count, overflow
	boltElement    = 16 // bytes of an element, of a leaf or a branch
	boltMetaSum    = 56 // bytes of a meta that its checksum is of
	boltBranch     = 0x01
	boltLeaf       = 0x02
	boltBucketFlag = 0x01
	boltInBucket   = 16 // bytes of a bucket in a leaf before its inline page: root, sequence
)

// boltFile is a file that is being checked.
type boltFile struct {
	from     io.ReaderAt
	pageSize uint64
	pages    uint64 // in use: ids are below
	seen     []bool // by id of the page
}

// checkBolt says what is wrong with the structure of a bbolt file of that size; nil: bbolt can open it and read all of it.
func checkBolt(from io.ReaderAt, size int64) error {
	f := boltFile{from: from}
	root, err := f.meta(size)
	if err != nil {
		return err
	}
	if f.pages < 3 || f.pages > uint64(size)/f.pageSize {
		return fmt.Errorf("it is cut: it has %d bytes, and %d pages of %d bytes are in use", size, f.pages, f.pageSize)
	}
	f.seen = make([]bool, f.pages)
	return f.walk(root, nil, nil)
}

// meta reads both meta pages and returns the root of the newer one. A meta is within one sector, which a disk writes whole or
// not at all: one that is not whole was damaged later.
func (f *boltFile) meta(size int64) (root uint64, err error) {
	var newest uint64
	sizes := []uint64{0}
	for i := range 2 {
		var m []byte
		var why error
		for _, pageSize := range sizes { // that of the first meta, or any
			at := uint64(i) * pageSize
			b := make([]byte, boltHeader+boltMetaSum+8)
			if _, why = f.from.ReadAt(b, int64(at)); why != nil {
				continue
			}
			sum := fnv.New64a()
			_, _ = sum.Write(b[boltHeader:][:boltMetaSum])
			if m = b[boltHeader:]; u32(m, 0) != boltMagic || u32(m, 4) != boltVersion || u64(m, boltMetaSum) != sum.Sum64() {
				m, why = nil, errors.New("its checksum is of other content")
				continue
			}
			break
		}
		if m == nil {
			return 0, fmt.Errorf("meta page %d: %w", i, why)
		}
		f.pageSize = uint64(u32(m, 8))
		if f.pageSize < 1024 || f.pageSize > 1<<24 || f.pageSize&(f.pageSize-1) != 0 || int64(f.pageSize) > size {
			return 0, fmt.Errorf("meta page %d: pages of %d bytes", i, f.pageSize)
		}
		sizes = []uint64{f.pageSize}
		if txid := u64(m, 48); i == 0 || txid > newest {
			newest, root, f.pages = txid, u64(m, 16), u64(m, 40)
		}
	}
	return root, nil
}

func u16(b []byte, at int) uint16 { return binary.LittleEndian.Uint16(b[at:]) }
func u32(b []byte, at int) uint32 { return binary.LittleEndian.Uint32(b[at:]) }
func u64(b []byte, at int) uint64 { return binary.LittleEndian.Uint64(b[at:]) }

// walk checks the tree below a page, whose keys must be from lowest on and before end; nil = no bound.
func (f *boltFile) walk(id uint64, lowest, end []byte) error {
	b, err := f.page(id)
	if err == nil {
		err = f.elements(b, lowest, end)
	}
	var below *pageError
	if err != nil && !errors.As(err, &below) {
		return &pageError{id, err}
	}
	return err
}

// pageError names the page that is damaged.
type pageError struct {
	id  uint64
	err error
}

func (e *pageError) Error() string { return fmt.Sprintf("page %d: %v", e.id, e.err) }

// page returns a page with its overflow pages.
func (f *boltFile) page(id uint64) ([]byte, error) {
	if id < 2 || id >= f.pages {
		return nil, fmt.Errorf("there is none of that number among %d", f.pages)
	}
	head := make([]byte, boltHeader)
	if _, err := f.from.ReadAt(head, int64(id*f.pageSize)); err != nil {
		return nil, err
	}
	more := uint64(u32(head, 12))
	if u64(head, 0) != id || more >= f.pages-id {
		return nil, fmt.Errorf("it says that it is page %d, and goes on for %d more of %d", u64(head, 0), more, f.pages)
	}
	for i := id; i <= id+more; i++ {
		if f.seen[i] {
			return nil, errors.New("it is referred to twice")
		}
		f.seen[i] = true
	}
	b := make([]byte, (more+1)*f.pageSize)
	_, err := f.from.ReadAt(b, int64(id*f.pageSize))
	return b, err
}

// elements checks the elements of a page.
func (f *boltFile) elements(b []byte, lowest, end []byte) error {
	flags, count := u16(b, 8), int(u16(b, 10))
	if flags != boltBranch && flags != boltLeaf || flags == boltBranch && count == 0 {
		return fmt.Errorf("it is of kind %#x, with %d elements", flags, count)
	}
	if boltHeader+count*boltElement > len(b) {
		return fmt.Errorf("%d elements do not fit into it", count)
	}
	keys, values := make([][]byte, count), make([][]byte, count)
	for i := range count {
		at := boltHeader + i*boltElement
		pos, keySize, valueSize := uint64(u32(b, at)), uint64(u32(b, at+4)), uint64(0)
		if flags == boltLeaf {
			pos, keySize, valueSize = uint64(u32(b, at+4)), uint64(u32(b, at+8)), uint64(u32(b, at+12))
		}
		from := uint64(at) + pos
		if from+keySize+valueSize > uint64(len(b)) || from < uint64(boltHeader+count*boltElement) {
			return fmt.Errorf("element %d is not within it", i)
		}
		keys[i], values[i] = b[from:from+keySize], b[from+keySize:from+keySize+valueSize]
		if i > 0 && bytes.Compare(keys[i-1], keys[i]) >= 0 || lowest != nil && bytes.Compare(keys[i], lowest) < 0 || end != nil && bytes.Compare(keys[i], end) >= 0 {
			return fmt.Errorf("key %d is out of order", i)
		}
	}
	for i := range count {
		at := boltHeader + i*boltElement
		var err error
		switch {
		case flags == boltBranch:
			next := end
			if i+1 < count {
				next = keys[i+1]
			}
			err = f.walk(u64(b, at+8), keys[i], next)
		case u32(b, at)&boltBucketFlag != 0:
			err = f.bucket(values[i])
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// bucket checks a bucket in a leaf: its pages, or the inline one.
func (f *boltFile) bucket(value []byte) error {
	if len(value) < boltInBucket {
		return fmt.Errorf("a bucket of %d bytes", len(value))
	}
	if root := u64(value, 0); root != 0 {
		return f.walk(root, nil, nil)
	}
	inline := value[boltInBucket:]
	if len(inline) < boltHeader || u16(inline, 8) != boltLeaf {
		return errors.New("a bucket that is not whole")
	}
	return f.elements(inline, nil, nil)
}

// checkDB checks the file of the log before it is opened. A file that is missing or empty is that of a new server.
func checkDB(path string) error {
	file, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer file.Close() //nolint:errcheck // it was read only
	if syscall.Flock(int(file.Fd()), syscall.LOCK_SH|syscall.LOCK_NB) != nil {
		return nil // another process has it open: opening it gives that error
	}
	info, err := file.Stat()
	if err != nil || info.Size() == 0 {
		return err
	}
	if err := checkBolt(file, info.Size()); err != nil {
		return &statefile.Damaged{Path: path, Err: err}
	}
	return nil
}

// checkLog reads the newest snapshot and the whole log. So damage is known before raft meets it, which could not go on then.
// Entries up to the snapshot may be missing, those after it may not.
func checkLog(d disk, snaps raft.SnapshotStore, dir string) error {
	path := filepath.Join(dir, "raft.db")
	list, err := snaps.List()
	if err != nil {
		return fmt.Errorf("list snapshots: %w", err)
	}
	snapshot := uint64(0)
	if len(list) > 0 {
		snapshot = list[0].Index
		_, in, err := snaps.Open(list[0].ID) // it compares the checksum
		if err != nil {
			return &statefile.Damaged{Path: filepath.Join(dir, "snapshots", list[0].ID), Err: err}
		}
		_ = in.Close() // it was read only
	}
	first, err := d.FirstIndex()
	last, err2 := d.LastIndex()
	if err = errors.Join(err, err2); err != nil {
		return &statefile.Damaged{Path: path, Err: err}
	}
	for i := first; i <= last && i > 0; i++ {
		var entry raft.Log
		err := d.GetLog(i, &entry)
		switch {
		case errors.Is(err, raft.ErrLogNotFound) && i <= snapshot:
			continue
		case err == nil && (entry.Index != i || !slices.Contains(entryTypes, entry.Type)):
			err = fmt.Errorf("it is entry %d of kind %d", entry.Index, entry.Type)
		}
		if err != nil {
			return &statefile.Damaged{Path: path, Err: fmt.Errorf("entry %d of the log: %w", i, err)}
		}
	}
	if first > snapshot+1 {
		return &statefile.Damaged{Path: filepath.Join(dir, "snapshots"), Err: fmt.Errorf("the newest whole snapshot ends with entry %d, and the log begins with entry %d", snapshot, first)}
	}
	return nil
}

// entryTypes are those of the entries of a log.
var entryTypes = []raft.LogType{raft.LogCommand, raft.LogNoop, raft.LogAddPeerDeprecated, raft.LogRemovePeerDeprecated, raft.LogBarrier, raft.LogConfiguration}
