package server

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"evenkeel/api/v1"
	"evenkeel/cluster/leader"
	"evenkeel/cluster/node"
	"evenkeel/cluster/pki"
	"evenkeel/cluster/state"
	"evenkeel/cluster/waits"
)

// severities in the order in which conditions are listed.
var severities = map[string]int{"critical": 0, "warning": 1, "info": 2}

// conditions are the problems that an operator should look at.
type conditions []v1.Condition

func (l *conditions) add(severity, object, name, format string, args ...any) {
	*l = append(*l, v1.Condition{Severity: severity, Object: object, Name: name, Text: fmt.Sprintf(format, args...)})
}

func (l *conditions) critical(object, name, format string, args ...any) {
	l.add("critical", object, name, format, args...)
}

func (l *conditions) warn(object, name, format string, args ...any) {
	l.add("warning", object, name, format, args...)
}

// mends names the command that mends the condition that was added last, or shows more of it.
func (l conditions) mends(format string, args ...any) {
	l[len(l)-1].Command = fmt.Sprintf(format, args...)
}

// conditions of the cluster, its members, its hosts and the routes between them, the worst first.
func (s *Server) conditions(v *leader.View, hosts []leader.HostView, status v1.ClusterStatus) []v1.Condition {
	out := conditions{}
	if status.RecoveryFreeze != "" {
		out.critical("cluster", status.ID, "nothing is started or stopped after the %s until these hosts have said what they run: %s", status.RecoveryFreeze, strings.Join(status.RecoveryFreezeHosts, ", "))
		out.mends("vcctl host list")
	}
	if status.FencingDisabled {
		out.warn("cluster", status.ID, "fencing is disabled: VMs of lost hosts are not restarted")
		out.mends("vcctl cluster fencing enable")
	}
	for _, m := range status.Members {
		out.member(m)
		out.certificate(m, time.Now())
	}
	if s.opts.Members != nil {
		out.clocks(status.ID, node.WrongClocks(s.opts.Members.Clocks()))
	}
	if status.Advice != "" {
		out.warn("cluster", status.ID, "%s", status.Advice)
	}
	if len(hosts) > 0 && s.leads() { // what hosts report is known to the leader only
		stats := s.opts.hostStats(v)
		for _, h := range hosts {
			out.host(h, stats[h.Name].Unproved)
		}
		for _, c := range waits.Conditions(v.Late()) {
			out.warn(c.Object, c.Name, "%s", c.Text)
		}
		for _, n := range v.MissingRoutes() {
			out.routes(status.ID, n.From, n.String())
		}
	}
	slices.SortStableFunc(out, func(a, b v1.Condition) int { return severities[a.Severity] - severities[b.Severity] })
	return out
}

func (l *conditions) member(m v1.Member) {
	if m.Server && !m.Healthy && m.Trouble != "" {
		l.critical("member", m.Name, "server: %s", m.Trouble)
		l.mends("vcctl cluster members -o wide")
	}
	if text := slowLogText(m); text != "" {
		l.warn("member", m.Name, "server: %s", text)
	}
}

// certificate warns of one that its member should have renewed long ago: a fifth of its life is left.
func (l *conditions) certificate(m v1.Member, now time.Time) {
	left := m.CertificateUntil.Sub(now)
	switch {
	case m.CertificateUntil.IsZero() || left > pki.DefaultLife/5:
		return
	case left <= 0:
		l.critical("member", m.Name, "its certificate expired at %s: no member talks to it", m.CertificateUntil.UTC().Format(time.RFC3339))
	default:
		l.warn("member", m.Name, "its certificate expires at %s, and it has not renewed it; see journalctl -u vcd there", m.CertificateUntil.UTC().Format(time.RFC3339))
	}
	l.mends("vcctl cluster join-token --for %s", m.Name)
}

func (l *conditions) clocks(cluster string, wrong []node.WrongClock) {
	for _, w := range wrong {
		if w.Name == "" {
			l.warn("cluster", cluster, "%s", w)
		} else {
			l.warn("member", w.Name, "%s", w)
		}
	}
}

// host adds those of a host. unproved is how many of its VMs wait for a proof that it is dead.
func (l *conditions) host(h leader.HostView, unproved int) {
	if unproved > 0 {
		l.critical("host", h.Name, "%d restartable VMs are not started elsewhere, for nothing proves that the host is dead: vcctl host fence, or vcctl host confirm-dead if you know", unproved)
		l.mends("vcctl host fence %s", h.Name)
	}
	hangs := len(h.Hangs) > 0 && h.State != "lost"
	if hangs {
		l.critical("host", h.Name, "%s", hanging(h))
		l.mends("systemctl restart libvirtd, on %s", h.Name)
	}
	switch {
	case h.State == "unknown": // for a moment after an election; then it is out of reach
		l.warn("host", h.Name, "it has not reported since this server leads")
	case h.State == "unreachable" && !hangs: // a host that hangs is unreachable because of that
		l.critical("host", h.Name, "%s: %s", h.State, h.Error)
		l.mends("vcctl host get %s", h.Name)
	case h.State == "lost":
		l.warn("host", h.Name, "lost: %s", h.Error)
		l.mends("vcctl host get %s", h.Name)
	}
	if d := h.Drain; h.VMs > 0 && (d.State == state.DrainBlocked || d.State == state.DrainStopped) {
		l.warn("host", h.Name, "is to be empty, and %d VMs do not leave it (drain %s: %s): vcctl host get says which; vcctl host undrain gives up", h.VMs, d.State, d.Text)
		l.mends("vcctl host get %s", h.Name)
	}
	if len(h.Unmanaged) > 0 {
		l.warn("host", h.Name, "its hypervisor lists VMs with this cluster's mark that the state does not have there: %s; they are left alone: docs/reference/alerts.md#unmanaged-vms", strings.Join(h.Unmanaged, ", "))
		l.mends("vcctl host get %s", h.Name)
	}
	if len(h.Leftovers) > 0 {
		l.warn("host", h.Name, "migrations left VMs behind here, paused, where they run nothing: %s; the host resumes each that was not handed over, and destroys each other once the log shows that it runs elsewhere, has ended or is to start again", strings.Join(h.Leftovers, ", "))
	}
}

// routes adds that routes are missing, to the host that they begin at if it is one.
func (l *conditions) routes(cluster string, from []string, missing string) {
	if len(from) == 1 {
		l.warn("host", from[0], "%s", missing)
	} else {
		l.warn("cluster", cluster, "%s", missing)
	}
}

// leads says whether this server leads. A server without members is alone, and leads always.
func (s *Server) leads() bool {
	if s.opts.Members == nil {
		return true
	}
	leads, _ := s.opts.Members.Leader()
	return leads
}

// slowLogText says that a server's log is slow, and what comes of it; "": it is not.
func slowLogText(m v1.Member) string {
	if m.SlowLog == "" || !m.Leader {
		return m.SlowLog
	}
	return m.SlowLog + "; every change waits for it, for it leads, and it hands leadership on as soon as another voter's log is quick"
}

// hanging is what is to be done about a host whose libvirt hangs. Nothing proves that a VM whose start hangs does not run, so that the
// cluster itself starts it nowhere else.
func hanging(h leader.HostView) string {
	more := ""
	if n := len(h.Hangs) - 1; n > 0 {
		more = fmt.Sprintf(", and %d more calls wait", n)
	}
	return fmt.Sprintf("libvirt does not answer: %s%s; a VM whose start hangs is started nowhere else, for it may yet start there: restart libvirtd on %s (its VMs run on); if that does not help, vcctl host fence %s turns it off with all its VMs",
		h.Hangs[0], more, h.Name, h.Name)
}
