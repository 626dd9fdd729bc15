package main

import (
	"crypto/tls"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"evenkeel/api/client"
	"evenkeel/api/v1"
	"evenkeel/test/freeport"
	"evenkeel/test/patience"
)

// A server with a port of its own for the API answers members, and hosts that join, alone at the other one.
func TestAPIListen(t *testing.T) {
	h1, h2 := newHost(t, "h1"), newHost(t, "h2")
	at, err := freeport.Address()
	if err != nil {
		t.Fatal(err)
	}
	h1.write(fmt.Sprintf("server: true\nagent: true\napiListen: %s\n", at))
	h1.start()
	made, err := client.NewLocal(h1.socket).Init(t.Context(), v1.SetupInit{})
	if err != nil {
		t.Fatal(err)
	}
	if made.API != at || made.Address != h1.advertise {
		t.Errorf("API at %s, want %s; members at %s, want %s", made.API, at, made.Address, h1.advertise)
	}
	api := admin(t, made, client.Config{Address: at})
	k, err := api.MakeJoinToken(t.Context(), v1.JoinTokenRequest{Server: true, Agent: true})
	if err != nil {
		t.Fatal(err)
	}
	h2.start()
	if _, err := client.NewLocal(h2.socket).Join(t.Context(), v1.SetupJoin{Token: k.Token, Addresses: []string{h1.advertise}}); err != nil {
		t.Fatalf("join at the members' port: %v", err)
	}
	asking := &http.Client{Timeout: patience.Within(patience.Stall), Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	for path, want := range map[string]int{"/v1/vms": http.StatusMisdirectedRequest, "/metrics": http.StatusMisdirectedRequest, "/openapi.json": http.StatusMisdirectedRequest,
		"/livez": http.StatusOK} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+h1.advertise+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer "+made.AdminToken)
		resp, err := asking.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if resp.StatusCode != want {
			t.Errorf("%s at the members' port: %d, want %d", path, resp.StatusCode, want)
		}
	}
}

// What apiListen may be.
func TestAPIListenConfig(t *testing.T) {
	for text, want := range map[string]string{
		minConfig + "apiListen: 127.0.0.1:443\n":                             "",
		minConfig + "apiListen: 443\n":                                       "apiListen: ",
		minConfig + "listen: 1.2.3.4:1\napiListen: 1.2.3.4:1":                "apiListen: ",
		"advertise: 192.0.2.1:7480\nagent: true\napiListen: 127.0.0.1:443\n": "is for servers",
	} {
		_, err := parseConfig([]byte(text))
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}
