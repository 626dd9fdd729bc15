package oidc

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-jose/go-jose/v4"

	"evenkeel/api/oidc/issuer"
)

// When the keys of the issuer are fetched, and how long they serve.
const (
	refreshEvery = 10 * time.Minute
	retryEvery   = 30 * time.Second // after a failure
	// KeysServe is how long keys serve after they were fetched last, while the issuer does not answer.
	KeysServe = 24 * time.Hour
	// unknownEvery is how often a token of an unknown key makes the loop fetch the keys before their time, at most.
	unknownEvery = time.Minute
	// keyWait is how long such a token waits for that, maxKeyWaits how many do at a time.
	keyWait     = time.Second
	maxKeyWaits = 64
)

// Errors of Verify.
var (
	// ErrRefused: the token is not good. The text says why, and nothing of the token.
	ErrRefused = errors.New("the token of OpenID Connect is refused")
	// ErrUnavailable: the keys of the issuer are not known, so that nothing can be said of the token.
	ErrUnavailable = errors.New("tokens of OpenID Connect cannot be verified now")
)

// Options of a Verifier.
type Options struct {
	Client *http.Client // to the issuer; nil: one by the configuration
	Log    *slog.Logger // nil: slog.Default()
}

// Verifier judges tokens of one issuer. Its methods may be called at the same time.
type Verifier struct {
	config Config
	log    *slog.Logger
	client *http.Client

	wake  chan struct{} // fetch the keys now
	waits chan struct{} // one for each request that waits for a key
	stop  context.CancelFunc
	done  sync.WaitGroup

	current   standings
	endpoints atomic.Pointer[issuer.Endpoints] // of the last discovery; nil: none yet
	exchanges *exchanges                       // of log-ins of browsers that ask for tokens

	mu      sync.Mutex
	keys    keySet
	fetched time.Time // the keys; zero: never
	failure error     // of the last try; nil: it went well
	asked   time.Time // for the key of a token
	pending bool      // such a fetch is asked for or under way
	next    chan struct{}

	counters
}

// counters since the start.
type counters struct {
	accepted, refused, unavailable, tries, fetchErrors atomic.Uint64
}

// Start makes a Verifier, whose loop fetches the issuer's keys until Close. The issuer may be down.
func Start(c Config, o Options) (*Verifier, error) {
	if err := errOf(c.Check()); err != nil {
		return nil, err
	}
	c = c.WithDefaults()
	if o.Log == nil {
		o.Log = slog.Default()
	}
	if o.Client == nil {
		var err error
		if o.Client, err = c.client(); err != nil {
			return nil, err
		}
	}
	ctx, stop := context.WithCancel(context.Background())
	v := &Verifier{config: c, log: o.Log, client: o.Client, stop: stop, wake: make(chan struct{}, 1), waits: make(chan struct{}, maxKeyWaits), next: make(chan struct{}),
		exchanges: newExchanges()}
	v.current.ctx = ctx
	v.done.Go(func() { v.loop(ctx) })
	return v, nil
}

// Close ends the loop.
func (v *Verifier) Close() {
	v.stop()
	v.done.Wait()
}

// Config of the verifier, with its defaults.
func (v *Verifier) Config() Config { return v.config }

func (v *Verifier) loop(ctx context.Context) {
	for {
		wait := refreshEvery
		if err := v.fetch(ctx); err != nil {
			wait = retryEvery
		}
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C:
		case <-v.wake:
			timer.Stop()
		}
	}
}

// fetch the keys, and wake those that wait for one.
func (v *Verifier) fetch(ctx context.Context) error {
	keys, err := v.download(ctx)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	v.mu.Lock()
	before, at := v.failure, v.fetched
	v.failure = err
	if err == nil {
		v.keys, v.fetched = keys, time.Now()
	}
	v.pending = false
	close(v.next)
	v.next = make(chan struct{})
	v.mu.Unlock()
	v.tries.Add(1)
	switch {
	case err != nil:
		v.fetchErrors.Add(1)
		if before == nil {
			v.log.Warn("the keys of the OpenID Connect issuer cannot be fetched: those that are known serve on for a while", "issuer", v.config.Issuer, "fetched", at, "serve", KeysServe, "error", err)
		}
	case before != nil || at.IsZero():
		v.log.Info("the keys of the OpenID Connect issuer are known", "issuer", v.config.Issuer, "keys", len(keys[""]))
	}
	return err
}

func (v *Verifier) download(ctx context.Context) (keySet, error) {
	at, err := issuer.Discover(ctx, v.client, v.config.Issuer)
	if err != nil {
		return nil, err
	}
	v.endpoints.Store(&at)
	doc, err := issuer.Get(ctx, v.client, at.Keys)
	if err != nil {
		return nil, fmt.Errorf("keys of %s: %w", v.config.Issuer, err)
	}
	keys, err := parseKeys(doc, v.config.Algorithms)
	if err != nil {
		return nil, fmt.Errorf("keys of %s: %w", v.config.Issuer, err)
	}
	return keys, nil
}

// Verify a token. The error is ErrRefused or ErrUnavailable.
func (v *Verifier) Verify(ctx context.Context, token string) (Identity, error) {
	id, err := v.verify(ctx, token)
	switch {
	case err == nil:
		v.accepted.Add(1)
		return id, nil
	case errors.Is(err, ErrUnavailable):
		v.unavailable.Add(1)
		return Identity{}, err
	}
	v.refused.Add(1)
	return Identity{}, fmt.Errorf("%w: %w", ErrRefused, err)
}

func (v *Verifier) verify(ctx context.Context, token string) (Identity, error) {
	payload, err := v.signed(ctx, token)
	if err != nil {
		return Identity{}, err
	}
	return v.config.identify(token, payload, time.Now())
}

// signed is the payload of a token that the issuer signed.
func (v *Verifier) signed(ctx context.Context, token string) ([]byte, error) {
	switch {
	case len(token) > MaxToken:
		return nil, fmt.Errorf("it has more than %d bytes", MaxToken)
	case !Looks(token):
		return nil, errors.New("it is no JSON Web Token")
	}
	jws, err := jose.ParseSigned(token, signatureAlgorithms(v.config.Algorithms))
	if err != nil || len(jws.Signatures) != 1 {
		return nil, fmt.Errorf("it is no JSON Web Token signed by one of %v (oidc.algorithms)", v.config.Algorithms)
	}
	if err := checkType(jws.Signatures[0].Protected.ExtraHeaders[jose.HeaderType]); err != nil {
		return nil, err
	}
	return v.payload(ctx, jws)
}

func signatureAlgorithms(names []string) []jose.SignatureAlgorithm {
	out := make([]jose.SignatureAlgorithm, len(names))
	for i, name := range names {
		out[i] = jose.SignatureAlgorithm(name)
	}
	return out
}

// payload of a token that the issuer signed. A token of an unknown key waits a little for the keys to be fetched again.
func (v *Verifier) payload(ctx context.Context, jws *jose.JSONWebSignature) ([]byte, error) {
	payload, err := v.verifyNow(jws, time.Now())
	if !errors.Is(err, errUnknownKey) || !v.await(ctx) {
		return payload, err
	}
	return v.verifyNow(jws, time.Now())
}

// verifyNow verifies by the keys that are known.
func (v *Verifier) verifyNow(jws *jose.JSONWebSignature, now time.Time) ([]byte, error) {
	v.mu.Lock()
	keys, fetched, failure := v.keys, v.fetched, v.failure
	v.mu.Unlock()
	switch age := now.Sub(fetched); {
	case fetched.IsZero() && failure == nil:
		return nil, fmt.Errorf("%w: the keys of %s are being fetched", ErrUnavailable, v.config.Issuer)
	case fetched.IsZero():
		return nil, fmt.Errorf("%w: this server has no keys of the issuer yet: %w", ErrUnavailable, failure)
	case age >= KeysServe && failure != nil:
		return nil, fmt.Errorf("%w: this server could not fetch the issuer's keys since %s, and those serve %s: %w", ErrUnavailable, stamp(fetched), KeysServe, failure)
	}
	return keys.verify(jws)
}

// await the next fetch of the keys, for a token of an unknown key: for at most keyWait, and only if one is due. It returns
// false if there was none.
func (v *Verifier) await(ctx context.Context) bool {
	select {
	case v.waits <- struct{}{}:
		defer func() { <-v.waits }()
	default: // too many wait already
		return false
	}
	v.mu.Lock()
	if now := time.Now(); !v.pending && now.Sub(v.asked) >= unknownEvery {
		v.pending, v.asked = true, now
		select {
		case v.wake <- struct{}{}:
		default: // it is to wake already
		}
	}
	pending, next := v.pending, v.next
	v.mu.Unlock()
	if !pending {
		return false
	}
	timer := time.NewTimer(keyWait)
	defer timer.Stop()
	select {
	case <-next:
		return true
	case <-timer.C:
	case <-ctx.Done():
	}
	return false
}

// Stats are counts since the start, and how old the keys are.
type Stats struct {
	Accepted, Refused, Unavailable, FetchErrors uint64
	Fetched                                     time.Time // the keys; zero: never
}

// Stats of the verifier.
func (v *Verifier) Stats() Stats {
	v.mu.Lock()
	defer v.mu.Unlock()
	return Stats{v.accepted.Load(), v.refused.Load(), v.unavailable.Load(), v.fetchErrors.Load(), v.fetched}
}
