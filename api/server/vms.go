package server

import (
	"context"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/coder/websocket"
	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"evenkeel/api/v1"
	"evenkeel/cluster/state"
)

const (
	tagVM     = "VMs"
	pingEvery = 20 * time.Second
)

func (s *Server) registerVMs(api huma.API) {
	get(api, route{"listVMs", "/v1/vms", tagVM, "List VMs", "All VMs, oldest first, with what they need, are given and use."},
		func(ctx context.Context, in *struct {
			TenantParams
			PartParams
			ReadParams
			VirtualCluster string `query:"virtualCluster" doc:"Only those of the virtual cluster of that name."`
			Host           string `query:"host" doc:"Only those on the host of that name. For roles of the cluster."`
		}) (*answerOf[v1.Part[v1.VM]], error) {
			x, err := s.scoped(ctx, in.TenantParams, in.ReadParams)
			if err != nil {
				return nil, err
			}
			if in.Host != "" && x.restricted {
				return nil, newProblem(http.StatusForbidden, v1.ProblemForbidden, "a host can be named by roles of the cluster only")
			}
			out := listPart[v1.VM](in.PartParams)
			offer := func(row *state.VM) {
				shown := sync.OnceValue(func() v1.VM { return x.vmOf(x.v.VMView(*row)) })
				out.offer(func() string { vm := shown(); return row.Name + " " + vm.State + " " + vm.Host }, shown)
			}
			if _, ok := x.v.Host(in.Host); in.Host != "" && !ok {
				return nil, notFound("there is no host %q", in.Host)
			}
			if in.VirtualCluster != "" && x.tenant != "" {
				vc, err := x.vc(in.VirtualCluster)
				if err != nil {
					return nil, err
				}
				for _, row := range x.v.VMsOf(vc.ID) {
					if in.Host == "" || row.Host == in.Host {
						offer(&row)
					}
				}
				return out.answer(), nil
			}
			x.eachVM(func(row *state.VM) {
				if in.Host != "" && row.Host != in.Host {
					return
				}
				if in.VirtualCluster != "" {
					vc, _ := x.v.VC(row.VC)
					if _, of := x.names(vc.Name); of != in.VirtualCluster {
						return
					}
				}
				offer(row)
			})
			return out.answer(), nil
		})
	get(api, route{"getVM", "/v1/vms/{name}", tagVM, "Get a VM", "By its name or its id."},
		func(ctx context.Context, in *struct {
			NameParam
			TenantParams
			ReadParams
		}) (*answerOf[v1.VM], error) {
			x, err := s.one(ctx, in.TenantParams, in.ReadParams)
			if err != nil {
				return nil, err
			}
			row, err := x.vm(in.Name)
			if err != nil {
				return nil, err
			}
			out := x.vmOf(x.v.VMView(row))
			out.Tenant = ownerOf(row.Name) // an id may be of a VM of any tenant
			return &answerOf[v1.VM]{Body: out}, nil
		})
	huma.Register(api, huma.Operation{
		OperationID: "openConsole", Method: http.MethodGet, Path: "/v1/vms/{name}/console", Tags: []string{tagVM}, Summary: "Open a VM's serial console",
		Description: "A WebSocket of binary frames: what the guest writes comes out, what is sent goes in. A new reader takes the console over from the old one.",
		Responses:   map[string]*huma.Response{"101": {Description: "The connection is a WebSocket now."}},
		Errors:      []int{http.StatusUnauthorized, http.StatusNotFound, http.StatusConflict, http.StatusUpgradeRequired, http.StatusServiceUnavailable},
	}, s.console)
}

func (s *Server) console(ctx context.Context, in *struct {
	NameParam
	TenantParams
	Upgrade string `header:"Upgrade" hidden:"true"`
}) (*huma.StreamResponse, error) {
	if in.Upgrade == "" {
		return nil, newProblem(http.StatusUpgradeRequired, v1.ProblemUpgrade, "the console is a WebSocket: ask for one, or use `vcctl vm console`")
	}
	x, err := s.one(ctx, in.TenantParams, ReadParams{})
	if err != nil {
		return nil, err
	}
	vm, err := x.vm(in.Name)
	if err != nil {
		return nil, err
	}
	if err := s.live.acquire(ctx, liveConsole); err != nil {
		return nil, err
	}
	tty, err := s.cluster.Console(ctx, vm.ID)
	if err != nil {
		return nil, s.fail(ctx, err)
	}
	return &huma.StreamResponse{Body: func(hctx huma.Context) {
		tty := closedOnce{ReadWriteCloser: tty, close: sync.OnceValue(tty.Close)}
		defer tty.Close() //nolint:errcheck // nothing is kept in it
		r, w := humago.Unwrap(hctx)
		conn := http.NewResponseController(w)
		_ = conn.SetWriteDeadline(time.Time{})
		_ = conn.SetReadDeadline(time.Time{})
		ws, err := websocket.Accept(w, r, &websocket.AcceptOptions{CompressionMode: websocket.CompressionDisabled})
		if err != nil {
			return // Accept has answered
		}
		s.join(r.Context(), ws, tty)
	}}, nil
}

// closedOnce may be closed many times.
type closedOnce struct {
	io.ReadWriteCloser
	close func() error
}

// Close implements io.Closer.
func (c closedOnce) Close() error { return c.close() }

// join copies both ways until either side ends, the server does, or the token that asked is no longer good.
func (s *Server) join(asked context.Context, ws *websocket.Conn, tty io.ReadWriteCloser) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(asked)) // it outlives asked, so that the client gets the reason why the session ends
	defer cancel()
	ended := make(chan string, 3)
	stream := websocket.NetConn(ctx, ws, websocket.MessageBinary)
	go func() {
		_, _ = io.Copy(tty, stream) // how it ended does not matter: the session is over
		ended <- "closed by the client"
	}()
	go func() {
		_, _ = io.Copy(stream, tty)
		ended <- "the console ended: the VM stopped, or another reader took it over"
	}()
	go func() {
		tick := time.NewTicker(pingEvery)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				if ws.Ping(ctx) != nil {
					ended <- "the client does not answer"
					return
				}
			}
		}
	}()
	reason, status := "the server is shutting down", websocket.StatusNormalClosure
	select {
	case reason = <-ended:
	case <-s.draining:
	case <-asked.Done():
		reason = "the client left"
		if why := cutReason(asked); why != "" {
			reason, status = why, websocket.StatusPolicyViolation
		}
		_ = tty.Close() // before the client is asked to close: it may never answer, and go on to type
	}
	_ = ws.Close(status, reason) // it may be gone already
}
