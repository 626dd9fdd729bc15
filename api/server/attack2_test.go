package server_test

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"evenkeel/api/v1"
)

// A viewer's forms that do not end are held without a bound, also after its token was revoked.
func TestAttackSlowForms(t *testing.T) {
	bubble(t, func(t *testing.T) {
		x := startTenants(t, 1, 2)
		const many = 100
		ended := make(chan error, many)
		var pipes []*io.PipeWriter
		for range many {
			out, in := io.Pipe()
			pipes = append(pipes, in)
			r, err := http.NewRequestWithContext(t.Context(), "POST", "https://"+x.Address("h1")+"/ui/new", out)
			must(t, err)
			r.ContentLength = 1_000_000
			r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
			r.Header.Set("Cookie", "__Host-evenkeel="+x.token["film viewer"])
			go func() {
				resp, err := x.http.Do(r)
				if err == nil {
					_ = resp.Body.Close()
				}
				ended <- err
			}()
			go func() { _, _ = in.Write([]byte("file=" + strings.Repeat("x", 900_000))) }()
		}
		time.Sleep(30 * time.Second) // sleep: simulated
		t.Logf("after 30 s %d of %d have ended", len(ended), many)
		var all v1.List[v1.Token]
		must(t, json.Unmarshal([]byte(x.want(200, "GET", "/v1/tokens?tenant=film", "", "admin")), &all))
		for _, tok := range all.Items {
			if tok.Name == "film-viewer" {
				x.want(200, "DELETE", "/v1/tokens/"+tok.ID, "", "admin")
			}
		}
		time.Sleep(30 * time.Minute) // sleep: simulated
		if n := len(ended); n < many {
			t.Errorf("30 min after its token was revoked %d forms of a viewer are held, 900 kB each", many-n)
		}
		for _, in := range pipes {
			_ = in.CloseWithError(io.ErrUnexpectedEOF)
		}
	})
}
