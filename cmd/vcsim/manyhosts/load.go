package manyhosts

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"evenkeel/api/client"
	"evenkeel/api/v1"
)

// Load is what became of a stream of requests.
type Load struct {
	Seconds    float64        `json:"seconds"`
	Asked      int            `json:"asked"`     // virtual clusters asked for
	Admitted   int            `json:"admitted"`  // of them
	VMs        int            `json:"vms"`       // of those
	Deleted    int            `json:"deleted"`   // virtual clusters
	Retried    map[string]int `json:"retried"`   // answers that allow the same request again, by kind
	Failed     map[string]int `json:"failed"`    // all others that are no success
	PerSecond  float64        `json:"perSecond"` // admissions
	Millis     Quantiles      `json:"milliseconds"`
	Worst      []float64      `json:"worstMilliseconds"` // admission of each second
	DeleteTime Quantiles      `json:"deleteMilliseconds"`
}

// Quantiles of times, milliseconds.
type Quantiles struct {
	P50 float64 `json:"p50"`
	P90 float64 `json:"p90"`
	P99 float64 `json:"p99"`
	Max float64 `json:"max"`
}

func quantiles(took []time.Duration) (q Quantiles) {
	if len(took) == 0 {
		return q
	}
	slices.Sort(took)
	at := func(f float64) float64 {
		return float64(took[min(len(took)-1, int(f*float64(len(took))))].Microseconds()) / 1000
	}
	return Quantiles{at(0.5), at(0.9), at(0.99), at(1)}
}

// worst takes in how long a request took that was due at a time.
func (l *Load) worst(due, took time.Duration) {
	second := int(due / time.Second)
	for len(l.Worst) <= second {
		l.Worst = append(l.Worst, 0)
	}
	l.Worst[second] = max(l.Worst[second], float64(took.Microseconds())/1000)
}

// clients of the API, each with a connection of its own; one request at a time.
func clients(n int, servers []string, token, caFile string) ([]*client.Client, error) {
	var out []*client.Client
	for i := range n {
		c, err := client.New(client.Config{Address: servers[i%len(servers)], Token: token, CAFile: caFile})
		if err != nil {
			return nil, err
		}
		out = append(out, c)
	}
	return out, nil
}

// retryable is the kind of an answer that says that the same request may succeed later, "" if it does not.
func retryable(err error) string {
	if errors.Is(err, client.ErrUnreachable) {
		return "unreachable"
	}
	for _, kind := range []string{v1.ProblemNoLeader, v1.ProblemTimeout, v1.ProblemUnavailable} {
		if client.IsProblem(err, kind) {
			return kind
		}
	}
	return ""
}

// tally of requests that are under way in several clients.
type tally struct {
	mu      sync.Mutex
	load    Load
	creates []time.Duration
	deletes []time.Duration
	last    time.Time // a create was answered
}

// persist asks until there is an answer that is final, with a key so that it is done once.
func (t *tally) persist(ctx context.Context, all []*client.Client, first int, key string, ask func(*client.Client, client.Option) error) error {
	wait := 50 * time.Millisecond
	for i := first; ; i++ {
		err := ask(all[i%len(all)], client.IdempotencyKey(key))
		if err == nil {
			return nil
		}
		kind := retryable(err)
		t.mu.Lock()
		if kind == "" {
			t.load.Failed[err.Error()]++
		} else {
			t.load.Retried[kind]++
		}
		t.mu.Unlock()
		if kind == "" || ctx.Err() != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(wait):
			wait = min(2*wait, time.Second)
		}
	}
}

// small draws a virtual cluster of 1 to limit VMs.
func small(r *rand.Rand, name string, limit int, cpu float64) v1.VirtualClusterSpec {
	return v1.VirtualClusterSpec{Name: name, OnFull: "reject", Groups: []v1.GroupSpec{{Name: "w", Count: 1 + r.IntN(limit),
		CPU: cpu * float64(1+r.IntN(16)) / 8, Memory: v1.Size(1+r.IntN(8)) << 29}}}
}

// makeTenants makes so many tenants: t1, t2, ...
func makeTenants(ctx context.Context, c *client.Client, n int) (names []string, err error) {
	for i := range n {
		names = append(names, fmt.Sprintf("t%d", i+1))
		if _, err := c.CreateTenant(ctx, v1.TenantRequest{Name: names[i]}); err != nil {
			return nil, fmt.Errorf("tenant %s: %w", names[i], err)
		}
	}
	return names, nil
}

// filling is so many VMs in virtual clusters of random size and need.
type filling struct {
	vms     int
	largest int     // VMs of a virtual cluster
	cpu     float64 // mean need of a VM, cores
	seed    uint64
}

// fill the cluster. The virtual clusters belong to the tenants in turn; none: to the tenant default.
func fill(ctx context.Context, all []*client.Client, tenants []string, f filling) (int, error) {
	r := rand.New(rand.NewPCG(f.seed, 1))
	type job struct {
		spec v1.VirtualClusterSpec
		of   []client.Option
	}
	work := make(chan job)
	var t tally
	t.load.Failed, t.load.Retried = map[string]int{}, map[string]int{}
	var wg sync.WaitGroup
	for i := range all {
		wg.Go(func() {
			for j := range work {
				_ = t.persist(ctx, all, i, "fill-"+j.spec.Name, func(c *client.Client, o client.Option) error {
					_, err := c.Create(ctx, j.spec, append(j.of, o)...)
					return err
				})
			}
		})
	}
	asked := 0
	for n := 0; asked < f.vms && ctx.Err() == nil; n++ {
		j := job{spec: small(r, fmt.Sprintf("base%d", n), f.largest, f.cpu)}
		if len(tenants) > 0 {
			j.of = []client.Option{client.OfTenant(tenants[n%len(tenants)])}
		}
		j.spec.Groups[0].Count = min(j.spec.Groups[0].Count, f.vms-asked)
		asked += j.spec.Groups[0].Count
		work <- j
	}
	close(work)
	wg.Wait()
	if len(t.load.Failed) > 0 {
		return asked, fmt.Errorf("fill the cluster: %v", t.load.Failed)
	}
	return asked, ctx.Err()
}

// offer so many virtual clusters a second for a time, and delete each after life. Requests are due at
// fixed times, whether those before them were answered or not; their time runs from then.
func offer(ctx context.Context, all []*client.Client, o Offer) Load {
	type job struct {
		due    time.Time
		spec   v1.VirtualClusterSpec
		delete bool
	}
	jobs := make(chan job, 1<<16)
	r := rand.New(rand.NewPCG(o.Seed, 2))
	var t tally
	t.load.Failed, t.load.Retried = map[string]int{}, map[string]int{}
	begin := time.Now()
	var wg, later sync.WaitGroup
	for i := range all {
		wg.Go(func() {
			for j := range jobs {
				if j.delete {
					err := t.persist(ctx, all, i, "delete-"+j.spec.Name, func(c *client.Client, o client.Option) error {
						_, err := c.Delete(ctx, j.spec.Name, o)
						return err
					})
					t.mu.Lock()
					t.deletes = append(t.deletes, time.Since(j.due))
					if err == nil {
						t.load.Deleted++
					}
					t.mu.Unlock()
					later.Done()
					continue
				}
				err := t.persist(ctx, all, i, "create-"+j.spec.Name, func(c *client.Client, o client.Option) error {
					_, err := c.Create(ctx, j.spec, o)
					return err
				})
				now := time.Now()
				t.mu.Lock()
				t.creates, t.last = append(t.creates, now.Sub(j.due)), now
				t.load.worst(j.due.Sub(begin), now.Sub(j.due))
				if err == nil {
					t.load.Admitted++
					t.load.VMs += j.spec.Groups[0].Count
				}
				t.mu.Unlock()
				if err != nil {
					later.Done()
					continue
				}
				due := j.due.Add(o.Life)
				time.AfterFunc(time.Until(due), func() { jobs <- job{due: due, spec: j.spec, delete: true} })
			}
		})
	}
	every := time.Duration(float64(time.Second) / o.Rate)
	for n := 0; ; n++ {
		due := begin.Add(time.Duration(n) * every)
		if due.Sub(begin) >= o.During {
			break
		}
		select {
		case <-ctx.Done():
		case <-time.After(time.Until(due)):
		}
		if ctx.Err() != nil {
			break
		}
		t.load.Asked++
		later.Add(1)
		jobs <- job{due: due, spec: small(r, fmt.Sprintf("%s%d", o.Prefix, n), o.Largest, o.CPU)}
	}
	asked := time.Since(begin)
	later.Wait()
	close(jobs)
	wg.Wait()
	t.load.Seconds = asked.Seconds()
	t.load.PerSecond = float64(t.load.Admitted) / max(asked, t.last.Sub(begin)).Seconds()
	t.load.Millis, t.load.DeleteTime = quantiles(t.creates), quantiles(t.deletes)
	return t.load
}
