package hypervisor

import (
	"net/netip"
	"slices"
)

// Addresses returns the addresses that people can reach a VM by, out of what it was found to have: each once, IPv4 first, in
// order, at most MaxAddresses.
func Addresses(found []string) []netip.Addr {
	var out []netip.Addr
	for _, text := range found {
		a, err := netip.ParseAddr(text)
		if err != nil {
			continue
		}
		a = a.Unmap().WithZone("")
		if a.IsLoopback() || a.IsLinkLocalUnicast() || a.IsMulticast() || a.IsUnspecified() {
			continue
		}
		out = append(out, a)
	}
	slices.SortFunc(out, netip.Addr.Compare)
	out = slices.Compact(out)
	return out[:min(len(out), MaxAddresses)]
}
