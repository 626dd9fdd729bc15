package state_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"evenkeel/cluster/state"
)

// fieldsOf returns the fields of a command's body or a row by their names in JSON, with what each holds.
func fieldsOf(prefix string, t reflect.Type) (out []string) {
	switch {
	case t == reflect.TypeFor[time.Time]():
		return []string{prefix + " time"}
	case t == reflect.TypeFor[[]byte]():
		return []string{prefix + " bytes"}
	}
	switch t.Kind() {
	case reflect.Pointer:
		return fieldsOf(prefix, t.Elem())
	case reflect.Slice:
		return fieldsOf(prefix+"[]", t.Elem())
	case reflect.Map:
		return fieldsOf(prefix+"{}", t.Elem())
	case reflect.Struct:
		for i := range t.NumField() {
			f := t.Field(i)
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			switch {
			case name == "-" || !f.IsExported() && !f.Anonymous:
			case name == "" && f.Anonymous:
				out = append(out, fieldsOf(prefix, f.Type)...)
			default:
				if name == "" {
					name = f.Name
				}
				out = append(out, fieldsOf(prefix+"."+name, f.Type)...)
			}
		}
		return out
	case reflect.Int, reflect.Int64, reflect.Int32:
		return []string{prefix + " int"}
	case reflect.Uint, reflect.Uint64, reflect.Uint32:
		return []string{prefix + " uint"}
	}
	return []string{prefix + " " + t.Kind().String()}
}

// format describes the format of this program: every field of every kind of command, and of every row of a saved state.
func format() (out []string) {
	for _, k := range state.Kinds() {
		out = append(out, fieldsOf("command "+string(k), reflect.TypeOf(state.Body(k)))...)
	}
	for _, table := range state.Tables() {
		out = append(out, fieldsOf("row "+table, reflect.TypeOf(state.Row(table)))...)
	}
	slices.Sort(out)
	return out
}

// Formats only grow. No field that a version of the format has is ever renamed, comes to hold something else or goes, and no kind
// or table does: logs and saved states of that version are read by all programs to come. A field that came makes another version,
// because a program that knows this version refuses fields that it does not know. docs/decisions/0002 says how a version is added.
func TestFormatsOnlyGrow(t *testing.T) {
	now := format()
	for v := 1; v <= state.FormatVersion; v++ {
		file := fmt.Sprintf("testdata/fields-v%d.txt", v)
		b, err := os.ReadFile(file)
		if err != nil && !(*update && v == state.FormatVersion) {
			t.Fatal(err)
		}
		recorded := strings.Fields(strings.ReplaceAll(string(b), " ", "\x00"))
		for i, field := range recorded {
			recorded[i] = strings.ReplaceAll(field, "\x00", " ")
		}
		for _, field := range recorded { // also with -update
			if _, found := slices.BinarySearch(now, field); !found {
				t.Errorf("version %d has %q, which this program does not read: keep it, and add another field beside it in a new version", v, field)
			}
		}
		if v < state.FormatVersion || t.Failed() {
			continue
		}
		if *update {
			write(t, file, []byte(strings.Join(now, "\n")+"\n"))
			continue
		}
		for _, field := range now {
			if _, found := slices.BinarySearch(recorded, field); !found {
				t.Errorf("version %d as it is recorded has no %q: programs that know version %d refuse it; raise FormatVersion", v, field, v)
			}
		}
	}
}

// The recorded log of the newest version has every field of every kind of command, so that what a field does to the state is
// recorded, too.
func TestRecordedLogHasEveryField(t *testing.T) {
	b, err := os.ReadFile(fmt.Sprintf("testdata/log-v%d.jsonl", state.FormatVersion))
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	var walk func(prefix string, v any)
	walk = func(prefix string, v any) {
		seen[prefix] = true
		switch v := v.(type) {
		case map[string]any:
			for name, part := range v {
				walk(prefix+"."+name, part)
				walk(prefix+"{}", part)
			}
		case []any:
			for _, part := range v {
				walk(prefix+"[]", part)
			}
		}
	}
	for entry := range bytes.SplitSeq(bytes.TrimSpace(b), []byte("\n")) {
		var c struct {
			Kind string
			Body any
		}
		if err := json.Unmarshal(entry, &c); err != nil {
			t.Fatal(err)
		}
		walk("command "+c.Kind, c.Body)
	}
	for _, field := range format() {
		if at := strings.LastIndex(field, " "); strings.HasPrefix(field, "command ") && !seen[field[:at]] {
			t.Errorf("no %s", field[:at])
		}
	}
}
