package server

import (
	"github.com/prometheus/client_golang/prometheus"

	"evenkeel/cluster/leader"
	"evenkeel/cluster/state"
)

var (
	descQuotaUsed  = desc("tenant_quota_used", "What a tenant uses of what its quota limits, in the unit of the key: cores, bytes or a number; of the leader only, once there are tenants.", "tenant", "key")
	descQuotaLimit = desc("tenant_quota_limit", "Limit of a tenant's quota, in the unit of the key; none where it is unlimited. Of the leader only.", "tenant", "key")
)

var tenantDescs = []*prometheus.Desc{descQuotaUsed, descQuotaLimit}

// tenants sends what tenants use of their quotas.
func (g gauges) tenants(v *leader.View) {
	if !v.HasTenants() {
		return
	}
	for _, t := range v.Tenants() {
		use := v.UseOf(t.Name)
		for _, key := range state.QuotaKeys() {
			g.set(descQuotaUsed, use[key], t.Name, string(key))
			if limit, _ := v.LimitOf(t.Name, key); limit != state.Unlimited {
				g.set(descQuotaLimit, float64(limit), t.Name, string(key))
			}
		}
	}
}
