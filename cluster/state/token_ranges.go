package state

import (
	"fmt"
	"net/netip"
	"slices"
)

// MaxTokenRanges is how many ranges of addresses a token may have.
const MaxTokenRanges = 16

// maxRangeText is the longest text of a range: an IPv6 address with an IPv4 one at its end, and the prefix.
const maxRangeText = 49

// TokenRangeRule says what ranges of addresses are valid.
const TokenRangeRule = "must be ranges of IP addresses as 10.0.0.0/24 or 2001:db8::/48, or single addresses, each once, at most 16"

// ParseTokenRange reads a range of addresses. One address stands for the range of itself alone. An IPv4 range in its IPv6 form
// and a zone are refused: they would match nothing. So are bits beyond the prefix: which range is meant is then not clear.
func ParseTokenRange(text string) (netip.Prefix, error) {
	if a, err := netip.ParseAddr(text); err == nil && a.Zone() == "" {
		a = a.Unmap()
		return netip.PrefixFrom(a, a.BitLen()), nil
	}
	p, err := netip.ParsePrefix(text)
	switch {
	case len(text) > maxRangeText:
		return p, fmt.Errorf("a range of addresses has at most %d characters", maxRangeText)
	case err != nil:
		return p, fmt.Errorf("%q is no range of IP addresses, such as 10.0.0.0/24, and no address", text)
	case p.Addr().Is4In6():
		return p, fmt.Errorf("%q is a range of IPv4 addresses in their IPv6 form: write it as one of IPv4", text)
	case p != p.Masked():
		return p, fmt.Errorf("%q has bits beyond its prefix: write %s", text, p.Masked())
	}
	return p, nil
}

// TokenRanges are ranges as rows of tokens have them: each once, in the text that netip writes, in the order of addresses.
func TokenRanges(texts []string) ([]string, error) {
	var ranges []netip.Prefix
	for _, text := range texts {
		p, err := ParseTokenRange(text)
		if err != nil {
			return nil, err
		}
		ranges = append(ranges, p)
	}
	slices.SortFunc(ranges, netip.Prefix.Compare)
	ranges = slices.Compact(ranges)
	if len(ranges) > MaxTokenRanges {
		return nil, fmt.Errorf("%d ranges are more than %d", len(ranges), MaxTokenRanges)
	}
	var out []string
	for _, p := range ranges {
		out = append(out, p.String())
	}
	return out, nil
}

// GoodFrom says whether the token may be used by a client at an address, as host:port. Without ranges it may by any. With ranges an
// address that cannot be read is outside. A zone does not count: it names an interface of this server.
func (t Token) GoodFrom(client string) bool {
	if len(t.From) == 0 {
		return true
	}
	at, err := netip.ParseAddrPort(client)
	if err != nil {
		return false
	}
	address := at.Addr().Unmap().WithZone("")
	return slices.ContainsFunc(t.From, func(text string) bool {
		p, err := netip.ParsePrefix(text)
		return err == nil && p.Contains(address)
	})
}

// RangesWithin says whether every address of the ranges is in one of another token's; no ranges are all addresses.
func RangesWithin(ranges, outer []string) bool {
	if len(outer) == 0 {
		return true
	}
	for _, text := range ranges {
		p, err := netip.ParsePrefix(text)
		if err != nil || !slices.ContainsFunc(outer, func(text string) bool {
			o, err := netip.ParsePrefix(text)
			return err == nil && o.Bits() <= p.Bits() && o.Contains(p.Addr())
		}) {
			return false
		}
	}
	return len(ranges) > 0
}

func (t Token) since() int {
	if len(t.From) > 0 {
		return tokenRangesSince
	}
	return 0
}

// tokenRangesSince is the version of the format that brought ranges of addresses.
const tokenRangesSince = 2
