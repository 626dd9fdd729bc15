package v1

import (
	"slices"
	"strings"
)

// Severities of events, the least first.
const (
	SeverityInfo     = "info"
	SeverityWarning  = "warning"
	SeverityCritical = "critical"
)

// Severities in their order, the least first.
var Severities = []string{SeverityInfo, SeverityWarning, SeverityCritical}

// EventKind is a kind of events: a code that is never renamed, for filters and for programs.
type EventKind struct {
	Kind     string
	Severity string
	Doc      string
}

// EventKinds are all kinds, by name.
var EventKinds = []EventKind{
	{"certificate-refused", SeverityWarning, "A member refused to renew a certificate."},
	{"certificate-renewed", SeverityInfo, "A member has a new certificate."},
	{"cluster-created", SeverityInfo, "The cluster was made."},
	{"connection-refused", SeverityWarning, "A member refused another's connection, for its certificate."},
	{"fence-tested", SeverityInfo, "A fence device of a host was tried out."},
	{"fencing-disabled", SeverityWarning, "Leases that run out stop no VM; VMs of lost hosts are not restarted."},
	{"fencing-enabled", SeverityInfo, "Leases stop VMs again."},
	{"host-allowance", SeverityInfo, "What may be used of a host changed."},
	{"host-blocked", SeverityWarning, "A drain is blocked: the VMs that are left cannot leave."},
	{"host-cordoned", SeverityInfo, "A host takes no new VMs."},
	{"host-drained", SeverityInfo, "A host runs none of the cluster's VMs any more."},
	{"host-draining", SeverityInfo, "VMs leave a host."},
	{"host-foreign", SeverityInfo, "What foreign VMs take of a host changed."},
	{"host-joined", SeverityInfo, "A host reported for the first time."},
	{"host-lost", SeverityCritical, "A host is proved to run nothing any more."},
	{"host-returned", SeverityInfo, "A host that was lost reports again."},
	{"host-stopped", SeverityWarning, "A drain was stopped before the host was empty."},
	{"host-uncordoned", SeverityInfo, "A host takes new VMs again."},
	{"host-undrained", SeverityInfo, "A drain was taken back."},
	{"host-unproved", SeverityCritical, "A host is silent, and nothing proves that it is dead: its VMs are not started elsewhere."},
	{"image-added", SeverityInfo, "An image is in the catalogue."},
	{"image-deleted", SeverityInfo, "An image is no longer in the catalogue."},
	{"job-accepted", SeverityInfo, "The owner of a periodic job signed it off."},
	{"job-changed", SeverityInfo, "The owner of a periodic job changed what is reserved."},
	{"job-rejected", SeverityInfo, "Nothing is reserved for a periodic job any more."},
	{"join-refused", SeverityWarning, "A caller wanted to join with a token that is not good."},
	{"join-token-made", SeverityInfo, "A token lets a member in."},
	{"member-joined", SeverityInfo, "A member joined."},
	{"member-moved", SeverityInfo, "A member has another address."},
	{"member-rejoined", SeverityInfo, "A member was let in again."},
	{"member-removed", SeverityInfo, "A member was removed; its certificates count no more."},
	{"member-upgraded", SeverityInfo, "A member runs another version."},
	{"migration-abort", SeverityWarning, "A migration is to be given up."},
	{"occurrence-confirmed", SeverityInfo, "Hosts keep room for a run of a periodic job."},
	{"occurrence-degraded", SeverityWarning, "No hosts keep room for a run of a periodic job."},
	{"occurrence-grant-ended", SeverityInfo, "A run of a periodic job is given no more than what is reserved for it."},
	{"occurrence-met", SeverityInfo, "A run of a periodic job ended in time."},
	{"occurrence-missed", SeverityWarning, "A run of a periodic job did not arrive, or did not end in time."},
	{"occurrence-re-confirmed", SeverityInfo, "Other hosts keep room for a run of a periodic job."},
	{"occurrence-reprovisioned", SeverityInfo, "A late run of a periodic job is given CPU beyond what is reserved for it."},
	{"occurrence-running", SeverityInfo, "A run of a periodic job starts in its slot."},
	{"occurrence-skipped", SeverityInfo, "The owner of a periodic job left out a run."},
	{"plan-done", SeverityInfo, "A plan of moves ended well."},
	{"plan-failed", SeverityWarning, "Moves of a plan failed, and planning again did not help."},
	{"plan-proposed", SeverityInfo, "A plan of moves waits to be applied."},
	{"plan-running", SeverityInfo, "A plan of moves is carried out."},
	{"plan-stopped", SeverityInfo, "No further move of a plan begins."},
	{"plan-superseded", SeverityInfo, "Another plan took a plan's place."},
	{"recovery-freeze-began", SeverityWarning, "After a restore or recovery nothing is started or stopped until every host has said what it runs."},
	{"recovery-freeze-ended", SeverityInfo, "Every host has said so: the cluster goes on."},
	{"refusals", SeverityWarning, "Several callers were refused; there were too many to record each."},
	{"rightsized", SeverityInfo, "Estimated needs were put in force."},
	{"role-granted", SeverityInfo, "A user, a group or a token has a role in the cluster or in a tenant from now on, maybe instead of another one."},
	{"role-revoked", SeverityInfo, "A user, a group or a token has a role no longer; what ran by it ends."},
	{"settings-changed", SeverityInfo, "Settings of the cluster changed."},
	{"snapshot-restored", SeverityWarning, "A saved state was put in force: later changes are lost."},
	{"tenant-changed", SeverityInfo, "A tenant changed."},
	{"tenant-created", SeverityInfo, "A tenant was created."},
	{"tenant-deleted", SeverityInfo, "A tenant was deleted."},
	{"token-made", SeverityInfo, "A token of the API was made."},
	{"token-revoked", SeverityInfo, "A token of the API is refused from now on."},
	{"unauthenticated", SeverityWarning, "A caller was refused: it had no token that is good."},
	{"user-revoked", SeverityInfo, "The tokens that the OpenID Connect issuer made for a user so far are refused from now on."},
	{"vc-admitted", SeverityInfo, "A virtual cluster that waited was admitted."},
	{"vc-changed", SeverityInfo, "A virtual cluster was changed by a file or an editor."},
	{"vc-created", SeverityInfo, "A virtual cluster was admitted."},
	{"vc-deleted", SeverityInfo, "Nothing of a virtual cluster is left."},
	{"vc-deleting", SeverityInfo, "A virtual cluster is to be deleted."},
	{"vc-preempted", SeverityWarning, "VMs of a virtual cluster were stopped to make room."},
	{"vc-queued", SeverityInfo, "A virtual cluster waits for room."},
	{"vc-reallocated", SeverityInfo, "Shares follow what runs."},
	{"vc-restarted", SeverityInfo, "VMs of a virtual cluster start again."},
	{"vc-rolled-back", SeverityInfo, "A virtual cluster is again what an earlier version says."},
	{"vc-scaled", SeverityInfo, "The size or the needs of a virtual cluster changed."},
	{"vc-shut-down", SeverityInfo, "VMs were shut down so that a host gets empty."},
	{"vc-started", SeverityInfo, "A virtual cluster that was stopped was admitted again."},
	{"vc-stopped", SeverityInfo, "A virtual cluster is to stop."},
	{"vc-waiting", SeverityWarning, "VMs that are to start again wait for room."},
	{"vm-deleted", SeverityInfo, "A VM and what it had is gone."},
	{"vm-duplicate", SeverityCritical, "A VM runs on two hosts."},
	{"vm-failed", SeverityWarning, "A VM ended by itself, or could not start."},
	{"vm-lost", SeverityCritical, "A VM went with its host, and is to start elsewhere."},
	{"vm-moved", SeverityInfo, "A VM moved to another host."},
	{"vm-moving", SeverityInfo, "A VM is on its way to another host."},
	{"vm-reset", SeverityInfo, "A VM was reset."},
	{"vm-reset-failed", SeverityWarning, "A VM was not reset, or that is not known."},
	{"vm-reset-requested", SeverityInfo, "The reset of a VM was asked for."},
	{"vm-restart-requested", SeverityInfo, "The restart of a VM was asked for."},
	{"vm-running", SeverityInfo, "A VM runs."},
	{"vm-start-requested", SeverityInfo, "The start of a VM was asked for."},
	{"vm-starting", SeverityInfo, "A VM is permitted to start."},
	{"vm-stayed", SeverityWarning, "A VM did not move after all."},
	{"vm-stop-requested", SeverityInfo, "The stop of a VM was asked for: it stays stopped."},
	{"vm-stopped", SeverityInfo, "A VM does not run."},
	{"vm-stopping", SeverityInfo, "A VM is to be stopped."},
	{"vm-unmanaged", SeverityWarning, "A host runs a VM with the cluster's mark that the state does not know."},
	{"watchdog-armed", SeverityInfo, "A watchdog guards the leases of a host."},
	{"watchdog-disarmed", SeverityWarning, "No watchdog guards the leases of a host."},
}

// EventSeverity of a kind; info for one that is not in EventKinds.
func EventSeverity(kind string) string {
	i, found := slices.BinarySearchFunc(EventKinds, kind, func(k EventKind, name string) int { return strings.Compare(k.Kind, name) })
	if !found {
		return SeverityInfo
	}
	return EventKinds[i].Severity
}

// KindsOfSeverity are the kinds that are at least so severe.
func KindsOfSeverity(minSeverity string) (out []string) {
	for _, k := range EventKinds {
		if slices.Index(Severities, k.Severity) >= slices.Index(Severities, minSeverity) {
			out = append(out, k.Kind)
		}
	}
	return out
}

// KnownEventKind says whether a filter of kinds can match: a kind, or a beginning with *.
func KnownEventKind(pattern string) bool {
	prefix, open := strings.CutSuffix(pattern, "*")
	return slices.ContainsFunc(EventKinds, func(k EventKind) bool { return k.Kind == pattern || open && strings.HasPrefix(k.Kind, prefix) })
}
