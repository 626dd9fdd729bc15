package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"evenkeel/api/oidc/issuer"
	"evenkeel/internal/secretfile"
)

// session is a log-in by OpenID Connect at one cluster. Its tokens are sent to the cluster's servers, and to the issuer, and to no others.
type session struct {
	Addresses []string `json:"addresses"` // of the servers, as client.Addresses writes them
	Issuer    string   `json:"issuer"`
	IssuerCA  string   `json:"issuerCA,omitempty"` // a file
	ClientID  string   `json:"clientID"`
	Scopes    []string `json:"scopes"`
	// Access: access tokens are sent to the servers, else ID tokens.
	Access bool      `json:"access,omitempty"`
	MaxAge float64   `json:"maxAgeSeconds,omitempty"`
	Token  string    `json:"token"`
	Until  time.Time `json:"until"`
	// Refresh gets further tokens; "": the issuer gave none.
	Refresh string `json:"refresh,omitempty"`
}

// sessions is the content of login.json.
type sessions struct {
	Sessions []session `json:"sessions"`
}

const (
	maxSessions = 100
	maxLogin    = 4 << 20 // bytes of login.json
	// refreshAhead is how long before its end a token is refreshed: as long as a request may take to come to the server, and
	// clocks may differ.
	refreshAhead = 30 * time.Second
)

// loginFile is beside the configuration; "" if that is nowhere.
func loginFile() string {
	config := configFile()
	if config == "" {
		return ""
	}
	return filepath.Join(filepath.Dir(config), "login.json")
}

// readSessions reads login.json; one that is not there has none.
func readSessions() (all sessions, err error) {
	path := loginFile()
	if path == "" {
		return all, nil
	}
	b, err := secretfile.Read(path, secretfile.Rule{MaxBytes: maxLogin})
	if errors.Is(err, fs.ErrNotExist) {
		return all, nil
	}
	if err != nil {
		return all, usage("log-ins: %v", err)
	}
	if err := json.Unmarshal(b, &all); err != nil { // an error of JSON shows no content
		return all, usage("log-ins: %s cannot be read: remove it and log in again with `vcctl login`", path)
	}
	return all, nil
}

// of servers: the session at a cluster that has all of them.
func (s sessions) of(addresses []string) (int, bool) {
	i := slices.IndexFunc(s.Sessions, func(one session) bool {
		return !slices.ContainsFunc(addresses, func(a string) bool { return !slices.Contains(one.Addresses, a) })
	})
	return i, i >= 0
}

// changeSessions reads login.json, changes it and writes it, while no other vcctl does. Without a change it is not written.
func changeSessions(change func(*sessions) (bool, error)) error {
	path := loginFile()
	if path == "" {
		return usage("log-ins: there is no home directory to keep them in: set HOME")
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return fmt.Errorf("log-ins: %w", err)
	}
	lock, err := os.OpenFile(path+".lock", os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return fmt.Errorf("log-ins: %w", err)
	}
	defer lock.Close() //nolint:errcheck // lets go of the lock
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return fmt.Errorf("log-ins: lock %s: %w", lock.Name(), err)
	}
	all, err := readSessions()
	if err != nil {
		return err
	}
	changed, err := change(&all)
	if err != nil || !changed {
		return err
	}
	b, err := json.MarshalIndent(all, "", "  ")
	if err != nil {
		return fmt.Errorf("log-ins: %w", err)
	}
	return secretfile.Write(path, append(b, '\n'), 0o600)
}

// put a session in the place of those at the same servers.
func (s *sessions) put(one session) {
	s.Sessions = slices.DeleteFunc(s.Sessions, func(old session) bool {
		return slices.ContainsFunc(old.Addresses, func(a string) bool { return slices.Contains(one.Addresses, a) })
	})
	s.Sessions = append(s.Sessions, one)
	if n := len(s.Sessions); n > maxSessions {
		s.Sessions = s.Sessions[n-maxSessions:]
	}
}

// take tokens of the issuer into the session.
func (s *session) take(t issuer.Tokens) error {
	s.Token = t.ID
	kind := "ID token"
	if s.Access {
		s.Token, kind = t.Access, "access token"
	}
	if s.Token == "" {
		return fmt.Errorf("the issuer %s gave no %s: log in again with `vcctl login`", s.Issuer, kind)
	}
	until, err := issuer.Until(s.Token, time.Duration(s.MaxAge*float64(time.Second)))
	if err != nil {
		return fmt.Errorf("the %s of the issuer %s: %w", kind, s.Issuer, err)
	}
	s.Until = until
	if t.Refresh != "" {
		s.Refresh = t.Refresh
	}
	return nil
}

// at the issuer of a session.
func (s session) at(ctx context.Context) (issuer.Login, error) {
	c, err := issuer.NewClient(s.IssuerCA)
	if err != nil {
		return issuer.Login{}, err
	}
	found, err := issuer.Discover(ctx, c, s.Issuer)
	if err != nil {
		return issuer.Login{}, err
	}
	return issuer.Login{Client: c, At: found, ClientID: s.ClientID, Scopes: s.Scopes}, nil
}

// bearer is the token of the session at those servers, refreshed if it is about to end.
func bearer(ctx context.Context, addresses []string) (string, error) {
	all, err := readSessions()
	if err != nil {
		return "", err
	}
	i, ok := all.of(addresses)
	if !ok {
		return "", failed(statusFailed, "you are logged out here: log in with `vcctl login`") // while this command runs
	}
	if time.Until(all.Sessions[i].Until) > refreshAhead {
		return all.Sessions[i].Token, nil
	}
	var token string
	err = changeSessions(func(all *sessions) (bool, error) {
		i, ok := all.of(addresses)
		if !ok {
			return false, failed(statusFailed, "you are logged out here: log in with `vcctl login`")
		}
		one := &all.Sessions[i]
		changed, err := one.refreshed(ctx)
		token = one.Token
		return changed, err
	})
	return token, err
}

// refreshed says whether the session has another token now. One that is still good serves while the issuer cannot be asked.
func (s *session) refreshed(ctx context.Context) (bool, error) {
	left := time.Until(s.Until)
	if left > refreshAhead { // another vcctl did it
		return false, nil
	}
	if s.Refresh == "" {
		if left > 0 {
			return false, nil
		}
		return false, failed(statusFailed, "the log-in at %s expired at %s: log in again with `vcctl login`", s.Issuer, stamp(s.Until))
	}
	l, err := s.at(ctx)
	var t issuer.Tokens
	if err == nil {
		t, err = l.Refreshed(ctx, s.Refresh)
	}
	switch {
	case errors.Is(err, issuer.ErrRefused):
		return false, failed(statusFailed, "%w: log in again with `vcctl login`", err)
	case err != nil && left > 0:
		return false, nil
	case err != nil:
		return false, fmt.Errorf("the log-in expired at %s and cannot be refreshed: %w", stamp(s.Until), err)
	}
	return true, s.take(t)
}
