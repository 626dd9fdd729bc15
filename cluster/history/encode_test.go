package history

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestEncoding(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h := historyOf(drawn(t))
		notes := Notes{0: {}, 7: rapid.SliceOfN(rapid.Byte(), 0, 100).Draw(t, "note")}
		data := Encode(h, notes)
		back, got, err := Decode(data)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(Encode(back, got), data) || len(got) != 2 || !bytes.Equal(got[7], notes[7]) {
			t.Fatalf("decoded it is another: notes %v", got)
		}
		for res := range resolutions {
			if diff := same(back.Buckets(res, time.Time{}), h.Buckets(res, time.Time{})); diff != "" {
				t.Fatal(diff)
			}
		}
		// One byte that is wrong is found.
		at := rapid.IntRange(0, len(data)-1).Draw(t, "damaged")
		data[at] ^= 1 + rapid.Byte().Draw(t, "by")%255
		if _, _, err := Decode(data); !errors.Is(err, ErrEncoding) {
			t.Fatalf("damaged at %d of %d: %v", at, len(data), err)
		}
	})
}

// sealed puts the checksum behind a body.
func sealed(body []byte) []byte {
	return binary.LittleEndian.AppendUint32(body, crc32.Checksum(body, castagnoli))
}

func TestLaterSectionsAreSkipped(t *testing.T) {
	data := Encode(historyOf([]Sample{plain(0, 1, 2)}), nil)
	body := append(data[:len(data)-4:len(data)-4], 0x20, 3, 0, 0, 0, 'n', 'e', 'w')
	h, _, err := Decode(sealed(body))
	if err != nil || len(h.Buckets(Raw, time.Time{})) != 1 {
		t.Errorf("%v", err)
	}
	body[6] = 2
	if _, _, err := Decode(sealed(body)); !errors.Is(err, ErrEncoding) {
		t.Errorf("a later version: %v", err)
	}
}

func TestNotesHaveABound(t *testing.T) {
	h := &History{}
	notes := Notes{}
	for i := range byte(10) {
		notes[i] = make([]byte, MaxNote)
	}
	notes[3] = make([]byte, MaxNote+1)
	_, got, err := Decode(Encode(h, notes))
	if err != nil || len(got) != 7 || got[3] != nil {
		t.Errorf("%d notes, %v", len(got), err)
	}
	if _, _, err := Decode(make([]byte, MaxEncoded+1)); !errors.Is(err, ErrEncoding) {
		t.Error(err)
	}
}

// The format of version 1, byte by byte: what was written must be read for ever.
func TestVersion1(t *testing.T) {
	h := historyOf([]Sample{{At: time.Unix(36_000, 0), CPU: 1.5, Cap: 2, Throttled: math.NaN(), Censored: true, Memory: 4096, Balloon: 8192}})
	body := []byte("EKHIST\x01\x00")
	for i, step := range []uint32{10, 60, 300, 3600} {
		body = append(body, byte(i), 4+38, 0, 0, 0)
		body = binary.LittleEndian.AppendUint32(body, step)
		body = binary.LittleEndian.AppendUint32(body, 36_000/step)
		for _, v := range []uint32{0x3fc00000, 0x3fc00000, 0x40000000, 0x7fc00000, 0x45800000, 0x45800000, 0x46000000} {
			body = binary.LittleEndian.AppendUint32(body, v)
		}
		body = append(body, 1, 0, 1, 0, 1, 0)
	}
	if got, want := Encode(h, nil), sealed(body); !bytes.Equal(got, want) {
		t.Errorf("%x\nwant\n%x", got, want)
	}
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte{}, true)
	f.Add([]byte(magic+"\x01\x00"), true)
	full := Encode(historyOf([]Sample{plain(0, 1, 2), plain(RawStep, 3, 4), plain(2*time.Hour, 5, 6)}), Notes{1: []byte("x")})
	f.Add(full, false)
	f.Add(full[:len(full)-4], true)
	f.Fuzz(func(t *testing.T, data []byte, seal bool) {
		if seal { // else hardly anything comes past the checksum
			data = sealed(data)
		}
		h, notes, err := Decode(data)
		if err != nil {
			if !errors.Is(err, ErrEncoding) {
				t.Fatal(err)
			}
			return
		}
		again := Encode(h, notes)
		back, _, err := Decode(again)
		if err != nil {
			t.Fatalf("what was decoded does not decode again: %v", err)
		}
		if h.Bytes() > MaxBytes {
			t.Fatalf("%d bytes", h.Bytes())
		}
		last, _ := h.Last()
		h.Add(Sample{At: last.Add(time.Minute), CPU: 1, Memory: 1})
		if _, _, err := Decode(Encode(Merge(h, back), nil)); err != nil {
			t.Fatalf("merged: %v", err)
		}
	})
}
