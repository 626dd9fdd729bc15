package v1

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// What a bad document may cost: after maxFaults its reading ends, and few of its unknown fields, none of them long, are compared
// with the known ones.
const (
	maxFaults      = 20
	maxSuggestions = 3
	maxSuggested   = 40 // bytes of a name
)

// Limits of what a document may say. The cluster's own limits may be narrower.
const (
	MaxCPU   = 4096    // cores of one VM
	MaxVCPUs = 4096    // of one VM
	MaxCount = 1 << 20 // VMs of one group
)

// reader turns nodes into values and collects the faults it meets.
type reader struct {
	faults      []FieldError
	suggestions int // unknown names that were compared with the known ones
}

// full says that no further fault counts: a reader of many entries stops.
func (r *reader) full() bool { return len(r.faults) >= maxFaults }

func (r *reader) fault(n *node, path, format string, args ...any) {
	if r.full() {
		return
	}
	f := FieldError{Field: path, Message: fmt.Sprintf(format, args...)}
	if n != nil {
		f.Line = n.line
		switch n.kind {
		case kindBool, kindNumber, kindString:
			f.Value = clip(n.text, 60)
		}
	}
	r.faults = append(r.faults, f)
}

func (r *reader) err() error {
	if len(r.faults) == 0 {
		return nil
	}
	return &Invalid{Fields: r.faults}
}

func (r *reader) want(n *node, path string, k kind) bool {
	if n.kind == k {
		return true
	}
	if k == kindString && n.kind == kindNumber {
		r.fault(n, path, "must be text: put %s in quotes", clip(n.text, 40))
	} else {
		r.fault(n, path, "must be %s, not %s", k, n.kind)
	}
	return false
}

// field says how a field of an object is read.
type field struct {
	name string
	read func(n *node, path string)
}

// object reads an object field by field. A field that is null counts as not
// given. It returns the names of the fields that were.
func (r *reader) object(n *node, path string, fields ...field) map[string]bool {
	given := map[string]bool{}
	if !r.want(n, path, kindObject) {
		return given
	}
	for _, m := range n.members {
		if r.full() {
			break
		}
		known := slices.IndexFunc(fields, func(f field) bool { return f.name == m.key })
		if known < 0 {
			names := make([]string, len(fields))
			for i, f := range fields {
				names[i] = f.name
			}
			r.fault(&node{line: m.line}, join(path, clip(m.key, 60)), "unknown field%s", r.nearest(m.key, names))
			continue
		}
		if m.value.kind != kindNull {
			given[m.key] = true
			fields[known].read(m.value, join(path, m.key))
		}
	}
	return given
}

// required reports a field that is missing.
func (r *reader) required(n *node, given map[string]bool, path string, names ...string) {
	if n.kind != kindObject {
		return
	}
	for _, name := range names {
		if !given[name] {
			r.fault(&node{line: n.line}, join(path, name), "missing")
		}
	}
}

// nearest proposes the known name that is one slip away, for the first few unknown names.
func (r *reader) nearest(name string, known []string) string {
	if r.suggestions >= maxSuggestions {
		return ""
	}
	r.suggestions++
	best, bestDistance := "", 3
	if len(name) <= maxSuggested {
		for _, k := range known {
			if d := distance(strings.ToLower(name), strings.ToLower(k)); d < bestDistance {
				best, bestDistance = k, d
			}
		}
	}
	if best == "" {
		return "; known ones are " + strings.Join(known, ", ")
	}
	return "; did you mean " + best + "?"
}

// distance is Levenshtein's.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := 1; i <= len(a); i++ {
		diagonal := row[0]
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			diagonal, row[j] = row[j], min(row[j]+1, row[j-1]+1, diagonal+cost)
		}
	}
	return row[len(b)]
}

func (r *reader) text(into *string, limit int) func(*node, string) {
	return func(n *node, path string) {
		if !r.want(n, path, kindString) {
			return
		}
		if len(n.text) > limit {
			r.fault(&node{line: n.line}, path, "is %d bytes long; %d are allowed", len(n.text), limit)
			return
		}
		*into = n.text
	}
}

// label reads a name of ours: a DNS label, of at most 63 characters.
func (r *reader) label(into *string) func(*node, string) {
	return func(n *node, path string) {
		if !r.want(n, path, kindString) {
			return
		}
		if why := NameFault(n.text); why != "" {
			r.fault(n, path, "%s", why)
			return
		}
		*into = n.text
	}
}

// NameFault says what is wrong with a name of a VC, a group or an image, or "".
func NameFault(name string) string {
	if name == "" {
		return "must not be empty"
	}
	if len(name) > 63 {
		return fmt.Sprintf("is %d characters long; 63 are allowed", len(name))
	}
	for i := range len(name) {
		c := name[i]
		switch {
		case c >= 'a' && c <= 'z', c >= '0' && c <= '9':
		case c == '-' && i > 0 && i < len(name)-1:
		default:
			return "must be a DNS label: a to z, 0 to 9 and, inside, hyphens"
		}
	}
	return ""
}

// imageName reads a name of the image catalogue and turns away paths by name.
func (r *reader) imageName(into *string) func(*node, string) {
	return func(n *node, path string) {
		if !r.want(n, path, kindString) {
			return
		}
		if strings.ContainsAny(n.text, "/\\") {
			r.fault(n, path, "must be a name in the image catalogue, not a path: add the file with `vcctl image add` and name that")
			return
		}
		if why := imageNameFault(n.text); why != "" {
			r.fault(n, path, "%s", why)
			return
		}
		*into = n.text
	}
}

// imageNameFault: letters, digits and - . _, beginning with a letter or digit.
func imageNameFault(name string) string {
	ok := name != "" && len(name) <= 127
	for i := range len(name) {
		c := name[i]
		alnum := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
		ok = ok && (alnum || i > 0 && (c == '-' || c == '.' || c == '_'))
	}
	if !ok {
		return "must be letters, digits and - . _, at most 127, beginning with a letter or digit"
	}
	return ""
}

func (r *reader) oneOf(into *string, allowed ...string) func(*node, string) {
	return func(n *node, path string) {
		if !r.want(n, path, kindString) {
			return
		}
		for _, a := range allowed {
			if n.text == a {
				*into = a
				return
			}
		}
		r.fault(n, path, "must be %s", strings.Join(allowed, " or "))
	}
}

func (r *reader) boolean(into *bool) func(*node, string) {
	return func(n *node, path string) {
		if r.want(n, path, kindBool) {
			*into = n.text == "true"
		}
	}
}

// number reads a finite decimal number.
func (r *reader) number(n *node, path string) (float64, bool) {
	if !r.want(n, path, kindNumber) {
		return 0, false
	}
	v, err := strconv.ParseFloat(n.text, 64)
	plain := strings.Trim(n.text, "0123456789.eE+-") == ""
	if err != nil || !plain || math.IsNaN(v) || math.IsInf(v, 0) {
		r.fault(n, path, "must be a finite decimal number")
		return 0, false
	}
	return v, true
}

func (r *reader) cpu(into *float64) func(*node, string) {
	return func(n *node, path string) {
		v, ok := r.number(n, path)
		if !ok {
			return
		}
		if v <= 0 || v > MaxCPU {
			r.fault(n, path, "must be more than 0 and at most %d cores", MaxCPU)
			return
		}
		*into = v
	}
}

func (r *reader) integer(into *int, lowest, limit int) func(*node, string) {
	return func(n *node, path string) {
		if !r.want(n, path, kindNumber) {
			return
		}
		v, err := strconv.Atoi(n.text)
		if err != nil || v < lowest || v > limit || !plainInteger(n.text) {
			r.fault(n, path, "must be a whole number from %d to %d", lowest, limit)
			return
		}
		*into = v
	}
}

// plainInteger turns away 010, which is ten to some and eight to others.
func plainInteger(s string) bool {
	s = strings.TrimPrefix(s, "-")
	return digits(s) && (len(s) == 1 || s[0] != '0')
}

// size reads a size of at least one byte.
func (r *reader) size(into *Size) func(*node, string) {
	return func(n *node, path string) {
		if n.kind != kindNumber && !r.want(n, path, kindString) {
			return
		}
		v, err := ParseSize(n.text)
		if err != nil {
			r.fault(n, path, "%v", err)
			return
		}
		if v == 0 {
			r.fault(n, path, "must be more than 0")
			return
		}
		*into = v
	}
}

func (r *reader) texts(into *[]string, limit, longest int) func(*node, string) {
	return func(n *node, path string) {
		if !r.want(n, path, kindList) {
			return
		}
		if len(n.items) > limit {
			r.fault(n, path, "has %d entries; %d are allowed", len(n.items), limit)
			return
		}
		for i, item := range n.items {
			if r.full() {
				return
			}
			var s string
			r.text(&s, longest)(item, path+"["+strconv.Itoa(i)+"]")
			*into = append(*into, s)
		}
	}
}

// labels reads a map of text to text.
func (r *reader) labels(into *map[string]string) func(*node, string) {
	return func(n *node, path string) {
		if !r.want(n, path, kindObject) {
			return
		}
		if len(n.members) > 64 {
			r.fault(n, path, "has %d labels; 64 are allowed", len(n.members))
			return
		}
		out := map[string]string{}
		for _, m := range n.members {
			if r.full() {
				return
			}
			at := join(path, clip(m.key, 60))
			if m.key == "" || len(m.key) > 63 || strings.Trim(m.key, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./") != "" {
				r.fault(&node{line: m.line}, at, "a label's name has letters, digits and -_./ only, 1 to 63 of them")
				continue
			}
			var s string
			r.text(&s, 255)(m.value, at)
			out[m.key] = s
		}
		*into = out
	}
}
