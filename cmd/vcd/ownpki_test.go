package main

import (
	"bytes"
	"crypto/rand"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"evenkeel/api/client"
	"evenkeel/api/v1"
	"evenkeel/cluster/pki"
)

// ownCA is a PKI of the operator's own.
type ownCA struct {
	t     *testing.T
	ca    *pki.CA
	files map[string]pki.Files // by host
}

func newOwnCA(t *testing.T, cluster string) ownCA {
	t.Helper()
	ca, err := pki.NewCA(cluster, time.Now(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return ownCA{t, ca, map[string]pki.Files{}}
}

// certify a host: its configuration names the certificate from then on. at: a name or address of the host, "" = none.
func (o ownCA) certify(h *host, roles string, principal pki.Identity, at string) {
	o.t.Helper()
	files := pki.FilesIn(o.t.TempDir())
	o.files[h.name] = files
	o.issue(files, principal, at)
	h.write(fmt.Sprintf("%spki: {ca: %s, cert: %s, key: %s}\n", roles, files.CA, files.Cert, files.Key))
}

// renew a host's certificate in its place.
func (o ownCA) renew(h *host, principal pki.Identity) { o.issue(o.files[h.name], principal, "") }

func (o ownCA) issue(files pki.Files, principal pki.Identity, at string) {
	o.t.Helper()
	key, err := pki.GenerateKey(rand.Reader)
	if err != nil {
		o.t.Fatal(err)
	}
	var names pki.Names
	if at != "" {
		if names, err = pki.NamesOf(at + ":0"); err != nil {
			o.t.Fatal(err)
		}
	}
	cert, err := o.ca.Issue(key.Public(), principal, names, time.Now(), time.Hour, rand.Reader)
	if err != nil {
		o.t.Fatal(err)
	}
	keyPEM, err := pki.EncodeKey(key)
	if err != nil {
		o.t.Fatal(err)
	}
	if err := files.Write(pki.Material{Cert: pki.EncodeCertificates(cert), Key: keyPEM, CA: o.ca.CertPEM()}); err != nil {
		o.t.Fatal(err)
	}
}

// at names a host's certificate as revocation lists do.
func (o ownCA) at(h *host) string {
	o.t.Helper()
	text, err := os.ReadFile(o.files[h.name].Cert)
	if err != nil {
		o.t.Fatal(err)
	}
	certs, err := pki.ParseCertificates(text)
	if err != nil {
		o.t.Fatal(err)
	}
	return pki.SerialOf(certs[0])
}

// A cluster whose certificates all come from the operator's own PKI is made and grows; a member leaves it and joins again. A token
// gives a member no right that its certificate does not state.
func TestOwnPKIFromTheFirstMember(t *testing.T) {
	own, other := newOwnCA(t, "own"), newOwnCA(t, "own")
	const both, agent = "server: true\nagent: true\n", "server: false\nagent: true\n"
	h1, h2, h3 := newHost(t, "h1"), newHost(t, "h2"), newHost(t, "h3")
	is := func(h *host, server bool) pki.Identity {
		return pki.Identity{Cluster: "own", Name: h.name, Server: server, Agent: true}
	}
	refused := func(what string, err error, problem, says string) {
		t.Helper()
		if !client.IsProblem(err, problem) || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", what, err)
		}
	}
	init := func() (v1.SetupAnswer, error) { return client.NewLocal(h1.socket).Init(t.Context(), v1.SetupInit{}) }
	own.certify(h1, both, is(h2, true), "127.0.0.1")
	h1.start()
	_, err := init()
	refused("the certificate of another host", err, v1.ProblemInvalid, "h2")
	h1.end()
	own.certify(h1, both, is(h1, true), "")
	h1.start()
	_, err = init()
	refused("a certificate that does not say where the server is", err, v1.ProblemInvalid, "127.0.0.1")
	h1.end()
	own.certify(h1, both, is(h1, true), "127.0.0.1")
	h1.start()
	made, err := init()
	if err != nil || made.CA != string(own.ca.CertPEM()) || made.Cluster != "own" {
		t.Fatalf("%+v, %v", made, err)
	}
	if _, err := os.Stat(filepath.Join(h1.dir, "ca.key")); err == nil {
		t.Error("the cluster made a CA of its own")
	}
	_, err = init()
	refused("a member already", err, v1.ProblemExists, "")
	api := h1.dial(made.CA, made.AdminToken)
	serves := func(n int) {
		t.Helper()
		h1.await(fmt.Sprint(n, " hosts are ready"), func() bool {
			hosts, err := api.Hosts(t.Context())
			ready := 0
			for _, h := range hosts {
				if h.State == "ready" {
					ready++
				}
			}
			return err == nil && ready == n
		})
	}
	serves(1)

	h2.start() // without a certificate
	refused("no certificate", h2.enter(api, h1, v1.JoinTokenRequest{Server: true, Agent: true}), v1.ProblemConflict, "pki")
	h2.end()
	other.certify(h2, both, is(h2, true), "127.0.0.1")
	h2.start()
	token, err := api.MakeJoinToken(t.Context(), v1.JoinTokenRequest{Server: true, Agent: true})
	if err != nil {
		t.Fatal(err)
	}
	join := func(h *host) error {
		_, err := client.NewLocal(h.socket).Join(t.Context(), v1.SetupJoin{Token: token.Token, Addresses: []string{h1.advertise}})
		return err
	}
	if err := join(h2); err == nil || !strings.Contains(err.Error(), "wrong-ca") {
		t.Errorf("a server of another CA is believed: %v", err)
	}
	h2.end()
	own.certify(h2, agent, is(h2, false), "")
	h2.start()
	refused("fewer roles than the token gives", join(h2), v1.ProblemInvalid, "is of agent")
	parts := strings.Split(token.Token, ".")
	parts[2] = strings.Repeat("A", len(parts[2]))
	whole := token.Token
	token.Token = strings.Join(parts, ".")
	refused("the wrong secret", join(h2), v1.ProblemInvalid, "not known, used, or over")
	token.Token = whole
	tokens, err := api.JoinTokens(t.Context())
	for _, k := range tokens {
		if k.UsedBy != "" {
			t.Errorf("a token was used: %+v", k)
		}
	}
	if err != nil || len(tokens) != 2 {
		t.Errorf("%+v, %v", tokens, err)
	}
	h2.end()
	own.certify(h2, both, is(h2, true), "127.0.0.1")
	h2.start()
	if err := join(h2); err != nil {
		t.Fatal(err)
	}
	own.certify(h3, agent, is(h3, false), "")
	h3.start()
	if err := h3.enter(api, h2, v1.JoinTokenRequest{Agent: true}); err != nil {
		t.Fatal(err)
	}
	serves(3)
	h3.end()
	h3.start() // a member by what it knows
	serves(3)

	// A member's certificate is replaced by another: the cluster accepts it, and revokes it when the member is removed.
	own.renew(h3, is(h3, false))
	h3.end()
	h3.start()
	serves(3)
	h1.await("the new certificate is known", func() bool {
		var saved bytes.Buffer
		_, err := api.SaveSnapshot(t.Context(), &saved)
		return err == nil && strings.Contains(saved.String(), own.at(h3))
	})
	if _, err := api.RemoveMember(t.Context(), "h3", false); err != nil {
		t.Fatal(err)
	}
	h1.await("h3 is shut out", func() bool { _, err := api.Host(t.Context(), "h3"); return client.IsProblem(err, v1.ProblemNotFound) })
	h3.end()
	h3.wipe()
	h3.start()
	refused("the certificate of a member that was removed", h3.enter(api, h1, v1.JoinTokenRequest{Agent: true}), v1.ProblemInvalid, "revoked")
	h3.end()
	own.certify(h3, agent, is(h3, false), "")
	h3.start()
	if err := h3.enter(api, h1, v1.JoinTokenRequest{Agent: true}); err != nil {
		t.Fatal(err)
	}
	serves(3)

	// Whose certificate is named no more is a member still, and nothing else.
	h3.end()
	h3.write(agent)
	var errs bytes.Buffer
	if status := run(t.Context(), []string{"vcd", "run", "--config", h3.config}, &errs, &errs); status == 0 || !strings.Contains(errs.String(), "put pki back") {
		t.Errorf("%d: %s", status, errs.String())
	}
	// A server that lost its disk and is made the first of a new cluster by mistake, of the same name, is no server of the old one.
	if _, err := api.AddImage(t.Context(), v1.ImageSpec{Name: "tiny", Kind: "kernel", File: "/boot/tiny"}); err != nil {
		t.Fatal(err)
	}
	h1.end()
	h1.wipe()
	h1.start()
	again, err := init()
	if err != nil {
		t.Fatal(err)
	}
	alone := h1.dial(again.CA, again.AdminToken)
	h1.await("the log of h2 is not that of the new cluster", func() bool {
		events, err := alone.ListEvents(t.Context(), client.EventQuery{Limit: 100})
		return err == nil && slices.ContainsFunc(events.Items, func(e v1.Event) bool {
			return e.Kind == "connection-refused" && strings.Contains(e.Text, "h2") && strings.Contains(e.Text, "another cluster of that name")
		})
	})
	if images, err := alone.Images(t.Context()); err != nil || len(images) != 0 {
		t.Errorf("%+v, %v", images, err)
	}
}

// A cluster with a CA of its own changes over to another PKI member by member; its hosts are served throughout.
func TestChangeToOwnPKI(t *testing.T) {
	h1, h2 := newHost(t, "h1"), newHost(t, "h2")
	const both, agent = "server: true\nagent: true\n", "server: false\nagent: true\n"
	h2.write(agent)
	h1.start()
	h2.start()
	made, err := client.NewLocal(h1.socket).Init(t.Context(), v1.SetupInit{})
	if err != nil {
		t.Fatal(err)
	}
	api := h1.dial(made.CA, made.AdminToken)
	if err := h2.enter(api, h1, v1.JoinTokenRequest{Agent: true}); err != nil {
		t.Fatal(err)
	}
	own := newOwnCA(t, made.Cluster)
	beside := made.CA + string(own.ca.CertPEM())
	serves := func(ca string) {
		t.Helper()
		api := h1.dial(ca, made.AdminToken)
		for _, name := range []string{"h1", "h2"} {
			h1.await(name+" is heard of by the server that runs now", func() bool {
				h, err := api.Host(t.Context(), name)
				return err == nil && h.State == "ready" && h.Lease == "held" && h.Synced > 0
			})
		}
	}
	serves(made.CA)
	believed := filepath.Join(t.TempDir(), "both.pem")
	if err := os.WriteFile(believed, []byte(beside), 0o600); err != nil {
		t.Fatal(err)
	}
	again := func(h *host) {
		t.Helper()
		h.end()
		h.start()
		serves(beside)
	}
	roles := map[*host]string{h1: both, h2: agent}
	for _, h := range []*host{h1, h2} {
		is := pki.FilesIn(filepath.Join(h.dir, "pki"))
		h.write(fmt.Sprintf("%spki: {ca: %s, cert: %s, key: %s}\n", roles[h], believed, is.Cert, is.Key))
		again(h)
	}
	for _, h := range []*host{h1, h2} {
		own.certify(h, roles[h], pki.Identity{Cluster: made.Cluster, Name: h.name, Server: h == h1, Agent: true}, "127.0.0.1")
		if err := os.WriteFile(own.files[h.name].CA, []byte(beside), 0o600); err != nil {
			t.Fatal(err)
		}
		again(h)
	}
	for _, h := range []*host{h1, h2} {
		if err := os.WriteFile(own.files[h.name].CA, own.ca.CertPEM(), 0o600); err != nil {
			t.Fatal(err)
		}
		again(h)
	}
	serves(string(own.ca.CertPEM()))
}
