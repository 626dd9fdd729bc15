package server_test

import (
	"io"
	"net/http"
	"testing"

	v1 "evenkeel/api/v1"
)

// endless is a body of 100 MB that counts what was taken of it.
type endless struct{ left int64 }

func (e *endless) Read(b []byte) (int, error) {
	if e.left == 0 {
		return 0, io.EOF
	}
	n := min(int64(len(b)), e.left)
	e.left -= n
	return int(n), nil
}

func TestLargeBodies(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := start(t)
		for _, length := range []int64{100_000_000, -1} { // said at once, or in chunks
			r, err := http.NewRequest(http.MethodPost, c.address+"/v1/virtual-clusters", &endless{100_000_000})
			must(t, err)
			r.ContentLength = length
			r.Header.Set("Authorization", "Bearer "+c.token)
			r.Header.Set("Content-Type", "application/json")
			resp, err := c.raw(t).Do(r)
			must(t, err)
			body, err := io.ReadAll(resp.Body)
			for n := 0; err != nil && n < 5; n++ { // the connection is closed while more of the body comes: the answer's end may be lost on a slow machine
				r.Body = io.NopCloser(&endless{100_000_000})
				resp, err = c.raw(t).Do(r)
				must(t, err)
				body, err = io.ReadAll(resp.Body)
			}
			must(t, err)
			must(t, resp.Body.Close())
			if p := problemIn(t, resp, string(body)); p.Status != 413 || p.Type != v1.ProblemTooLarge {
				t.Errorf("length %d: %s", length, body)
			}
		}
	})
}
