package oidc

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"evenkeel/cluster/state"
)

// good is a configuration without a fault.
func good() Config {
	return Config{Issuer: "https://id.example.org/realms/a", ClientID: "vcctl", Roles: []Mapping{{Group: "ops", Role: "operator"}, {Group: "root", Role: "admin"}, {Group: "scrape", Role: "metrics"}}}
}

// Each fault of a configuration is found, and named by its key.
func TestConfigFaults(t *testing.T) {
	if faults := good().Check(); faults != nil {
		t.Fatal(faults)
	}
	for _, c := range []struct {
		name, key, text string
		change          func(*Config)
	}{
		{"no issuer", "issuer", "not set", func(c *Config) { c.Issuer = "" }},
		{"plain HTTP", "issuer", "https://", func(c *Config) { c.Issuer = "http://id.example.org" }},
		{"a host that only looks local", "issuer", "https://", func(c *Config) { c.Issuer = "http://localhost.example.org" }},
		{"no host", "issuer", "URL", func(c *Config) { c.Issuer = "id.example.org" }},
		{"a query", "issuer", "query", func(c *Config) { c.Issuer += "?a=b" }},
		{"a user", "issuer", "user", func(c *Config) { c.Issuer = "https://me:secret@id.example.org" }},
		{"long", "issuer", "bytes", func(c *Config) { c.Issuer += strings.Repeat("x", 3000) }},
		{"no audience", "audience", "clientID", func(c *Config) { c.ClientID = "" }},
		{"symmetric", "algorithms", "RS256", func(c *Config) { c.Algorithms = []string{"RS256", "HS256"} }},
		{"none", "algorithms", "RS256", func(c *Config) { c.Algorithms = []string{"none"} }},
		{"relative file", "caFile", "full path", func(c *Config) { c.CAFile = "ca.pem" }},
		{"age", "maxAge", "1m0s", func(c *Config) { c.MaxAge = time.Second }},
		{"negative age", "maxAge", "1m0s", func(c *Config) { c.MaxAge = -time.Hour }},
		{"claim", "groupsClaim", "ASCII", func(c *Config) { c.GroupsClaim = "grüppen" }},
		{"scope", "scopes", "no scope", func(c *Config) { c.Scopes = []string{"openid profile"} }},
		{"a redirect URI elsewhere", "redirectURIs", "/ui/login/callback", func(c *Config) { c.RedirectURIs = []string{"https://h1/ui/"} }},
		{"a redirect URI without a client", "redirectURIs", "clientID", func(c *Config) {
			c.Audience, c.ClientID, c.RedirectURIs = "api", "", []string{"https://h1/ui/login/callback"}
		}},
		{"unknown role", "roles[1]", `"boss"`, func(c *Config) { c.Roles[1].Role = "boss" }},
		{"no group", "roles[0]", "group", func(c *Config) { c.Roles[0].Group = "" }},
		{"a tenant's role without a tenant", "roles[0]", "name the tenant", func(c *Config) { c.Roles[0].Role = "editor" }},
		{"a cluster's role in a tenant", "roles[0]", "no role in a tenant", func(c *Config) { c.Roles[0].Tenant = "render" }},
		{"a tenant's name", "roles[0]", "DNS label", func(c *Config) { c.Roles[0] = Mapping{"a", "editor", "Render"} }},
	} {
		t.Run(c.name, func(t *testing.T) {
			conf := good()
			c.change(&conf)
			faults := conf.Check()
			if len(faults) != 1 || faults[0].Key != c.key || !strings.Contains(faults[0].Err.Error(), c.text) {
				t.Errorf("%v, want one of %s with %q", faults, c.key, c.text)
			}
			if strings.Contains(errOf(faults).Error(), "secret") {
				t.Errorf("a password is shown: %v", errOf(faults))
			}
			if v, err := Start(conf, Options{}); err == nil {
				v.Close()
				t.Error("it starts")
			}
		})
	}
	local := good()
	for _, at := range []string{"http://127.0.0.1:1/a", "http://[::1]:1", "http://localhost:1"} {
		if local.Issuer = at; local.Check() != nil {
			t.Errorf("%s: %v", at, local.Check())
		}
	}
}

// The role with the most rights of all groups counts.
func TestRoleOf(t *testing.T) {
	c := good()
	for _, w := range []struct {
		groups string
		role   state.Role
	}{{"", ""}, {"staff", ""}, {"ops", state.RoleOperator}, {"staff ops", state.RoleOperator}, {"ops root scrape", state.RoleAdmin}, {"scrape", state.RoleMetrics}, {"OPS", ""}} {
		if got := c.RoleOf(strings.Fields(w.groups)); got != w.role {
			t.Errorf("%q: %q, want %q", w.groups, got, w.role)
		}
	}
	c.Roles = []Mapping{{Group: "ops", Role: "admin", Tenant: "render"}} // Check refuses it
	if got := c.RoleOf([]string{"ops"}); got != "" {
		t.Errorf("a role in a tenant holds in the cluster: %q", got)
	}
}

// In each tenant a person has the role with the most rights of all groups; tenants are in the order of the entries.
func TestBindingsOf(t *testing.T) {
	c := good()
	c.Roles = []Mapping{{"ops", "operator", ""}, {"watch", "viewer", "film"}, {"lab", "editor", "chem"}, {"film-leads", "owner", "film"}}
	for groups, want := range map[string]string{
		"": "[]", "ops": "[]", "watch": "[{film viewer}]", "lab watch": "[{film viewer} {chem editor}]", "film-leads watch lab": "[{film owner} {chem editor}]",
	} {
		if got := fmt.Sprint(c.BindingsOf(strings.Fields(groups))); got != want {
			t.Errorf("%q: %s, want %s", groups, got, want)
		}
	}
}
