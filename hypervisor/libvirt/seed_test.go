package libvirt

import (
	"testing"

	"evenkeel/hypervisor"
)

// TestHostname: guests keep their host names, whatever their domain is called; a leader of the version before gives no title.
func TestHostname(t *testing.T) {
	for _, c := range []struct{ name, title, want string }{
		{"ek-01M7", "web-core-0", "ek-web-core-0"},
		{"ek-01M7", "film/web-core-0", "ek-web-core-0"},
		{"ek-web-core-0", "", "ek-web-core-0"},
	} {
		if got := hostname(hypervisor.Spec{Name: c.name, Title: c.title}); got != c.want {
			t.Errorf("domain %q, title %q: host name %q, want %q", c.name, c.title, got, c.want)
		}
	}
}
