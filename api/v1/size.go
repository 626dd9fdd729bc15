package v1

import (
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Size is a number of bytes, never negative. Users write "2GiB", "1.5GiB" or
// a plain number of bytes; the API answers with a number.
type Size int64

var sizeUnits = []struct {
	name  string
	bytes int64
}{
	{"TiB", 1 << 40},
	{"GiB", 1 << 30},
	{"MiB", 1 << 20},
	{"KiB", 1 << 10},
}

// ParseSize reads a size: digits, a fraction where it comes out as whole bytes,
// and one of KiB, MiB, GiB, TiB or nothing (bytes). No sign, no space, no other
// unit: GB and G mean different things to different people.
func ParseSize(s string) (Size, error) {
	unit, number := int64(1), s
	for _, u := range sizeUnits {
		if n, ok := strings.CutSuffix(s, u.name); ok {
			unit, number = u.bytes, n
			break
		}
	}
	whole, fraction, dotted := strings.Cut(number, ".")
	if !digits(whole) || dotted && (!digits(fraction) || unit == 1) {
		return 0, fmt.Errorf("%q is not a size: write it like 512MiB, 1.5GiB or 1048576 (units KiB, MiB, GiB, TiB)", clip(s, 40))
	}
	n, err := strconv.ParseInt(whole, 10, 64)
	if err != nil || n > math.MaxInt64/unit {
		return 0, fmt.Errorf("%q is too large a size", clip(s, 40))
	}
	n *= unit
	rest, ok := fractionOf(unit, strings.TrimRight(fraction, "0"))
	if !ok {
		return 0, fmt.Errorf("%q is not a whole number of bytes", clip(s, 40))
	}
	if n > math.MaxInt64-rest {
		return 0, fmt.Errorf("%q is too large a size", clip(s, 40))
	}
	return Size(n + rest), nil
}

// fractionOf is 0.frac of unit, if that is a whole number of bytes.
func fractionOf(unit int64, frac string) (int64, bool) {
	if frac == "" {
		return 0, true
	}
	if len(frac) > 12 { // more digits than users write by hand; and 10^12 fits an int64
		return 0, false
	}
	num, err := strconv.ParseInt(frac, 10, 64)
	if err != nil {
		return 0, false
	}
	den := int64(1)
	for range frac {
		den *= 10
	}
	g := gcd(num, den)
	num, den = num/g, den/g
	if unit%den != 0 {
		return 0, false
	}
	return unit / den * num, true
}

func gcd(a, b int64) int64 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

func digits(s string) bool {
	if s == "" {
		return false
	}
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return false
		}
	}
	return true
}

// String is the size in the largest unit that divides it, so that ParseSize
// gives the same size back.
func (s Size) String() string {
	for _, u := range sizeUnits {
		if s != 0 && int64(s)%u.bytes == 0 {
			return strconv.FormatInt(int64(s)/u.bytes, 10) + u.name
		}
	}
	return strconv.FormatInt(int64(s), 10)
}

// Short is the size for people, to three digits: "1.5GiB", "37.2MiB".
func (s Size) Short() string {
	for _, u := range sizeUnits {
		if s >= Size(u.bytes) {
			v := float64(s) / float64(u.bytes)
			digits := 1
			if v >= 99.95 || v == math.Trunc(v) {
				digits = 0
			}
			return strconv.FormatFloat(v, 'f', digits, 64) + u.name
		}
	}
	return strconv.FormatInt(int64(s), 10) + "B"
}

// UnmarshalJSON takes a whole number of bytes or a string as ParseSize reads it.
func (s *Size) UnmarshalJSON(b []byte) error {
	text := string(b)
	if len(b) > 0 && b[0] == '"' {
		if err := json.Unmarshal(b, &text); err != nil {
			return err
		}
	}
	v, err := ParseSize(text)
	if err != nil {
		return err
	}
	*s = v
	return nil
}

func clip(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && s[n]&0xC0 == 0x80 { // not inside a rune
		n--
	}
	return s[:n] + "..."
}
