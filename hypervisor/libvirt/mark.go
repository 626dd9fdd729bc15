package libvirt

import (
	"crypto/sha1"
	"encoding/xml"
	"fmt"

	"libvirt.org/go/libvirt"

	"evenkeel/hypervisor"
)

// markNamespace is the XML namespace of the element that makes a domain ours.
const markNamespace = "urn:evenkeel:vm:1"

// mark is the <metadata> element: the VM's identity, and what is needed to find its
// parts again without its Spec.
type mark struct {
	XMLName    xml.Name   // any: libvirt gives it back without prefix and namespace
	Cluster    string     `xml:"cluster,attr"`
	ID         string     `xml:"id,attr"`
	Generation uint64     `xml:"generation,attr"`
	VCPUs      int        `xml:"vcpus,attr"`
	Leased     bool       `xml:"leased,attr"`
	Started    int64      `xml:"started,attr"` // seconds since 1970; 0 = not known
	Ephemeral  *markedVol `xml:"ephemeral"` // a disk that goes with the VM
}

type markedVol struct {
	Pool   string `xml:"pool,attr"`
	Volume string `xml:"volume,attr"`
}

func (m mark) identity() hypervisor.Identity {
	return hypervisor.Identity{Cluster: m.Cluster, VM: m.ID, Generation: m.Generation}
}

// metadata is the mark as the content of a domain's <metadata>. libvirt drops
// elements there that have no namespace prefix, even if they have a namespace.
func (m mark) metadata() (string, error) {
	type element struct {
		XMLName    xml.Name   `xml:"ek:vm"`
		Namespace  string     `xml:"xmlns:ek,attr"`
		Cluster    string     `xml:"cluster,attr"`
		ID         string     `xml:"id,attr"`
		Generation uint64     `xml:"generation,attr"`
		VCPUs      int        `xml:"vcpus,attr"`
		Leased     bool       `xml:"leased,attr,omitempty"`
		Started    int64      `xml:"started,attr,omitempty"`
		Ephemeral  *markedVol `xml:"ek:ephemeral"`
	}
	b, err := xml.Marshal(element{Namespace: markNamespace, Cluster: m.Cluster, ID: m.ID, Generation: m.Generation, VCPUs: m.VCPUs, Leased: m.Leased, Started: m.Started, Ephemeral: m.Ephemeral})
	return string(b), err
}

// parseMark reads the element back as libvirt gives it: without its namespace.
func parseMark(s string) (mark, error) {
	var m mark
	if err := xml.Unmarshal([]byte(s), &m); err != nil {
		return mark{}, fmt.Errorf("mark of the VM: %w", err)
	}
	if m.ID == "" {
		return mark{}, fmt.Errorf("mark of the VM holds no id")
	}
	return m, nil
}

// markOf asks libvirt for a domain's mark; ERR_NO_DOMAIN_METADATA if it has none.
func markOf(dom *libvirt.Domain) (mark, error) {
	s, err := dom.GetMetadata(libvirt.DOMAIN_METADATA_ELEMENT, markNamespace, libvirt.DOMAIN_AFFECT_CURRENT)
	if err != nil {
		return mark{}, err
	}
	return parseMark(s)
}

// uuidOf is the libvirt UUID of the VM of that id: RFC 9562 version 5, in a
// namespace of our own.
func uuidOf(id string) string {
	sum := sha1.Sum([]byte(markNamespace + "\x00" + id))
	b := sum[:16]
	b[6] = b[6]&0x0f | 0x50
	b[8] = b[8]&0x3f | 0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

// macOf is the VM's network address: the same at every start, on every host.
// It is a locally administered one, with 40 bits of the id's hash: at 10,000 VMs
// on one network the odds of any two being equal are 1 to 20,000.
func macOf(id string) string {
	sum := sha1.Sum([]byte(markNamespace + "\x00mac\x00" + id))
	return fmt.Sprintf("52:%02x:%02x:%02x:%02x:%02x", sum[0], sum[1], sum[2], sum[3], sum[4])
}
