package server_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"evenkeel/api/v1"
)

// No token makes one that outlives it, whatever its role: neither by asking for longer nor by not saying how long.
func TestTokensDoNotOutliveTheirMaker(t *testing.T) {
	bubble(t, func(t *testing.T) {
		x := startTenants(t, 1, 1)
		for _, c := range []struct{ name, maker, makes string }{
			{"owner for a day", `{"name":"short","role":"owner","tenant":"film","seconds":86400}`, "owner"},
			{"admin for a day", `{"name":"short","role":"admin","seconds":86400}`, "admin"},
		} {
			x.makeToken(c.name, c.maker, "")
			end := time.Now().Add(24 * time.Hour)
			for _, q := range []struct {
				seconds string
				status  int
				ends    time.Duration // before the maker's end
			}{{"", 201, 0}, {`,"seconds":3600`, 201, 23 * time.Hour}, {`,"seconds":86500`, 422, 0}} {
				resp, body := x.as(c.name, "POST", "/v1/tokens", `{"name":"child","role":"`+c.makes+`"`+q.seconds+`}`)
				if resp.StatusCode != q.status {
					t.Errorf("%s, %s: %s %s", c.name, q.seconds, resp.Status, body)
					continue
				}
				var made v1.Token
				if must(t, json.Unmarshal([]byte(body), &made)); q.status == 422 {
					if !strings.Contains(body, "outlive") {
						t.Errorf("%s: %s", c.name, body)
					}
				} else if made.Until == nil || made.Until.After(end) || made.Until.Before(end.Add(-q.ends-time.Minute)) {
					t.Errorf("%s makes one, %s, that ends at %v; its own end is %v", c.name, q.seconds, made.Until, end)
				}
			}
		}
		var lasting v1.Token
		must(t, json.Unmarshal([]byte(x.want(201, "POST", "/v1/tokens", `{"name":"child","role":"owner"}`, "film owner")), &lasting))
		if lasting.Until != nil {
			t.Errorf("a token without an end makes one that ends at %v", lasting.Until)
		}
	})
}
