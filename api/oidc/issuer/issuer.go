// Package issuer asks an OpenID Connect issuer for what servers and vcctl need of it: where its endpoints are, its keys, and
// tokens by the device flow. It follows no redirects, speaks TLS to all but this machine, and bounds each answer in size and
// time. It never decides whether a token is good: package oidc does.
package issuer

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"
)

// Bounds of one request to the issuer.
const (
	requestTimeout = 10 * time.Second // its answer included
	MaxAnswer      = 256 << 10        // bytes of an answer
	maxURL         = 2048             // bytes
	maxCAFile      = 1 << 20          // bytes
)

// wellKnown is where the discovery document is, below the issuer (OpenID Connect Discovery 1.0, section 4).
const wellKnown = "/.well-known/openid-configuration"

// Endpoints are what Evenkeel uses of a discovery document. Those that the issuer does not have are "".
type Endpoints struct {
	Issuer     string   `json:"issuer"`
	Keys       string   `json:"jwks_uri"`
	Token      string   `json:"token_endpoint"`
	UserInfo   string   `json:"userinfo_endpoint"`
	Device     string   `json:"device_authorization_endpoint"`
	Revocation string   `json:"revocation_endpoint"`
	Scopes     []string `json:"scopes_supported"`
	// Authorization is where a browser logs in. NamesItself: the issuer says in its answers there whose they are (RFC 9207, section 3).
	Authorization string `json:"authorization_endpoint"`
	NamesItself   bool   `json:"authorization_response_iss_parameter_supported"`
}

// NewClient makes the HTTP client for requests to an issuer. caFile holds the CA certificates that it trusts, as PEM; "": those of
// the system.
func NewClient(caFile string) (*http.Client, error) {
	conf := &tls.Config{MinVersion: tls.VersionTLS12}
	if caFile != "" {
		info, err := os.Stat(caFile)
		if err != nil {
			return nil, fmt.Errorf("CA certificates of the issuer: %w", err)
		}
		if !info.Mode().IsRegular() || info.Size() > maxCAFile {
			return nil, fmt.Errorf("CA certificates of the issuer: %s must be a regular file of at most %d bytes", caFile, maxCAFile)
		}
		pem, err := os.ReadFile(caFile)
		if err != nil {
			return nil, fmt.Errorf("CA certificates of the issuer: %w", err)
		}
		conf.RootCAs = x509.NewCertPool()
		if !conf.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("CA certificates of the issuer: no certificate in %s", caFile)
		}
	}
	return Bound(&http.Transport{
		Proxy:                 http.ProxyFromEnvironment, // the issuer is often outside the hosts' network
		DialContext:           (&net.Dialer{Timeout: 5 * time.Second}).DialContext,
		TLSClientConfig:       conf,
		TLSHandshakeTimeout:   5 * time.Second,
		IdleConnTimeout:       30 * time.Second,
		MaxConnsPerHost:       4,
		ForceAttemptHTTP2:     true,
		ResponseHeaderTimeout: requestTimeout,
	}), nil
}

// Bound makes a client of a transport that bounds each answer in size and time and follows no redirects.
func Bound(t http.RoundTripper) *http.Client {
	return &http.Client{
		Transport: bounded{t}, Timeout: requestTimeout,
		CheckRedirect: func(r *http.Request, _ []*http.Request) error {
			return fmt.Errorf("the issuer redirects to %s, and redirects are not followed", r.URL.Redacted())
		},
	}
}

// bounded refuses answers of more than MaxAnswer bytes, and requests that CheckURL refuses.
type bounded struct{ next http.RoundTripper }

func (b bounded) RoundTrip(r *http.Request) (*http.Response, error) {
	if err := CheckURL(r.URL.String()); err != nil {
		return nil, err
	}
	resp, err := b.next.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	resp.Body = &boundedBody{ReadCloser: resp.Body, left: MaxAnswer}
	return resp, nil
}

type boundedBody struct {
	io.ReadCloser
	left int64
}

func (b *boundedBody) Read(p []byte) (int, error) {
	if b.left < 0 {
		return 0, fmt.Errorf("the answer has more than %d bytes", MaxAnswer)
	}
	n, err := b.ReadCloser.Read(p[:min(int64(len(p)), b.left+1)])
	b.left -= int64(n)
	if b.left < 0 {
		return 0, fmt.Errorf("the answer has more than %d bytes", MaxAnswer)
	}
	return n, err
}

// CheckURL says why a URL is none to ask an issuer at; nil if it is one. Only on this machine it may be without TLS.
func CheckURL(text string) error {
	if len(text) > maxURL {
		return fmt.Errorf("a URL has more than %d bytes", maxURL)
	}
	u, err := url.Parse(text)
	switch {
	case err != nil || u.Host == "" || u.Opaque != "":
		return fmt.Errorf("%q must be a URL like https://id.example.org", text)
	case u.User != nil || u.Fragment != "":
		return fmt.Errorf("%q must be without user and fragment", u.Redacted())
	case u.Scheme == "https", u.Scheme == "http" && loopback(u.Hostname()):
		return nil
	}
	return fmt.Errorf("%q must begin with https:// (http:// is for this machine alone)", text)
}

// CheckIssuer says why a text is no issuer's identifier; nil if it is one.
func CheckIssuer(text string) error {
	if err := CheckURL(text); err != nil {
		return err
	}
	if strings.ContainsAny(text, "?#") {
		return fmt.Errorf("%q must be without a query", text)
	}
	return nil
}

func loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// Discover reads the discovery document of an issuer.
func Discover(ctx context.Context, c *http.Client, issuer string) (Endpoints, error) {
	var e Endpoints
	if err := CheckIssuer(issuer); err != nil {
		return e, fmt.Errorf("issuer: %w", err)
	}
	body, err := Get(ctx, c, strings.TrimSuffix(issuer, "/")+wellKnown)
	if err != nil {
		return e, fmt.Errorf("discovery document of %s: %w", issuer, err)
	}
	if err := json.Unmarshal(body, &e); err != nil {
		return e, fmt.Errorf("discovery document of %s: %w", issuer, err)
	}
	if e.Issuer != issuer {
		return e, fmt.Errorf("discovery document of %s: it is that of the issuer %q: write the issuer exactly like this, or ask its operators", issuer, e.Issuer)
	}
	if e.Keys == "" {
		return e, fmt.Errorf("discovery document of %s: it has no jwks_uri", issuer)
	}
	return e, nil
}

// Get reads what is at a URL, whole.
func Get(ctx context.Context, c *http.Client, at string) ([]byte, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, at, nil)
	if err != nil {
		return nil, err
	}
	r.Header.Set("Accept", "application/json")
	resp, err := c.Do(r)
	if err != nil {
		return nil, withoutURL(err)
	}
	defer resp.Body.Close() //nolint:errcheck // read to its end or given up
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("GET %s: %s", at, resp.Status)
	}
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, fmt.Errorf("GET %s: %w", at, err)
	}
	return body, nil
}

// UserInfo asks at the userinfo endpoint with an access token (OpenID Connect Core 1.0, section 5.3.1), and returns what it answers.
func UserInfo(ctx context.Context, c *http.Client, at, token string) (body []byte, status int, err error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, at, nil)
	if err != nil {
		return nil, 0, err
	}
	r.Header.Set("Accept", "application/json")
	r.Header.Set("Authorization", "Bearer "+token)
	resp, err := c.Do(r)
	if err != nil {
		return nil, 0, withoutURL(err)
	}
	defer resp.Body.Close() //nolint:errcheck // read to its end or given up
	if body, err = io.ReadAll(resp.Body); err != nil {
		return nil, 0, fmt.Errorf("GET %s: %w", at, err)
	}
	return body, resp.StatusCode, nil
}

// withoutURL is an error of net/http that names method and URL once.
func withoutURL(err error) error {
	var u *url.Error
	if errors.As(err, &u) {
		return fmt.Errorf("%s %s: %w", strings.ToUpper(u.Op), u.URL, u.Err)
	}
	return err
}
