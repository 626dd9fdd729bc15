package chaos

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
)

// Kinds of faults, as KINDS names them.
var Kinds = []string{"kill", "net", "stop", "power", "disk", "slow", "files", "clock"}

// Fault is one thing that is to happen. The zero value of a field is "not of this fault".
type Fault struct {
	N    int           `json:"n"`
	At   time.Duration `json:"at"` // since the first could; it waits while its host is struck by another
	Kind string        `json:"kind"`
	What string        `json:"what"`
	// On is a host's name, or its role at that moment: leader, follower; source or target of a migration.
	On   string        `json:"on"`
	Peer string        `json:"peer,omitempty"` // the other host of a cut between two
	For  time.Duration `json:"for"`            // how long it lasts
	// Phase of a migration that is waited for: copying, or the hand-over (the guest stands still on the source).
	Phase  string        `json:"phase,omitempty"`
	After  time.Duration `json:"after,omitempty"`  // into that phase
	Amount float64       `json:"amount,omitempty"` // share lost; seconds of delay or of the clock
	File   string        `json:"file,omitempty"`
	Damage string        `json:"damage,omitempty"`
}

// String is the fault in a line.
func (f Fault) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s on %s", f.Kind, f.What, f.On)
	if f.Peer != "" {
		fmt.Fprintf(&b, " towards %s", f.Peer)
	}
	if f.File != "" {
		fmt.Fprintf(&b, ", %s %s", f.File, f.Damage)
	}
	if f.Amount != 0 {
		fmt.Fprintf(&b, ", %g", f.Amount)
	}
	if f.Phase != "" {
		fmt.Fprintf(&b, ", %v into %s", f.After, f.Phase)
	}
	fmt.Fprintf(&b, ", for %v", f.For)
	return b.String()
}

// Plan is the faults of a seed, in order, on hosts of these names. Every kind has its turn before one has its second.
func Plan(seed uint64, kinds, hosts []string, length time.Duration) []Fault {
	rng := rand.New(rand.NewPCG(seed, 16))
	var out []Fault
	var turn []string
	for at := seconds(rng, 1, 4); at < length; {
		if len(turn) == 0 {
			turn = slices.Clone(kinds)
			rng.Shuffle(len(turn), func(a, b int) { turn[a], turn[b] = turn[b], turn[a] })
		}
		f := one(rng, turn[0], hosts)
		turn = turn[1:]
		f.N, f.At = len(out)+1, at
		out = append(out, f)
		at += seconds(rng, 1, 5)
		if rng.IntN(4) > 0 { // a quarter of the faults have company
			at += f.For
		}
	}
	return out
}

// ParseKinds reads a list of kinds; none is all.
func ParseKinds(text string) ([]string, error) {
	if text == "" || text == "all" {
		return Kinds, nil
	}
	var out []string
	for k := range strings.SplitSeq(text, ",") {
		if k = strings.TrimSpace(k); !slices.Contains(Kinds, k) {
			return nil, fmt.Errorf("kind of fault %q: there are %s", k, strings.Join(Kinds, ", "))
		}
		if !slices.Contains(out, k) {
			out = append(out, k)
		}
	}
	return out, nil
}

func seconds(rng *rand.Rand, from, to int) time.Duration {
	return time.Duration(from)*time.Second + time.Duration(rng.Int64N(int64(to-from)*1000))*time.Millisecond
}

func pick[T any](rng *rand.Rand, of ...T) T { return of[rng.IntN(len(of))] }

func one(rng *rand.Rand, kind string, hosts []string) Fault {
	f := Fault{Kind: kind, On: pick(rng, hosts...)}
	switch kind {
	case "kill":
		f.What, f.For = pick(rng, "vcd", "vcd", "libvirtd"), seconds(rng, 1, 4)
		switch rng.IntN(4) {
		case 0:
			f.Phase, f.On, f.After = "copying", pick(rng, "source", "target", "leader"), time.Duration(rng.IntN(3000))*time.Millisecond
		case 1:
			f.Phase, f.On, f.After = "hand-over", pick(rng, "source", "source", "target", "leader"), time.Duration(rng.IntN(120))*time.Millisecond
		case 2:
			f.On = pick(rng, "leader", "follower")
		}
	case "net":
		f.What, f.For = pick(rng, "cut", "one-way", "pair", "loss", "delay"), seconds(rng, 3, 25)
		switch f.What {
		case "cut":
			f.For = seconds(rng, 3, 60) // longer than a lease and a watchdog: the host is lost
		case "one-way", "pair":
			for f.Peer = f.On; f.Peer == f.On; {
				f.Peer = pick(rng, hosts...)
			}
		case "loss":
			f.Amount = pick(rng, 0.1, 0.3, 0.5)
		case "delay":
			f.Amount = pick(rng, 0.05, 0.3, 1)
		}
	case "stop":
		f.What, f.For = pick(rng, "vcd", "vcd", "libvirtd"), seconds(rng, 1, 28)
	case "power":
		f.What, f.For = "off", seconds(rng, 10, 60)
	case "disk":
		f.What, f.For = "full", seconds(rng, 5, 20)
	case "slow":
		f.What, f.On, f.Amount, f.For = "fsync", pick(rng, "leader", "leader", "follower"), pick(rng, 0.2, 1.5, 4), seconds(rng, 8, 20)
	case "files":
		f.What, f.For = "damage", seconds(rng, 1, 3)
		f.File, f.Damage = pick(rng, "servers.json", "agents/*.json", "raft.db"), pick(rng, "cut", "flipped", "empty")
	case "clock":
		f.What, f.On, f.For = "jump", pick(rng, "leader", "follower"), seconds(rng, 5, 20)
		f.Amount = (pick(rng, time.Hour, -2*time.Hour, 400*24*time.Hour, -24*time.Hour)).Seconds()
	}
	return f
}
