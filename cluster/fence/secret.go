package fence

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"

	"evenkeel/internal/secretfile"
)

// maxSecretFile is more than any value takes (maxValue) with the end of its line, bytes.
const maxSecretFile = 64 << 10

// passwordOption is what agents call the password on standard input.
const passwordOption = "password"

// secrets reads the device's secrets, by option.
func (d Device) secrets() (map[string]string, error) {
	files := maps.Clone(d.SecretFiles)
	if d.PasswordFile != "" {
		if files == nil {
			files = map[string]string{}
		}
		files[passwordOption] = d.PasswordFile
	}
	out := make(map[string]string, len(files))
	for option, path := range files {
		secret, err := readSecret(path)
		if err != nil {
			return nil, fmt.Errorf("read the file of option %s: %w", option, err)
		}
		out[option] = secret
	}
	return out, nil
}

// readSecret reads a file that holds one line.
func readSecret(path string) (string, error) {
	text, err := secretfile.Read(path, secretfile.Rule{MaxBytes: maxSecretFile})
	if err != nil {
		return "", err
	}
	secret := strings.TrimSuffix(strings.TrimSuffix(string(text), "\n"), "\r")
	if secret == "" {
		return "", fmt.Errorf("%s is empty", path)
	}
	if err := checkValue(secret); err != nil {
		return "", fmt.Errorf("%s: %w", path, err)
	}
	return secret, nil
}

// hidden stands where a secret was.
const hidden = "[secret]"

// scrubber takes secrets out of text.
type scrubber struct {
	replacer *strings.Replacer
	longest  int // bytes of the longest form of a secret
}

// newScrubber knows the secrets as they are and as programs print them when they
// quote a command line, a URL, a header or JSON. The options' values are for
// headers that hold a name and its password as one text.
func newScrubber(secrets, options map[string]string) scrubber {
	forms := map[string]bool{}
	for _, s := range secrets {
		forms[s] = true
		forms[url.QueryEscape(s)] = true
		forms[url.PathEscape(s)] = true
		forms[strings.ReplaceAll(s, `'`, `'"'"'`)] = true // shlex.quote of Python
		forms[strings.ReplaceAll(s, `'`, `'\''`)] = true
		forms[strings.ReplaceAll(s, `'`, `\'`)] = true // repr of Python
		forms[strings.ReplaceAll(strings.ReplaceAll(s, `\`, `\\`), `'`, `\'`)] = true
		forms[strings.ReplaceAll(strings.ReplaceAll(s, `\`, `\\`), `"`, `\"`)] = true
		if j, err := json.Marshal(s); err == nil {
			forms[strings.Trim(string(j), `"`)] = true
		}
		for _, e := range []*base64.Encoding{base64.StdEncoding, base64.URLEncoding} {
			forms[e.EncodeToString([]byte(s))] = true
			for _, name := range options {
				forms[e.EncodeToString([]byte(name+":"+s))] = true
			}
		}
		forms[strings.ReplaceAll(strings.ReplaceAll(strings.ReplaceAll(s, "&", "&amp;"), "<", "&lt;"), ">", "&gt;")] = true
	}
	// Longest first: a secret that begins as another one does must not leave its end behind.
	list := slices.SortedFunc(maps.Keys(forms), func(a, b string) int { return len(b) - len(a) })
	var pairs []string
	s := scrubber{}
	for _, f := range list {
		if f != "" {
			pairs = append(pairs, f, hidden)
			s.longest = max(s.longest, len(f))
		}
	}
	s.replacer = strings.NewReplacer(pairs...)
	return s
}

// text is what may be shown of what an agent printed. Of what was cut off, the
// last bytes go too: they may be the beginning of a secret.
func (s scrubber) text(b []byte, cut bool) string {
	if cut {
		b = b[:max(0, len(b)-s.longest)]
	}
	out := strings.ToValidUTF8(s.replacer.Replace(string(b)), "?")
	out = strings.Map(func(r rune) rune {
		if r < ' ' && r != '\n' && r != '\t' || r == 0x7f {
			return '?'
		}
		return r
	}, strings.TrimSpace(out))
	if cut {
		out += "\n[cut off]"
	}
	return out
}
