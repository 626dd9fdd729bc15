package v1

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
)

// MaxBytes bounds a document.
const MaxBytes = 1 << 20

// maxDepth bounds how deep a document nests. A VC file needs six levels.
const maxDepth = 32

// maxValues bounds how many values a JSON document has: each costs many times its bytes. The largest VC file that is accepted, 64
// groups with all their labels and terms of affinity, has 18,000; the largest simulation request 8,000.
const maxValues = 20_000

type kind int

const (
	kindNull kind = iota
	kindBool
	kindNumber
	kindString
	kindList
	kindObject
)

func (k kind) String() string {
	return [...]string{"nothing", "true or false", "a number", "text", "a list", "an object"}[k]
}

// node is a document as it was written, with the lines where things stand.
type node struct {
	kind    kind
	text    string // of a scalar, as written
	line    int
	items   []*node
	members []member
}

type member struct {
	key   string
	line  int
	value *node
}

// at is the node of a field of n, named by its path; the node that it would be in where it was not given.
func (n *node) at(path string) *node {
	for part := range strings.FieldsFuncSeq(path, func(c rune) bool { return strings.ContainsRune(".[]", c) }) {
		var next *node
		if i, err := strconv.Atoi(part); err == nil && n.kind == kindList {
			next = n.items[i]
		}
		for _, m := range n.members {
			if m.key == part {
				next = m.value
			}
		}
		if next == nil {
			return &node{line: n.line}
		}
		n = next
	}
	return n
}

func malformed(line int, field, format string, args ...any) error {
	return &Invalid{Malformed: true, Fields: []FieldError{{Field: field, Line: line, Message: fmt.Sprintf(format, args...)}}}
}

func tooLarge(n int) error {
	if n > MaxBytes {
		return malformed(0, "", "the document has %d bytes; %d are allowed", n, MaxBytes)
	}
	return nil
}

// jsonTree reads one JSON value. Fields given twice and nesting beyond maxDepth are faults.
func jsonTree(doc []byte) (*node, error) {
	if err := tooLarge(len(doc)); err != nil {
		return nil, err
	}
	r := &jsonReader{doc: doc, dec: json.NewDecoder(bytes.NewReader(doc))}
	r.dec.UseNumber()
	n, err := r.value("", 0)
	if err != nil {
		return nil, err
	}
	if _, err := r.dec.Token(); err != io.EOF {
		return nil, malformed(r.line(), "", "there is more after the end of the document")
	}
	return n, nil
}

type jsonReader struct {
	doc    []byte
	dec    *json.Decoder
	values int // so far
	lines  int // ends of lines in the first counted bytes, so that no byte is looked at twice

	counted int
}

func (r *jsonReader) line() int {
	if at := min(int(r.dec.InputOffset()), len(r.doc)); at > r.counted {
		r.lines += bytes.Count(r.doc[r.counted:at], []byte("\n"))
		r.counted = at
	}
	return 1 + r.lines
}

func (r *jsonReader) token(path string) (json.Token, error) {
	t, err := r.dec.Token()
	switch {
	case err == nil:
		return t, nil
	case errors.Is(err, io.EOF) && path == "" && len(bytes.TrimSpace(r.doc)) == 0:
		return nil, malformed(0, "", "the document is empty")
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return nil, malformed(r.line(), path, "the JSON document ends in the middle")
	}
	return nil, malformed(r.line(), path, "not JSON: %v", err)
}

func (r *jsonReader) value(path string, depth int) (*node, error) {
	t, err := r.token(path)
	if err != nil {
		return nil, err
	}
	n := &node{line: r.line()}
	if depth > maxDepth {
		return nil, malformed(n.line, clip(path, 80), "nested deeper than %d levels", maxDepth)
	}
	if r.values++; r.values > maxValues {
		return nil, malformed(n.line, clip(path, 80), "the document has more than %d values", maxValues)
	}
	switch v := t.(type) {
	case nil:
		n.kind = kindNull
	case bool:
		n.kind, n.text = kindBool, strconv.FormatBool(v)
	case json.Number:
		n.kind, n.text = kindNumber, v.String()
	case string:
		n.kind, n.text = kindString, v
	case json.Delim:
		if v == '[' {
			n.kind = kindList
			for i := 0; r.dec.More(); i++ {
				item, err := r.value(path+"["+strconv.Itoa(i)+"]", depth+1)
				if err != nil {
					return nil, err
				}
				n.items = append(n.items, item)
			}
		} else {
			n.kind = kindObject
			if err := r.members(n, path, depth); err != nil {
				return nil, err
			}
		}
		if _, err := r.token(path); err != nil { // the closing delimiter
			return nil, err
		}
	}
	return n, nil
}

func (r *jsonReader) members(n *node, path string, depth int) error {
	seen := map[string]bool{}
	for r.dec.More() {
		t, err := r.token(path)
		if err != nil {
			return err
		}
		key, _ := t.(string) // an object's keys are strings, or the decoder has failed
		line := r.line()
		if seen[key] {
			return malformed(line, join(path, clip(key, 40)), "given twice")
		}
		seen[key] = true
		value, err := r.value(join(path, clip(key, 40)), depth+1)
		if err != nil {
			return err
		}
		n.members = append(n.members, member{key, line, value})
	}
	return nil
}

func join(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}

// yamlTree reads one YAML document of plain data: no anchors, aliases, tags or
// merge keys, so that a document is never larger than it looks.
func yamlTree(doc []byte) (n *node, err error) {
	if err := tooLarge(len(doc)); err != nil {
		return nil, err
	}
	// The parser is a large one and not ours; a fault of it must not take the program down.
	defer func() {
		if p := recover(); p != nil {
			n, err = nil, malformed(0, "", "not YAML that can be read: %v", p)
		}
	}()
	tokens := lexer.Tokenize(string(doc))
	if err := shallow(tokens); err != nil {
		return nil, err
	}
	file, err := parser.Parse(tokens, 0)
	if err != nil {
		var at yaml.Error
		if errors.As(err, &at) && at.GetToken() != nil && at.GetToken().Position != nil {
			return nil, malformed(at.GetToken().Position.Line, "", "not YAML: %s", at.GetMessage())
		}
		return nil, malformed(0, "", "not YAML: %v", err)
	}
	var body ast.Node
	for _, d := range file.Docs {
		if d.Body == nil || d.Body.Type() == ast.CommentType {
			continue
		}
		if body != nil {
			return nil, malformed(lineOf(d.Body), "", "more than one document in the file; write each into a file of its own")
		}
		body = d.Body
	}
	if body == nil {
		return nil, malformed(0, "", "the document is empty")
	}
	return yamlNode(body, "", 0)
}

// PlainYAML refuses anchors and aliases, for decoders that would write out what an alias stands for: a kilobyte of them
// stands for gigabytes.
func PlainYAML(doc []byte) error {
	for _, t := range lexer.Tokenize(string(doc)) {
		switch t.Type {
		case token.AnchorType, token.AliasType:
			return malformed(t.Position.Line, "", "YAML's anchors and aliases are not supported here: write the value out")
		}
	}
	return nil
}

// shallow refuses what nests too deep before the parser, whose work grows with
// the square of the depth, sees it.
func shallow(tokens token.Tokens) error {
	depth, entries, line := 0, 0, 0
	for _, t := range tokens {
		if t.Position.Line != line {
			line, entries = t.Position.Line, 0
		}
		switch t.Type {
		case token.SequenceStartType, token.MappingStartType:
			depth++
		case token.SequenceEndType, token.MappingEndType:
			depth--
		case token.SequenceEntryType, token.MappingKeyType:
			entries++
		}
		if depth+entries > maxDepth || t.Position.IndentLevel > maxDepth {
			return malformed(line, "", "nested deeper than %d levels", maxDepth)
		}
	}
	return nil
}

func lineOf(n ast.Node) int {
	if t := n.GetToken(); t != nil && t.Position != nil {
		return t.Position.Line
	}
	return 0
}

func yamlNode(from ast.Node, path string, depth int) (*node, error) {
	n := &node{line: lineOf(from)}
	if depth > maxDepth {
		return nil, malformed(n.line, clip(path, 80), "nested deeper than %d levels", maxDepth)
	}
	switch v := from.(type) {
	case *ast.NullNode:
	case *ast.BoolNode:
		n.kind, n.text = kindBool, strconv.FormatBool(v.Value)
	case *ast.IntegerNode, *ast.FloatNode, *ast.NanNode, *ast.InfinityNode:
		n.kind, n.text = kindNumber, v.GetToken().Value
	case *ast.StringNode:
		n.kind, n.text = kindString, v.Value
	case *ast.LiteralNode:
		n.kind, n.text = kindString, v.Value.Value
	case *ast.SequenceNode:
		n.kind = kindList
		for i, item := range v.Values {
			child, err := yamlNode(item, path+"["+strconv.Itoa(i)+"]", depth+1)
			if err != nil {
				return nil, err
			}
			n.items = append(n.items, child)
		}
	case *ast.MappingNode:
		n.kind = kindObject
		return n, yamlMembers(n, v.Values, path, depth)
	case *ast.MappingValueNode:
		n.kind = kindObject
		return n, yamlMembers(n, []*ast.MappingValueNode{v}, path, depth)
	default:
		what := strings.ToLower(from.Type().String())
		return nil, malformed(n.line, path, "YAML's %s is not supported here: write the value out", what)
	}
	return n, nil
}

func yamlMembers(n *node, values []*ast.MappingValueNode, path string, depth int) error {
	seen := map[string]bool{}
	for _, v := range values {
		line := lineOf(v.Key)
		if v.Key.IsMergeKey() || v.Key.Type() == ast.MappingKeyType {
			return malformed(line, path, "YAML's merge keys and complex keys are not supported here: write the fields out")
		}
		key := v.Key.GetToken().Value
		if seen[key] {
			return malformed(line, join(path, clip(key, 40)), "given twice")
		}
		seen[key] = true
		child, err := yamlNode(v.Value, join(path, clip(key, 40)), depth+1)
		if err != nil {
			return err
		}
		n.members = append(n.members, member{key, line, child})
	}
	return nil
}
