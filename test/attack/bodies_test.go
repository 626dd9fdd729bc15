package attack

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"
)

// maxAnswer is how long a bad body may take to be refused. It is generous: the API's own tests hold it to far less.
const maxAnswer = 2 * time.Second

// bombs are bodies that are wrong, or cost more to read than to send.
func bombs() map[string]string {
	many := func(n int, sep string, one func(int) string) string {
		var b strings.Builder
		for i := range n {
			if i > 0 {
				b.WriteString(sep)
			}
			b.WriteString(one(i))
		}
		return b.String()
	}
	group := func(fields string) string { return `{"name":"v","groups":[{"name":"g",` + fields + `}]}` }
	return map[string]string{
		"NULs":                  strings.Repeat("\x00", 100),
		"no JSON":               "hello",
		"deep arrays":           strings.Repeat("[", 400_000),
		"deep objects":          strings.Repeat(`{"a":`, 150_000),
		"deep and closed":       strings.Repeat("[", 200_000) + strings.Repeat("]", 200_000),
		"a key twice":           `{"name":"a","name":"b","groups":[{"name":"g","cpu":1,"memory":"64MiB"}]}`,
		"two documents":         `{}{}`,
		"more after it":         `{} x`,
		"null":                  "null",
		"a list":                "[]",
		"a text":                `"x"`,
		"a huge number":         group(`"cpu":1e999999,"memory":1`),
		"a long number":         group(`"cpu":` + strings.Repeat("1", 900_000) + `,"memory":1`),
		"no number":             group(`"cpu":NaN,"memory":1`),
		"bad UTF-8":             "{\"name\":\"\xff\xfe\",\"groups\":[]}",
		"a byte order mark":     "\ufeff{}",
		"half a surrogate":      `{"name":"\ud800","groups":[]}`,
		"many keys":             "{" + many(80_000, ",", func(i int) string { return fmt.Sprintf(`"k%d":1`, i) }) + "}",
		"a long key":            `{"` + strings.Repeat("k", 1_000_000) + `":1}`,
		"a long value":          `{"name":"` + strings.Repeat("a", 1_000_000) + `"}`,
		"many groups":           `{"name":"v","groups":[` + many(30_000, ",", func(int) string { return `{"name":"g","cpu":1,"memory":1}` }) + "]}",
		"a byte too many":       strings.Repeat(" ", 1<<20+1),
		"8 MiB":                 strings.Repeat(" ", 8<<20),
		"unknown keys":          `{"isAdmin":true,"__proto__":{"a":1}}`,
		"many unknown keys":     "{" + many(60_000, ",", func(i int) string { return fmt.Sprintf(`"u%d":{}`, i) }) + "}",
		"below zero":            group(`"cpu":-1,"memory":-1,"count":-5`),
		"an exponent":           group(`"cpu":1,"memory":"1e9GiB","count":1e3`),
		"octal":                 group(`"cpu":010,"memory":010`),
		"a comment":             "/*x*/{}",
		"a size beyond 64 bits": group(`"cpu":1,"memory":"99999999999999999999TiB"`),
	}
}

func bombRoutes() []route {
	var out []route
	for _, r := range []string{"POST /v1/virtual-clusters?dryRun=true", "PATCH /v1/virtual-clusters/x?dryRun=true", "POST /v1/images?dryRun=true", "PUT /v1/hosts/s1/cordon?dryRun=true", "POST /v1/hosts/s1/drain?dryRun=true", "POST /v1/rebalance?dryRun=true",
		"POST /v1/simulate", "PATCH /v1/cluster/settings?dryRun=true", "POST /v1/cluster/join-tokens", "POST /v1/cluster/leader", "POST /v1/cluster/fencing/enable", "POST /v1/hosts/s1/confirm-dead?dryRun=true", "POST /v1/hosts/s1/fence", "POST /v1/cluster/snapshot"} {
		method, path, _ := strings.Cut(r, " ")
		out = append(out, route{method, path})
	}
	return out
}

// TestBadBodies: every route refuses bodies that are wrong, soon, and never with an error of the server.
func TestBadBodies(t *testing.T) {
	t.Parallel()
	c := reuse(t)
	leader, followers := c.roles(t)
	y := &tally{}
	all := bombs()
	names := make([]string, 0, len(all))
	for name := range all {
		names = append(names, name)
	}
	slices.Sort(names)
	var slowest time.Duration
	var what string
	for i, s := range []*server{leader, followers[0]} {
		k := &talk{ctx: t.Context(), from: place(), to: s.address}
		for n, r := range bombRoutes() {
			for j, name := range names {
				if !long() && n > 0 && (i+n+j)%5 > 0 { // the first route gets all of them; every bomb goes to the other routes, too
					continue
				}
				if name == "null" && r.path == "/v1/cluster/leader" {
					continue // it stands for a request without fields, which makes the leader hand its leadership on
				}
				begun := time.Now()
				a := k.ask(r.method, plain(r.method, r.path, "Authorization: Bearer "+c.token+"\r\n", all[name]))
				took := time.Since(begun)
				if took > slowest {
					slowest, what = took, r.method+" "+r.path+" "+name
				}
				cut := a.status == 0 && len(all[name]) > 1<<20 // the server may cut off who sends too much
				// Only a fault of the leader itself is an error of the server. No request here leads to a fence device.
				y.add(a.status > 0 && a.status < 400 || a.status >= 500, cut || a.status >= 400, "%s %s %s, %q: %s", s.name, r.method, r.path, name, a)
			}
		}
		k.close()
	}
	y.report(t, "bad bodies")
	t.Logf("the slowest was refused in %.2f s: %s", slowest.Seconds(), what)
	if slowest > maxAnswer && !long() {
		t.Errorf("%s took %.1f s", what, slowest.Seconds())
	}
	if bad := c.panics(); len(bad) > 0 {
		t.Errorf("panics: %q", bad)
	}
}

// hostile texts for names.
var hostile = []string{"../../etc/passwd", "..", ".", "/etc/shadow", "a/b", `a\b`, "a b", "A", "a\n", "a\x00", "a%2fb", "ek-<x/>", "]]>", "&xxe;", `'"><disk/>`, strings.Repeat("a", 300), "-a", "a-", "$(id)", "`id`", ";id", "é", "a\u202eb", "a\u0000", "*", "?", "", "0x", "a.b", "a_b", "\x1b[31m"}

var harmless = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,252}$`)

// TestHostileNames: what the API accepts as a name is harmless in a path, in XML, in a shell and in a log.
func TestHostileNames(t *testing.T) {
	c := reuse(t)
	leader, _ := c.roles(t)
	c.image(t)
	k := &talk{ctx: t.Context(), from: place(), to: leader.address}
	defer k.close()
	y := &tally{}
	accepted := map[string]int{}
	try := func(field, text string) answer {
		group := map[string]any{"name": "g", "cpu": 0.1, "memory": "64MiB", "boot": map[string]any{"kernel": "tiny"}}
		vc := map[string]any{"name": "v", "groups": []any{group}}
		boot := map[string]any{"kernel": "tiny"}
		switch field {
		case "virtual cluster":
			vc["name"] = text
		case "group":
			group["name"] = text
		case "image":
			delete(group, "boot")
			group["image"] = text
		case "kernel", "initrd", "cmdline":
			boot[field] = text
			group["boot"] = boot
		case "pool":
			group["disk"] = map[string]any{"size": "1GiB", "pool": text}
		case "network":
			group["network"] = text
		case "bridge":
			group["network"] = "bridge:" + text
		case "label":
			group["labels"] = map[string]any{text: "x"}
		case "label's value":
			group["labels"] = map[string]any{"x": text}
		case "term":
			group["affinity"] = map[string]any{"prefer": []string{"vc:" + text}}
		}
		body, err := json.Marshal(vc)
		if err != nil {
			t.Fatal(err)
		}
		return k.ask("POST", plain("POST", "/v1/virtual-clusters?dryRun=true", "Authorization: Bearer "+c.token+"\r\n", string(body)))
	}
	for _, field := range []string{"virtual cluster", "group", "image", "kernel", "initrd", "cmdline", "pool", "network", "bridge", "label", "label's value", "term"} {
		for _, text := range hostile {
			a := try(field, text)
			taken := a.status > 0 && a.status < 300
			if taken {
				accepted[field]++
			}
			bad := taken && text != "" && !harmless.MatchString(text)
			if field == "label" { // a prefix and a slash may stand before it
				bad = taken && !harmless.MatchString(strings.ReplaceAll(text, "/", "."))
			}
			if field == "cmdline" { // any printable text
				bad = taken && strings.ContainsFunc(text, unicode.IsControl)
			}
			y.add(bad || a.status >= 500, taken || a.status == 422 || a.status == 400, "%s %q: %s", field, text, a)
		}
	}
	y.report(t, "hostile names")
	t.Logf("accepted: %v", accepted)
	if a := try("group", "good"); a.status == 0 || a.status >= 300 {
		t.Errorf("a good name: %s", a)
	}
}
