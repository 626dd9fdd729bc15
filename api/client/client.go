package client

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"mime"
	"net"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"evenkeel/api/v1"
)

// DefaultAddress is where `vcd dev` listens.
const DefaultAddress = "https://127.0.0.1:7480"

// ErrUnreachable: no answer from the server at all, or none that can be trusted.
var ErrUnreachable = errors.New("not reachable")

// Error is an answer of the server that is not a success.
type Error struct {
	Problem v1.Problem
	Request string // METHOD path
}

// Error implements error.
func (e *Error) Error() string {
	switch {
	case e.Problem.Detail == "":
		return e.Problem.Title
	case e.Problem.Type == v1.ProblemNotFound, e.Problem.Type == v1.ProblemExists: // the detail says it all
		return e.Problem.Detail
	}
	return e.Problem.Title + ": " + e.Problem.Detail
}

// IsProblem says whether an error is a problem of that type.
func IsProblem(err error, kind string) bool {
	var e *Error
	return errors.As(err, &e) && e.Problem.Type == kind
}

// Config of a client.
type Config struct {
	// Address is https://HOST:PORT, or HOST:PORT for the same; several servers of one cluster are separated by
	// commas; "" = DefaultAddress.
	Address string
	Token   string
	// Tenant whose virtual clusters, VMs, operations, events and tokens are asked for, where a request names none; "": the
	// server's choice, AllTenants: of all of them.
	Tenant string
	// Credentials give the token before each request, in the place of Token; nil: Token serves. Requests that are sent again
	// keep theirs.
	Credentials func(context.Context) (string, error)
	CAFile      string        // PEM of the server's CA; "" = the system's
	Timeout     time.Duration // of one request
	Agent       string        // User-Agent
	// Patience is how long the client asks again while servers answer that there is no leader, so that nothing was changed, or that
	// they do not know what became of a change with an idempotency key. A leader is elected within seconds. 0: not at all.
	Patience time.Duration
	// Dial makes the connections; nil: from this machine, as usual.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// Transport carries the requests; nil: connections that the client makes.
	Transport http.RoundTripper
}

// Client of one cluster. Safe for concurrent use.
type Client struct {
	servers *servers
	token   func(context.Context) (string, error) // nil: none
	tenant  string
	agent   string
	timeout time.Duration
	http    *http.Client
	local   bool // it is the vcd of this host, asked by its socket
}

// New makes a client. It connects to nothing yet.
func New(c Config) (*Client, error) {
	addresses, err := parseAddresses(c.Address)
	if err != nil {
		return nil, err
	}
	if c.Timeout == 0 {
		c.Timeout = 60 * time.Second
	}
	transport := &http.Transport{
		// No proxy out of the environment: what is local stays local.
		DialContext:         (&net.Dialer{Timeout: 5 * time.Second}).DialContext,
		TLSHandshakeTimeout: 5 * time.Second,
		IdleConnTimeout:     30 * time.Second,
		// With Go's default of two, a client with more requests at a time would make a TLS handshake for each further one.
		MaxIdleConnsPerHost: 64,
		TLSClientConfig:     &tls.Config{MinVersion: tls.VersionTLS12},
	}
	if c.Dial != nil {
		transport.DialContext = c.Dial
	}
	if c.CAFile != "" {
		pem, err := os.ReadFile(c.CAFile)
		if err != nil {
			return nil, fmt.Errorf("CA certificate: %w", err)
		}
		pool := x509.NewCertPool()
		if !pool.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("CA certificate: no certificate in %s", c.CAFile)
		}
		transport.TLSClientConfig.RootCAs = pool
	}
	noRedirects := func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	all := &servers{addresses: addresses, transport: transport, patience: c.Patience}
	if c.Transport != nil {
		all.transport = c.Transport
	}
	token := c.Credentials
	if token == nil {
		token = func(context.Context) (string, error) { return c.Token, nil }
	}
	return &Client{servers: all, token: token, tenant: c.Tenant, agent: c.Agent, timeout: c.Timeout,
		http: &http.Client{Transport: all, CheckRedirect: noRedirects}}, nil
}

func loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// Address of the server, or of the servers, separated by commas.
func (c *Client) Address() string {
	if c.local {
		return "the vcd of this host"
	}
	out := make([]string, len(c.servers.addresses))
	for i, a := range c.servers.addresses {
		out[i] = strings.TrimSuffix(a.String(), "/")
	}
	return strings.Join(out, ",")
}

// Close lets go of idle connections.
func (c *Client) Close() {
	if t, ok := c.servers.transport.(*http.Transport); ok {
		t.CloseIdleConnections()
	}
}

// keyHeader names the key under which a request is carried out once.
const keyHeader = "Idempotency-Key"

// Option of a request.
type Option func(*sending)

// sending is a request on its way, how long it may take, and the tenant that it is about.
type sending struct {
	*http.Request
	timeout time.Duration
	tenant  string
}

// AllTenants is the tenant of a request that is about all of them.
const AllTenants = "*"

// TakesTenant says whether a request to a path below /v1, part by part, takes the parameter tenant: it is about what tenants own, or
// about one's rights there.
func TakesTenant(method string, path ...string) bool {
	if len(path) > 1 && path[0] == "auth" {
		return slices.Contains([]string{"self", "permissions", "can-i"}, path[1])
	}
	return slices.Contains([]string{"virtual-clusters", "vms", "operations", "events", "tokens", "role-bindings", "images", "periodic"}, path[0]) ||
		method == http.MethodGet && path[0] == "migrations"
}

// OfTenant asks for what belongs to a tenant other than that of the client; "" leaves it to the server.
func OfTenant(name string) Option { return func(s *sending) { s.tenant = name } }

// DryRun: plan and answer, change nothing.
func DryRun() Option { return query("dryRun", "true") }

// IfMatch: only if the virtual cluster is at that ModifyIndex.
func IfMatch(index uint64) Option {
	return func(s *sending) { s.Header.Set("If-Match", fmt.Sprintf("%q", fmt.Sprint(index))) }
}

// IfTag: only if the virtual cluster is at the version of that ETag.
func IfTag(tag string) Option {
	return func(s *sending) { s.Header.Set("If-Match", tag) }
}

// IdempotencyKey: the same request with the same key is carried out once.
func IdempotencyKey(key string) Option {
	return func(s *sending) { s.Header.Set(keyHeader, key) }
}

// Stale: what the server knows, also when there is no leader.
func Stale() Option { return query("consistency", "stale") }

// query sets parameters, given as names and values; those without a value are left out.
func query(pairs ...string) Option {
	return func(s *sending) {
		q := s.URL.Query()
		for i := 0; i < len(pairs); i += 2 {
			if pairs[i+1] != "" {
				q.Set(pairs[i], pairs[i+1])
			}
		}
		s.URL.RawQuery = q.Encode()
	}
}

// with further options; the caller's slice stays as it is.
func with(opts []Option, more ...Option) []Option { return slices.Concat(opts, more) }

// number as a parameter; 0 is none.
func number(n int) string {
	if n == 0 {
		return ""
	}
	return strconv.Itoa(n)
}

// flag as a parameter.
func flag(on bool) string {
	if !on {
		return ""
	}
	return "true"
}

// bulk is for what may be large, or waits for other programs.
func bulk(s *sending) { s.timeout = 10 * time.Minute }

// request makes a request to the path below /v1 that consists of these parts, and applies options to it.
func (c *Client) request(ctx context.Context, method string, body any, opts []Option, parts ...string) (*sending, error) {
	u := *c.servers.addresses[c.servers.current.Load()]
	parts = append([]string{"v1"}, parts...)
	escaped := make([]string, len(parts))
	for i, p := range parts {
		if p == "" || p == "." || p == ".." {
			return nil, fmt.Errorf("%q is not a name", p)
		}
		escaped[i] = url.PathEscape(p)
	}
	u.Path = "/" + strings.Join(parts, "/")
	u.RawPath = "/" + strings.Join(escaped, "/")
	var reader io.Reader
	if body != nil {
		b, err := json.Marshal(body)
		if err != nil {
			return nil, fmt.Errorf("encode the request: %w", err)
		}
		reader = bytes.NewReader(b)
	}
	r, err := http.NewRequestWithContext(ctx, method, u.String(), reader)
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", method, u.Path, err)
	}
	if body != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	if err := c.sign(r); err != nil {
		return nil, err
	}
	r.Header.Set("Accept", "application/json, application/problem+json")
	s := &sending{Request: r, timeout: c.timeout, tenant: c.tenant}
	for _, o := range opts {
		o(s)
	}
	if TakesTenant(method, parts[1:]...) {
		query("tenant", s.tenant)(s)
	}
	return s, nil
}

// signature are the headers that say which program asks, and with which token.
var signature = []string{"Authorization", "User-Agent"}

func (c *Client) sign(r *http.Request) error {
	if c.token != nil {
		token, err := c.token(r.Context())
		if err != nil {
			return err
		}
		if token != "" {
			r.Header.Set("Authorization", "Bearer "+token)
		}
	}
	if c.agent != "" {
		r.Header.Set("User-Agent", c.agent)
	}
	return nil
}

// do sends a request and decodes the answer into out, if out is not nil.
func (c *Client) do(r *sending, out any) error {
	ctx, cancel := context.WithTimeout(r.Context(), r.timeout)
	defer cancel()
	resp, err := c.http.Do(r.WithContext(ctx))
	if err != nil {
		return c.unreachable(r.Context(), err)
	}
	defer resp.Body.Close() //nolint:errcheck // read to its end or given up
	if resp.StatusCode/100 != 2 {
		err := problem(resp, r.Request)
		if r.Context().Err() != nil {
			return r.Context().Err() // the server's complaint that the client has closed may arrive first
		}
		return err
	}
	if out == nil || resp.StatusCode == http.StatusNoContent {
		return nil
	}
	if err := json.NewDecoder(resp.Body).Decode(out); err != nil {
		return fmt.Errorf("%w: the answer to %s %s broke off: %w", ErrUnreachable, r.Method, r.URL.Path, err)
	}
	return nil
}

// unreachable says why no answer came. The end of the caller's own context is returned as it is.
func (c *Client) unreachable(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	var u *url.Error
	if errors.As(err, &u) {
		err = u.Err // without the whole address again
	}
	hint := ""
	var unknown x509.UnknownAuthorityError
	var verify *tls.CertificateVerificationError
	var record tls.RecordHeaderError
	switch {
	case errors.As(err, &unknown), errors.As(err, &verify):
		hint = " (is --cacert, or EVENKEEL_CACERT, the ca.pem in the server's data directory?)"
	case c.local && errors.Is(err, fs.ErrNotExist):
		hint = " (does `vcd run` run on this host? systemctl status vcd)"
	case c.local && errors.Is(err, fs.ErrPermission):
		hint = " (it answers root only)"
	case errors.As(err, &record):
		hint = " (the server does not speak TLS)"
	}
	return fmt.Errorf("%s is %w: %w%s", c.Address(), ErrUnreachable, err, hint)
}

// problem reads the document of an answer that is not a success.
func problem(resp *http.Response, r *http.Request) error {
	e := &Error{Request: r.Method + " " + r.URL.Path}
	b, _ := io.ReadAll(io.LimitReader(resp.Body, 1<<20)) // what came is used
	media, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	if media != v1.ProblemMediaTypeDefault || json.Unmarshal(b, &e.Problem) != nil || e.Problem.Type == "" {
		e.Problem = v1.Problem{Type: "about:blank", Title: "The answer is not one of Evenkeel's", Detail: fmt.Sprintf("%s: is there another server at this address?", resp.Status)}
	}
	e.Problem.Status = resp.StatusCode
	e.Problem.Detail = strings.ReplaceAll("\n"+e.Problem.Detail, "\n"+onLine, "\n")[1:]
	for i := range e.Problem.Errors {
		e.Problem.Errors[i].Line = 0
	}
	return e
}

// onLine is where faults of any request are: it is one line, which the user has not written.
const onLine = "line 1: "

// send makes, signs and sends a request, and reads its answer.
func send[T any](ctx context.Context, c *Client, method string, body any, opts []Option, parts ...string) (T, error) {
	var out T
	r, err := c.request(ctx, method, body, opts, parts...)
	if err != nil {
		return out, err
	}
	err = c.do(r, &out)
	return out, err
}

// get one thing.
func get[T any](ctx context.Context, c *Client, opts []Option, parts ...string) (T, error) {
	return send[T](ctx, c, http.MethodGet, nil, opts, parts...)
}

// list all things.
func list[T any](ctx context.Context, c *Client, opts []Option, parts ...string) ([]T, error) {
	out, err := get[v1.List[T]](ctx, c, opts, parts...)
	return out.Items, err
}

// post a request to do something.
func post[T any](ctx context.Context, c *Client, body any, opts []Option, parts ...string) (T, error) {
	return send[T](ctx, c, http.MethodPost, body, opts, parts...)
}

// remove a thing.
func remove[T any](ctx context.Context, c *Client, opts []Option, parts ...string) (T, error) {
	return send[T](ctx, c, http.MethodDelete, nil, opts, parts...)
}

// keyed are the options of a change with a key, the caller's or a new one, so that it can be sent to another server
// if one does not answer.
func keyed(opts []Option) []Option { return append([]Option{IdempotencyKey(rand.Text())}, opts...) }
