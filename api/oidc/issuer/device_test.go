package issuer

import (
	"context"
	"encoding/base64"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// steps answers each request with the next text; the last one stays. A text that begins with ! has status 400.
type steps struct {
	texts []string
	at    []time.Time
	forms []string
}

// RoundTrip implements http.RoundTripper.
func (s *steps) RoundTrip(r *http.Request) (*http.Response, error) {
	s.at = append(s.at, time.Now())
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	s.forms = append(s.forms, string(body))
	text, status := s.texts[0], http.StatusOK
	if len(s.texts) > 1 {
		s.texts = s.texts[1:]
	}
	if rest, bad := strings.CutPrefix(text, "!"); bad {
		text, status = rest, http.StatusBadRequest
	}
	return &http.Response{StatusCode: status, Status: http.StatusText(status), Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(strings.NewReader(text)), Request: r}, nil
}

// bubble of simulated time. The library does not close the answer to the request for a code, so what ends it by time is left.
func bubble(t *testing.T, f func(t *testing.T)) {
	synctest.Test(t, func(t *testing.T) {
		t.Cleanup(func() { time.Sleep(requestTimeout) }) // sleep: simulated time
		f(t)
	})
}

const (
	codes   = `{"device_code":"d","user_code":"BDWP-HQPK","verification_uri":"https://id.example.org/device","verification_uri_complete":"https://id.example.org/device?code=BDWP-HQPK","expires_in":300,"interval":2}`
	pending = `!{"error":"authorization_pending"}`
	slow    = `!{"error":"slow_down"}`
)

func loginBy(s *steps) Login {
	at := Endpoints{Issuer: "https://id.example.org", Token: "https://id.example.org/token", Device: "https://id.example.org/device"}
	return Login{Client: Bound(s), At: at, ClientID: "vcctl", Scopes: []string{"openid"}}
}

// Polls keep the interval that the issuer names, and 5 s more after each slow_down (RFC 8628, section 3.5).
func TestPolls(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := &steps{texts: []string{codes, pending, slow, pending, slow, `{"access_token":"a","id_token":"i","refresh_token":"r","token_type":"Bearer"}`}}
		l := loginBy(s)
		l.Audience = "https://evenkeel.example.org"
		p, err := l.Begin(t.Context())
		if err != nil || p.Code != "BDWP-HQPK" || p.URL != "https://id.example.org/device" || !strings.HasSuffix(p.Complete, "=BDWP-HQPK") || time.Until(p.Until) != 5*time.Minute {
			t.Fatalf("%+v, %v", p, err)
		}
		got, err := l.Await(t.Context(), p)
		if err != nil || got != (Tokens{"a", "i", "r"}) {
			t.Errorf("%+v, %v", got, err)
		}
		var waits []time.Duration
		for i := 1; i < len(s.at); i++ {
			waits = append(waits, s.at[i].Sub(s.at[i-1]))
		}
		if want := []time.Duration{2 * time.Second, 2 * time.Second, 7 * time.Second, 7 * time.Second, 12 * time.Second}; !slices.Equal(waits, want) {
			t.Errorf("%v, want %v", waits, want)
		}
		if f := s.forms[0]; f != "audience=https%3A%2F%2Fevenkeel.example.org&client_id=vcctl&scope=openid" {
			t.Error(f)
		}
		if f := s.forms[1]; !strings.Contains(f, "device_code=d") || !strings.Contains(f, "grant_type=urn%3Aietf%3Aparams%3Aoauth%3Agrant-type%3Adevice_code") {
			t.Error(f)
		}
	})
}

// A log-in ends with its code, with what the issuer says, or with the context.
func TestEndsOfALogin(t *testing.T) {
	for _, c := range []struct {
		name  string
		texts []string
		want  error
		text  string
	}{
		{"not finished", []string{codes, pending}, ErrExpired, "expired"},
		{"expired at the issuer", []string{codes, `!{"error":"expired_token"}`}, ErrExpired, "expired"},
		{"denied", []string{codes, `!{"error":"access_denied","error_description":"by jane"}`}, ErrRefused, "access_denied: by jane"},
		{"an answer for the terminal", []string{codes, `!{"error":"access_denied","error_description":"\u001b[2J"}`}, ErrRefused, "access_denied"},
		{"an error for the terminal", []string{codes, `!{"error":"\u001b[2J"}`}, nil, "Bad Request"},
		{"no JSON", []string{codes, "!<html>secret"}, nil, "Bad Request"},
		{"trouble", []string{codes, `!{"error":"server_error"}`}, nil, "server_error"},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				l := loginBy(&steps{texts: c.texts})
				p, err := l.Begin(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				_, err = l.Await(t.Context(), p)
				if err == nil || c.want != nil && !errors.Is(err, c.want) || c.want == nil && errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), c.text) || strings.ContainsAny(err.Error(), "\x1b<") {
					t.Errorf("%v", err)
				}
			})
		})
	}
	bubble(t, func(t *testing.T) {
		l := loginBy(&steps{texts: []string{codes, pending}})
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		p, err := l.Begin(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := l.Await(ctx, p); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v", err)
		}
	})
}

// What the issuer says is bounded, and never makes a terminal do anything.
func TestPrompts(t *testing.T) {
	change := func(from, to string) string { return strings.Replace(codes, from, to, 1) }
	for name, c := range map[string]struct {
		text string
		good bool
	}{
		"no code":                   {change("BDWP-HQPK", ""), false},
		"a long code":               {change("BDWP-HQPK", strings.Repeat("B", maxCode+1)), false},
		"a code for the terminal":   {change("BDWP-HQPK", `\u001b[2J`), false},
		"no device code":            {change(`"d"`, `""`), false},
		"a page without TLS":        {change("https://id.example.org/device", "http://id.example.org/device"), false},
		"a page that is none":       {change("https://id.example.org/device", "javascript:alert(1)"), false},
		"a page for the terminal":   {change("https://id.example.org/device", `https://id.example.org/\u001b[2J`), false},
		"a whole page that is none": {change("https://id.example.org/device?code", "javascript:?code"), true},
		"an interval below 0":       {change(`"interval":2`, `"interval":-5`), true},
		"an interval of years":      {change(`"interval":2`, `"interval":99999999999`), true},
		"good for years":            {change(`"expires_in":300`, `"expires_in":9999999999`), true},
		"good for ever":             {change(`"expires_in":300`, `"expires_in":0`), true},
		"good for a day":            {change(`"expires_in":300`, `"expires_in":86400`), true},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				l := loginBy(&steps{texts: []string{c.text, `{"access_token":"a","token_type":"Bearer"}`}})
				p, err := l.Begin(t.Context())
				if (err == nil) != c.good {
					t.Fatalf("%+v, %v", p, err)
				}
				if err != nil {
					return
				}
				begin := time.Now()
				if _, err := l.Await(t.Context(), p); err != nil || time.Since(begin) > maxInterval || time.Until(p.Until) > maxWait || strings.HasPrefix(p.Complete, "java") {
					t.Errorf("%+v, %v after %s", p, err, time.Since(begin))
				}
			})
		})
	}
	none := loginBy(&steps{texts: []string{codes}})
	none.At.Device = ""
	if _, err := none.Begin(t.Context()); err == nil || !strings.Contains(err.Error(), "vcctl token create") {
		t.Errorf("%v", err)
	}
}

// The end of a token is the earlier of its own and that of its maximal age.
func TestUntil(t *testing.T) {
	token := func(claims string) string {
		return "e30." + base64.RawURLEncoding.EncodeToString([]byte(claims)) + ".c2ln"
	}
	for _, c := range []struct {
		token string
		age   time.Duration
		want  int64 // 0: an error
	}{
		{token(`{"iat":1000,"exp":4600}`), 0, 4600}, {token(`{"iat":1000,"exp":4600}`), time.Minute, 1060}, {token(`{"iat":1000,"exp":4600}`), 2 * time.Hour, 4600},
		{token(`{"iat":1000}`), 0, 0}, {token(`{"exp":4600}`), 0, 0}, {token(`{"iat":1000,"exp":1e300}`), 0, 0}, {token("x"), 0, 0}, {"a.b", 0, 0}, {"a.*.c", 0, 0}, {"", 0, 0},
	} {
		if got, err := Until(c.token, c.age); (err == nil) != (c.want != 0) || err == nil && got.Unix() != c.want {
			t.Errorf("%s: %v, %v", c.token, got, err)
		}
	}
}

// Of the scopes that are wanted, those that the issuer lists are asked for, and openid.
func TestScopes(t *testing.T) {
	for _, c := range []struct{ lists, want []string }{{nil, DefaultScopes}, {[]string{"email", "groups"}, []string{"openid", "groups"}}, {[]string{"openid", "offline_access"}, []string{"openid", "offline_access"}}} {
		if got := (Endpoints{Scopes: c.lists}).Supported(DefaultScopes); !slices.Equal(got, c.want) {
			t.Errorf("%q: %q", c.lists, got)
		}
	}
}
