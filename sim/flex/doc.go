// Package flex admits one task after another by the measured load of thousands of hosts, as Flex does (Le and Liu,
// "Flex: Closing the Gaps between Usage and Allocation", sec. 3 and 4).
//
//   - A Fleet keeps what of every host is counted as taken, and answers which host takes a task best: the one whose
//     fullest resource is then the emptiest (eq. 8 to 12), with a charge for tasks of the same source, whose peaks come together. It is
//     Algorithm 3's filter and score in one search, which examines a few of the hosts and gives the same host as a search of all.
//   - What counts as taken makes the policy. Requests, up to the capacity: LeastFit. Requests, up to theta times the
//     capacity: OverSub(theta). Load times a penalty P, and the requests that no measurement has seen yet: Flex.
//   - A Queue orders the tasks that wait: first come first (Algorithm 1: FlexF), or largest memory first (Algorithm 2: FlexL). A task
//     that did not fit waits before its next try.
//   - Share divides a resource among the tasks of a host as the paper's three cases of weighted fair share do, and Satisfies says
//     whether a task got what it is owed.
//
// Amounts are in any one unit per resource. The package does no I/O, reads no clock and keeps no state between calls
// other than in its own values: equal calls give equal answers. A Fleet never has more counted on a host than its limit by what Pick
// admits; it does not make sure that a host can give what its tasks will want.
package flex
