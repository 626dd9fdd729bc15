package ui

import (
	"bytes"
	"io"
	"net/http"
	"time"

	"evenkeel/api/client"
)

// patience is how long a page waits for a leader.
const patience = 4 * time.Second

// client asks the API of this process, for the browser that made the request r.
func (u *UI) client(w http.ResponseWriter, r *http.Request, token string) *client.Client {
	c, err := client.New(client.Config{Address: "http://127.0.0.1", Token: token, Agent: "evenkeel dashboard", Timeout: time.Minute, Patience: patience,
		Transport: inside{api: u.api, w: w, browser: r}})
	if err != nil {
		panic(err) // the address is a constant
	}
	return c
}

// inside carries requests of a page to the API's handler, and answers back.
type inside struct {
	api     http.Handler
	w       http.ResponseWriter // of the page: its connection has the deadlines
	browser *http.Request
}

// RoundTrip implements http.RoundTripper. To the API the caller is the browser: it has its address and its connection.
func (t inside) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.RemoteAddr, r.TLS, r.Host, r.RequestURI = t.browser.RemoteAddr, t.browser.TLS, t.browser.Host, r.URL.RequestURI()
	r.Proto, r.ProtoMajor, r.ProtoMinor = "HTTP/1.1", 1, 1
	if r.Body == nil {
		r.Body = http.NoBody
	}
	out := &answer{page: t.w, header: http.Header{}}
	t.api.ServeHTTP(out, r)
	if err := r.Context().Err(); err != nil {
		return nil, err
	}
	if out.status == 0 {
		out.status = http.StatusOK
	}
	return &http.Response{StatusCode: out.status, Status: http.StatusText(out.status), Proto: r.Proto, ProtoMajor: 1, ProtoMinor: 1, Header: out.header,
		Body: io.NopCloser(&out.body), ContentLength: int64(out.body.Len()), Request: r}, nil
}

// answer keeps what the API answers.
type answer struct {
	page   http.ResponseWriter
	header http.Header
	status int
	body   bytes.Buffer
}

func (a *answer) Header() http.Header { return a.header }

func (a *answer) WriteHeader(status int) {
	if a.status == 0 && status >= 200 {
		a.status = status
	}
}

func (a *answer) Write(b []byte) (int, error) {
	a.WriteHeader(http.StatusOK)
	return a.body.Write(b)
}

// Flush implements http.Flusher: the answer goes to the page when it is whole.
func (a *answer) Flush() {}

// SetWriteDeadline sets the deadline of the browser's connection, for http.ResponseController. Reads have none: what the API reads
// is from the page itself.
func (a *answer) SetWriteDeadline(t time.Time) error {
	return http.NewResponseController(a.page).SetWriteDeadline(t)
}

// stream passes on the events that the session may see. The API ends it when the right to them ends.
func (u *UI) stream(w http.ResponseWriter, r *http.Request) {
	token := session(r)
	if token == "" {
		http.Error(w, "log in first", http.StatusUnauthorized)
		return
	}
	q := r.Clone(r.Context())
	q.URL.Path, q.URL.RawPath, q.URL.RawQuery = "/v1/events", "", ""
	q.RequestURI = q.URL.RequestURI()
	q.Header = http.Header{"Accept": {"text/event-stream"}, "Authorization": {"Bearer " + token}, "User-Agent": {"evenkeel dashboard"}}
	if last := r.Header.Get("Last-Event-ID"); last != "" {
		q.Header.Set("Last-Event-ID", last)
	}
	u.api.ServeHTTP(w, q)
}
