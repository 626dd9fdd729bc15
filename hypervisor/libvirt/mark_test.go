package libvirt

import (
	"encoding/xml"
	"testing"

	"pgregory.net/rapid"
)

// A mark comes back from XML as it went in, whatever is in its ids.
func TestMarkRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		// XML holds no control characters, and ids never have any.
		value := rapid.StringMatching(`[^\x00-\x1f\x7f-\x{9f}\x{d800}-\x{dfff}\x{fffe}\x{ffff}]{1,20}`)
		want := mark{Cluster: value.Draw(t, "cluster"), ID: value.Draw(t, "id"), Generation: rapid.Uint64().Draw(t, "generation"), VCPUs: rapid.IntRange(1, 64).Draw(t, "vcpus"), Leased: rapid.Bool().Draw(t, "leased"), Started: rapid.Int64Range(0, 1<<40).Draw(t, "started")}
		if rapid.Bool().Draw(t, "ephemeral") {
			want.Ephemeral = &markedVol{Pool: value.Draw(t, "pool"), Volume: value.Draw(t, "volume")}
		}
		text, err := want.metadata()
		if err != nil {
			t.Fatal(err)
		}
		got, err := parseMark(text)
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		got.XMLName = xml.Name{}
		same := got.Ephemeral == nil && want.Ephemeral == nil || got.Ephemeral != nil && want.Ephemeral != nil && *got.Ephemeral == *want.Ephemeral
		got.Ephemeral, want.Ephemeral = nil, nil
		if got != want || !same {
			t.Fatalf("%s: got %+v, want %+v", text, got, want)
		}
	})
}

func TestMarkMetadata(t *testing.T) {
	text, err := mark{Cluster: "c", ID: "v", Generation: 2, VCPUs: 4, Ephemeral: &markedVol{Pool: "p", Volume: "x"}}.metadata()
	if err != nil {
		t.Fatal(err)
	}
	const want = `<ek:vm xmlns:ek="urn:evenkeel:vm:1" cluster="c" id="v" generation="2" vcpus="4"><ek:ephemeral pool="p" volume="x"></ek:ephemeral></ek:vm>`
	if text != want {
		t.Errorf("got  %s\nwant %s", text, want)
	}
}

func TestParseMarkRefuses(t *testing.T) {
	for _, bad := range []string{"", "<vm>", "<vm cluster='c'/>", "<vm id='a' generation='-1'/>", "<vm id='a' vcpus='many'/>"} {
		if m, err := parseMark(bad); err == nil {
			t.Errorf("%q: read as %+v", bad, m)
		}
	}
}

func TestUUIDOf(t *testing.T) {
	// The UUID of a VM is how it is found again after an upgrade: it must never change.
	if got, want := uuidOf("vm1"), "0f3249d3-3bb1-58f4-8650-a710f83539e5"; got != want {
		t.Errorf("uuidOf(vm1) = %s, want %s", got, want)
	}
	if uuidOf("a") == uuidOf("b") || macOf("a") == macOf("b") {
		t.Error("two VMs share a UUID or an address")
	}
}

// FuzzParseMark: reading any metadata of a domain gives an error or a mark.
func FuzzParseMark(f *testing.F) {
	f.Add(`<vm cluster="c" id="v" generation="2" vcpus="4"><ephemeral pool="p" volume="x"/></vm>`)
	f.Add(`<vm id=""/>`)
	f.Add(`<vm id="a" generation="18446744073709551616"/>`)
	f.Fuzz(func(t *testing.T, text string) {
		m, err := parseMark(text)
		if err == nil && m.ID == "" {
			t.Errorf("%q: a mark of no VM", text)
		}
	})
}
