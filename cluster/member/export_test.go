package member

import (
	"context"

	"evenkeel/cluster/transport"
)

// RenewNow is what a member does when a server asks it to renew its certificate.
func (m *Member) RenewNow(ctx context.Context) (transport.Renewed, error) { return m.renewNow(ctx) }
