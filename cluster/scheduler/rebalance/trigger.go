package rebalance

import (
	"fmt"
	"hash/fnv"
	"time"

	"evenkeel/cluster/scheduler/placement"
	"evenkeel/cluster/state"
	"evenkeel/migration"
)

// Pace bounds how often VMs that run are moved to balance a cluster, and for how little gain. The first complaint of users of
// such managers is needless moves: each bound answers one cause of it.
type Pace struct {
	StabilizationWindow time.Duration // for this long VMs must have had less than they need before anything is planned
	Period              time.Duration // between looks at a cluster in which nothing changed
	CoolDown            time.Duration // after a re-balance; n of them within the last four hours make it n times as long
	MinGain             float64       // of the minimum yield, as a share of it; 0.1 = a tenth more
	OnJoin              bool          // a host that came, went or changed is a reason to look before the period is over
	IdleBelow           float64       // nothing is moved while the cluster's VMs need less than this share of its CPU; 0 = no such bound
}

// PaceOf returns the pace of a cluster's settings.
func PaceOf(m state.MoveSettings) Pace {
	m = m.WithDefaults()
	return Pace{StabilizationWindow: m.StabilizationWindow.Duration(), Period: m.Period.Duration(), CoolDown: m.CoolDown.Duration(), MinGain: m.MinGain, OnJoin: m.OnJoin, IdleBelow: m.IdleBelow}
}

// Observation is the present state of the cluster, as far as re-balances depend on it.
type Observation struct {
	Now      time.Time
	MinYield float64     // of all VMs that run, at the caps they have
	Load     float64     // what they need over what hosts have, CPU
	Short    bool        // a virtual cluster has less than the least yield it accepts
	Busy     string      // why no plan can be begun now: another is carried out, a host does not answer; "" = one can
	Starts   string      // a VM starts, which stays where it is until it runs; "" = none
	Change   uint64      // differs from that of the last observation if VMs came, went or changed their needs since
	Hosts    uint64      // the same of hosts
	Ended    []time.Time // when re-balances ended that moved something; in any order
}

// Observe returns the observation of a snapshot. env.Unavailable are hosts that are silent now.
func Observe(s *state.Snapshot, env placement.Env) Observation {
	in := Observation{Now: env.Now, MinYield: 1}
	have, need := 0.0, 0.0
	hosts, change := fnv.New64a(), fnv.New64a()
	for _, h := range s.Hosts() {
		have += h.Usable().CPU
		fmt.Fprintln(hosts, h.Name, h.Cordoned, h.Lost.Proof, h.Allowance, h.Foreign, env.Unavailable[h.Name] != "")
		if why := env.Unavailable[h.Name]; why != "" && in.Busy == "" && s.LoadOf(h.Name).VMs > 0 { // it may come back with its VMs
			in.Busy = "host " + h.Name + " " + why
		}
	}
	for _, vc := range s.VCs() {
		live := map[string]int{}
		for _, vm := range s.VMsOf(vc.ID) {
			switch {
			case vm.MovingTo != "":
				in.Busy = "VM " + vm.Name + " is on its way to host " + vm.MovingTo
				live[vm.Group]++
			case vm.Phase == state.Starting && vm.Goal == state.GoalRun:
				in.Starts = "VM " + vm.Name + " starts"
				live[vm.Group]++
			case vm.Phase == state.Running && vm.Goal == state.GoalRun:
				live[vm.Group]++
			}
		}
		for _, g := range vc.Groups {
			if n := live[g.Name]; n > 0 {
				fmt.Fprintln(change, vc.ID, g.Name, n, g.Need(), g.Memory)
				need += float64(n) * g.Need()
				in.MinYield = min(in.MinYield, g.Yield())
				in.Short = in.Short || g.Yield() < vc.MinYield*(1-1e-6)
			}
		}
	}
	if have > 0 {
		in.Load = need / have
	}
	in.Hosts, in.Change = hosts.Sum64(), change.Sum64()
	for _, p := range s.MovePlans() {
		switch {
		case p.State == state.MovesRunning:
			in.Busy = "move plan " + p.ID + " is carried out"
		case p.Kind == state.MovesRebalance && p.BytesMoved > 0:
			in.Ended = append(in.Ended, p.EndedAt)
		}
	}
	if m, ok := s.Meta(); ok && m.RecoveryFreeze.On() {
		in.Busy = "the cluster is held after a " + m.RecoveryFreeze.Reason
	}
	return in
}

// Trigger is what is kept from one observation to the next. The zero value knows nothing: a new leader begins with it, and at
// worst waits for one more stabilization window.
type Trigger struct {
	Since       time.Time // VMs get less than they need
	EvaluatedAt time.Time // a plan was last looked for
	Change      uint64    // of the observation at that time
	Hosts       uint64    // of the last observation
	Stable      time.Time // since when hosts are as they are; zero: since before the first observation
	Starting    time.Time // since when one VM or another starts; zero: none does
}

// Verdict says whether to look for a plan now.
type Verdict struct {
	Evaluate bool
	Why      string    // a text
	Next     time.Time // when to ask again if nothing changes; zero: not before something does
}

// Due says whether it is time to look for moves that raise the minimum yield. It computes nothing costly: Worth says whether a
// plan is worth its bytes.
func (b Trigger) Due(p Pace, in Observation) (Trigger, Verdict) {
	if in.Hosts != b.Hosts {
		if b.Hosts != 0 {
			b.Stable = in.Now
		}
		b.Hosts = in.Hosts
	}
	if in.Starts == "" {
		b.Starting = time.Time{}
	} else if b.Starting.IsZero() {
		b.Starting = in.Now
	}
	if in.MinYield >= full {
		b.Since = time.Time{}
		return b, Verdict{Why: "every VM is given what it needs: nothing can be gained by moving one"}
	}
	if b.Since.IsZero() {
		b.Since = in.Now
	}
	if in.Load < p.IdleBelow {
		return b, Verdict{Why: fmt.Sprintf("VMs need %.0f%% of the cluster's CPU, and below %.0f%% nothing is moved", 100*in.Load, 100*p.IdleBelow)}
	}
	if in.Busy != "" {
		return b, Verdict{Why: in.Busy}
	}
	later := func(at time.Time, format string, args ...any) (Trigger, Verdict) {
		return b, Verdict{Next: at, Why: fmt.Sprintf(format, args...) + fmt.Sprintf("; next look in %s", at.Sub(in.Now).Round(time.Second))}
	}
	if ripe := b.Since.Add(p.StabilizationWindow); in.Now.Before(ripe) {
		return later(ripe, "VMs get less than they need since %s, which may pass by itself", in.Now.Sub(b.Since).Round(time.Second))
	}
	if ripe := b.Stable.Add(p.StabilizationWindow); in.Now.Before(ripe) {
		return later(ripe, "a host came, went or changed %s ago, and may do so again", in.Now.Sub(b.Stable).Round(time.Second))
	}
	if !b.Starting.IsZero() { // where VMs start all the time they are waited for once in a window
		last := b.Starting
		if b.EvaluatedAt.After(last) {
			last = b.EvaluatedAt
		}
		if ripe := last.Add(p.StabilizationWindow); in.Now.Before(ripe) {
			return later(ripe, "%s", in.Starts)
		}
	}
	if !in.Short { // a tenant has what was promised: what is to be gained can wait
		if n, last := recent(in); n > 0 {
			if cool := last.Add(time.Duration(n) * p.CoolDown); in.Now.Before(cool) {
				return later(cool, "%s ended within the last four hours, the last %s ago", migration.Counted(n, "re-balance"), in.Now.Sub(last).Round(time.Second))
			}
		}
	}
	if again := b.EvaluatedAt.Add(p.Period); !b.EvaluatedAt.IsZero() && in.Change == b.Change && !(p.OnJoin && b.Stable.After(b.EvaluatedAt)) && in.Now.Before(again) {
		return later(again, "nothing changed since the last look, %s ago", in.Now.Sub(b.EvaluatedAt).Round(time.Second))
	}
	b.EvaluatedAt, b.Change = in.Now, in.Change
	return b, Verdict{Evaluate: true, Next: in.Now.Add(p.Period), Why: fmt.Sprintf("VMs get less than they need since %s: minimum yield %.3f", in.Now.Sub(b.Since).Round(time.Second), in.MinYield)}
}

// recent counts the re-balances that ended within the last four hours, and returns when the last of them did. One that ended in the
// future, by the clock of a leader that was ahead, is long over.
func recent(in Observation) (n int, last time.Time) {
	for _, at := range in.Ended {
		if ago := in.Now.Sub(at); ago < 0 || ago >= remembered {
			continue
		}
		n++
		if at.After(last) {
			last = at
		}
	}
	return n, last
}
