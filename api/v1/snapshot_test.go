package v1_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"testing"

	"evenkeel/api/v1"
)

// sealed makes a file as a server saves it, of these rows.
func sealed(rows ...string) string {
	head := `{"format":"evenkeel-snapshot","v":1,"cluster":"c","index":7,"term":2,"epoch":1,"time":"2026-11-21T00:00:00Z","server":"s1","software":"1.0","sha256":"%s"}`
	sum := sha256.Sum256([]byte(fmt.Sprintf(head, "")))
	body := ""
	for _, r := range rows {
		body += r + "\n"
	}
	seal := sha256.Sum256([]byte(body))
	return fmt.Sprintf(head, hex.EncodeToString(sum[:])) + "\n" + body + fmt.Sprintf(`{"t":"end","r":{"sha256":"%s"}}`, hex.EncodeToString(seal[:])) + "\n"
}

func TestInspectSnapshot(t *testing.T) {
	good := sealed(`{"t":"head"}`, `{"t":"hosts","r":{"name":"h1"}}`, `{"t":"vms","r":{}}`, `{"t":"vms","r":{}}`, `{"t":"vcs","r":{}}`, `{"t":"members","r":{}}`, `{"t":"images","r":{}}`)
	s, err := v1.InspectSnapshot(strings.NewReader(good))
	if err != nil || s.Cluster != "c" || s.Index != 7 || s.Version != "1.0" || s.Hosts != 1 || s.VMs != 2 || s.VirtualClusters != 1 || s.Members != 1 || s.Images != 1 {
		t.Errorf("%+v, %v", s, err)
	}
	for i := range len(good) { // wherever a byte is changed, it is noticed
		b := []byte(good)
		b[i] ^= 1
		if _, err := v1.InspectSnapshot(bytes.NewReader(b)); err == nil {
			t.Fatalf("byte %d of %d was changed, in %q", i, len(good), good[max(0, i-20):min(len(good), i+20)])
		}
		if _, err := v1.InspectSnapshot(strings.NewReader(good[:i])); err == nil {
			t.Fatalf("cut after %d of %d bytes", i, len(good))
		}
	}
	for name, c := range map[string]struct{ file, want string }{
		"empty":        {"", "no snapshot"},
		"other":        {"PK\x03\x04\n", "no snapshot of Evenkeel"},
		"other JSON":   {`{"format":"something"}` + "\n", "no snapshot of Evenkeel"},
		"more":         {good + "x", "more after its end"},
		"ends early":   {strings.Join(strings.SplitAfter(good, "\n")[:3], ""), "ends in the middle, at line 4"},
		"not JSON":     {sealed("nonsense"), "line 2"},
		"no line ends": {strings.Repeat("x", 100), "no snapshot"},
	} {
		if _, err := v1.InspectSnapshot(strings.NewReader(c.file)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

func FuzzInspectSnapshot(f *testing.F) {
	f.Add([]byte(sealed(`{"t":"hosts","r":{"name":"h1"}}`)))
	f.Add([]byte(`{"format":"evenkeel-snapshot","sha256":""}` + "\n"))
	f.Add([]byte("{}\n{}\n"))
	f.Fuzz(func(t *testing.T, file []byte) {
		s, err := v1.InspectSnapshot(bytes.NewReader(file))
		if err != nil {
			if err.Error() == "" {
				t.Error("an error without words")
			}
			return
		}
		if rows := bytes.Count(file, []byte("\n")); s.Hosts+s.Members+s.VirtualClusters+s.VMs+s.Images > rows {
			t.Errorf("more rows than lines: %+v", s)
		}
		if _, err := v1.InspectSnapshot(bytes.NewReader(append(bytes.Clone(file), 'x'))); err == nil {
			t.Error("more after the end is not noticed")
		}
	})
}
