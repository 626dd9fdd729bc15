package v1

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func ptr[T any](v T) *T { return &v }

// full uses every field.
var full = VirtualClusterSpec{
	Name: "render", MinYield: ptr(0.5), OnFull: "queue", OnHostLoss: "keep", Priority: -3, Needs: "declared",
	Groups: []GroupSpec{
		{Name: "worker", Count: 4, CPU: 1.5, VCPUs: 2, Memory: 2 << 30, MemoryMin: 1 << 30, Role: "core", Image: "debian-12",
			Disk: &Disk{Size: 10 << 30, Pool: "default"}, Network: "default", CloudInit: &CloudInit{UserData: "#cloud-config\nhostname: a\n"},
			Labels: map[string]string{"app": "render"}},
		{Name: "probe", CPU: 0.25, Memory: 128 << 20, Role: "elastic", Boot: &Boot{Kernel: "tiny", Initrd: "tiny-initrd", Cmdline: "console=ttyS0"},
			Disk: &Disk{Ephemeral: true}, Affinity: &Affinity{Spread: "host", Require: []string{"app=render"}, Prefer: []string{"host:h1"}, Avoid: []string{"vc:other"}}},
	},
}

func TestVCFile(t *testing.T) {
	for _, name := range []string{"full.yaml", "full.json"} {
		doc, err := os.ReadFile(filepath.Join("testdata", name))
		if err != nil {
			t.Fatal(err)
		}
		got, err := ParseVCFile(doc)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if d := cmp.Diff(full, got); d != "" {
			t.Errorf("%s: (-want +got)\n%s", name, d)
		}
	}
}

// TestVCFileEncodes: what a client sends is what the user wrote.
func TestVCFileEncodes(t *testing.T) {
	raw, err := json.Marshal(full)
	if err != nil {
		t.Fatal(err)
	}
	got, err := Decode[VirtualClusterSpec](raw)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(full, got); d != "" {
		t.Errorf("(-want +got)\n%s", d)
	}
}

// withGroup is a VC file of one group, with more fields given as YAML flow.
func withGroup(fields string) string {
	return "name: a\ngroups:\n  - {name: w, cpu: 1, memory: 1GiB, " + fields + "}\n"
}

func TestVCFileRefuses(t *testing.T) {
	bracketBomb, entryBomb := strings.Repeat("[", 100_000), "a: "+strings.Repeat("- ", 100_000)
	cases := []struct {
		name, doc, field, text string
		malformed              bool
	}{
		{"unknown field", "name: a\ncolor: red\ngroups: []\n", "color", "unknown field", false},
		{"unknown field near a known one", withGroup("memmory: 1"), "groups[0].memmory", "did you mean memory?", false},
		{"negative CPU", strings.Replace(withGroup("count: 1"), "cpu: 1", "cpu: -1", 1), "groups[0].cpu", "from 0.001 to 1024 cores", false},
		{"CPU of nothing", strings.Replace(withGroup("count: 1"), "cpu: 1", "cpu: 0", 1), "groups[0].cpu", "from 0.001 to 1024 cores", false},
		{"CPU .nan", strings.Replace(withGroup("count: 1"), "cpu: 1", "cpu: .nan", 1), "groups[0].cpu", "finite", false},
		{"CPU NaN", strings.Replace(withGroup("count: 1"), "cpu: 1", "cpu: NaN", 1), "groups[0].cpu", "a number", false},
		{"CPU .inf", strings.Replace(withGroup("count: 1"), "cpu: 1", "cpu: .inf", 1), "groups[0].cpu", "finite", false},
		{"CPU 1e400", strings.Replace(withGroup("count: 1"), "cpu: 1", "cpu: 1e400", 1), "groups[0].cpu", "", false},
		{"CPU as text", strings.Replace(withGroup("count: 1"), "cpu: 1", `cpu: "1"`, 1), "groups[0].cpu", "must be a number", false},
		{"CPU in hex", strings.Replace(withGroup("count: 1"), "cpu: 1", "cpu: 0x1", 1), "groups[0].cpu", "decimal", false},
		{"an unknown field in flow style", "{name: a, colour: red, groups: [{name: w, cpu: 1, memory: 1GiB}]}", "colour", "", false},
		{"NaN in JSON", `{"name":"a","groups":[{"name":"w","cpu":NaN,"memory":1}]}`, "groups[0].cpu", "not JSON", true},
		{"a thousand million VMs", withGroup("count: 1000000000"), "groups[0].count", "1048576", false},
		{"no VMs", withGroup("count: 0"), "groups[0].count", "from 1", false},
		{"half a VM", withGroup("count: 0.5"), "groups[0].count", "whole number", false},
		{"a count of 010", withGroup("count: 010"), "groups[0].count", "", false},
		{"name with a slash", strings.Replace(withGroup("count: 1"), "name: a", "name: a/b", 1), "name", "DNS label", false},
		{"name in capitals", strings.Replace(withGroup("count: 1"), "name: a", "name: A", 1), "name", "DNS label", false},
		{"name that is a number", strings.Replace(withGroup("count: 1"), "name: a", "name: 12", 1), "name", "quotes", false},
		{"name too long", strings.Replace(withGroup("count: 1"), "name: a", "name: "+strings.Repeat("a", 64), 1), "name", "63", false},
		{"two groups of a name", "name: a\ngroups:\n  - {name: w, cpu: 1, memory: 1GiB}\n  - {name: w, cpu: 1, memory: 1GiB}\n", "groups[1].name", "already", false},
		{"a kernel's path", withGroup("boot: {kernel: /boot/vmlinuz}"), "groups[0].boot.kernel", "not a path", false},
		{"an image's path", withGroup("image: ../disk.qcow2"), "groups[0].image", "not a path", false},
		{"image and boot", withGroup("image: x, boot: {kernel: y}"), "groups[0].boot", "leave one", false},
		{"boot without a kernel", withGroup("boot: {initrd: y}"), "groups[0].boot.kernel", "missing", false},
		{"memory without a unit that is known", strings.Replace(withGroup("count: 1"), "1GiB", "1GB", 1), "groups[0].memory", "KiB", false},
		{"negative memory", strings.Replace(withGroup("count: 1"), "1GiB", "-1", 1), "groups[0].memory", "not a size", false},
		{"no memory", strings.Replace(withGroup("count: 1"), "1GiB", "0", 1), "groups[0].memory", "more than 0", false},
		{"memoryMin above memory", withGroup("memoryMin: 2GiB"), "groups[0].memoryMin", "1GiB", false},
		{"vcpus below cpu", strings.Replace(withGroup("vcpus: 1"), "cpu: 1,", "cpu: 1.5,", 1), "groups[0].vcpus", "1.5", false},
		{"minYield above 1", "name: a\nminYield: 1.1\ngroups: [{name: w, cpu: 1, memory: 1GiB}]\n", "minYield", "from 0 to 1", false},
		{"onFull", "name: a\nonFull: maybe\ngroups: [{name: w, cpu: 1, memory: 1GiB}]\n", "onFull", "queue or reject", false},
		{"no name", "groups: [{name: w, cpu: 1, memory: 1GiB}]\n", "name", "missing", false},
		{"no groups", "name: a\n", "groups", "missing", false},
		{"empty groups", "name: a\ngroups: []\n", "groups", "1 to 64", false},
		{"groups as an object", "name: a\ngroups: {name: w}\n", "groups", "a list", false},
		{"no cpu", "name: a\ngroups: [{name: w, memory: 1GiB}]\n", "groups[0].cpu", "missing", false},
		{"null cpu", "name: a\ngroups: [{name: w, cpu: , memory: 1GiB}]\n", "groups[0].cpu", "missing", false},
		{"disk path", withGroup("disk: {pool: /var/lib}"), "groups[0].disk.pool", "not a path", false},
		{"spread over racks", withGroup("affinity: {spread: rack}"), "groups[0].affinity.spread", "must be host", false},
		{"a term that is a word", withGroup("affinity: {avoid: [app=db, db]}"), "groups[0].affinity.avoid[1]", "label=value, host:NAME or vc:NAME", false},
		{"a term of no name", withGroup("affinity: {require: ['host:']}"), "groups[0].affinity.require[0]", "host:NAME", false},
		{"a term of another kind", withGroup("affinity: {prefer: ['rack:1']}"), "groups[0].affinity.prefer[0]", "label=value", false},
		{"a rule of no kind", withGroup("affinity: {avoids: [app=db]}"), "groups[0].affinity.avoids", "did you mean avoid?", false},
		{"required and avoided", withGroup("affinity: {require: [app=x], avoid: [app=y, app=x]}"), "groups[0].affinity.avoid[1]", "required as well", false},
		{"65 terms", withGroup("affinity: {avoid: [" + same(65, "a=b") + "]}"), "groups[0].affinity.avoid", "0 to 64", false},
		{"a label that ends with a dot", withGroup("labels: {app: x.}"), "groups[0].labels", "label app=x.", false},
		{"a label's name in another script", withGroup("labels: {\"\u00e4\": x}"), "groups[0].labels", "letters, digits", false},
		{"a kernel command line of two lines", withGroup(`boot: {kernel: k, cmdline: "a\nb"}`), "groups[0].boot.cmdline", "one line", false},
		{"a network's path", withGroup("network: ../x"), "groups[0].network", "bridge:NAME", false},
		{"too much cloud-init data", withGroup("cloudInit: {metaData: " + strings.Repeat("a", 65537) + "}"), "groups[0].cloudInit.metaData", "65536", false},
		{"1025 cores", strings.Replace(withGroup("count: 1"), "cpu: 1,", "cpu: 1025,", 1), "groups[0].cpu", "1024 cores", false},
		{"1025 virtual CPUs", withGroup("vcpus: 1025"), "groups[0].vcpus", "from 1 to 1024", false},
		{"no least memory", withGroup("memoryMin: 0"), "groups[0].memoryMin", "more than 0", false},
		{"priority", "priority: 1000001\n" + withGroup("count: 1"), "priority", "1000000", false},
		{"65 labels", withGroup("labels: {" + many(65, "l%d: x") + "}"), "groups[0].labels", "64", false},
		{"65 groups", "name: a\ngroups: [" + many(65, "{name: w%d, cpu: 1, memory: 1GiB}") + "]\n", "groups", "1 to 64", false},
		{"terms as a word", withGroup("affinity: {avoid: app=db}"), "groups[0].affinity.avoid", "a list", false},
		{"disk word", withGroup("disk: big"), "groups[0].disk", "ephemeral", false},
		{"a field twice", "name: a\nname: b\n", "", "already defined", true},
		{"a field twice in JSON", `{"name":"a","name":"b"}`, "name", "twice", true},
		{"anchor", "name: &x a\ngroups: []\n", "name", "not supported", true},
		{"alias", "name: a\ngroups: *x\n", "", "", true},
		{"merge key", "name: a\n<<: {groups: []}\n", "", "merge", true},
		{"tag", "name: !!str 1\n", "name", "not supported", true},
		{"two documents", "name: a\n---\nname: b\n", "", "more than one", true},
		{"a list", "- a\n", "", "an object", false},
		{"empty", "", "", "empty", true},
		{"a comment only", "# nothing\n", "", "empty", true},
		{"half a JSON", `{"name":"a","groups":[{"name":"w",`, "groups[0]", "ends in the middle", true},
		{"half a JSON value", `{"name":"a","groups":[{"name":"w`, "groups[0].name", "ends in the middle", true},
		{"JSON and more", `{"name":"a"} {}`, "", "after the end", true},
		{"half a YAML", "name: {a\n", "", "not YAML", true},
		{"not text", "\x00\xff\xfe", "", "", false},
		{"deep flow", bracketBomb, "", "nested", true},
		{"deep block", entryBomb, "", "nested", true},
		{"deep JSON", `{"a":` + bracketBomb, "", "nested", true},
		{"too large", "name: " + strings.Repeat("a", MaxBytes), "", "bytes", true},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			_, err := ParseVCFile([]byte(c.doc))
			var inv *Invalid
			if !errors.As(err, &inv) {
				t.Fatalf("got %v, want *Invalid", err)
			}
			if c.malformed != inv.Malformed {
				t.Errorf("malformed is %v: %v", inv.Malformed, err)
			}
			for _, f := range inv.Fields {
				if (c.field == "" || f.Field == c.field) && strings.Contains(f.Message, c.text) {
					return
				}
			}
			t.Errorf("no fault of field %q says %q: %v", c.field, c.text, err)
		})
	}
}

func TestVCFileLines(t *testing.T) {
	for _, doc := range []string{
		"name: a\ngroups:\n  - name: w\n    cpu: -1\n    memory: 1GiB\n",
		"{\"name\": \"a\",\n\"groups\": [\n {\"name\": \"w\",\n  \"cpu\": -1,\n \"memory\": 1}]}",
	} {
		_, err := ParseVCFile([]byte(doc))
		if err == nil || !strings.HasPrefix(err.Error(), "line 4: groups[0].cpu: ") {
			t.Errorf("got %v", err)
		}
	}
}

func TestManyFaults(t *testing.T) {
	var b strings.Builder
	b.WriteString("name: a\ngroups: [{name: w, cpu: 1, memory: 1GiB}]\n")
	for i := range 100 {
		fmt.Fprintf(&b, "field%d: 1\n", i)
	}
	_, err := ParseVCFile([]byte(b.String()))
	var inv *Invalid
	if !errors.As(err, &inv) || len(inv.Fields) != maxFaults {
		t.Fatalf("%d faults reported, want %d", len(inv.Fields), maxFaults)
	}
}

var dnsLabel = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`)

func FuzzVCFile(f *testing.F) {
	for _, name := range []string{"full.yaml", "full.json"} {
		doc, err := os.ReadFile(filepath.Join("testdata", name))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(doc)
	}
	for _, s := range []string{"", "{", "name: a\ngroups:\n- {name: w, cpu: .nan, memory: 1}", "a: &x [*x]", "? a\n: b", "a: |\n  x\n b", "{\"a\":[[[[", "- - - -", "<<: {a: 1}"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, doc []byte) {
		spec, err := ParseVCFile(doc)
		if err != nil {
			var inv *Invalid
			if !errors.As(err, &inv) || len(inv.Fields) == 0 {
				t.Fatalf("an error that names no fault: %v", err)
			}
			return
		}
		if !dnsLabel.MatchString(spec.Name) || len(spec.Groups) == 0 {
			t.Fatalf("accepted %+v", spec)
		}
		for _, g := range spec.Groups {
			if !(g.CPU > 0) || math.IsInf(g.CPU, 0) || g.Memory <= 0 || g.MemoryMin > g.Memory || g.Count < 0 {
				t.Fatalf("accepted %+v", g)
			}
		}
		raw, err := json.Marshal(spec)
		if err != nil {
			t.Fatalf("cannot be sent: %v", err)
		}
		back, err := Decode[VirtualClusterSpec](raw)
		if err != nil {
			t.Fatalf("sent as %s, refused: %v", raw, err)
		}
		again, err := json.Marshal(back)
		if err != nil || string(again) != string(raw) {
			t.Fatalf("%s became %s (%v)", raw, again, err)
		}
	})
}

// The examples are VC files.
func TestExamples(t *testing.T) {
	files, err := filepath.Glob("../../examples/*.yaml")
	if err != nil || len(files) < 3 {
		t.Fatalf("%v, %v", files, err)
	}
	for _, name := range files {
		doc, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := ParseVCFile(doc); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
