package browser

import (
	"fmt"
	"strings"
	"testing"

	"evenkeel/api/v1"
)

// TestTokens: the owner of a tenant makes a token on the page, sees its secret once, and revokes it: the browser that is logged in with
// it is logged out, without a reload.
func TestTokens(t *testing.T) {
	t.Parallel()
	b := Start(t, required)
	c := startHosts(t, 1)
	_, err := c.api.CreateTenant(t.Context(), v1.TenantRequest{Name: "film"})
	must(t, err)
	owner, err := c.api.MakeToken(t.Context(), v1.TokenRequest{Name: "owner", Role: "owner", Tenant: "film"})
	must(t, err)
	tab := c.login(b, "h1", "/ui/tokens", owner.Token)
	create := `form:has([name=name]) `
	tab.Fill(create+`[name=name]`, "anna")
	tab.Fill(create+`[name=expires]`, "next year")
	tab.Press("Create")
	tab.has("an end that is none", "720h")
	tab.Until("what was written is kept", func() bool {
		return tab.Is(`document.querySelector("#problem") !== null && document.querySelector("[name=name]").value === "anna"`)
	})
	tab.Fill(create+`[name=expires]`, "2h")
	Eval[bool](tab, `(document.querySelector("select[name=role]").value = "editor") !== ""`)
	tab.Until("check", func() bool {
		return tab.Is(`{ const b = document.querySelector("form:has([name=name]) button[name=dry]"); if (b) b.click(); b !== null; }`)
	})
	tab.has("what it would do", "Nothing was changed", "vcctl token create anna --role editor --expires 2h")
	tab.Press("Create")
	const copies = `[...document.querySelectorAll("[data-copy^=ekt_]")].map((b) => b.dataset.copy)[0] ?? ""`
	secret := ""
	tab.Until("the secret", func() bool { secret = Eval[string](tab, copies); return secret != "" })
	accessible(tab, "a secret")
	if at := Eval[string](tab, `location.href`); strings.Contains(at, "ekt_") || at != c.page("h1", "/ui/tokens") {
		t.Errorf("the page with the secret is at %s", at)
	}

	second := c.login(Start(t, required), "h1", "/ui/vms", secret)
	second.has("the session of the new token", "anna · editor of film")
	tab.Go(c.page("h1", "/ui/tokens"))
	tab.has("the token", "anna", "editor")
	if Eval[string](tab, copies) != "" || strings.Contains(tab.Text(), secret) {
		t.Error("the page shows the secret a second time")
	}
	id := strings.TrimPrefix(strings.Split(secret, ".")[0], "ekt_")
	press := func(label string) {
		t.Helper()
		tab.Until(label, func() bool {
			return tab.Is(fmt.Sprintf(`{ const b = document.querySelector("button[aria-label='%s']"); if (b) b.click(); b !== null; }`, label))
		})
	}
	press("Check: revoke anna " + id)
	tab.has("what the revocation would end", "would be revoked", "Nothing was changed", "vcctl token revoke "+id)
	if second.At() != "/ui/vms" {
		t.Errorf("a check logs out: %s", second.At())
	}
	press("Revoke anna " + id)
	tab.Until("it is gone", func() bool {
		return tab.At() == "/ui/tokens" && !strings.Contains(tab.Text(), id) && strings.Contains(tab.Text(), owner.ID)
	})
	second.Until("the other browser is logged out", func() bool { return second.At() == "/ui/login" })
	tab.Clean()
}
