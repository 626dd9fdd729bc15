package state

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"reflect"
	"testing"
	"time"
)

// The frame of an entry that is read by hand has the same content for a reader of JSON, and is written as json.Marshal would.
func TestFrameByHand(t *testing.T) {
	read := 0
	for v := 1; v <= FormatVersion; v++ {
		log, err := os.ReadFile(fmt.Sprintf("testdata/log-v%d.jsonl", v))
		if err != nil {
			t.Fatal(err)
		}
		for entry := range bytes.Lines(log) {
			entry = bytes.TrimSpace(entry)
			c, body, err := present.decodeAny(entry)
			if err != nil {
				t.Fatal(err)
			}
			byHand, same, ok := present.decodeEncoded(entry)
			if ok {
				read++
				if !reflect.DeepEqual(byHand, c) || !reflect.DeepEqual(same, body) {
					t.Errorf("%s\nis %+v, %+v\nby hand %+v, %+v", entry, c, body, byHand, same)
				}
			}
			written, err := present.encode(c.Version, c.Kind, c.At, body)
			if err != nil {
				t.Fatal(err)
			}
			raw, _ := json.Marshal(body)
			want, _ := json.Marshal(Command{Version: c.Version, Kind: c.Kind, At: c.At.UTC(), Body: raw})
			if !bytes.Equal(written, want) {
				t.Errorf("written %s\nby json %s", written, want)
			}
			if _, _, ok := present.decodeEncoded(written); !ok {
				t.Errorf("not read by hand: %s", written)
			}
		}
	}
	if read == 0 {
		t.Error("no entry was read by hand")
	}
}

// What the frame is not is not read by hand; what is wrong with the entry is wrong all the same.
func TestOddFrames(t *testing.T) {
	good, err := Encode(KindHostCordon, time.Unix(1, 0), HostCordon{Host: "h<1>"})
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		entry string
		bad   bool
	}{
		{string(good), false},
		{" " + string(good) + "\n", false},
		{`{"v":1,"kind":"host-cordon","body":{"host":"x"}}`, false},
		{`{"v":1,"kind":"host-cordon","at":null,"body":{"host":"x"}}`, false},
		{`{"v":1,"kind":"host-cordon","at":"2026-01-01T00:00:00Z","body":{"host":"x"},"kind":"host-cordon"}`, false},
		{`{"v":1,"kind":"host-cordon","at":"2026-01-01T00:00:00Z","body":{"host":"x"}}}`, true},
		{`{"v":1,"kind":"host-cordon","at":"2026-01-01T00:00:00Z","body":{"host":"x"}`, true},
		{`{"v":1,"kind":"host-cordon","at":"2026-01-01T00:00:00Z","body":{"host":"x","new":1}}`, true},
		{`{"v":1,"kind":"host-cordon","at":"2026-01-01T00:00:00Z","body":{"host":"x"},"new":1}`, true},
		{`{"v":1,"kind":"host-cordon","at":"then","body":{"host":"x"}}`, true},
		{`{"v":9,"kind":"host-cordon","at":"2026-01-01T00:00:00Z","body":{"host":"x"}}`, true},
		{`{"v":1,"kind":"disarm","at":"2026-01-01T00:00:00Z","body":{}}`, true},
		{`{"v":0,"kind":"host-cordon","at":"2026-01-01T00:00:00Z","body":{"host":"x"}}`, true},
	} {
		c, body, err := Decode([]byte(tc.entry))
		if (err != nil) != tc.bad {
			t.Errorf("%s: %v", tc.entry, err)
		}
		if as, same, err2 := present.decodeAny([]byte(tc.entry)); err == nil && (err2 != nil || !as.At.Equal(c.At) || as.Kind != c.Kind || !reflect.DeepEqual(body, same)) {
			t.Errorf("%s: %+v %+v, by hand %+v %+v", tc.entry, as, same, c, body)
		}
	}
}
