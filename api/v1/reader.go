package v1

import (
	"fmt"
	"math"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
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
	MaxCPU   = 4096 // cores of one host that a simulation adds
	maxEntry = 255  // bytes of a text in a list or a map
)

// reader turns nodes into values by the tags of their types, and collects the faults it meets. The OpenAPI document states the same
// tags, as huma reads them:
//
//	json                               name; a field without omitempty is required
//	default                            of a field that is not given
//	enum                               of a text, or of each entry of a list
//	maxLength (bytes)                  of a text
//	pattern, patternDescription        of a text: what it matches, and that in words
//	minimum, exclusiveMinimum, maximum of a number
//	minItems, maxItems                 of a list
//	maxProperties                      of a map
//
// Three are the reader's own: unit of a number, text:"duration", and zero:"true" of a size that may be 0.
type reader struct {
	faults      []FieldError
	suggestions int // unknown names that were compared with the known ones
}

// checker is an object whose fields bind each other. check reports what is wrong by the path of the field within it.
type checker interface {
	check(fault func(field, format string, args ...any))
}

// decode a document that was read.
func decode[T any](n *node, err error) (T, error) {
	var into, none T
	if err != nil {
		return none, err
	}
	r := &reader{}
	r.value(n, "", reflect.ValueOf(&into).Elem(), "")
	if err := r.err(); err != nil {
		return none, err
	}
	return into, nil
}

// Decode reads a request from JSON. It refuses what it does not know. An empty body is a request without fields, where none is
// required. Its errors are *Invalid and name the field and the line.
func Decode[T any](doc []byte) (T, error) {
	if _, required := fieldTags(reflect.TypeFor[T]()); len(doc) == 0 && !slices.Contains(required, true) {
		doc = []byte("{}")
	}
	return decode[T](jsonTree(doc))
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

// value reads a value of any type that a request has.
func (r *reader) value(n *node, path string, to reflect.Value, tag reflect.StructTag) {
	if to.Kind() == reflect.Pointer {
		to.Set(reflect.New(to.Type().Elem()))
		to = to.Elem()
	}
	switch into := to.Addr().Interface().(type) {
	case *Size:
		r.size(n, path, into, tag.Get("zero") == "true")
		return
	case *Bound:
		r.amount(n, path, func(text string) (err error) { *into, err = ParseBound(text); return err })
		return
	case *Disk:
		if n.kind == kindString {
			if into.Ephemeral = n.text == "ephemeral"; !into.Ephemeral {
				r.fault(n, path, "must be an object like {size: 10GiB} or the word ephemeral")
			}
			return
		}
	}
	switch to.Kind() {
	case reflect.Struct:
		r.structure(n, path, to)
	case reflect.Slice:
		r.list(n, path, to, tag)
	case reflect.Map:
		r.texts(n, path, to, tag)
	case reflect.String:
		r.text(n, path, to, tag)
	case reflect.Bool:
		if r.want(n, path, kindBool) {
			to.SetBool(n.text == "true")
		}
	case reflect.Int:
		r.integer(n, path, to, tag)
	case reflect.Float64:
		r.float(n, path, to, tag)
	default:
		r.fault(n, path, "is not supported here")
	}
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

// fieldTags are the tags of a struct's fields that say how they are read.
func fieldTags(t reflect.Type) (names []string, required []bool) {
	for i := range t.NumField() {
		name, options, _ := strings.Cut(t.Field(i).Tag.Get("json"), ",")
		names, required = append(names, name), append(required, options == "")
	}
	return names, required
}

// structure reads an object by the tags of a struct.
func (r *reader) structure(n *node, path string, to reflect.Value) {
	names, required := fieldTags(to.Type())
	fields := make([]field, len(names))
	for i, name := range names {
		fields[i] = field{name, func(n *node, path string) { r.value(n, path, to.Field(i), to.Type().Field(i).Tag) }}
	}
	given := r.object(n, path, fields...)
	if n.kind != kindObject {
		return
	}
	for i, name := range names {
		if given[name] {
			continue
		}
		standard := to.Type().Field(i).Tag.Get("default")
		switch {
		case required[i]:
			r.fault(&node{line: n.line}, join(path, name), "missing")
		case to.Field(i).Kind() == reflect.String:
			to.Field(i).SetString(standard)
		case standard != "":
			fields[i].read(&node{kind: kindNumber, text: standard}, join(path, name))
		}
	}
	if c, ok := to.Addr().Interface().(checker); ok {
		c.check(func(field, format string, args ...any) { r.fault(n.at(field), join(path, field), format, args...) })
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

func (r *reader) list(n *node, path string, to reflect.Value, tag reflect.StructTag) {
	if !r.want(n, path, kindList) {
		return
	}
	lowest, _ := strconv.Atoi(tag.Get("minItems"))
	highest, _ := strconv.Atoi(tag.Get("maxItems"))
	if len(n.items) < lowest || len(n.items) > highest {
		r.fault(n, path, "must have %d to %d entries, not %d", lowest, highest, len(n.items))
		return
	}
	entry := reflect.StructTag("")
	if allowed := tag.Get("enum"); allowed != "" {
		entry = reflect.StructTag(`enum:"` + allowed + `"`)
	}
	to.Set(reflect.MakeSlice(to.Type(), len(n.items), len(n.items)))
	for i, item := range n.items {
		if r.full() {
			return
		}
		r.value(item, path+"["+strconv.Itoa(i)+"]", to.Index(i), entry)
	}
}

// texts reads a map of text to text.
func (r *reader) texts(n *node, path string, to reflect.Value, tag reflect.StructTag) {
	if !r.want(n, path, kindObject) {
		return
	}
	if limit, _ := strconv.Atoi(tag.Get("maxProperties")); len(n.members) > limit {
		r.fault(n, path, "has %d entries; %d are allowed", len(n.members), limit)
		return
	}
	to.Set(reflect.MakeMap(to.Type()))
	for _, m := range n.members {
		if r.full() {
			return
		}
		value := reflect.New(to.Type().Elem()).Elem()
		r.value(m.value, join(path, clip(m.key, 60)), value, "")
		to.SetMapIndex(reflect.ValueOf(m.key), value)
	}
}

// patterns that tags name, compiled.
var patterns sync.Map

func matches(pattern, text string) bool {
	p, ok := patterns.Load(pattern)
	if !ok {
		p, _ = patterns.LoadOrStore(pattern, regexp.MustCompile(pattern))
	}
	return p.(*regexp.Regexp).MatchString(text)
}

func (r *reader) text(n *node, path string, to reflect.Value, tag reflect.StructTag) {
	if !r.want(n, path, kindString) {
		return
	}
	limit, err := strconv.Atoi(tag.Get("maxLength"))
	if err != nil {
		limit = maxEntry
	}
	allowed, pattern := tag.Get("enum"), tag.Get("pattern")
	switch {
	case len(n.text) > limit:
		r.fault(&node{line: n.line}, path, "is %d bytes long; %d are allowed", len(n.text), limit)
	case allowed != "" && !slices.Contains(strings.Split(allowed, ","), n.text):
		r.fault(n, path, "must be %s", either(allowed))
	case pattern != "" && !matches(pattern, n.text):
		r.fault(n, path, "must be %s", tag.Get("patternDescription"))
	case tag.Get("text") == "duration":
		d, err := ParseDuration(n.text)
		if err != nil {
			r.fault(n, path, "%v", err)
		}
		to.SetString(FormatDuration(d))
	default:
		to.SetString(n.text)
	}
}

// either is "a, b or c" of "a,b,c".
func either(list string) string {
	last := strings.LastIndexByte(list, ',')
	if last < 0 {
		return list
	}
	return strings.ReplaceAll(list[:last], ",", ", ") + " or " + list[last+1:]
}

// limits of a number in words, "" if there are none, and whether v is within them.
func limits(v float64, tag reflect.StructTag) (string, bool) {
	low, above, high := tag.Get("minimum"), tag.Get("exclusiveMinimum"), tag.Get("maximum")
	limit := func(text string, unbounded float64) float64 {
		if x, err := strconv.ParseFloat(text, 64); err == nil {
			return x
		}
		return unbounded
	}
	within := v >= limit(low, math.Inf(-1)) && v > limit(above, math.Inf(-1)) && v <= limit(high, math.Inf(1))
	text := " from " + low + " to " + high
	switch {
	case above != "":
		text = " more than " + above + " and at most " + high
	case high == "":
		text = ""
	}
	if unit := tag.Get("unit"); unit != "" {
		text += " " + unit
	}
	return text, within
}

// float reads a finite decimal number.
func (r *reader) float(n *node, path string, to reflect.Value, tag reflect.StructTag) {
	if !r.want(n, path, kindNumber) {
		return
	}
	v, err := strconv.ParseFloat(n.text, 64)
	if plain := strings.Trim(n.text, "0123456789.eE+-") == ""; err != nil || !plain {
		r.fault(n, path, "must be a finite decimal number")
		return
	}
	if text, within := limits(v, tag); !within {
		r.fault(n, path, "must be%s", text)
	}
	to.SetFloat(v)
}

// integer turns away 010, which is ten to some and eight to others.
func (r *reader) integer(n *node, path string, to reflect.Value, tag reflect.StructTag) {
	if !r.want(n, path, kindNumber) {
		return
	}
	v, err := strconv.Atoi(n.text)
	if text, within := limits(float64(v), tag); err != nil || !within || n.text != strconv.Itoa(v) {
		r.fault(n, path, "must be a whole number%s", text)
	}
	to.SetInt(int64(v))
}

// amount reads what may be written as a number or as text.
func (r *reader) amount(n *node, path string, parse func(string) error) {
	if n.kind != kindNumber && !r.want(n, path, kindString) {
		return
	}
	if err := parse(n.text); err != nil {
		r.fault(n, path, "%v", err)
	}
}

func (r *reader) size(n *node, path string, into *Size, zero bool) {
	r.amount(n, path, func(text string) (err error) {
		if *into, err = ParseSize(text); err == nil && *into == 0 && !zero {
			return fmt.Errorf("must be more than 0")
		}
		return err
	})
}
