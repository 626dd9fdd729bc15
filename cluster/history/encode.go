package history

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math"
	"time"
)

// The binary form, little-endian:
//
//	"EKHIST" version(u16)
//	sections: tag(u8) length(u32) content
//	CRC-32C(u32) of all before it
//
// Tags below 0x80 are rings: step(u32, seconds) and for each slot of ascending index
//
//	index(u32) cpu cpuMax cap throttled memory memoryMax balloon (f32 each) nCPU nMem censored (u16 each)
//
// Tags from 0x80 on belong to the program that keeps the history, and are given back unchanged. A reader skips sections that it
// does not know, so that members one version apart understand each other; version is raised when that is not enough.
const (
	magic   = "EKHIST"
	version = 1

	headerSize  = len(magic) + 2
	sectionHead = 5
	slotSize    = 4 + 7*4 + 3*2

	// MaxNote is the most bytes of one note, MaxEncoded of a whole encoded history.
	MaxNote    = 64 << 10
	maxNotes   = 8
	MaxEncoded = headerSize + (sectionHead+4)*int(resolutions) + (360+360+576+720)*slotSize + maxNotes*(sectionHead+MaxNote) + 4
	firstNote  = 0x80
)

// ErrEncoding says that the bytes are no history, or not one of a known version.
var ErrEncoding = errors.New("not an encoded history")

// ErrDamaged says that the bytes were a history of this version, and the checksum is wrong. It is an ErrEncoding.
var ErrDamaged = fmt.Errorf("%w: the checksum is wrong", ErrEncoding)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Notes are bytes that travel with a history, each under a number from 0 to 7 that the caller chooses.
type Notes map[byte][]byte

// Encode encodes a history and notes; it leaves out notes that are too large.
func Encode(h *History, notes Notes) []byte {
	out := make([]byte, 0, headerSize+h.encodedSize()+1<<10)
	out = append(out, magic...)
	out = binary.LittleEndian.AppendUint16(out, version)
	for res := range resolutions {
		r := &h.rings[res]
		from := r.from(res)
		if from == r.len() {
			continue
		}
		out = append(out, byte(res))
		out = binary.LittleEndian.AppendUint32(out, uint32(4+(r.len()-from)*slotSize)) //nolint:gosec // bounded
		out = binary.LittleEndian.AppendUint32(out, uint32(tiers[res].step/time.Second))
		for i := from; i < r.len(); i++ {
			s := r.at(i)
			out = binary.LittleEndian.AppendUint32(out, s.index)
			for _, v := range [...]float32{s.cpu, s.cpuMax, s.cap, s.throttled, s.memory, s.memoryMax, s.balloon} {
				out = binary.LittleEndian.AppendUint32(out, bits(v))
			}
			for _, v := range [...]uint16{s.nCPU, s.nMem, s.censored} {
				out = binary.LittleEndian.AppendUint16(out, v)
			}
		}
	}
	for n := range byte(maxNotes) {
		note, is := notes[n]
		if !is || len(note) > MaxNote {
			continue
		}
		out = append(out, firstNote+n)
		out = binary.LittleEndian.AppendUint32(out, uint32(len(note))) //nolint:gosec // bounded
		out = append(out, note...)
	}
	return binary.LittleEndian.AppendUint32(out, crc32.Checksum(out, castagnoli))
}

func (h *History) encodedSize() int {
	n := 4
	for res := range resolutions {
		n += sectionHead + 4 + h.rings[res].len()*slotSize
	}
	return n
}

// bits returns the bits of a float; all NaNs give the same.
func bits(v float32) uint32 {
	if v != v {
		return 0x7fc00000
	}
	return math.Float32bits(v)
}

// Decode decodes a history. The result is sound whatever the bytes are: figures are finite or NaN, times ascend, and it takes
// at most MaxBytes, notes apart.
func Decode(data []byte) (*History, Notes, error) {
	fail := func(format string, args ...any) (*History, Notes, error) {
		return nil, nil, fmt.Errorf("%w: %s", ErrEncoding, fmt.Sprintf(format, args...))
	}
	switch {
	case len(data) > MaxEncoded:
		return fail("%d bytes, and at most %d are one", len(data), MaxEncoded)
	case len(data) < headerSize+4 || string(data[:len(magic)]) != magic:
		return fail("it begins otherwise")
	}
	if v := binary.LittleEndian.Uint16(data[len(magic):]); v != version {
		return fail("version %d, and %d is known", v, version)
	}
	body, check := data[:len(data)-4], binary.LittleEndian.Uint32(data[len(data)-4:])
	if crc32.Checksum(body, castagnoli) != check {
		return nil, nil, ErrDamaged
	}
	h, notes := &History{}, Notes{}
	tag := -1
	for rest := body[headerSize:]; len(rest) > 0; {
		if len(rest) < sectionHead {
			return fail("a section is cut off")
		}
		n := binary.LittleEndian.Uint32(rest[1:])
		if int(rest[0]) <= tag || uint64(n) > uint64(len(rest)-sectionHead) {
			return fail("section %d is out of order, or longer than there is", rest[0])
		}
		tag = int(rest[0])
		content := rest[sectionHead : sectionHead+int(n)]
		rest = rest[sectionHead+int(n):]
		switch {
		case tag < int(resolutions):
			if err := h.rings[tag].decode(content, Resolution(tag)); err != nil {
				return fail("section %d: %v", tag, err)
			}
		case tag >= firstNote && tag < firstNote+maxNotes:
			if len(content) > MaxNote {
				return fail("note %d has %d bytes", tag-firstNote, len(content))
			}
			notes[byte(tag-firstNote)] = append([]byte(nil), content...) //nolint:gosec // below 8
		}
	}
	return h, notes, nil
}

func (r *ring) decode(data []byte, res Resolution) error {
	if len(data) < 4 || (len(data)-4)%slotSize != 0 {
		return fmt.Errorf("%d bytes are no ring", len(data))
	}
	if step := time.Duration(binary.LittleEndian.Uint32(data)) * time.Second; step != tiers[res].step {
		return fmt.Errorf("buckets of %v, not of %v", step, tiers[res].step)
	}
	data = data[4:]
	n := len(data) / slotSize
	if n > tiers[res].n {
		return fmt.Errorf("%d buckets, and at most %d are kept", n, tiers[res].n)
	}
	r.slots = make([]slot, n)
	per := tiers[res].step / RawStep
	for i := range r.slots {
		s := &r.slots[i]
		at := data[i*slotSize:]
		s.index = binary.LittleEndian.Uint32(at)
		for k, v := range [...]*float32{&s.cpu, &s.cpuMax, &s.cap, &s.throttled, &s.memory, &s.memoryMax, &s.balloon} {
			*v = math.Float32frombits(binary.LittleEndian.Uint32(at[4+4*k:]))
			if *v < 0 || *v > math.MaxFloat32 {
				return fmt.Errorf("bucket %d has a figure of %v", i, *v)
			}
		}
		for k, v := range [...]*uint16{&s.nCPU, &s.nMem, &s.censored} {
			*v = binary.LittleEndian.Uint16(at[32+2*k:])
		}
		switch {
		case i > 0 && s.index <= r.slots[i-1].index:
			return fmt.Errorf("bucket %d is not later than the one before", i)
		case s.index == math.MaxUint32 || i > 0 && s.index-r.slots[0].index >= uint32(tiers[res].n): //nolint:gosec // a small constant
			return fmt.Errorf("bucket %d is out of the time that is kept", i)
		case s.nCPU == 0 && s.nMem == 0 || time.Duration(max(s.nCPU, s.nMem)) > per || s.censored > s.nCPU:
			return fmt.Errorf("bucket %d has %d and %d samples, %d of them censored", i, s.nCPU, s.nMem, s.censored)
		case (s.nCPU > 0) != (s.cpu == s.cpu && s.cpuMax >= s.cpu) || (s.nMem > 0) != (s.memory == s.memory && s.memoryMax >= s.memory):
			return fmt.Errorf("bucket %d has samples and no figures, or figures and no samples", i)
		case s.cap != s.cap || s.throttled > 1:
			return fmt.Errorf("bucket %d has a cap or throttled time that cannot be", i)
		}
	}
	return nil
}
