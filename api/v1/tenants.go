package v1

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Tenant owns virtual clusters.
type Tenant struct {
	Name        string            `json:"name" doc:"Name of the tenant."`
	DisplayName string            `json:"displayName,omitempty" doc:"Name for people."`
	Labels      map[string]string `json:"labels,omitempty" doc:"Labels of the operator's choosing."`
	State       string            `json:"state" enum:"active,suspended" doc:"suspended: its tokens are refused, and nothing of it is created, started or made larger. What runs goes on."`
	MaxPriority int               `json:"maxPriority" doc:"Highest priority that its own tokens may give a virtual cluster."`
	CreatedAt   time.Time         `json:"createdAt,omitzero" doc:"When it was created."`
	Networks    []string          `json:"networks,omitzero" doc:"Networks that its virtual clusters may name, by the settings; left out: any."`
	Pools       []string          `json:"pools,omitzero" doc:"Storage pools that its virtual clusters may name, by the settings; left out: any."`
}

// TenantRequest creates a tenant.
type TenantRequest struct {
	Name        string            `json:"name" maxLength:"63" pattern:"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$" patternDescription:"a DNS label: a to z, 0 to 9 and, inside, hyphens" doc:"Name of the tenant; a DNS label." example:"film"`
	DisplayName string            `json:"displayName,omitempty" maxLength:"200" doc:"Name for people: printable ASCII characters." example:"Film school"`
	Labels      map[string]string `json:"labels,omitempty" maxProperties:"32" doc:"Labels of the operator's choosing."`
	MaxPriority *int              `json:"maxPriority,omitempty" minimum:"-1000000" maximum:"1000000" doc:"Highest priority that its own tokens may give a virtual cluster; left out: 0."`
}

func (t *TenantRequest) check(fault func(field, format string, args ...any)) {
	if t.Name == "default" {
		fault("name", "is that of the tenant that is always there")
	}
	checkTenant(t.DisplayName, t.Labels, fault)
}

// TenantPatch changes a tenant. What is left out stays.
type TenantPatch struct {
	DisplayName *string           `json:"displayName,omitempty" maxLength:"200" doc:"Name for people: printable ASCII characters."`
	Labels      map[string]string `json:"labels,omitempty" maxProperties:"32" doc:"All its labels from now on."`
	State       *string           `json:"state,omitempty" enum:"active,suspended" doc:"suspended: its tokens are refused, and nothing of it is created, started or made larger."`
	MaxPriority *int              `json:"maxPriority,omitempty" minimum:"-1000000" maximum:"1000000" doc:"Highest priority that its own tokens may give a virtual cluster."`
}

func (t *TenantPatch) check(fault func(field, format string, args ...any)) {
	name := ""
	if t.DisplayName != nil {
		name = *t.DisplayName
	}
	checkTenant(name, t.Labels, fault)
}

func checkTenant(displayName string, labels map[string]string, fault func(field, format string, args ...any)) {
	if strings.IndexFunc(displayName, func(r rune) bool { return r < ' ' || r > '~' }) >= 0 {
		fault("displayName", "must be printable ASCII characters")
	}
	for name, value := range labels {
		if !labelName.MatchString(name) || !labelValue.MatchString(value) {
			fault("labels", "label %s=%s: must be letters, digits and - . _ (and / in names), at most 63, with a letter or digit at both ends", clip(name, 60), clip(value, 60))
			return // one says it for all
		}
	}
}

// Quota is what a tenant may use, and what it uses.
type Quota struct {
	Tenant    string       `json:"tenant" doc:"Name of the tenant; *: the limits of tenants that set none of their own."`
	Items     []QuotaLimit `json:"items" nullable:"false" doc:"One entry for each key."`
	OverQuota []string     `json:"overQuota" nullable:"false" doc:"Keys of which it uses more than the limit. Nothing is stopped for that; what would use more is refused."`
}

// QuotaLimit is the limit of one key.
type QuotaLimit struct {
	Key   string   `json:"key" enum:"cpu,memory,vms,vcs,disk,images,networks,tokens,queued,cloudInitBytes,periodicJobs" doc:"What is limited."`
	Unit  string   `json:"unit" enum:"cores,bytes,items" doc:"Of limit and used."`
	Limit *float64 `json:"limit,omitempty" doc:"Most that may be used; 0: nothing. Left out: unlimited."`
	From  string   `json:"from" enum:"tenant,defaults,unset" doc:"Who set it: tenant, this tenant's own quota; defaults, that of all tenants without one; unset: no limit was set."`
	Used  float64  `json:"used" doc:"What is used now: virtual clusters count from their creation until they are gone, also while they wait or are stopped."`
}

// QuotaPatch changes limits. Keys that are left out stay.
type QuotaPatch struct {
	Limits map[string]string `json:"limits" maxProperties:"16" doc:"New limits by key (cpu, memory, vms, vcs, disk, images, networks, tokens, queued, cloudInitBytes, periodicJobs): a number, for bytes also with a unit, unlimited, or unset: that of the defaults." example:"{\"cpu\":\"64\",\"memory\":\"256GiB\",\"vms\":\"unlimited\"}"`
}

// Words of limits in requests.
const (
	LimitUnlimited = "unlimited"
	LimitUnset     = "unset"
)

// QuotaUnits are the units of the keys of quotas.
var QuotaUnits = map[string]string{"cpu": "cores", "memory": "bytes", "disk": "bytes", "cloudInitBytes": "bytes",
	"vms": "items", "vcs": "items", "images": "items", "networks": "items", "tokens": "items", "queued": "items", "periodicJobs": "items"}

func (q *QuotaPatch) check(fault func(field, format string, args ...any)) {
	if len(q.Limits) == 0 {
		fault("limits", "names no key to change")
	}
	for key, text := range q.Limits {
		if _, _, _, err := ParseLimit(key, text); err != nil {
			fault("limits", "%s: %v", clip(key, 60), err)
		}
	}
}

// ParseLimit reads the limit of a key.
func ParseLimit(key, text string) (limit float64, unlimited, unset bool, err error) {
	unit, known := QuotaUnits[key]
	switch {
	case !known:
		return 0, false, false, fmt.Errorf("is no key of a quota; known ones are %s", strings.Join(quotaKeys(), ", "))
	case text == LimitUnlimited:
		return 0, true, false, nil
	case text == LimitUnset:
		return 0, false, true, nil
	case unit == "bytes":
		if text == "0" {
			return 0, false, false, nil
		}
		size, err := ParseSize(text)
		if err != nil {
			return 0, false, false, fmt.Errorf("%w, or unlimited, or unset", err)
		}
		return float64(size), false, false, nil
	case unit == "items":
		n, err := strconv.ParseUint(text, 10, 31)
		if err != nil {
			return 0, false, false, fmt.Errorf("%q must be a whole number from 0, or unlimited, or unset", clip(text, 40))
		}
		return float64(n), false, false, nil
	}
	v, err := strconv.ParseFloat(text, 64)
	if err != nil || v < 0 || math.IsNaN(v) || v > 1<<30 {
		return 0, false, false, fmt.Errorf("%q must be a number of cores from 0, or unlimited, or unset", clip(text, 40))
	}
	return v, false, false, nil
}

func quotaKeys() []string {
	var out []string
	for key := range QuotaUnits {
		out = append(out, key)
	}
	slices.Sort(out)
	return out
}
