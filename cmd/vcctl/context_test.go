package main

import (
	"bytes"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
	"pgregory.net/rapid"
)

// offline runs a command line that asks no server.
func offline(args ...string) (status int, out, errs string) {
	var o, e bytes.Buffer
	status = run(append([]string{"vcctl"}, args...), strings.NewReader(""), &o, &e)
	return status, o.String(), e.String()
}

func mode(t *testing.T, path string) fs.FileMode {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	return info.Mode().Perm()
}

const twoClusters = `# the office
address: https://192.0.2.1:7480   # its first server
tokenFile: admin.token
cacert: ca.pem
contexts:
  # a tenant of the office
  film: {tenant: film, tokenFile: /tokens/anna}
  lab: {address: "https://192.0.2.9:7480"}
`

func TestContexts(t *testing.T) {
	file := atHome(t, twoClusters)
	dir := filepath.Dir(file)
	step := func(wantStatus int, wantText, line string) {
		t.Helper()
		if status, out, errs := offline(strings.Split(line, " ")...); status != wantStatus || !strings.Contains(out+errs, wantText) {
			t.Errorf("%s: status %d, want %d; printed\n%s%s, want\n%s", line, status, wantStatus, out, errs, wantText)
		}
	}
	step(0, "default\n", "config current-context")
	step(0, "CURRENT   NAME      ADDRESS                  TENANT   TOKEN FILE", "config get-contexts")
	step(0, "*         default   https://192.0.2.1:7480   -        "+dir+"/admin.token", "config get-contexts")
	step(0, "film      https://192.0.2.1:7480   film     /tokens/anna", "config get-contexts")
	step(0, "lab       https://192.0.2.9:7480   -        -", "config get-contexts") // nothing of the office
	step(0, `"tenant": "film"`, "config get-contexts -o json")
	step(2, `there is no context "web"; there are default, film, lab`, "config use-context web")
	step(0, "Dry run", "config use-context film --dry-run")
	step(0, "default\n", "config current-context")
	step(0, "Context film is in use.\n", "config use-context film")
	step(0, "film\n", "config current-context")
	if m := mode(t, file); m != 0o600 {
		t.Errorf("the configuration has mode %o", m)
	}
	step(0, "Context web is set.", "config set-context web --tenant web --cacert web.pem")
	here, err := filepath.Abs("web.pem")
	if err != nil {
		t.Fatal(err)
	}
	step(0, here, "config get-contexts")
	step(0, "Dry run", "config set-context web --tenant= --dry-run")
	step(0, "web      ", "config get-contexts")
	step(0, "", "config set-context web --cacert=")
	step(2, "nothing to set", "config set-context web")
	step(2, "--token-file", "config set-context web --token ekt_secret")
	step(2, "must be like", "config set-context web --address ftp://x")
	step(2, "without TLS", "config set-context web --address http://192.0.2.1")
	step(2, "a name has letters", "config set-context we/b --tenant web")
	step(2, "CONTEXT is missing", "config use-context")
	step(0, "it is the top of the configuration", "config set-context default --tenant office")
	step(0, "Context film is deleted. Context default is in use.\n", "config delete-context film")
	step(4, `there is no context "film"`, "config delete-context film")
	step(2, "context default is the top", "config delete-context default")
	step(0, "default\n", "config current-context")
	step(0, "", "config use-context web")
	step(0, "Context default is in use.\n", "config use-context default")
	step(0, "lab\n", "__complete -- config use-context l")
	step(0, "web\n", "__complete -- vc list --context w")
	b, err := os.ReadFile(file)
	want := `# the office
address: https://192.0.2.1:7480 # its first server
tokenFile: admin.token
cacert: ca.pem
tenant: office
contexts:
  lab:
    address: https://192.0.2.9:7480
  web:
    tenant: web
`
	if err != nil || string(b) != want {
		t.Errorf("the configuration is\n%s, %v, want\n%s", b, err, want)
	}
}

// A first context makes the file; a link to it stays one.
func TestFirstContext(t *testing.T) {
	file := atHome(t, "")
	if status, _, errs := offline("config", "set-context", "lab", "--address", "192.0.2.9:7480", "--token-file", "lab.token"); status != 0 || mode(t, file) != 0o600 || mode(t, filepath.Dir(file)) != 0o700 {
		t.Fatalf("status %d, mode %o: %s", status, mode(t, file), errs)
	}
	kept := filepath.Join(t.TempDir(), "kept.yaml")
	if err := os.Rename(file, kept); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(kept, file); err != nil {
		t.Fatal(err)
	}
	if status, _, errs := offline("config", "use-context", "lab"); status != 0 {
		t.Fatalf("status %d: %s", status, errs)
	}
	if b, err := os.ReadFile(kept); err != nil || !strings.Contains(string(b), "currentContext: lab\n") {
		t.Errorf("behind the link is\n%s, %v", b, err)
	}
}

// Where address, token and tenant come from, and that no token of one cluster goes to another.
func TestContextOfCommand(t *testing.T) {
	var token, query string
	server := func(name string) *httptest.Server {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			token, query = name+" "+strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer "), r.URL.RawQuery
			w.Header().Set("Content-Type", "application/json")
			_, _ = w.Write([]byte(`{"items":[]}`))
		}))
		t.Cleanup(s.Close)
		return s
	}
	office, lab, other := server("office").URL, server("lab").URL, server("other").URL
	config := "address: " + office + "\ntoken: office-token\ntenant: top\nCURRENT" +
		"contexts:\n  film: {tenant: film}\n  own: {token: own-token}\n  lab: {address: \"" + lab + "\"}\n  labs: {address: \"" + lab + "\", token: lab-token, tenant: lab}\n"
	for _, c := range []struct {
		current, env, line string // env: NAME=VALUE
		token, query       string
	}{
		{"", "", "vc list", "office office-token", "tenant=top"},
		{"film", "", "vc list", "office office-token", "tenant=film"},
		{"own", "", "vc list", "office own-token", ""},
		{"lab", "", "vc list", "lab ", ""},
		{"labs", "", "vc list", "lab lab-token", "tenant=lab"},
		{"labs", "EVENKEEL_CONTEXT=film", "vc list", "office office-token", "tenant=film"},
		{"labs", "EVENKEEL_CONTEXT=default", "vc list", "office office-token", "tenant=top"},
		{"labs", "EVENKEEL_CONTEXT=own", "vc list --context film", "office office-token", "tenant=film"},
		{"labs", "EVENKEEL_TENANT=web", "vc list", "lab lab-token", "tenant=web"},
		{"labs", "EVENKEEL_TENANT=web", "vc list --tenant mine", "lab lab-token", "tenant=mine"},
		{"", "EVENKEEL_TOKEN=env-token", "vc list", "office env-token", "tenant=top"},
		{"", "EVENKEEL_TOKEN=env-token", "vc list --context lab", "lab ", ""},
		{"", "EVENKEEL_TOKEN=env-token", "vc list --context labs", "lab lab-token", "tenant=lab"},
		{"", "EVENKEEL_TENANT=web", "vc list --context labs", "lab lab-token", "tenant=lab"},
		{"", "EVENKEEL_ADDRESS=" + other, "vc list", "other office-token", "tenant=top"},
		{"", "EVENKEEL_ADDRESS=" + other, "vc list --context labs", "lab lab-token", "tenant=lab"},
		{"", "", "vc list --context labs --address " + other + " --token x", "other x", "tenant=lab"},
		{"", "", "vc list --context none", "", ""},
		{"none", "", "vc list", "", ""},
		{"", "EVENKEEL_CONTEXT=none", "vc list", "", ""},
	} {
		current := ""
		if c.current != "" {
			current = "currentContext: " + c.current + "\n"
		}
		atHome(t, strings.Replace(config, "CURRENT", current, 1))
		if name, value, ok := strings.Cut(c.env, "="); ok {
			t.Setenv(name, value)
		}
		token, query = "", ""
		status, _, errs := offline(strings.Split(c.line, " ")...)
		wantStatus := 0
		if c.token == "" {
			wantStatus = statusUsage
		}
		if status != wantStatus || token != c.token || query != c.query {
			t.Errorf("%s in context %q with %q: status %d, %q %q, want %q %q: %s", c.line, c.current, c.env, status, token, query, c.token, c.query, errs)
		}
	}
}

func TestConfigWithFaults(t *testing.T) {
	for text, want := range map[string]string{
		"contexts: {lab: {addres: x}}\n":        "unknown field",
		"contexts: {default: {tenant: film}}\n": "context default is what the top of the file says",
		"contexts: [lab]\n":                     "line 1",
	} {
		file := atHome(t, text)
		if status, _, errs := offline("config", "set-context", "web", "--tenant", "web"); status != statusUsage || !strings.Contains(errs, want) {
			t.Errorf("%q: status %d, %s, want %q", text, status, errs, want)
		}
		if b, err := os.ReadFile(file); err != nil || string(b) != text {
			t.Errorf("%q became %q, %v", text, b, err)
		}
	}
}

// Whatever was written is what is read.
func TestConfigSurvives(t *testing.T) {
	dir := t.TempDir()
	text := rapid.SampledFrom([]string{"", "x", "https://h1:7480", "/a b", "#", "no", "1", "a: b", "'", "\"", "- x", "*"})
	way := rapid.Custom(func(t *rapid.T) connection {
		return connection{text.Draw(t, "address"), text.Draw(t, "token"), text.Draw(t, "tokenFile"), text.Draw(t, "cacert"), text.Draw(t, "tenant")}
	})
	rapid.Check(t, func(t *rapid.T) {
		path := filepath.Join(dir, "config.yaml")
		top := way.Draw(t, "top")
		f := config{Address: top.Address, Token: top.Token, TokenFile: top.TokenFile, CACert: top.CACert, Tenant: top.Tenant, CurrentContext: text.Draw(t, "current")}
		if all := rapid.MapOfN(rapid.StringMatching(`[a-z0-9][-._a-z0-9]{0,3}`), way, 0, 3).Draw(t, "contexts"); len(all) > 0 {
			f.Contexts = all
		}
		if err := writeConfig(path, f, yaml.CommentMap{}); err != nil {
			t.Fatal(err)
		}
	})
}
