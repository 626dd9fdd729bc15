package ui

import (
	"maps"
	"slices"
)

// Routes are the patterns of the pages of those that are logged in.
func Routes() []string { return slices.Sorted(maps.Keys(routes)) }

// FormToken of a session.
var FormToken = formToken

// Roles that forms offer.
func Roles() []string { return slices.Concat(clusterRoles, tenantRoles) }
