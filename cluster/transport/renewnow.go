package transport

import (
	"context"
	"errors"
	"net/http"
	"time"

	"evenkeel/cluster/pki"
)

// ErrOwnPKI says that a certificate is of the operator's own PKI, which the cluster cannot renew.
var ErrOwnPKI = errors.New("its certificate is of a PKI of the operator's own: put a new one into its files, and vcd takes it in within a minute")

// Renewed is the certificate that a member has after a renewal that was asked for.
type Renewed struct {
	Serial string    `json:"serial"`
	Until  time.Time `json:"until"`
}

// renewNow has this member renew its certificate now. It is for servers: what they ask on behalf of an operator, they have audited.
func (p *Peers) renewNow(w http.ResponseWriter, r *http.Request) {
	out, err := p.o.RenewNow(r.Context())
	said, detail := AnswerOf(err)
	switch {
	case err == nil:
		p.answer(w, r, out)
	case errors.Is(err, ErrOwnPKI):
		refuse(w, http.StatusConflict, kindOwnPKI, "%v", err)
	case said == Conflict:
		refuse(w, http.StatusConflict, kindConflict, "%s", detail)
	case said == Busy:
		refuse(w, http.StatusTooManyRequests, kindThrottled, "%s", detail)
	default:
		refuse(w, http.StatusServiceUnavailable, kindOutOfReach, "%v", err)
	}
}

// RenewNow has the member of that name renew its certificate. The error is ErrOwnPKI if it cannot. AnswerOf is Busy if it got too many
// lately, and Conflict if the leader gives it none.
func (c *Client) RenewNow(ctx context.Context, address, name string) (Renewed, error) {
	t := newTransport(c.dialer, ProtocolPeer, pki.Want{Name: name})
	t.DisableKeepAlives = true
	var out Renewed
	err := post(ctx, t, urlOf(address, "certificate", "renew").String(), nil, struct{}{}, &out)
	if p := (*Problem)(nil); errors.As(err, &p) && p.Type == kindOwnPKI {
		err = ErrOwnPKI
	}
	return out, err
}
