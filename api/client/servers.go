package client

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"evenkeel/api/v1"
)

// servers sends requests to one of several servers of a cluster: to the one that answered last, and if it
// cannot be reached or has no leader, to each of the others once. A request that may have arrived is sent again
// only if carrying it out twice is the same as once.
type servers struct {
	addresses []*url.URL
	transport http.RoundTripper
	patience  time.Duration // while there is no leader, or the outcome of a change is not known
	current   atomic.Int32
}

// askAgain so long after servers said that there is no leader.
const askAgain = 300 * time.Millisecond

// Addresses of the servers in a list, separated by commas: https://HOST:PORT, or HOST:PORT for the
// same. Each is returned in one form.
func Addresses(list string) ([]string, error) {
	parsed, err := parseAddresses(list)
	if err != nil {
		return nil, err
	}
	out := make([]string, len(parsed))
	for i, a := range parsed {
		out[i] = strings.TrimSuffix(a.String(), "/")
	}
	return out, nil
}

func parseAddresses(list string) ([]*url.URL, error) {
	if strings.TrimSpace(list) == "" {
		list = DefaultAddress
	}
	var out []*url.URL
	for text := range strings.SplitSeq(list, ",") {
		text = strings.TrimSpace(text)
		whole := text
		if !strings.Contains(text, "://") {
			whole = "https://" + text
		}
		base, err := url.Parse(whole)
		if err != nil || base.Host == "" || base.Scheme != "https" && base.Scheme != "http" {
			return nil, fmt.Errorf("address %q: must be like %s; several are separated by commas", text, DefaultAddress)
		}
		if base.Scheme == "http" && !loopback(base.Hostname()) {
			return nil, fmt.Errorf("address %q: without TLS the token would cross the network in the clear: use https", text)
		}
		out = append(out, base)
	}
	return out, nil
}

// RoundTrip implements http.RoundTripper.
func (s *servers) RoundTrip(r *http.Request) (*http.Response, error) {
	if len(s.addresses) == 1 && s.patience == 0 {
		return s.transport.RoundTrip(r)
	}
	if r.Body != nil {
		defer r.Body.Close() //nolint:errcheck // each try has a copy of its own, but for the first one where there is one only
	}
	end := time.Now().Add(s.patience)
	for {
		resp, err := s.round(r)
		again := r.Body == nil || r.Body == http.NoBody || r.GetBody != nil
		if err != nil || !again || !time.Now().Before(end) || !noLeader(resp) && !unknown(r, resp) {
			return resp, err
		}
		select {
		case <-r.Context().Done():
			return resp, nil // the last answer says more than that the time is over
		case <-time.After(askAgain):
			closed(resp)
		}
	}
}

// round asks each server once, until one answers that knows a leader.
func (s *servers) round(r *http.Request) (*http.Response, error) {
	first := int(s.current.Load())
	var refused *http.Response // that has no leader
	var failed error
	for i := range s.addresses {
		at := (first + i) % len(s.addresses)
		sent := false
		q, ok := s.to(r, at, i > 0, &sent)
		if !ok {
			break
		}
		resp, err := s.transport.RoundTrip(q)
		switch {
		case err == nil && !noLeader(resp):
			s.current.Store(int32(at)) //nolint:gosec // it is an index of a short list
			closed(refused)
			return resp, nil
		case err == nil:
			closed(refused)
			refused = resp
			continue // it says that nothing was changed
		}
		if dial := (*net.OpError)(nil); errors.As(err, &dial) && dial.Op == "dial" {
			err = dial.Err // without the address, which is said once
		}
		if len(s.addresses) > 1 {
			err = fmt.Errorf("%s: %w", s.addresses[at].Host, err)
		}
		failed = also(failed, err)
		if r.Context().Err() != nil || sent && !repeatable(r) {
			closed(refused)
			return nil, failed
		}
	}
	if refused != nil { // a server's answer says more than the silence of others
		return refused, nil
	}
	return nil, failed
}

// to is the request for one of the servers. False if its body is gone.
func (s *servers) to(r *http.Request, at int, again bool, sent *bool) (*http.Request, bool) {
	ctx := httptrace.WithClientTrace(r.Context(), &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { *sent = true }})
	q := r.Clone(ctx)
	q.URL.Scheme, q.URL.Host, q.Host = s.addresses[at].Scheme, s.addresses[at].Host, ""
	switch {
	case r.Body == nil || r.Body == http.NoBody:
	case r.GetBody != nil:
		body, err := r.GetBody()
		if err != nil {
			return nil, false
		}
		q.Body = body
	case again:
		return nil, false
	}
	return q, true
}

// repeatable says whether doing it twice is the same as doing it once.
func repeatable(r *http.Request) bool {
	switch r.Method {
	case http.MethodGet, http.MethodHead, http.MethodPut:
		return true
	}
	return r.Header.Get(keyHeader) != ""
}

// noLeader says whether a server answered that it knows of no leader.
func noLeader(resp *http.Response) bool {
	return is(resp, http.StatusServiceUnavailable, v1.ProblemNoLeader)
}

// unknown says whether a change may still be carried out, as when the leader was lost meanwhile, and asking again with the same key
// brings its answer.
func unknown(r *http.Request, resp *http.Response) bool {
	return r.Header.Get(keyHeader) != "" && is(resp, http.StatusGatewayTimeout, v1.ProblemTimeout)
}

// is says whether an answer is that problem. The answer can be read as before.
func is(resp *http.Response, status int, problem string) bool {
	media, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	if resp.StatusCode != status || media != v1.ProblemMediaTypeDefault {
		return false
	}
	b, _ := io.ReadAll(io.LimitReader(resp.Body, 1<<20)) // what came is used
	_ = resp.Body.Close()
	resp.Body = io.NopCloser(bytes.NewReader(b))
	var p v1.Problem
	return json.Unmarshal(b, &p) == nil && p.Type == problem
}

func closed(resp *http.Response) {
	if resp != nil {
		_ = resp.Body.Close()
	}
}

// also is an error after those that there were, on one line.
func also(before, err error) error {
	if before == nil {
		return err
	}
	return fmt.Errorf("%w; %w", before, err)
}
