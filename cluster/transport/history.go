package transport

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"evenkeel/cluster/agent"
	"evenkeel/cluster/history"
	"evenkeel/cluster/pki"
	"evenkeel/hypervisor"
)

// The history of a VM goes two ways: a server reads it from the VM's host, and an agent asks the leader for what other hosts
// have of a VM that came to it. Neither goes through reports.

// historyTime is how long an agent waits for one server's answer.
const historyTime = 15 * time.Second

// historyType is the media type of an encoded history.
const historyType = "application/octet-stream"

// history answers with what was measured of a VM on this host.
func (p *Peers) history(w http.ResponseWriter, r *http.Request) {
	data, err := p.o.Histories.History(r.PathValue("id"))
	if err != nil {
		refuseHistory(w, err)
		return
	}
	w.Header().Set("Content-Type", historyType)
	_, _ = w.Write(data) // the server is gone: an error has no receiver
}

// forecast answers with the forecast of what a VM on this host will use.
func (p *Peers) forecast(w http.ResponseWriter, r *http.Request) {
	steps, err := strconv.Atoi(r.FormValue("steps"))
	if err != nil {
		refuse(w, http.StatusBadRequest, kindMalformed, "steps: %v", err)
		return
	}
	out, err := p.o.Histories.Forecast(r.PathValue("id"), r.FormValue("resource"), steps)
	if err != nil {
		refuseHistory(w, err)
		return
	}
	p.answer(w, r, out)
}

func refuseHistory(w http.ResponseWriter, err error) {
	switch {
	case errors.Is(err, hypervisor.ErrNotFound):
		refuse(w, http.StatusNotFound, kindNoHistory, "%v", err)
	case errors.Is(err, hypervisor.ErrInvalid):
		refuse(w, http.StatusBadRequest, kindMalformed, "%v", err)
	default:
		refuse(w, http.StatusServiceUnavailable, kindOutOfReach, "%v", err)
	}
}

// History reads the history of a VM from the member that is its host, as history.Encode makes it. The error is
// hypervisor.ErrNotFound if nothing was measured.
func (c *Client) History(ctx context.Context, address, host, id string) ([]byte, error) {
	data, err := c.read(ctx, host, urlOf(address, "host", "vms", id, "history").String(), history.MaxEncoded)
	if err != nil {
		return nil, fmt.Errorf("history of VM %s on host %s: %w", id, host, err)
	}
	return data, nil
}

// Forecast reads the forecast of what a VM will use of a resource from the member that is its host. The error is
// hypervisor.ErrNotFound if nothing was measured.
func (c *Client) Forecast(ctx context.Context, address, host, id, resource string, steps int) (agent.VMForecast, error) {
	u := urlOf(address, "host", "vms", id, "forecast")
	u.RawQuery = url.Values{"resource": {resource}, "steps": {strconv.Itoa(steps)}}.Encode()
	var out agent.VMForecast
	data, err := c.read(ctx, host, u.String(), maxCall)
	if err == nil {
		err = decodeOne(data, &out)
	}
	if err != nil {
		return agent.VMForecast{}, fmt.Errorf("forecast of VM %s on host %s: %w", id, host, err)
	}
	return out, nil
}

// read reads from the host of a VM.
func (c *Client) read(ctx context.Context, host, url string, limit int) ([]byte, error) {
	t := newTransport(c.dialer, ProtocolPeer, pki.Want{Name: host, Agent: true})
	t.DisableKeepAlives = true
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	resp, err := t.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close() //nolint:errcheck // nothing is kept in it
	if resp.StatusCode != http.StatusOK {
		return nil, problemOf(resp)
	}
	data, err := io.ReadAll(io.LimitReader(resp.Body, int64(limit)+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("read the answer: %w", err)
	case len(data) > limit:
		return nil, fmt.Errorf("the answer: more than %d bytes: %w", limit, ErrTooLarge)
	}
	return data, nil
}

// historyRequest is an agent's question for the history of a VM that came to its host.
type historyRequest struct {
	VM string `json:"vm"`
}

// historyAnswer has the history, as history.Encode makes it.
type historyAnswer struct {
	History []byte `json:"history"`
}

// historyFor answers an agent's historyRequest.
func (p *Peers) historyFor(w http.ResponseWriter, r *http.Request) {
	var q historyRequest
	if !readCall(w, r, maxCall, &q) {
		return
	}
	data, err := p.o.HistoryFor(r.Context(), r.PathValue("host"), q.VM)
	switch {
	case errors.Is(err, agent.ErrNoHistory):
		refuse(w, http.StatusNotFound, kindNoHistory, "%v", err)
	case err != nil:
		p.fail(w, r, err)
	default:
		p.answer(w, r, historyAnswer{History: data})
	}
}

// History returns the history of a VM that came to this host, from its earlier hosts. The error is agent.ErrNoHistory if it
// came from none.
func (a *Agent) History(ctx context.Context, vm string) ([]byte, error) {
	a.mu.Lock()
	servers := a.order(a.at)
	a.mu.Unlock()
	failed := ErrNoLeader
	for _, address := range servers {
		bounded, cancel := context.WithTimeout(ctx, historyTime)
		var out historyAnswer
		err := post(bounded, a.http, urlOf(address, "hosts", a.o.Host, "history").String(), nil, historyRequest{VM: vm}, &out)
		cancel()
		if err == nil {
			return out.History, nil
		}
		failed = fmt.Errorf("history of VM %s by way of %s: %w", vm, address, err)
		if ctx.Err() != nil || spoken(err) || errors.Is(err, agent.ErrNoHistory) {
			break
		}
	}
	return nil, failed
}
