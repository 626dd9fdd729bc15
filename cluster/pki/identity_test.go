package pki

import (
	"crypto/x509"
	"net/url"
	"strings"
	"testing"
)

func TestIdentityOf(t *testing.T) {
	both := Identity{Cluster: "01ABC", Name: "h1", Server: true, Agent: true}
	for _, c := range []struct {
		uris string
		want Identity
	}{
		{"evenkeel://01ABC/server/h1 evenkeel://01ABC/agent/h1", both},
		{"evenkeel://01ABC/agent/h1 https://x evenkeel://01ABC/server/h1", both},
		{"evenkeel://c/agent/h-2", Identity{Cluster: "c", Name: "h-2", Agent: true}},
		{"", Identity{}},
		{"https://c/server/h1", Identity{}},
		{"evenkeel://c/server/h1 evenkeel://c/server/h1", Identity{}},
		{"evenkeel://c/server/h1 evenkeel://d/agent/h1", Identity{}},
		{"evenkeel://c/server/h1 evenkeel://c/agent/h2", Identity{}},
		{"evenkeel://c/admin/h1", Identity{}},
		{"evenkeel://c/server/h1 evenkeel://c/admin/h1", Identity{}},
		{"evenkeel://c/server/", Identity{}},
		{"evenkeel://c/server/h1/", Identity{}},
		{"evenkeel://c/server/H1", Identity{}},
		{"evenkeel://c/server/h1.x", Identity{}},
		{"evenkeel://c/server/-h", Identity{}},
		{"evenkeel://c:1/server/h1", Identity{}},
		{"evenkeel://u@c/server/h1", Identity{}},
		{"evenkeel://c/server/h1?x=1", Identity{}},
		{"evenkeel://c/server/h1?", Identity{}},
		{"evenkeel://c/server/h1#x", Identity{}},
		{"evenkeel://c/server/h%31", Identity{}},
		{"evenkeel:c/server/h1", Identity{}},
		{"evenkeel:///server/h1", Identity{}},
		{"evenkeel://c/server/" + strings.Repeat("a", 64), Identity{}},
	} {
		cert := &x509.Certificate{}
		for _, s := range strings.Fields(c.uris) {
			u, err := url.Parse(s)
			if err != nil {
				t.Fatal(err)
			}
			cert.URIs = append(cert.URIs, u)
		}
		got, err := IdentityOf(cert)
		if got != c.want || (err == nil) != (c.want != Identity{}) {
			t.Errorf("%q: %+v, %v; want %+v", c.uris, got, err, c.want)
		}
	}
}

// Whatever is taken is valid, and has only one way to be written.
func FuzzIdentity(f *testing.F) {
	f.Add("evenkeel://c/server/h1", "evenkeel://c/agent/h1")
	f.Add("evenkeel://C/agent/h1", "")
	f.Add("evenkeel://c/server/h%31", "x://y")
	f.Fuzz(func(t *testing.T, a, b string) {
		var uris []string
		for _, s := range []string{a, b} {
			if u, err := url.Parse(s); err == nil && s != "" {
				uris = append(uris, u.String())
			}
		}
		id, err := ParseIdentity(uris)
		if err != nil {
			if id != (Identity{}) {
				t.Fatalf("an error and %+v", id)
			}
			return
		}
		if err := id.Validate(); err != nil {
			t.Fatalf("%q: %+v: %v", uris, id, err)
		}
		again := id.URIs()
		for _, u := range uris {
			if strings.HasPrefix(u, scheme+":") && !strings.Contains(strings.Join(again, " ")+" ", u+" ") {
				t.Fatalf("%q was taken for %+v", u, id)
			}
		}
		if back, err := ParseIdentity(again); err != nil || back != id {
			t.Fatalf("%+v became %+v, %v", id, back, err)
		}
	})
}
