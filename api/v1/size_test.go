package v1

import (
	"encoding/json"
	"testing"

	"pgregory.net/rapid"
)

func TestParseSize(t *testing.T) {
	good := map[string]Size{
		"0": 0, "1": 1, "1048576": 1 << 20, "1KiB": 1 << 10, "2GiB": 2 << 30, "1.5GiB": 3 << 29, "0.5KiB": 512, "1.50MiB": 3 << 19,
		"4TiB": 4 << 40, "9223372036854775807": 1<<63 - 1, "8388607TiB": 8388607 << 40, "007MiB": 7 << 20, "0.0009765625KiB": 1,
	}
	for in, want := range good {
		if got, err := ParseSize(in); err != nil || got != want {
			t.Errorf("ParseSize(%q) = %d, %v; want %d", in, got, err, want)
		}
	}
	bad := []string{"", " ", "GiB", "-1", "+1", "1 GiB", "1GiB ", "1GB", "1G", "1g", "1gib", "1.GiB", ".5GiB", "1.5", "1.5.5GiB", "1e3", "0x10",
		"1,5GiB", "0.3KiB", "9223372036854775808", "8388608TiB", "99999999999999999999GiB", "1.0000000000001TiB", "NaN", "inf", "1PiB", "१GiB"}
	for _, in := range bad {
		if got, err := ParseSize(in); err == nil {
			t.Errorf("ParseSize(%q) = %d, want an error", in, got)
		}
	}
}

func TestSizeText(t *testing.T) {
	for _, c := range []struct {
		size        Size
		text, short string
	}{
		{0, "0", "0B"}, {1023, "1023", "1023B"}, {1 << 10, "1KiB", "1KiB"}, {1536, "1536", "1.5KiB"}, {2 << 30, "2GiB", "2GiB"},
		{3 << 29, "1536MiB", "1.5GiB"}, {1 << 40, "1TiB", "1TiB"}, {1<<30 - 1, "1073741823", "1024MiB"}, {124518 << 20, "124518MiB", "122GiB"},
	} {
		if c.size.String() != c.text || c.size.Short() != c.short {
			t.Errorf("%d: %s, %s; want %s, %s", int64(c.size), c.size, c.size.Short(), c.text, c.short)
		}
	}
}

func TestSizeRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := Size(rapid.Int64Min(0).Draw(t, "size"))
		if back, err := ParseSize(s.String()); err != nil || back != s {
			t.Fatalf("%d -> %s -> %d, %v", int64(s), s, int64(back), err)
		}
		raw, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		var back Size
		if err := json.Unmarshal(raw, &back); err != nil || back != s {
			t.Fatalf("%d -> %s -> %d, %v", int64(s), raw, int64(back), err)
		}
	})
}

func FuzzSize(f *testing.F) {
	for _, s := range []string{"0", "2GiB", "1.5GiB", "0.3KiB", "-1", "9223372036854775807", "8388608TiB", "1e3"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, in string) {
		s, err := ParseSize(in)
		if err != nil {
			return
		}
		if s < 0 {
			t.Fatalf("ParseSize(%q) = %d", in, int64(s))
		}
		if back, err := ParseSize(s.String()); err != nil || back != s {
			t.Fatalf("%q -> %s -> %d, %v", in, s, int64(back), err)
		}
	})
}
