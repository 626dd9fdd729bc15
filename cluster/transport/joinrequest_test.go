package transport

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"evenkeel/cluster/leader"
)

func goodJoin() JoinRequest {
	return JoinRequest{ID: "0123456789abcdef", Secret: strings.Repeat("aB-_", 10) + "xyz", Name: "h1", Address: "host-1.example.com:7480", Request: "PEM"}
}

func TestJoinRequestCheck(t *testing.T) {
	for _, c := range []struct {
		what, field string
		change      func(*JoinRequest)
	}{
		{"good", "", func(*JoinRequest) {}},
		{"an IPv4 address", "", func(q *JoinRequest) { q.Address = "192.0.2.1:1" }},
		{"an IPv6 address", "", func(q *JoinRequest) { q.Address = "[2001:db8::1]:65535" }},
		{"an underscore", "", func(q *JoinRequest) { q.Address = "my_host:80" }},
		{"a final dot", "", func(q *JoinRequest) { q.Address = "host.example.com.:80" }},
		{"a chain of 8 KiB", "", func(q *JoinRequest) { q.Chain = strings.Repeat("a", 8<<10) }},
		{"a short id", "id", func(q *JoinRequest) { q.ID = "0123" }},
		{"an id in capitals", "id", func(q *JoinRequest) { q.ID = "0123456789ABCDEF" }},
		{"an id that is no number", "id", func(q *JoinRequest) { q.ID = "0123456789abcdeg" }},
		{"no secret", "secret", func(q *JoinRequest) { q.Secret = "" }},
		{"a long secret", "secret", func(q *JoinRequest) { q.Secret += "a" }},
		{"a secret of other letters", "secret", func(q *JoinRequest) { q.Secret = strings.Repeat("+", 43) }},
		{"no name", "name", func(q *JoinRequest) { q.Name = "" }},
		{"a long name", "name", func(q *JoinRequest) { q.Name = strings.Repeat("a", 64) }},
		{"a name of a path", "name", func(q *JoinRequest) { q.Name = "../h1" }},
		{"no address", "address", func(q *JoinRequest) { q.Address = "" }},
		{"no port", "address", func(q *JoinRequest) { q.Address = "host" }},
		{"port 0", "address", func(q *JoinRequest) { q.Address = "host:0" }},
		{"port 65536", "address", func(q *JoinRequest) { q.Address = "host:65536" }},
		{"a named port", "address", func(q *JoinRequest) { q.Address = "host:http" }},
		{"a port with a zero", "address", func(q *JoinRequest) { q.Address = "host:080" }},
		{"a port with a sign", "address", func(q *JoinRequest) { q.Address = "host:+80" }},
		{"no host", "address", func(q *JoinRequest) { q.Address = ":80" }},
		{"a zone", "address", func(q *JoinRequest) { q.Address = "[fe80::1%eth0\n]:80" }},
		{"a line end", "address", func(q *JoinRequest) { q.Address = "ho\nst:80" }},
		{"a zero byte", "address", func(q *JoinRequest) { q.Address = "ho\x00st:80" }},
		{"a URL", "address", func(q *JoinRequest) { q.Address = "https://host:80" }},
		{"an empty label", "address", func(q *JoinRequest) { q.Address = "a..b:80" }},
		{"a hyphen first", "address", func(q *JoinRequest) { q.Address = "-a:80" }},
		{"256 bytes", "address", func(q *JoinRequest) { q.Address = strings.Repeat("a.", 126) + "a:80" }},
		{"a long request", "request", func(q *JoinRequest) { q.Request = strings.Repeat("a", 8<<10+1) }},
		{"a long chain", "chain", func(q *JoinRequest) { q.Chain = strings.Repeat("a", 8<<10+1) }},
	} {
		q := goodJoin()
		c.change(&q)
		err := q.Check()
		var invalid *leader.Invalid
		switch {
		case c.field == "" && err != nil:
			t.Errorf("%s: %v", c.what, err)
		case c.field != "" && (!errors.As(err, &invalid) || len(invalid.Fields) != 1 || invalid.Fields[0].Field != c.field):
			t.Errorf("%s: %v, want a fault of %s", c.what, err, c.field)
		}
	}
	q := goodJoin()
	if s := fmt.Sprintf("%v %+v %#v", q, q, q); strings.Contains(s, q.Secret) {
		t.Errorf("it shows its secret: %s", s)
	}
}

// FuzzParseJoin: what is parsed and passes the check has bounded fields.
func FuzzParseJoin(f *testing.F) {
	f.Add([]byte(`{"id":"0123456789abcdef","secret":"` + goodJoin().Secret + `","name":"h1","address":"[::1]:1","request":"x"}`))
	f.Add([]byte(`{"id":"a","ID":"b"}`))
	f.Add([]byte(`{} {}`))
	f.Add([]byte(`{"id":null,"role":1}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		q, err := ParseJoin(body)
		if err != nil || q.Check() != nil {
			return
		}
		if len(q.Address) > maxAddress || len(q.Request) > maxJoinPEM || len(q.Chain) > maxJoinPEM || strings.ContainsAny(q.Address+q.Name+q.ID+q.Secret, "\x00\n\r\x1b ") {
			t.Errorf("passed: %q", body)
		}
	})
}
