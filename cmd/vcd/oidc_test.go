package main

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"evenkeel/api/client"
	"evenkeel/api/v1"
	"evenkeel/test/openid"
	"evenkeel/test/patience"
)

// vcd takes tokens of the issuer that its configuration names; without its keys it starts all the same.
func TestOpenIDConnect(t *testing.T) {
	p := openid.Start(t, time.Hour)
	p.Down()
	h := newHost(t, "h1")
	h.write("server: true\nagent: true\noidc:\n  issuer: " + p.Issuer + "\n  clientID: " + openid.ClientID + "\n  caFile: " + p.CAFile + "\n  maxAge: 30m\n  roles: [{group: ops, role: operator}]\n")
	h.start()
	made, err := client.NewLocal(h.socket).Init(t.Context(), v1.SetupInit{})
	if err != nil {
		t.Fatal(err)
	}
	claims, err := json.Marshal(map[string]any{"iss": p.Issuer, "sub": "7f3a", "aud": openid.ClientID, "iat": time.Now().Unix(), "exp": time.Now().Add(time.Hour).Unix(), "groups": []string{"ops"}})
	if err != nil {
		t.Fatal(err)
	}
	asAdmin := admin(t, made, client.Config{Address: h.advertise})
	made.AdminToken = p.Sign(t, claims, nil)
	api := admin(t, made, client.Config{Address: h.advertise})
	if _, err := api.Self(t.Context()); !client.IsProblem(err, v1.ProblemUnavailable) || !strings.Contains(err.Error(), "502") {
		t.Errorf("the issuer is down: %v", err)
	}
	if a, err := asAdmin.Auth(t.Context()); err != nil || a.OIDC == nil || a.OIDC.Issuer != p.Issuer || a.OIDC.Audience != openid.ClientID || a.OIDC.MaxAge != 1800 {
		t.Errorf("%+v, %v", a, err)
	}
	p.Fail("", nil)
	h.end()
	h.start()
	var self v1.Self
	patience.Eventually(t, patience.Stall, "vcd takes the token", func() any { return p.Requests("/keys") }, func() bool {
		self, err = api.Self(t.Context())
		return err == nil
	})
	if self.Role != "operator" || self.Actor != "oidc:7f3a" || self.Until == nil || time.Until(*self.Until) > 30*time.Minute {
		t.Errorf("%+v", self)
	}
	for name, change := range map[string]string{"caFile: " + p.CAFile: "caFile: /nonexistent/ca.pem", "role: operator": "role: admin, tenant: render"} {
		h := newHost(t, "h2")
		h.write(strings.Replace("server: true\noidc:\n  issuer: "+p.Issuer+"\n  clientID: a\n  caFile: "+p.CAFile+"\n  roles: [{group: ops, role: operator}]\n", name, change, 1))
		var out, errs strings.Builder
		if status := run(t.Context(), []string{"vcd", "run", "--config", h.config}, &out, &errs); status != 2 || !strings.Contains(errs.String(), "oidc.") {
			t.Errorf("%s: status %d: %s", change, status, &errs)
		}
	}
}
