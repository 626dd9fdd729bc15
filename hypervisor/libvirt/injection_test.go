package libvirt

import (
	"encoding/xml"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"

	"evenkeel/hypervisor"
)

// outline of an XML document: its elements in order, with the names of their attributes.
func outline(t *testing.T, text string) []string {
	t.Helper()
	var out []string
	d := xml.NewDecoder(strings.NewReader(text))
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			return out
		}
		if err != nil {
			t.Fatalf("%v: %s", err, text)
		}
		switch token := token.(type) {
		case xml.StartElement:
			s := token.Name.Local
			for _, a := range token.Attr {
				s += " " + a.Name.Local
			}
			out = append(out, s)
		case xml.EndElement:
			out = append(out, "/"+token.Name.Local)
		case xml.Directive, xml.ProcInst:
			t.Fatalf("a directive: %s", text)
		}
	}
}

// No text of a VM's specification, whatever it holds, makes an element or an attribute of the domain. What names may hold is
// checked before, too; this is for where that fails.
func TestHostileTextsInDomainXML(t *testing.T) {
	full := func() hypervisor.Spec {
		s := baseSpec()
		s.Disk = hypervisor.Disk{Base: "/img/debian.qcow2", Size: 10 << 30, Pool: "fast"}
		s.Network = "default"
		return s
	}
	fields := map[string]func(*hypervisor.Spec, *parts, string){
		"name":    func(s *hypervisor.Spec, _ *parts, x string) { s.Name = x },
		"cluster": func(s *hypervisor.Spec, _ *parts, x string) { s.Identity.Cluster = x },
		"VM":      func(s *hypervisor.Spec, _ *parts, x string) { s.Identity.VM = x },
		"kernel":  func(s *hypervisor.Spec, _ *parts, x string) { s.Boot.Kernel = x },
		"initrd":  func(s *hypervisor.Spec, _ *parts, x string) { s.Boot.Initrd = x },
		"cmdline": func(s *hypervisor.Spec, _ *parts, x string) { s.Boot.Cmdline = x },
		"base":    func(s *hypervisor.Spec, _ *parts, x string) { s.Disk.Base = x },
		"pool":    func(s *hypervisor.Spec, _ *parts, x string) { s.Disk.Pool = x },
		"network": func(s *hypervisor.Spec, _ *parts, x string) { s.Network = x },
		"bridge":  func(s *hypervisor.Spec, _ *parts, x string) { s.Network = "bridge:" + x },
		"disk":    func(_ *hypervisor.Spec, p *parts, x string) { p.disk = x },
		"log":     func(_ *hypervisor.Spec, p *parts, x string) { p.log = x },
	}
	tried := 0
	for field, set := range fields {
		build := func(text string) string {
			s, p := full(), parts{disk: "/pool/d", seed: "/pool/s", log: "/s/l"}
			set(&s, &p, text)
			got, err := domainXML(s, p, abilitiesOf(true, 9_000_000, 7_002_022), 1)
			if err != nil {
				t.Fatalf("%s %q: %v", field, text, err)
			}
			return got
		}
		want := outline(t, build("harmless"))
		for _, text := range []string{`<disk type="block"/>`, `'/><disk/><x a='`, `"/><disk/><x a="`, "]]><disk/>", "<![CDATA[<disk/>]]>", "&xxe;", "&#60;disk/&#62;", "<!-- x -->", "<?x y?>", "a\nb\tc", "é\u202e"} {
			tried++
			if got := outline(t, build(text)); !slices.Equal(got, want) {
				t.Errorf("%s %q changes the domain:\n%v\n%v", field, text, got, want)
			}
		}
	}
	t.Logf("%d texts, none let through", tried)
}
