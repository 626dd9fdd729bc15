package attack

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
)

// route of the public API, with x for every parameter.
type route struct{ method, path string }

var parameter = regexp.MustCompile(`\{[^}]+\}`)

// routes of a server, as it describes them to a client with a token.
func (c *cluster) routes(t *testing.T, s *server) []route {
	t.Helper()
	a := c.ask(t, s, "GET", "/openapi.json", c.tokenOf(s), "")
	var doc struct {
		Paths map[string]map[string]any `json:"paths"`
	}
	if err := json.Unmarshal([]byte(a.body), &doc); err != nil || a.status != 200 {
		t.Fatalf("%s: the description of the API: %d, %v", s.name, a.status, err)
	}
	out := []route{{"GET", "/openapi.json"}, {"GET", "/metrics"}}
	for path, methods := range doc.Paths {
		for method := range methods {
			if m := strings.ToUpper(method); m != "PARAMETERS" {
				out = append(out, route{m, parameter.ReplaceAllString(path, "x")})
			}
		}
	}
	slices.SortFunc(out, func(a, b route) int { return strings.Compare(a.path+a.method, b.path+b.method) })
	return out
}

// ask once over a connection of its own, with a token if it is not empty.
func (c *cluster) ask(t *testing.T, s *server, method, path, token, body string) answer {
	t.Helper()
	k := &talk{ctx: t.Context(), from: place(), to: s.address, max: 8 << 20}
	defer k.close()
	headers := ""
	if token != "" {
		headers = "Authorization: Bearer " + token + "\r\n"
	}
	return k.ask(method, plain(method, path, headers, body))
}

// plain is a request of HTTP/1.1.
func plain(method, path, headers, body string) []byte {
	if body != "" || method == "POST" || method == "PUT" || method == "PATCH" {
		headers += fmt.Sprintf("Content-Type: application/json\r\nContent-Length: %d\r\n", len(body))
	}
	return []byte(method + " " + path + " HTTP/1.1\r\nHost: a\r\n" + headers + "\r\n" + body)
}

// credentials that are not valid, made from a valid token: name, headers, and what is added to the path.
func credentials(c *cluster, token string) [][3]string {
	bearer := func(s string) string { return "Authorization: Bearer " + s + "\r\n" }
	hash := sha256.Sum256([]byte(token))
	members := ""
	for _, h := range memberHeaders(c) {
		members += h[0] + ": " + h[1] + "\r\n"
	}
	flipped := []byte(token)
	flipped[len(flipped)-2] ^= 1
	return [][3]string{
		{"none", "", ""},
		{"empty", "Authorization: \r\n", ""},
		{"no token", "Authorization: Bearer\r\n", ""},
		{"another", bearer("ekt_" + strings.Repeat("A", 43)), ""},
		{"one bit off", bearer(string(flipped)), ""},
		{"cut", bearer(token[:len(token)-1]), ""},
		{"longer", bearer(token + "A"), ""},
		{"without its prefix", bearer(strings.TrimPrefix(token, "ekt_")), ""},
		{"its first part", bearer(strings.SplitN(token, ".", 2)[0][:min(len(token)-1, 20)]), ""},
		{"another case", bearer(strings.ToUpper(token)), ""},
		{"its hash", bearer(hex.EncodeToString(hash[:])), ""},
		{"basic", "Authorization: Basic " + base64.StdEncoding.EncodeToString([]byte("admin:"+token)) + "\r\n", ""},
		{"another scheme", "Authorization: Token " + token + "\r\n", ""},
		{"no scheme", "Authorization: " + token + "\r\n", ""},
		{"second header", bearer("ekt_x") + bearer(token), ""},
		{"cookie", "Cookie: token=" + token + "; Authorization=Bearer " + token + "\r\n", ""},
		{"query", "", "?token=" + token + "&access_token=" + token},
		{"members' headers", members + "X-Forwarded-For: 127.0.0.1\r\nX-Api-Key: " + token + "\r\n", ""},
		{"members' headers to be struck out", members + "Connection: Authorization, Evenkeel-Client, Evenkeel-Caller\r\n", ""},
	}
}

// TestAuthenticationMatrix: every route of the API with every form of invalid credentials.
func TestAuthenticationMatrix(t *testing.T) {
	t.Parallel()
	c := reuse(t)
	y := &tally{}
	var group sync.WaitGroup
	leader, followers := c.roles(t)
	for _, s := range []*server{leader, followers[0], c.dev} {
		routes, at := append(c.routes(t, s), route{"GET", "/v1/nothing"}), c.role(t, s)
		forms := credentials(c, c.tokenOf(s))
		t.Logf("%s: %d routes, %d forms of credentials", at, len(routes), len(forms))
		group.Go(func() {
			k := &talk{ctx: t.Context(), from: place(), to: s.address}
			defer k.close()
			for _, r := range routes {
				if r.path == "/livez" || r.path == "/readyz" || r.path == "/v1/auth" {
					continue // open to every client: see docs/reference/api.md
				}
				for _, f := range forms {
					a := k.ask(r.method, plain(r.method, r.path+f[2], f[1], ""))
					y.add(a.data() || a.status < 400 || a.status >= 500, a.status == 401, "%s %s %s with %q: %s", at, r.method, r.path, f[0], a)
				}
			}
		})
	}
	group.Wait()
	y.report(t, "credentials")
	for _, s := range []*server{leader, followers[0], c.dev} { // a good token is one
		if a := c.ask(t, s, "GET", "/v1/vms", c.tokenOf(s), ""); a.status != http.StatusOK {
			t.Errorf("%s with the token: %s", s.name, a)
		}
	}
}

// confusingPaths are written so that the code that checks and the code that serves may take them for different paths.
func confusingPaths() []string {
	var out []string
	for _, open := range []string{"/livez", "/readyz", "/v1/auth", "/v1/cluster/join"} {
		for _, way := range []string{"/../v1/vms", "/..%2fv1/vms", "%2f..%2fv1%2fvms", "/%2e%2e/v1/vms", "/.%2e/v1/vms", ";/../v1/vms", "%00/../v1/vms", "%0a/v1/vms", `\..\v1\vms`, "//v1/vms", "/./v1/vms", "?/../v1/vms", "#/../v1/vms", "%23/v1/vms", "%3f/v1/vms"} {
			out = append(out, open+way)
		}
	}
	return append(out, "//v1/vms", "/V1/vms", "/v1/VMS", "/v1/vms/", "/v1/vms/.", "/v1//vms", "/v1/./vms", "/v1/x/../vms", "/%76%31/vms", "/v1%2fvms", "/v1/vms%00", "/v1/vms%20", "/v1/vms;/livez", "/v1/vms?/livez", "/v1/vms#/livez",
		"/metrics/", "/metrics%2f..%2flivez", "/openapi.json/../livez", "/forwarded/livez", "/forwarded/v1/vms", "/debug/pprof/", "/.git/config", "/docs", "/schemas", "/")
}

func TestPathConfusion(t *testing.T) {
	c := reuse(t)
	y := &tally{}
	var group sync.WaitGroup
	leader, followers := c.roles(t)
	for _, s := range []*server{leader, followers[0], c.dev} {
		at := c.role(t, s)
		group.Go(func() {
			k := &talk{ctx: t.Context(), from: place(), to: s.address}
			defer k.close()
			for _, p := range confusingPaths() {
				for _, method := range []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"} {
					a := k.ask(method, plain(method, p, "", ""))
					isOpen := strings.HasPrefix(p, "/livez?") || strings.HasPrefix(p, "/readyz?") || strings.HasPrefix(p, "/v1/auth?") // a query of an open path
					y.add(a.data() || a.status < 400 && !isOpen || a.status >= 500 && !isOpen, isOpen || a.status == 400 || a.status == 401 || a.status == 403 || a.status == 404 || a.status == 405 || a.status == 415 || a.status == 422 || a.status == 429,
						"%s %s %s: %s", at, method, p, a)
				}
			}
		})
	}
	group.Wait()
	y.report(t, "path confusion")
}
