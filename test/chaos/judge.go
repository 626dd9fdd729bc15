package chaos

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"evenkeel/test/lab"
	"evenkeel/test/watch"
)

// Loss is a moment at which all VMs of a host were known to run no more: its power was cut, or the leader recorded that it is lost. If Loss
// names a domain, the host stopped that VM alone, because its lease had ended. If it is of the daemon, libvirtd was killed: VMs that were
// just being started do not outlive it, those that ran do.
type Loss struct {
	At     time.Time
	Host   string
	Domain string
	Daemon bool
}

// On a busy machine libvirt starts a VM for at most so long, and takes so long to end one whose migration hangs.
const (
	starts = 10 * time.Second
	ends   = 30 * time.Second
)

// reads is how much later than a line was written the log of vcd may be read, on a busy machine.
const reads = 10 * time.Second

// apart is the tolerance for a loss that is seen after what it ended or let begin. It covers the kernel's ticks, and how often
// processes, power and events are listed.
const apart = 3 * time.Second

// Restarts are VMs that were started again without need: the host on which the VM was until then was not lost. A process that takes
// a VM over from another host is no start. Where the guest never ran in it, by ran, the VM was still its source's, whose agent had not
// reported that it had left.
func Restarts(history []watch.Instance, losses []Loss, ran func(watch.Instance) bool) (needless []string, needed int) {
	of := map[string][]watch.Instance{} // since the VM's last start
	for _, i := range history {
		before := of[i.UUID]
		if len(before) == 0 || i.Comes && slices.ContainsFunc(before, func(b watch.Instance) bool { return b.Host != i.Host }) {
			of[i.UUID] = append(before, i)
			continue
		}
		of[i.UUID] = []watch.Instance{i}
		if slices.ContainsFunc(before, func(b watch.Instance) bool {
			return !leftFor(before, b, ran) && endedBy(losses, b, i) || endedWith(losses, b)
		}) {
			needed++
			continue
		}
		var was []string
		for _, b := range before {
			was = append(was, fmt.Sprintf("%s from %s to %s", b, b.Started.Format(time.StampMilli), b.Seen.Format(time.StampMilli)))
		}
		needless = append(needless, fmt.Sprintf("%s began at %s, and no host was lost on which it was: %s", i, i.Started.Format(time.StampMilli), strings.Join(was, "; ")))
	}
	return needless, needed
}

// Ran says whether a guest ran in a process, which it shows by a beat; beats are by domain. A VM whose beats are not followed is taken to
// have run.
func Ran(beats map[string][]lab.Beat) func(watch.Instance) bool {
	return func(i watch.Instance) bool {
		all, followed := beats[i.Domain]
		return !followed || slices.ContainsFunc(all, func(b lab.Beat) bool {
			return b.Host == i.Host && b.At.After(i.Started) && (i.Gone.IsZero() || b.At.Before(i.Gone))
		})
	}
}

// leftFor says whether the VM left this process for another one, on another host, that outlived it and in which it ran.
func leftFor(all []watch.Instance, from watch.Instance, ran func(watch.Instance) bool) bool {
	return slices.ContainsFunc(all, func(to watch.Instance) bool {
		return to.Comes && ran(to) && to.Host != from.Host && to.Started.After(from.Started) && to.Started.Before(from.Seen.Add(apart)) && (to.Gone.IsZero() || to.Seen.After(from.Seen.Add(apart)))
	})
}

// endedBy says whether the process before ended with its host, and whether that was known when the next one began.
func endedBy(losses []Loss, before, next watch.Instance) bool {
	return slices.ContainsFunc(losses, func(l Loss) bool {
		return l.Host == before.Host && l.Domain == "" && !l.Daemon && l.At.After(before.Seen.Add(-apart)) && l.At.Before(next.Started.Add(apart))
	})
}

// endedWith says whether this process ended in that moment: with its host, because its host stopped it, or with the libvirtd that was
// starting it. The process of a VM that left has ended before. So a process that is there at that moment had not left, whatever copy outlives
// it elsewhere.
func endedWith(losses []Loss, i watch.Instance) bool {
	return !i.Gone.IsZero() && slices.ContainsFunc(losses, func(l Loss) bool {
		if l.Host != i.Host || l.Domain != "" && l.Domain != i.Domain {
			return false
		}
		if l.Daemon { // the next one ends what it finds half started
			return l.At.Sub(i.Started) < starts && i.Seen.After(l.At.Add(-apart)) && i.Seen.Before(l.At.Add(starts))
		}
		before, after := apart, apart
		if l.Domain != "" {
			before, after = reads, ends
		}
		return i.Seen.After(l.At.Add(-before)) && i.Seen.Before(l.At.Add(after))
	})
}

// Heartbeats are the beats that one guest cannot give: the same number twice, or a smaller one, of a guest that was not booted
// again; and more boots than processes that boot it.
func Heartbeats(name string, beats []lab.Beat, processes []watch.Instance) (wrong []string) {
	starts := 0
	for n, i := range processes {
		if n == 0 || !i.Comes {
			starts++
		}
	}
	boots, two := 0, 0
	var last lab.Beat // of a second guest
	for n, b := range beats {
		if n == 0 {
			boots++
			continue
		}
		before := beats[n-1]
		switch {
		case b.Seq > before.Seq:
		case b.Uptime < before.Uptime/2, b.Seq == 0: // a guest that boots begins at 0; how long it boots depends on the machine
			boots++
		default:
			if two++; two == 1 {
				wrong = append(wrong, fmt.Sprintf("%s: beat %d on %s at %s after beat %d on %s at %s: there are two", name, b.Seq, b.Host, b.At.Format(time.StampMilli),
					before.Seq, before.Host, before.At.Format(time.StampMilli)))
			}
			last = b
		}
	}
	if two > 1 {
		wrong = append(wrong, fmt.Sprintf("%s: %d beats in all are of a second guest, the last at %s: beat %d on %s", name, two, last.At.Format(time.StampMilli), last.Seq, last.Host))
	}
	if boots > starts {
		wrong = append(wrong, fmt.Sprintf("%s: its guest booted %d times, and was started %d times", name, boots, starts))
	}
	return wrong
}

// Longest is the longest time between two of the moments, with the beginning and the end as the outermost; and when it began.
func Longest(moments []time.Time, from, to time.Time) (time.Duration, time.Time) {
	var longest time.Duration
	last, at := from, from
	for _, m := range append(moments[:len(moments):len(moments)], to) {
		if m.Before(from) || m.After(to) {
			continue
		}
		if d := m.Sub(last); d > longest {
			longest, at = d, last
		}
		last = m
	}
	return longest, at
}
