package simulation

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"evenkeel/cluster/state"
	"evenkeel/hypervisor"
	"evenkeel/hypervisor/simulated"
)

// step is a line of a script: what is done to the cluster at a time, or what must hold then.
//
//	cut A [B]            nothing gets through between A and B (all others)
//	block A B            nothing gets through from A to B
//	join A [B] | heal    the opposite; all links
//	crash X | start X    a server's process, or a host's agent
//	off H | on H         a host's power
//	stall X FOR          all threads of a server's or an agent's process stand still
//	full S | free S      a server's disk
//	strike H CALL N HOW  the agent's next N calls of the hypervisor fail, hang, or are done and fail
//	leave H N            the next N VMs that are handed over from H leave their source behind, paused
//	behind VM H          H has the VM as well, paused, as the source of a migration that has ended
//	lose H N             the next N hand-overs from H lose the target's answer: H has the VM run on, and the target has it too
//	create|scale VC N, run|stop|delete VC   as a client, until it is answered
//	move VM H | move any a live migration
//	drain H|any MIB | undrain H|any | rebalance MIB   as an operator; -1 MiB: no bound
//	cordon H | uncordon H as an operator
//	kill VM              its process dies
//	confirm H            an operator says that a host is dead, while it is
//	arm | disarm | save | restore | transfer
//	rebuild H...         all servers lose their disks: a new cluster takes the saved state over; only the agents of H run before it did
//	expect ...           see expect
type step struct {
	at   time.Duration
	verb string
	args []string
}

// String is the line of the step.
func (p step) String() string {
	return strings.TrimSpace(fmt.Sprintf("at %s %s %s", p.at, p.verb, strings.Join(p.args, " ")))
}

func scriptText(steps []step) string {
	var out []string
	for _, p := range steps {
		out = append(out, p.String())
	}
	return strings.Join(out, "\n")
}

// parseScript reads the lines of a scenario. Settings come before the first step. A line "vc NAME MIB [HOST...]" says how much
// memory each VM of a VC has, with what its host keeps for it, and which hosts it must avoid.
func parseScript(text string, o *options) error {
	for n, l := range strings.Split(text, "\n") {
		l, _, _ = strings.Cut(l, "#")
		f := strings.Fields(l)
		if len(f) == 0 {
			continue
		}
		err := parseLine(f, o)
		if err != nil {
			return fmt.Errorf("line %d: %s: %w", n+1, strings.TrimSpace(l), err)
		}
	}
	slices.SortStableFunc(o.script, func(a, b step) int { return int(a.at - b.at) })
	return nil
}

func parseLine(f []string, o *options) (err error) {
	if f[0] == "unhealed" && len(f) == 1 {
		o.unhealed = true
		return nil
	}
	if len(f) < 2 {
		return fmt.Errorf("it has one word")
	}
	switch f[0] {
	case "vc":
		if len(f) < 3 {
			return fmt.Errorf("it has no memory")
		}
		q := sized{avoid: f[3:]}
		q.mebibytes, err = strconv.ParseInt(f[2], 10, 64)
		if o.sized == nil {
			o.sized = map[string]sized{}
		}
		o.sized[f[1]] = q
	case "seed":
		o.seed, err = strconv.ParseUint(f[1], 10, 64)
	case "servers":
		o.servers, err = strconv.Atoi(f[1])
	case "hosts":
		o.hosts, err = strconv.Atoi(f[1])
	case "clients":
		o.clients, err = strconv.Atoi(f[1])
	case "placement":
		o.settings.Placement = state.Placement(f[1])
	case "watchdogs":
		var d time.Duration
		d, err = time.ParseDuration(f[1])
		o.watchdogs = always(d)
	case "fences":
		o.devices = always(strings.TrimPrefix(f[1], "none"))
	case "at":
		if len(f) < 3 {
			return fmt.Errorf("nothing is done at that time")
		}
		var at time.Duration
		at, err = time.ParseDuration(f[1])
		o.script = append(o.script, step{at, f[2], f[3:]})
	default:
		err = fmt.Errorf("no such word")
	}
	return err
}

// follow the script. What takes time goes on beside it.
func (s *sim) follow() {
	start := time.Now()
	var busy sync.WaitGroup
	defer busy.Wait()
	for _, p := range s.o.script {
		if d := p.at - time.Since(start); d > 0 && wait(s.ctx, d) != nil {
			return
		}
		s.note("> %s", p)
		s.count("steps: " + p.verb)
		if p.verb == "expect" {
			s.expect(p)
			continue
		}
		busy.Go(func() {
			if err := s.perform(p); err != nil {
				s.note("%s: %v", p, err)
				if s.o.script[0].verb != "random" {
					s.violate("%s: %v", p, err)
				}
			}
		})
	}
}

func (s *sim) perform(p step) error {
	arg := func(n int) string {
		if n < len(p.args) {
			return p.args[n]
		}
		return ""
	}
	a, b := arg(0), arg(1)
	if b == "" {
		b = "*"
	}
	v, h := s.servers[a], s.hosts[a]
	need := map[string]bool{"crash": true, "start": true, "upgrade": true, "stall": true, "cut": true, "join": true}
	if need[p.verb] && v == nil && h == nil {
		return fmt.Errorf("no member %q", a)
	}
	switch p.verb {
	case "random":
	case "cut", "join":
		s.net.setCut(a, b, p.verb == "cut")
		s.net.setCut(b, a, p.verb == "cut")
	case "block":
		s.net.setCut(a, b, true)
	case "heal":
		s.net.heal()
	case "crash":
		if v != nil {
			v.crash()
		} else {
			h.killAgent()
		}
	case "start":
		if v == nil {
			h.startAgent()
			break
		}
		return v.start(false)
	case "stall":
		d, err := time.ParseDuration(arg(1))
		if err != nil {
			return err
		}
		if h != nil {
			h.stall(d)
			break
		}
		s.net.freeze(a, true)
		err = wait(s.ctx, d)
		s.net.freeze(a, false)
		return err
	case "upgrade":
		return s.upgrade(a)
	case "full", "free":
		v.full.Store(p.verb == "full")
	case "off":
		h.powerOff(true)
	case "on":
		h.powerOn()
	case "leave", "lose":
		n, err := strconv.Atoi(arg(1))
		if err != nil {
			return err
		}
		if p.verb == "lose" {
			return s.world.LoseAnswer(a, n)
		}
		return s.world.KeepSources(a, n)
	case "strike":
		n, err := strconv.Atoi(arg(2))
		if err != nil {
			return err
		}
		how, which := arg(3), strings.ReplaceAll(b, "-", " ")
		if which == "any" {
			which = ""
		}
		h.inject(simulated.Fault{Call: simulated.Call(which), Times: n, Hang: how == "hang", After: how == "after"})
	default:
		return s.ask(p, a, b)
	}
	return nil
}

// ask is what people ask of the cluster.
func (s *sim) ask(p step, a, b string) error {
	switch p.verb {
	case "create", "scale", "run", "stop", "delete":
		w := want{Verb: p.verb}
		if w.Verb == "run" {
			w.Verb = "start"
		}
		w.Count, _ = strconv.Atoi(b)
		rng := seeded(s.o.seed, uint64(p.at))
		for n := range 20 {
			switch g := s.request(s.ctx, rng, 300, int(p.at/time.Millisecond)*100+n, a, w); g.Is {
			case "done":
				return nil
			case "unknown":
				return fmt.Errorf("outcome unknown")
			}
			_ = wait(s.ctx, time.Second)
		}
		return fmt.Errorf("refused again and again")
	case "move":
		return s.move(a, b)
	case "order":
		return s.orderVM(a)
	case "drain", "undrain", "rebalance":
		return s.plan(p, a, b)
	case "cordon", "uncordon":
		return s.withLeader(func(ctx context.Context, l *serving) error {
			return l.ctl.Cordon(ctx, a, p.verb == "cordon", "a test", false)
		})
	case "kill":
		for _, host := range s.order {
			for _, vm := range s.listed(host) {
				if s.titleOf(vm) == a {
					return s.world.Crash(host, vm.VM)
				}
			}
		}
	case "behind":
		for _, host := range s.order {
			for _, vm := range s.listed(host) {
				if s.titleOf(vm) == a {
					return s.world.LeaveBehind(b, hypervisor.Spec{Identity: vm.Identity, Name: vm.Name, Title: a, Leased: vm.Leased, VCPUs: vm.VCPUs, Memory: vm.Memory, Balloon: vm.Balloon, CPU: vm.CPU})
				}
			}
		}
		return fmt.Errorf("it runs nowhere")
	case "confirm":
		h := s.hosts[a]
		h.mu.Lock()
		on := h.on
		h.mu.Unlock()
		if on {
			return fmt.Errorf("it is on: it cannot be confirmed dead")
		}
		h.powerOff(true) // and it stays off until this is answered
		s.count("hosts confirmed dead")
		return s.withLeader(func(ctx context.Context, p *serving) error {
			return p.ctl.ConfirmDead(ctx, a, "operator", "it is off", false)
		})
	case "arm", "disarm":
		return s.withLeader(func(ctx context.Context, l *serving) error { return l.ctl.SetFencing(ctx, p.verb == "arm", "a test") })
	case "transfer":
		return s.withLeader(func(ctx context.Context, p *serving) error { return p.node.TransferLeadership(ctx, "") })
	case "save":
		return s.withLeader(func(ctx context.Context, p *serving) error {
			var out bytes.Buffer
			if err := p.node.Save(ctx, &out); err != nil {
				return err
			}
			s.mu.Lock()
			s.saved = out.Bytes()
			s.mu.Unlock()
			return nil
		})
	case "restore":
		return s.restore()
	case "rebuild":
		return s.rebuild(p.args)
	default:
		return fmt.Errorf("no such step")
	}
	return nil
}

func (s *sim) withLeader(f func(context.Context, *serving) error) error {
	l := s.leader()
	if l == nil {
		return fmt.Errorf("no leader")
	}
	ctx, cancel := context.WithTimeout(s.ctx, 10*time.Second)
	defer cancel()
	defer context.AfterFunc(l.ctx, cancel)()
	return f(ctx, l)
}

// move a VM, by its name, to a host; "any" is one by chance to another by chance.
func (s *sim) move(name, to string) error {
	return s.withLeader(func(ctx context.Context, p *serving) error {
		snap := p.store.Snapshot()
		vms := slices.DeleteFunc(snap.VMs(), func(vm state.VM) bool {
			return vm.Phase != state.Running || vm.MovingTo != "" || vm.Host == to || name != "any" && vm.Name != name
		})
		if len(vms) == 0 {
			return fmt.Errorf("no such VM runs")
		}
		s.mu.Lock()
		vm := vms[s.rng.IntN(len(vms))]
		if to == "*" {
			others := slices.DeleteFunc(slices.Clone(s.order), func(h string) bool { return h == vm.Host })
			to = others[s.rng.IntN(len(others))]
		}
		s.mu.Unlock()
		err := p.ctl.Propose(ctx, state.KindMove, state.Move{VM: vm.ID, Generation: vm.Generation, To: to, Open: true, ID: fmt.Sprintf("test-%d", snap.Index()), Text: "a test"})
		if err == nil {
			s.count("moves opened")
		}
		return err
	})
}

// expect that something holds, now or within a time:
//
//	running VC N [within D]   N VMs of it run, as the state says and on the hosts
//	nowhere VC [within D]     none of its VMs runs on any host
//	on VM H [within D]        it runs there
//	generation VM N [within D]   it has been started so many times
//	event KIND NAME [within D]
//	no KIND NAME              there is no such event
//	hold on|off [within D]
//	drained H [within D]      its drain has ended, and its hypervisor runs nothing
//	staged VM                 it was moved to a host to wait there
//	failed VM                 one of its moves failed
func (s *sim) expect(p step) {
	within := time.Duration(0)
	args := p.args
	if n := len(args); n > 2 && args[n-2] == "within" {
		within, _ = time.ParseDuration(args[n-1])
		args = args[:n-2]
	}
	if len(args) < 2 {
		s.violate("%s: it expects nothing", p)
		return
	}
	why := ""
	if !s.eventually(within, func() bool { why = s.unexpected(args); return why == "" }) {
		s.violate("%s: %s", p, why)
	}
}

func (s *sim) unexpected(args []string) string {
	l := s.leader()
	if l == nil {
		return "no leader"
	}
	snap := l.store.Snapshot()
	vc, _ := snap.VCNamed(args[1])
	switch args[0] {
	case "running":
		good := 0
		for _, vm := range snap.VMsOf(vc.ID) {
			if vm.Phase == state.Running && s.runsOn(vm.Host, vm.ID, vm.Generation) {
				good++
			}
		}
		if fmt.Sprint(good) != args[2] {
			return fmt.Sprintf("%d VMs of it run", good)
		}
	case "nowhere":
		for _, h := range s.order {
			for _, vm := range s.listed(h) {
				if strings.HasPrefix(s.titleOf(vm), args[1]+"-") {
					return s.titleOf(vm) + " runs on " + h
				}
			}
		}
	case "on":
		vm, _ := snap.VMNamed(args[1])
		if vm.Host != args[2] || !s.runsOn(args[2], vm.ID, vm.Generation) {
			return fmt.Sprintf("it is %s on %s", vm.Phase, vm.Host)
		}
	case "generation":
		if vm, _ := snap.VMNamed(args[1]); fmt.Sprint(vm.Generation) != args[2] {
			return fmt.Sprintf("it is of generation %d, %s on %s", vm.Generation, vm.Phase, vm.Host)
		}
	case "event", "no":
		there := slices.ContainsFunc(snap.EventsAfter(0, 0), func(e state.Event) bool { return e.Kind == args[1] && (e.Name == args[2] || args[2] == "any") })
		if there != (args[0] == "event") {
			return fmt.Sprintf("there is such an event: %v", there)
		}
	case "drained":
		if h, _ := snap.Host(args[1]); h.Drain.State != state.DrainDone {
			return fmt.Sprintf("its drain is %q: %s", h.Drain.State, h.Drain.Text)
		}
	case "staged", "failed":
		for _, p := range snap.MovePlans() {
			for _, m := range p.Steps {
				if m.VMName == args[1] && (args[0] == "staged" && m.Staging && m.State == state.StepDone || args[0] == "failed" && m.State == state.StepFailed) {
					return ""
				}
			}
		}
		return "no step of a plan is so"
	case "hold":
		m, _ := snap.Meta()
		if m.RecoveryFreeze.On() != (args[1] == "on") {
			return fmt.Sprintf("hold: %+v", m.RecoveryFreeze)
		}
	default:
		return "no such thing can be expected"
	}
	return ""
}
