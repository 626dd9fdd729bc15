package v1

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
)

// VCFile writes a VC file, in YAML, for people to change. ParseVCFile reads the same spec from it.
func VCFile(spec VirtualClusterSpec) ([]byte, error) {
	doc, err := json.Marshal(spec)
	if err != nil {
		return nil, fmt.Errorf("write a VC file: %w", err)
	}
	n, err := jsonTree(doc)
	if err != nil {
		return nil, fmt.Errorf("write a VC file: %w", err)
	}
	var w yamlWriter
	w.members(n, "")
	return []byte(w.String()), nil
}

// yamlWriter writes nodes in the block style of YAML.
type yamlWriter struct{ strings.Builder }

func (w *yamlWriter) members(n *node, indent string) {
	for i, m := range n.members {
		if i > 0 {
			w.WriteString(indent) // the first stands where the caller is
		}
		w.WriteString(scalar(m.key) + ":")
		w.value(m.key, m.value, indent)
	}
}

// value writes what stands behind a key, and ends the line.
func (w *yamlWriter) value(key string, n *node, indent string) {
	deeper := indent + "  "
	switch {
	case n.kind == kindObject && len(n.members) > 0:
		w.WriteString("\n" + deeper)
		w.members(n, deeper)
	case n.kind == kindObject:
		w.WriteString(" {}\n")
	case n.kind == kindList && len(n.items) == 0:
		w.WriteString(" []\n")
	case n.kind == kindList:
		w.WriteString("\n")
		for _, item := range n.items {
			w.WriteString(deeper + "-")
			if item.kind == kindObject {
				w.WriteString(" ")
				w.members(item, deeper+"  ")
				continue
			}
			w.value("", item, deeper)
		}
	case n.kind == kindString:
		w.WriteString(" " + text(n.text, deeper) + "\n")
	case n.kind == kindNumber && sizeFields[key]:
		size, err := strconv.ParseInt(n.text, 10, 64)
		if err != nil {
			w.WriteString(" " + n.text + "\n")
			return
		}
		w.WriteString(" " + Size(size).String() + "\n")
	case n.kind == kindNull:
		w.WriteString(" null\n")
	default:
		w.WriteString(" " + n.text + "\n")
	}
}

// sizeFields are the fields of a VC file that are a Size.
var sizeFields = map[string]bool{"memory": true, "memoryMin": true, "size": true}

// text writes a text: several lines as a block, where that says the same.
func text(s, indent string) string {
	body, ended := strings.CutSuffix(s, "\n")
	lines := strings.Split(body, "\n")
	if len(lines) < 2 && !ended {
		return scalar(s)
	}
	for i, line := range lines {
		first := i == 0 || i == len(lines)-1
		if first && strings.TrimSpace(line) == "" || i == 0 && strings.TrimLeft(line, " ") != line || strings.TrimRight(line, " ") != line || strings.ContainsFunc(line, escaped) {
			return quoted(s)
		}
	}
	mark := "|-"
	if ended {
		mark = "|"
	}
	var b strings.Builder
	b.WriteString(mark)
	for _, line := range lines {
		b.WriteByte('\n')
		if line != "" {
			b.WriteString(indent + line)
		}
	}
	return b.String()
}

// plain are the characters of texts that need no quotes.
const (
	letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
	plain   = letters + "0123456789-._/"
)

// scalar writes a text on one line: as it is where nothing can take it for anything else, or else quoted.
func scalar(s string) string {
	if s != "" && strings.Trim(s, plain) == "" && strings.ContainsAny(s[:1], letters) {
		switch strings.ToLower(s) {
		case "true", "false", "null", "yes", "no", "on", "off", "y", "n":
		default:
			return s
		}
	}
	return quoted(s)
}

// escaped says whether a character is written as an escape.
func escaped(r rune) bool {
	return r < ' ' || r >= 0x7f && r < 0xa0 || r == 0x2028 || r == 0x2029 || r == 0xfeff || r == 0xfffd
}

// quoted writes a text in double quotes, with escapes that YAML and JSON share.
func quoted(s string) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			b.WriteString(`\` + string(r))
		case r == '\n':
			b.WriteString(`\n`)
		case r == '\t':
			b.WriteString(`\t`)
		case escaped(r):
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			b.WriteRune(r)
		}
	}
	b.WriteByte('"')
	return b.String()
}
