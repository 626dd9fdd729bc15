package ui

import (
	"net/http"
	"net/url"
	"strings"

	"evenkeel/api/v1"
)

// consolePath is the page with the console of a VM.
func consolePath(tenant, name string) string { return "/ui/console/" + escapedName(tenant, name) }

type consoleData struct {
	VM     v1.VM
	Full   string
	Stream string // address of the console itself
}

func console(v *visit) error {
	name, of := named(v)
	vm, err := v.api.VM(v.r.Context(), name, of...)
	if err != nil {
		return err
	}
	full := fullName(vm.Tenant, vm.Name)
	v.Title, v.Data = "Console of "+full, consoleData{VM: vm, Full: full, Stream: "/ui/console-stream/" + escapedName(vm.Tenant, vm.Name)}
	return v.show("console")
}

// consoleStream is the WebSocket of a VM's console, for pages of this server alone: a browser sends the cookie of the session to other
// ports of this host name, too, and with what their pages ask for.
func (u *UI) consoleStream(w http.ResponseWriter, r *http.Request) {
	token := session(r)
	origin, err := url.Parse(r.Header.Get("Origin"))
	switch {
	case token == "":
		http.Error(w, "log in first", http.StatusUnauthorized)
		return
	case r.Header.Get("Upgrade") != "" && (err != nil || origin.Scheme != "https" || origin.Host != r.Host):
		http.Error(w, "this is for the pages of this server", http.StatusForbidden)
		return
	}
	name, tenant := r.PathValue("name"), ""
	if of, own, ok := strings.Cut(name, "/"); ok {
		tenant, name = of, own
	}
	q := r.Clone(r.Context())
	q.URL = &url.URL{Path: "/v1/vms/" + name + "/console", RawPath: "/v1/vms/" + url.PathEscape(name) + "/console"}
	if tenant != "" {
		q.URL.RawQuery = url.Values{"tenant": {tenant}}.Encode()
	}
	q.RequestURI = q.URL.RequestURI()
	q.Header = http.Header{"Authorization": {"Bearer " + token}, "User-Agent": {"evenkeel dashboard"}}
	for _, key := range []string{"Connection", "Upgrade", "Origin", "Sec-Websocket-Key", "Sec-Websocket-Version"} {
		if value := r.Header.Get(key); value != "" {
			q.Header.Set(key, value)
		}
	}
	u.api.ServeHTTP(w, q)
}
