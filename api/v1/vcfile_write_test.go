package v1

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// A VC file that is written is read as the same spec.
func TestVCFileIsReadUnchanged(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		spec := drawSpec(t)
		doc, err := VCFile(spec)
		if err != nil {
			t.Fatal(err)
		}
		got, err := ParseVCFile(doc)
		if err != nil {
			t.Fatalf("%v\n%s", err, doc)
		}
		if diff := cmp.Diff(spec, got); diff != "" {
			t.Fatalf("(-written +read)\n%s\n%s", diff, doc)
		}
	})
}

func drawSpec(t *rapid.T) VirtualClusterSpec {
	name := rapid.StringMatching(`[a-z0-9]([-a-z0-9]{0,8}[a-z0-9])?`)
	size := rapid.Custom(func(t *rapid.T) Size {
		return Size(rapid.Int64Range(1, 1<<20).Draw(t, "n") << rapid.SampledFrom([]int{0, 10, 20}).Draw(t, "unit"))
	})
	one := func(of ...string) string { return rapid.SampledFrom(append(of, "")).Draw(t, "one of") }
	some := func(g *rapid.Generator[string]) string {
		if rapid.Bool().Draw(t, "left out") {
			return ""
		}
		return g.Draw(t, "text")
	}
	image := rapid.StringMatching(`[a-zA-Z0-9][-._a-zA-Z0-9]{0,9}`)
	text := rapid.OneOf(rapid.StringMatching(`(#cloud-config|[ a-z:"'#\\{}|>-]{0,6})(\n[ a-z:"'#\t-]{0,6}){0,4}\n{0,2}`), rapid.String())
	vc := VirtualClusterSpec{Name: name.Draw(t, "name"), OnFull: one("queue", "reject"), OnHostLoss: one("keep", "restart"),
		Priority: rapid.IntRange(-9, 9).Draw(t, "priority"), Needs: one("declared", "estimated"), Aggressiveness: one("conservative", "balanced")}
	if rapid.Bool().Draw(t, "minYield") {
		y := rapid.Float64Range(0, 1).Draw(t, "minYield")
		vc.MinYield = &y
	}
	seen := map[string]bool{}
	for range rapid.IntRange(1, 3).Draw(t, "groups") {
		cpu := rapid.Float64Range(0.001, 64).Draw(t, "cpu")
		g := GroupSpec{Name: name.Draw(t, "group"), CPU: cpu, Memory: size.Draw(t, "memory"), Count: rapid.IntRange(0, 9).Draw(t, "count"),
			Role: one("core", "elastic"), Network: one("default", "bridge:br0")}
		if seen[g.Name] {
			continue
		}
		seen[g.Name] = true
		if rapid.Bool().Draw(t, "vcpus") {
			g.VCPUs = 64
		}
		if rapid.Bool().Draw(t, "memoryMin") {
			g.MemoryMin = g.Memory
		}
		if rapid.Bool().Draw(t, "boot") {
			g.Boot = &Boot{Kernel: image.Draw(t, "kernel"), Initrd: some(image), Cmdline: some(rapid.StringMatching(`[ -~]{1,20}`))}
		} else {
			g.Image = some(image)
		}
		if rapid.Bool().Draw(t, "disk") {
			g.Disk = &Disk{Size: size.Draw(t, "disk"), Pool: some(image), Ephemeral: rapid.Bool().Draw(t, "ephemeral")}
		}
		if rapid.Bool().Draw(t, "cloudInit") {
			g.CloudInit = &CloudInit{UserData: text.Draw(t, "userData"), NetworkConfig: text.Draw(t, "networkConfig")}
		}
		if rapid.Bool().Draw(t, "labels") {
			g.Labels = map[string]string{image.Filter(func(s string) bool { return labelName.MatchString(s) }).Draw(t, "label"): one("render", "1", "yes", "null", "1e3"), "y": "no"}
		}
		if rapid.Bool().Draw(t, "affinity") {
			g.Affinity = &Affinity{Spread: one("host"), Prefer: []string{"host:h1", "vc:x"}, Avoid: []string{"app=1"}}
		}
		vc.Groups = append(vc.Groups, g)
	}
	return vc
}
