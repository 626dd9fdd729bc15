package v1

import "strings"

// baseComment begins the line of a fetched file that names the version it was made of.
const baseComment = "# vc apply compares this file with version "

// Text of the file for people to change, in YAML. Its first line names the version that it was made of: BaseOf reads it.
func (f VirtualClusterFile) Text() (string, error) {
	doc, err := VCFile(f.Spec)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	if f.Base != "" {
		b.WriteString(baseComment + f.Base + "\n")
	}
	for _, field := range f.Hidden {
		b.WriteString("# " + field + " is not shown to the role of your token\n")
	}
	b.Write(doc)
	return b.String(), nil
}

// BaseOf a VC file is the version that the comments above its first field name; "" if they name none.
func BaseOf(doc []byte) string {
	const maxLength = 64 // of the API's parameter
	for line := range strings.Lines(string(doc)) {
		base, is := strings.CutPrefix(strings.TrimSpace(line), baseComment)
		if is && len(base) <= maxLength {
			return base
		}
		if !strings.HasPrefix(line, "#") {
			break
		}
	}
	return ""
}
