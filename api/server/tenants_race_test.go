package server_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"evenkeel/api/client"
	"evenkeel/api/v1"
)

// do is a request by hand from any goroutine. It returns no answer where there was none.
func (x *tenancy) do(server, token, method, path, body string) (int, string) {
	r, err := http.NewRequestWithContext(x.t.Context(), method, "https://"+x.Address(server)+path, strings.NewReader(body))
	if err != nil {
		return 0, err.Error()
	}
	r.Header.Set("Authorization", "Bearer "+token)
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	resp, err := x.http.Do(r)
	if err != nil {
		return 0, err.Error()
	}
	defer resp.Body.Close() //nolint:errcheck // read to its end
	b, _ := io.ReadAll(resp.Body)
	return resp.StatusCode, string(b)
}

// follow opens a tenant's event stream on a server. It sends each line that holds an event, and closes the channel at its end.
func (x *tenancy) follow(server, caller string, parameters ...string) <-chan string {
	x.t.Helper()
	r, err := http.NewRequestWithContext(x.t.Context(), http.MethodGet, "https://"+x.Address(server)+query("/v1/events?after=0", parameters...), nil)
	must(x.t, err)
	r.Header.Set("Authorization", "Bearer "+x.token[caller])
	resp, err := x.http.Do(r)
	must(x.t, err)
	if resp.StatusCode != 200 {
		x.t.Fatalf("events as %s: %s", caller, resp.Status)
	}
	lines := make(chan string, 10_000)
	go func() {
		defer close(lines)
		defer resp.Body.Close() //nolint:errcheck // it ends here
		for in := bufio.NewScanner(resp.Body); in.Scan(); {
			if text, ok := strings.CutPrefix(in.Text(), "data: "); ok {
				lines <- text
			}
		}
	}()
	return lines
}

// An event stream on a follower shows a tenant its own events, numbered without gaps, and ends within 5 s of the right behind it:
// the token's or the tenant's.
func TestStreamsOfTenants(t *testing.T) {
	bubble(t, func(t *testing.T) {
		x := startTenants(t, 3, 3)
		_, follower := x.leads()
		film, acme := x.follow(follower, "film viewer"), x.follow(follower, "acme viewer")
		for i := range 3 {
			for _, tenant := range []string{"film", "acme", "default"} {
				x.want(202, "POST", "/v1/virtual-clusters?tenant="+tenant, fmt.Sprintf(`{"name":"%s%d","groups":[{"name":"a","cpu":0.1,"memory":"256MiB"}]}`, mark(tenant), i), "operator")
			}
			x.want(200, "PUT", "/v1/hosts/h3/cordon", `{}`, "operator")
			x.want(200, "DELETE", "/v1/hosts/h3/cordon", "", "operator")
		}
		time.Sleep(5 * time.Second) // sleep: in the bubble, until all is said
		x.want(200, "PATCH", "/v1/tenants/film", `{"state":"suspended"}`, "operator")
		x.want(200, "DELETE", "/v1/tokens/"+x.key["acme"], "", "admin") // of its viewer
		begun := time.Now()
		for tenant, lines := range map[string]<-chan string{"film": film, "acme": acme} {
			seen := 0
			for text := range lines {
				var e v1.Event
				must(t, json.Unmarshal([]byte(text), &e))
				if seen++; e.Seq != uint64(seen) || !strings.HasPrefix(e.Name, mark(tenant)) || hostNames.MatchString(text) {
					t.Errorf("%s: event %d: %s", tenant, seen, text)
				}
			}
			if took := time.Since(begun); took > 5*time.Second {
				t.Errorf("the stream of %s ended after %s", tenant, took)
			}
			if seen < 9 {
				t.Errorf("%s: only %d events", tenant, seen)
			}
		}
	})
}

// A server that lost the leader does not hear of rights that end. It answers tenants nothing, not even stale, and ends their streams;
// roles of the cluster still get what it knows.
func TestServerWithoutLeaderServesNoTenant(t *testing.T) {
	bubble(t, func(t *testing.T) {
		x := startTenants(t, 3, 3)
		_, follower := x.leads()
		lines := x.follow(follower, "film viewer", "consistency=stale")
		paths := []string{"/v1/vms", "/v1/virtual-clusters", "/v1/tenants/film", "/v1/quotas", "/v1/images", "/v1/tokens", "/v1/operations"}
		ask := func(caller string, want int) {
			t.Helper()
			for _, at := range paths {
				if status, body := x.do(follower, x.token[caller], "GET", at+"?consistency=stale", ""); status != want {
					t.Errorf("%s as %s: %d %s, want %d", at, caller, status, body, want)
				}
			}
		}
		ask("film owner", 200)
		for _, name := range []string{"h1", "h2", "h3"} {
			if name != follower {
				must(t, x.Stop(name))
			}
		}
		begun := time.Now()
		for range lines { // until it ends
		}
		if took := time.Since(begun); took > 5*time.Second {
			t.Errorf("the stream ended %s after the servers that led and voted", took)
		}
		time.Sleep(5*time.Second - time.Since(begun)) // sleep: in the bubble
		ask("film owner", 503)
		ask("admin", 200)
	})
}

// A console that a tenant opened through a follower ends within 5 s of the right behind it.
func TestConsolesOfTenants(t *testing.T) {
	bubble(t, func(t *testing.T) {
		x := startTenants(t, 3, 3)
		_, follower := x.leads()
		of := func(caller string) *client.Client {
			c, err := client.New(client.Config{Address: x.Address(follower), Token: x.token[caller], CAFile: x.CAFile(), Dial: x.Dial})
			must(t, err)
			t.Cleanup(c.Close)
			return c
		}
		if _, err := of("film viewer").Console(t.Context(), mark("film")+"-core-0"); !client.IsProblem(err, v1.ProblemForbidden) {
			t.Errorf("a viewer: %v", err)
		}
		if _, err := of("film editor").Console(t.Context(), x.vm["acme"]); !client.IsProblem(err, v1.ProblemNotFound) {
			t.Errorf("another tenant's: %v", err)
		}
		tty, err := of("film editor").Console(t.Context(), mark("film")+"-core-0")
		must(t, err)
		defer tty.Close() //nolint:errcheck // it ended
		x.want(200, "PATCH", "/v1/tenants/film", `{"state":"suspended"}`, "operator")
		begun := time.Now()
		_, err = io.Copy(io.Discard, tty)
		if took := time.Since(begun); took > 5*time.Second || !strings.Contains(fmt.Sprint(err), "suspended") {
			t.Errorf("the console ended after %s: %v", took, err)
		}
	})
}

// Many clients of many tenants create, scale and delete against their quotas while the leader is lost: no state that a server has
// exceeds a limit, at no index of the log; nothing that was acknowledged is lost, and what is used is what the lists add up to.
func TestQuotasUnderLoad(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const tenants, clients, steps = 10, 50, 12
		x := startTenants(t, 3, 4)
		tokens := make([]string, tenants)
		for i := range tenants {
			name := fmt.Sprintf("t%d", i)
			x.want(201, "POST", "/v1/tenants", `{"name":"`+name+`"}`, "admin")
			x.want(200, "PATCH", "/v1/quotas/"+name, `{"limits":{"vms":"5","cpu":"0.25","memory":"2GiB","vcs":"3"}}`, "admin")
			x.makeToken(name, `{"name":"c","role":"editor","tenant":"`+name+`"}`, "")
			tokens[i] = x.token[name]
		}
		leader, follower := x.leads()
		var servers []string
		for _, name := range []string{"h1", "h2", "h3"} {
			if name != leader {
				servers = append(servers, name)
			}
		}
		var mu sync.Mutex
		kept := map[string]bool{} // acknowledged and not deleted: tenant/name
		unsure := map[string]bool{}
		refused, made := 0, 0
		var wg sync.WaitGroup
		for c := range clients {
			tenant := c % tenants
			rng := rand.New(rand.NewPCG(1, uint64(c)))
			wg.Go(func() {
				for step := range steps {
					time.Sleep(time.Duration(rng.Int64N(int64(4 * time.Second)))) // sleep: in the bubble, to spread the requests
					name := fmt.Sprintf("c%d-%d", c, step)
					full := fmt.Sprintf("t%d/%s", tenant, name)
					server := servers[rng.IntN(len(servers))]
					status, _ := x.do(server, tokens[tenant], "POST", "/v1/virtual-clusters", fmt.Sprintf(`{"name":%q,"groups":[{"name":"a","count":%d,"cpu":0.05,"memory":"256MiB"}]}`, name, 1+rng.IntN(3)))
					mu.Lock()
					switch {
					case status == 202:
						made++
						kept[full] = true
					case status == 403:
						refused++
					case status == 0 || status >= 500:
						unsure[full] = true
					}
					mu.Unlock()
					if status != 202 || rng.IntN(4) == 0 {
						continue
					}
					time.Sleep(time.Duration(rng.Int64N(int64(4 * time.Second)))) // sleep: as above
					if status, _ := x.do(server, tokens[tenant], "DELETE", "/v1/virtual-clusters/"+name, ""); status != 404 {
						mu.Lock()
						delete(kept, full)
						unsure[full] = true // it may still be going
						mu.Unlock()
					}
				}
			})
		}
		over := make(chan string, 1)
		stop := make(chan struct{})
		reads := 0
		var watching sync.WaitGroup
		watching.Go(func() {
			for {
				select {
				case <-stop:
					return
				case <-time.After(20 * time.Millisecond):
				}
				status, body := x.do(follower, x.token["admin"], "GET", "/v1/quotas?consistency=stale", "")
				if reads++; status == 200 && strings.Contains(body, `"overQuota":["`) {
					select {
					case over <- body:
					default:
					}
				}
			}
		})
		time.Sleep(12 * time.Second) // sleep: in the bubble, until the clients are busy
		must(t, x.Stop(leader))
		wg.Wait()
		close(stop)
		watching.Wait()
		select {
		case body := <-over:
			t.Errorf("over quota: %s", body)
		default:
		}
		time.Sleep(time.Minute) // sleep: in the bubble, until deletions are over
		for i := range tenants {
			name := fmt.Sprintf("t%d", i)
			var vcs v1.List[v1.VirtualCluster]
			_, body := x.do(follower, x.token["admin"], "GET", "/v1/virtual-clusters?tenant="+name, "")
			must(t, json.Unmarshal([]byte(body), &vcs))
			vms, cpu := 0.0, 0.0
			for _, vc := range vcs.Items {
				for _, g := range vc.Groups {
					vms += float64(g.Count)
					cpu += float64(g.Count) * g.CPU
				}
				if full := name + "/" + vc.Name; !kept[full] && !unsure[full] {
					t.Errorf("%s is there, and was not acknowledged", full)
				}
				delete(kept, name+"/"+vc.Name)
			}
			var quota v1.Quota
			_, body = x.do(follower, x.token["admin"], "GET", "/v1/quotas/"+name, "")
			must(t, json.Unmarshal([]byte(body), &quota))
			for _, item := range quota.Items {
				want, known := map[string]float64{"vms": vms, "cpu": cpu, "vcs": float64(len(vcs.Items))}[item.Key]
				if known && (item.Used > want+1e-9 || item.Used < want-1e-9) {
					t.Errorf("%s: %s used %v, the list says %v", name, item.Key, item.Used, want)
				}
			}
		}
		if len(kept) > 0 {
			t.Errorf("acknowledged and lost: %v", kept)
		}
		t.Logf("%d made, %d refused by quota, quotas read %d times", made, refused, reads)
		if made < 50 || refused < 50 {
			t.Error("the quotas were hardly met")
		}
		r := x.logAgain(t, follower)
		if t.Logf("log of %s: %+v", follower, r); r.Grew < 50 || r.AtLimit < 10 {
			t.Error("the log has hardly anything that uses quotas")
		}
	})
}
