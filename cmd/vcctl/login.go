package main

import (
	"cmp"
	"context"
	"errors"
	"os"
	"path/filepath"
	"time"

	"github.com/urfave/cli/v2"

	"evenkeel/api/client"
	"evenkeel/api/oidc/issuer"
	"evenkeel/api/v1"
)

func (t *tool) loginCommand() *cli.Command {
	return &cli.Command{
		Name: "login", Usage: "log in with OpenID Connect, in a browser on any machine", ArgsUsage: " ", Action: t.offline(login),
		Description: "The server says which issuer it trusts. vcctl shows an address and a code on standard error: open the address, type the code,\n" +
			"and log in there. The tokens are kept in ~/.config/evenkeel/login.json, which only you can read, and refreshed as they end.\n" +
			"At the same servers they are used before the token of the configuration, and after those of flags and environment.\n\nExample: vcctl login",
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "issuer", Usage: "`URL` of the issuer, if not the one that the server names"},
			&cli.StringFlag{Name: "client-id", Usage: "`ID` of vcctl at the issuer, if not the one that the server names"},
			&cli.StringFlag{Name: "issuer-ca", Usage: "`FILE` with the CA certificate of the issuer (default: those of the system)"},
		},
	}
}

func (t *tool) logoutCommand() *cli.Command {
	return &cli.Command{
		Name: "logout", Usage: "forget the log-in, and revoke it where the issuer can", ArgsUsage: " ", Action: t.offline(logout),
		Description: "A token that was sent before is good until its end.\n\nExample: vcctl logout",
	}
}

// maxLoginTime bounds the requests of a log-in before and after the person's part.
const maxLoginTime = time.Minute

func login(c *call) error {
	conf, addresses, err := c.t.clientConfig(c.Context)
	if err != nil {
		return err
	}
	one, err := newSession(c, conf, addresses)
	if err != nil {
		return err
	}
	bounded, cancel := context.WithTimeout(c.ctx, maxLoginTime)
	defer cancel()
	at, err := one.at(bounded)
	if err != nil {
		return doing(err, "logging in")
	}
	if len(one.Scopes) == 0 {
		one.Scopes = at.At.Supported(issuer.DefaultScopes)
		at.Scopes = one.Scopes
	}
	if one.Access {
		at.Audience = one.audience
	}
	prompt, err := at.Begin(bounded)
	if err != nil {
		return doing(err, "logging in")
	}
	c.t.say("Open %s and type the code\n\n    %s\n\n", prompt.URL, prompt.Code)
	if prompt.Complete != "" {
		c.t.say("or open %s\n", prompt.Complete)
	}
	c.t.say("The code is good until %s.\n", stamp(prompt.Until))
	tokens, err := at.Await(c.ctx, prompt)
	if errors.Is(err, issuer.ErrExpired) {
		return failed(statusFailed, "logging in: %w: begin again with `vcctl login`", err)
	}
	if err == nil {
		err = one.take(tokens)
	}
	if err != nil {
		return doing(err, "logging in")
	}
	self, err := c.introduce(conf, one.session)
	if err != nil {
		_, _ = at.Revoke(c.ctx, one.Refresh) // it is kept nowhere
		return doing(err, "logging in at the cluster as the issuer knows you")
	}
	if err := changeSessions(func(all *sessions) (bool, error) { all.put(one.session); return true, nil }); err != nil {
		return err
	}
	if one.Refresh == "" {
		c.t.say("The issuer gave no refresh token: log in again at %s.\n", stamp(one.Until))
	}
	if os.Getenv("EVENKEEL_TOKEN") != "" || os.Getenv("EVENKEEL_TOKEN_FILE") != "" {
		c.t.warn("EVENKEEL_TOKEN or EVENKEEL_TOKEN_FILE is set, and its token comes before the log-in")
	}
	return c.print(self, func(bool) string { return "Logged in as " + oneLine(self.Name) + " (" + self.Role + ").\n" })
}

// begun is a session whose log-in is under way.
type begun struct {
	session
	audience string
}

// newSession asks the server how to log in.
func newSession(c *call, conf client.Config, addresses []string) (begun, error) {
	api, err := client.New(conf)
	if err != nil {
		return begun{}, &failure{statusUsage, err}
	}
	auth, err := api.Auth(c.ctx)
	if err != nil {
		return begun{}, doing(err, "asking the server how to log in")
	}
	if auth.OIDC == nil {
		return begun{}, failed(statusFailed, "this cluster takes no log-in with OpenID Connect (oidc in vcd.yaml): use a token of `vcctl token create`")
	}
	o := *auth.OIDC
	one := session{Addresses: addresses, Issuer: cmp.Or(c.String("issuer"), o.Issuer), ClientID: cmp.Or(c.String("client-id"), o.ClientID),
		Scopes: o.Scopes, Access: o.Audience != o.ClientID, MaxAge: o.MaxAge, IssuerCA: c.String("issuer-ca")}
	if one.ClientID == "" {
		return begun{}, failed(statusFailed, "the server names no client for vcctl (oidc.clientID in vcd.yaml): give one with --client-id")
	}
	if err := issuer.CheckIssuer(one.Issuer); err != nil {
		return begun{}, usage("issuer: %v", err)
	}
	if one.IssuerCA != "" {
		if one.IssuerCA, err = filepath.Abs(one.IssuerCA); err != nil {
			return begun{}, usage("--issuer-ca: %v", err)
		}
		if _, err := os.Stat(one.IssuerCA); err != nil {
			return begun{}, usage("--issuer-ca: %v", err)
		}
	}
	return begun{one, o.Audience}, nil
}

// introduce the session to the cluster, before it is kept.
func (c *call) introduce(conf client.Config, one session) (v1.Self, error) {
	conf.Token = one.Token
	api, err := client.New(conf)
	if err != nil {
		return v1.Self{}, err
	}
	defer api.Close()
	return api.Self(c.ctx)
}

func logout(c *call) error {
	_, addresses, err := c.t.clientConfig(c.Context)
	if err != nil {
		return err
	}
	var gone *session
	err = changeSessions(func(all *sessions) (bool, error) {
		i, ok := all.of(addresses)
		if ok {
			one := all.Sessions[i]
			gone = &one
			all.Sessions = append(all.Sessions[:i], all.Sessions[i+1:]...)
		}
		return ok, nil
	})
	if err != nil {
		return err
	}
	out := v1.Acknowledgement{Text: "you were not logged in here"}
	if gone != nil {
		out.Text = "logged out"
		if left := time.Until(gone.Until); left > 0 {
			out.Text += "; the last token is good until " + stamp(gone.Until)
		}
		c.revoke(*gone)
	}
	return c.print(out, func(bool) string { return sentence(out.Text) + ".\n" })
}

// revoke a session that is forgotten here already.
func (c *call) revoke(one session) {
	ctx, cancel := context.WithTimeout(c.ctx, maxLoginTime)
	defer cancel()
	l, err := one.at(ctx)
	revoked := false
	if err == nil {
		revoked, err = l.Revoke(ctx, one.Refresh)
	}
	switch {
	case err != nil:
		c.t.warn("the issuer did not revoke the log-in: " + err.Error())
	case !revoked && one.Refresh != "":
		c.t.warn("the issuer cannot revoke log-ins: end your sessions at " + one.Issuer + ", if it matters")
	}
}
