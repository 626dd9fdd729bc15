package simulation

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"evenkeel/cluster/agent"
	"evenkeel/cluster/leader"
	"evenkeel/cluster/lease"
	"evenkeel/cluster/node"
	"evenkeel/cluster/state"
)

// clusterID of the n-th cluster that is made in a run.
func clusterID(n int) string { return fmt.Sprintf("01SIMULATION000000000000%d", n) }

// server is the machine of one server. Its disk outlives its processes.
type server struct {
	s    *sim
	name string
	disk *node.Memory
	full atomic.Bool
	used bool
	lost int     // how often its disk was
	rate float64 // of its clock

	mu   sync.Mutex
	life *serving // nil: it does not run
}

// serving is one process of a server, wired as cluster/member does.
type serving struct {
	*server
	ctx    context.Context
	cancel context.CancelFunc
	store  *state.Store
	made   int // which cluster it makes, if it finds none
	node   *node.Node
	ctl    *leader.Service
	leads  atomic.Uint64
	door   door
	group  sync.WaitGroup
}

func (v *server) alive() *serving {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.life
}

func (v *server) clock() lease.Instant {
	return time.Duration(float64(time.Since(v.s.began)) * v.rate)
}

// start a process on the server's disk; bare: its log and its state alone.
func (v *server) start(bare bool) error {
	if v.alive() != nil {
		return nil
	}
	ctx, cancel := context.WithCancel(v.s.ctx)
	p := &serving{server: v, ctx: ctx, cancel: cancel, store: state.New(), made: v.lost}
	p.door.lines = map[string]*line{}
	v.s.net.rise(v.name)
	var err error
	p.node, err = node.Open(node.Options{ID: v.name, Memory: v.disk, Stream: v.s.net.listen(v.name), Advertise: v.name, State: p.store, Log: v.s.log,
		Bootstrap: v.name == "s1" && !v.used, Used: v.used, SnapshotEvery: v.s.o.snapshotEvery, Trailing: v.s.o.snapshotEvery, RestorePart: 4 << 10,
		Timers: v.s.o.timers, // and trailing entries as in production, where they are as many as from snapshot to snapshot
		Fault: func(what string) error {
			if v.full.Load() {
				return fmt.Errorf("write: %w", syscall.ENOSPC)
			}
			return nil
		}})
	if err != nil {
		cancel()
		v.s.net.fall(v.name)
		return fmt.Errorf("start server %s: %w", v.name, err)
	}
	v.used = true
	var log leader.Log = gatedLog{p}
	if v.s.o.broken.log != nil {
		log = v.s.o.broken.log(v.s, log)
	}
	p.ctl = leader.New(leader.Options{State: p.store, Log: log, Settings: v.s.o.settings, Logger: v.s.log, Clock: v.clock,
		Inspect: func(img state.Image) (state.Image, error) { return img, nil }, Fence: fences{v.s, v.name},
		Entropy: rand.NewChaCha8(v.s.entropy()), Period: v.s.o.period()})
	v.mu.Lock()
	v.life = p
	v.mu.Unlock()
	if !bare {
		p.group.Go(func() { p.node.WhileLeading(ctx, p.term) })
	}
	return nil
}

// term runs the leader's service, as cluster/member does.
func (p *serving) term(ctx context.Context, term uint64) {
	if err := p.ctl.StartTerm(ctx, term, clusterID(p.made)); err != nil {
		p.s.note("%s begins term %d: %v", p.name, term, err)
		return
	}
	p.leads.Store(term)
	defer p.leads.Store(0)
	p.s.note("%s leads in term %d", p.name, term)
	p.s.count("terms led")
	var group sync.WaitGroup
	group.Go(func() { p.ctl.Run(ctx) })
	group.Go(func() { p.ctl.Guard(ctx) })
	if b := p.s.o.broken.leading; b != nil {
		group.Go(func() { b(ctx, p) })
	}
	group.Wait()
}

// crash ends the process; the disk is kept.
func (v *server) crash() {
	p := v.alive()
	if p == nil {
		return
	}
	v.s.net.fall(v.name)
	v.mu.Lock()
	v.life = nil
	v.mu.Unlock()
	p.cancel()
	if err := p.node.Close(); err != nil && !v.full.Load() {
		v.s.note("%s: close: %v", v.name, err)
	}
	p.group.Wait()
}

type leading struct {
	here    bool
	term    uint64
	address string
}

// lead says who leads, as cluster/member does.
func (p *serving) lead() leading {
	if term := p.leads.Load(); term != 0 {
		return leading{here: true, term: term}
	}
	now, _ := p.node.Leadership()
	if now.Leads || now.Leader == p.name {
		return leading{}
	}
	return leading{term: now.Term, address: now.Address}
}

// gatedLog is the node of a process that may stand still.
type gatedLog struct{ p *serving }

func (g gatedLog) Leads() bool    { return g.p.node.Leads() }
func (g gatedLog) Leader() string { return g.p.node.Leader() }

func (g gatedLog) Apply(ctx context.Context, entry []byte) (uint64, error, error) { //nolint:staticcheck // leader.Log says so
	g.p.gate()
	index, outcome, err := g.p.node.Apply(ctx, entry)
	g.p.gate()
	return index, outcome, err
}

func (g gatedLog) Linearize(ctx context.Context) error {
	g.p.gate()
	err := g.p.node.Linearize(ctx)
	g.p.gate()
	return err
}

// gate holds a process that stands still, until it goes on or ends.
func (p *serving) gate() {
	for {
		p.s.net.mu.Lock()
		frozen, changed := p.s.net.frozen[p.name], p.s.net.changed
		p.s.net.mu.Unlock()
		if !frozen {
			return
		}
		select {
		case <-changed:
		case <-p.ctx.Done():
			return
		}
	}
}

// errNoServer: the server that was asked neither leads nor knows which one does.
var errNoServer = fmt.Errorf("asked a server that knows no leader: %w", leader.ErrNoLeader)

// ask the leader through a server, which forwards the question at most once.
func ask[T any](ctx context.Context, s *sim, from, at string, f func(context.Context, *serving) (T, error)) (T, error) {
	return call(ctx, s.ctx, s.net, from, at, func(ctx context.Context) (T, error) { return serve(ctx, s, at, false, f) })
}

func serve[T any](ctx context.Context, s *sim, at string, handed bool, f func(context.Context, *serving) (T, error)) (T, error) {
	var zero T
	p := s.servers[at].alive()
	if p == nil {
		return zero, errRefused
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	defer context.AfterFunc(p.ctx, cancel)()
	switch l := p.lead(); {
	case l.here:
		a, err := f(ctx, p)
		if p.ctx.Err() != nil {
			<-s.ctx.Done() // a process that crashed answers nothing
		}
		return a, err
	case handed || l.address == "":
		return zero, errNoServer
	default:
		a, err := call(ctx, s.ctx, s.net, at, l.address, func(ctx context.Context) (T, error) { return serve(ctx, s, l.address, true, f) })
		if errors.Is(err, context.DeadlineExceeded) {
			err = fmt.Errorf("%w: %w", leader.ErrTimeout, err)
		}
		return a, err
	}
}

// door is what cluster/transport does with agents' calls at the leader. Each call carries a session
// of the leader's and a number, and a call that comes after a later one is refused.
type door struct {
	mu    sync.Mutex
	next  uint64
	lines map[string]*line
}

type line struct {
	session, term uint64
	last          map[string]uint64
	busy          map[string]chan struct{}
}

var (
	errSession = errors.New("the leader does not know this session")
	errLate    = errors.New("it came after a later one")
)

func (p *serving) session(host string) uint64 {
	p.door.mu.Lock()
	defer p.door.mu.Unlock()
	l := p.door.lines[host]
	if l == nil {
		l = &line{busy: map[string]chan struct{}{"report": make(chan struct{}, 1), "renew": make(chan struct{}, 1), "permit": make(chan struct{}, 1)}}
		p.door.lines[host] = l
	}
	p.door.next++
	l.session, l.term, l.last = p.door.next<<8|uint64(p.name[1]), p.lead().term, map[string]uint64{}
	return l.session
}

func (p *serving) enter(ctx context.Context, host, kind string, session, n uint64) (leave func(), err error) {
	p.door.mu.Lock()
	l := p.door.lines[host]
	known := l != nil && l.session == session && l.term == p.lead().term
	late := known && n <= l.last[kind]
	if known && !late {
		l.last[kind] = n
	}
	p.door.mu.Unlock()
	switch {
	case !known:
		return nil, errSession
	case late:
		p.s.count("late calls refused")
		return nil, errLate
	}
	select {
	case l.busy[kind] <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	p.door.mu.Lock()
	known, late = l.session == session, l.last[kind] != n
	p.door.mu.Unlock()
	if !known || late {
		<-l.busy[kind]
		return nil, errLate
	}
	return func() { <-l.busy[kind] }, nil
}

// stream sends a host its desired state for as long as this server leads.
func (p *serving) stream(ctx context.Context, host string, send func(agent.Desired, bool) error) error {
	beat := time.NewTicker(time.Second)
	defer beat.Stop()
	for {
		want, changed, err := p.ctl.Desired(ctx, host)
		if err == nil {
			err = send(want, true)
		}
		if err != nil {
			return err
		}
	wait:
		for {
			select {
			case <-changed:
				break wait
			case <-beat.C:
				if !p.lead().here {
					return errNoServer
				}
				if err := send(agent.Desired{}, false); err != nil {
					return err
				}
			case <-p.ctx.Done():
				return errRefused
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		if err := wait(ctx, 20*time.Millisecond); err != nil {
			return err
		}
		if !p.lead().here {
			return errNoServer
		}
	}
}

// saved is the state as it is saved, to be compared.
func (p *serving) saved() string {
	var b bytes.Buffer
	if err := p.store.Snapshot().Save(&b); err != nil {
		return err.Error()
	}
	return b.String()
}
