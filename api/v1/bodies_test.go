package v1

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

// many is so many texts, each made of its number, with commas between them.
func many(n int, format string) string {
	var b strings.Builder
	for i := range n {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, format, i)
	}
	return b.String()
}

// same text so many times, with commas between.
func same(n int, text string) string { return strings.TrimSuffix(strings.Repeat(text+",", n), ",") }

// bombs are bodies that cost much to look at, or that are hardly JSON. No reader takes one of them.
var bombs = map[string]string{
	"NULs":               strings.Repeat("\x00", 100),
	"no JSON":            "hello",
	"deep lists":         strings.Repeat("[", 400_000),
	"deep closed lists":  strings.Repeat("[", 200_000) + strings.Repeat("]", 200_000),
	"deep objects":       strings.Repeat(`{"a":`, 150_000),
	"a key twice":        `{"name":"a","name":"b","groups":[]}`,
	"two documents":      "{}{}",
	"more after the end": "{} x",
	"null":               "null",
	"a list":             "[]",
	"text":               `"x"`,
	"a huge number":      `{"name":"v","groups":[{"name":"g","cpu":1e999999,"memory":1}]}`,
	"a long number":      `{"name":"v","groups":[{"name":"g","cpu":` + strings.Repeat("1", 900_000) + `,"memory":1}]}`,
	"a long fraction":    `{"name":"v","groups":[{"name":"g","cpu":1,"memory":"1.` + strings.Repeat("1", 900_000) + `GiB"}]}`,
	"NaN":                `{"name":"v","groups":[{"name":"g","cpu":NaN,"memory":1}]}`,
	"no UTF-8":           "{\"name\":\"\xff\xfe\",\"groups\":[]}",
	"a byte order mark":  "\xef\xbb\xbf{}",
	"half a surrogate":   `{"name":"\ud800","groups":[]}`,
	"unknown keys":       "{" + many(80_000, `"k%d":1`) + "}",
	"unknown objects":    "{" + many(60_000, `"u%d":{}`) + "}",
	"unknown keys, each on a line of its own": "{" + many(60_000, "\n\"u%d\":{}") + "}",
	"near a known key":                        "{" + many(60_000, `"nam%d":1`) + "}",
	"the same key":                            "{" + same(60_000, `"name":"a"`) + "}",
	"one long key":                            `{"` + strings.Repeat("k", 1_000_000) + `":1}`,
	"one long value":                          `{"name":"` + strings.Repeat("a", 1_000_000) + `"}`,
	"many groups":                             `{"name":"v","groups":[` + same(30_000, `{"name":"g","cpu":1,"memory":1}`) + "]}",
	"many bad groups":                         `{"name":"v","groups":[` + many(64, `{"name":"G%d",`+strings.ReplaceAll(many(400, `"x%d":1`), "%", "%%")+"}") + "]}",
	"many labels":                             `{"name":"v","groups":[{"name":"g","cpu":1,"memory":1,"labels":{` + many(60_000, `"l%d":"x"`) + "}}]}",
	"unknown keys beside a snapshot":          "{" + many(60_000, `"k%d":1`) + `,"snapshot":""}`,
	"a snapshot that is a number":             `{"snapshot":1}`,
	"a snapshot that is no base64":            `{"snapshot":"!"}`,
	"two snapshots":                           `{"snapshot":"","snapshot":""}`,
	"half a snapshot":                         `{"maxBytes":1,"snapshot":"aaaa`,
	"snapshot and more":                       `{"snapshot":""} 1`,
	"bad labels":                              `{"name":"v","groups":[{"name":"g","cpu":1,"memory":1,"labels":{` + many(64, `"l %d":1`) + "}}]}",
	"bad terms":                               `{"name":"v","groups":[{"name":"g","cpu":1,"memory":1,"affinity":{"avoid":[` + many(64, `"t%d"`) + "]}}]}",
	"a list of nothing":                       `{"groups":[` + same(200_000, "null") + "]}",
	"a byte too many":                         strings.Repeat(" ", MaxBytes+1),
	"eight times as many":                     strings.Repeat(" ", 8*MaxBytes),
	"unknown":                                 `{"isAdmin":true,"__proto__":{"a":1}}`,
	"below 0":                                 `{"name":"v","groups":[{"name":"g","cpu":-1,"memory":-1,"count":-5}]}`,
	"a count of 1e3":                          `{"name":"v","groups":[{"name":"g","cpu":1,"memory":"1e9GiB","count":1e3}]}`,
	"octal":                                   `{"name":"v","groups":[{"name":"g","cpu":010,"memory":010}]}`,
	"a comment":                               "/*x*/{}",
	"too large a size":                        `{"name":"v","groups":[{"name":"g","cpu":1,"memory":"99999999999999999999TiB"}]}`,
}

// readers of bodies.
var readers = map[string]func([]byte) error{
	"virtual cluster": func(b []byte) error { _, err := Decode[VirtualClusterSpec](b); return err },
	"scale":           func(b []byte) error { _, err := Decode[ScaleRequest](b); return err },
	"image":           func(b []byte) error { _, err := Decode[ImageSpec](b); return err },
	"cordon":          func(b []byte) error { _, err := Decode[CordonRequest](b); return err },
	"settings":        func(b []byte) error { _, err := ParseSettings(b); return err },
	"rebalance":       func(b []byte) error { _, err := Decode[RebalanceRequest](b); return err },
	"drain":           func(b []byte) error { _, err := Decode[DrainRequest](b); return err },
	"try":             func(b []byte) error { _, err := ParseSimulate(b); return err },
}

// TestBombs: each is refused by each reader, with few faults that are short. `go test -v` says what it took.
func TestBombs(t *testing.T) {
	slowest := map[string]time.Duration{}
	for name, body := range bombs {
		for kind, read := range readers {
			from := time.Now()
			err := read([]byte(body))
			slowest[name] = max(slowest[name], time.Since(from))
			var inv *Invalid
			if !errors.As(err, &inv) || len(inv.Fields) == 0 {
				t.Errorf("%s as %s: %v", name, kind, err)
				continue
			}
			if len(inv.Fields) > maxFaults {
				t.Errorf("%s as %s: %d faults", name, kind, len(inv.Fields))
			}
			for _, f := range inv.Fields {
				if len(f.Field)+len(f.Message) > 1000 {
					t.Errorf("%s as %s: a fault of %d bytes", name, kind, len(f.Field)+len(f.Message))
				}
			}
		}
	}
	for name, took := range slowest {
		t.Logf("%8.1f ms  %s", float64(took.Microseconds())/1000, name)
	}
}

type countedRead struct {
	Name string         `json:"name,omitempty"`
	Last countedEntry   `json:"last,omitempty"`
	List []countedEntry `json:"list,omitempty" maxItems:"20000"`
}

type countedEntry struct {
	A bool `json:"a,omitempty"`
}

var countedReads int

func (*countedEntry) check(fault func(field, format string, args ...any)) {
	countedReads++
	fault("a", "wrong")
}

// TestBadDocumentsEnd: the reading of a bad document ends with the last fault that is reported, however much comes after it.
func TestBadDocumentsEnd(t *testing.T) {
	read := func(doc string) *reader {
		n, err := jsonTree([]byte(doc))
		if err != nil {
			t.Fatal(err)
		}
		countedReads = 0
		r := &reader{}
		r.value(n, "", reflect.ValueOf(&countedRead{}).Elem(), "")
		return r
	}
	if r := read("{" + many(maxValues-3, `"nam%d":1`) + `,"last":{}}`); len(r.faults) != maxFaults || r.suggestions != maxSuggestions || countedReads != 0 {
		t.Errorf("%d faults, %d names compared, %d fields read after them; want %d, %d, 0", len(r.faults), r.suggestions, countedReads, maxFaults, maxSuggestions)
	}
	if r := read(`{"list":[` + same(maxValues-2, "{}") + "]}"); len(r.faults) != maxFaults || countedReads != maxFaults {
		t.Errorf("%d entries read with %d faults, want %d", countedReads, len(r.faults), maxFaults)
	}
}

// TestLargestDocument: the limit of values leaves room for all that the other limits allow.
func TestLargestDocument(t *testing.T) {
	terms, avoided := "["+many(64, `"app=%d"`)+"]", "["+many(64, `"role=%d"`)+"]"
	group := `{"name":"g%d","count":1,"cpu":1,"vcpus":1,"memory":2,"memoryMin":1,"role":"core","boot":{"kernel":"k","initrd":"i","cmdline":"c"},` +
		`"disk":{"size":1,"pool":"p","ephemeral":false},"network":"n","cloudInit":{"userData":"u","metaData":"m","networkConfig":"n"},` +
		`"labels":{` + strings.ReplaceAll(many(64, `"l%d":"x"`), "%", "%%") + `},"affinity":{"spread":"host","require":` + terms + `,"prefer":` + terms + `,"avoid":` + avoided + `}}`
	doc := `{"name":"v","minYield":1,"onFull":"queue","onHostLoss":"keep","priority":1,"needs":"declared","aggressiveness":"balanced","groups":[` + many(64, group) + "]}"
	if _, err := Decode[VirtualClusterSpec]([]byte(doc)); err != nil {
		t.Errorf("a document of %d bytes: %v", len(doc), err)
	}
	if _, err := jsonTree([]byte("[" + many(maxValues-1, "%d") + "]")); err != nil {
		t.Errorf("as many values as are allowed: %v", err)
	}
	if _, err := jsonTree([]byte("[" + many(maxValues, "%d") + "]")); err == nil {
		t.Error("one value too many is taken")
	}
}

// TestJSONLines: lines are counted as the document is read.
func TestJSONLines(t *testing.T) {
	n, err := jsonTree([]byte("{\n\"a\": 1,\n\n\"b\": [\n2,\n3]\n}"))
	if err != nil {
		t.Fatal(err)
	}
	got := []int{n.line, n.members[0].line, n.members[1].line, n.members[1].value.items[0].line, n.members[1].value.items[1].line}
	if want := []int{1, 2, 4, 5, 6}; !slices.Equal(got, want) {
		t.Errorf("lines %v, want %v", got, want)
	}
}

// BenchmarkBombs: the dearest bodies.
func BenchmarkBombs(b *testing.B) {
	for _, name := range []string{"near a known key", "unknown keys", "unknown keys, each on a line of its own", "many labels", "many groups", "many bad groups", "eight times as many", "one long key"} {
		b.Run(name, func(b *testing.B) {
			body := []byte(bombs[name])
			for b.Loop() {
				_, _ = Decode[VirtualClusterSpec](body)
			}
		})
	}
}
