package server

import (
	"context"
	"io"
	"net/http"
	"time"

	"evenkeel/api/v1"
	"evenkeel/cluster/leader"
	"evenkeel/cluster/member"
	"evenkeel/cluster/node"
	"evenkeel/cluster/state"
	"evenkeel/cluster/transport"
)

// Members is what the API asks of a cluster of many members. *member.Member is one.
type Members interface {
	// Leader says whether this server leads, and else where the one that does can be asked.
	Leader() (here bool, address string)
	// CaughtUp reports whether this server's state has all rows but those on their way: any other row that
	// it does not have does not exist.
	CaughtUp() bool
	// Client hands requests on.
	Client() *transport.Client
	// MayJoin says whether a join token is good, by what this server knows; transport.JoinRequest.Check went before.
	MayJoin(ctx context.Context, q transport.JoinRequest) error
	// Admit a member on a join token; NewToken makes one, and returns its text.
	Admit(ctx context.Context, q transport.JoinRequest) (transport.JoinAnswer, error)
	NewToken(ctx context.Context, life time.Duration, row state.JoinToken) (string, state.JoinToken, error)
	// Nodes are the servers as Raft knows them, and advice on their number.
	Nodes() ([]node.Server, string)
	Gossips() []node.Peer
	// Clocks of the members that reported lately, this one's first.
	Clocks() []node.Clock
	Remove(ctx context.Context, name string, force bool) error
	// RenewCertificate has a member renew its certificate now.
	RenewCertificate(ctx context.Context, name string) (transport.Renewed, error)
	TransferLeadership(ctx context.Context, to string) error
	SaveSnapshot(ctx context.Context, w io.Writer) error
	RestoreSnapshot(ctx context.Context, r io.Reader, foreign bool, waitFor ...string) (node.Saved, error)
	LastBackup() (time.Time, error)
	// Metrics of this server itself; those of hosts and VMs that only the leader knows are those of leader.Service.
	Metrics() (member.Metrics, error)
	Fenced() map[string]leader.FenceCount
	HostStats(v *leader.View) map[string]leader.HostStats
	Duplicates(v *leader.View) []string
	// ConfirmDead, FenceHost and SetFencing are those of leader.Service.
	ConfirmDead(ctx context.Context, host, by, reason string, dryRun bool) error
	FenceHost(ctx context.Context, host string, test bool) (string, error)
	SetFencing(ctx context.Context, enable bool, reason string) error
}

// own are the paths that a server answers for itself, leader or not.
var own = map[string]bool{"GET /livez": true, "GET /readyz": true, "GET /metrics": true, "GET /openapi.json": true, "GET " + auditPath: true,
	"GET " + authPath: true, "GET " + selfPath: true, "GET " + permissionsPath: true, "GET " + canIPath: true}

// lead hands requests on to the server that leads, but for those that this one answers for itself
// and reads that need not be up to date.
func (s *Server) lead(next http.Handler) http.Handler {
	if s.opts.Members == nil {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		stale := r.Method == http.MethodGet && r.URL.Query().Get("consistency") == "stale"
		if own[routeOf(r.Context())] || stale {
			next.ServeHTTP(w, r)
			return
		}
		here, address := s.opts.Members.Leader()
		switch by := transport.ForwardedBy(r.Context()); {
		case here:
			next.ServeHTTP(w, r)
		case by != "":
			s.refuseBody(w, r, noLeader("this server does not lead, and "+by+" thought it did; try again"))
		case address == "":
			s.refuseBody(w, r, noLeader("no server leads now, or none is known to; try again"))
		default:
			forwarded(r.Context())
			s.opts.Members.Client().Forward(w, r, address)
		}
	})
}

func noLeader(detail string) *problem {
	p := newProblem(http.StatusServiceUnavailable, v1.ProblemNoLeader, detail)
	p.retry = true
	return p
}

// tolerated are how many servers vote, and how many of them may fail before the majority is lost.
func tolerated(servers []node.Server) (voters, tolerance int) {
	healthy := 0
	for _, n := range servers {
		if n.Voter {
			voters++
			if n.Healthy {
				healthy++
			}
		}
	}
	return voters, max(0, healthy-(voters/2+1))
}
