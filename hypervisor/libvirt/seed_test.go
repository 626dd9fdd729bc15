package libvirt

import "testing"

func TestHostnameOfDomain(t *testing.T) {
	for domain, want := range map[string]string{"ek-web-core-0": "ek-web-core-0", "ek-film.web-core-0": "ek-web-core-0"} {
		if got := hostname(domain); got != want {
			t.Errorf("%s: %q, want %q", domain, got, want)
		}
	}
}
