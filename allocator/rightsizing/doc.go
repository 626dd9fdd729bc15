// Package rightsizing decides which components keep their memory, grow, shrink or are evicted, once their needs are known better than
// by what was asked for: the resource shaper of Pace, Milios, Carra and Michiardi ("Dynamic Resource Shaping for Compute Clusters", sec. III-B).
//
// A component is a VM, an application a virtual cluster: it ends with its core components and goes on
// without its elastic ones. Needs include the forecast and its buffer already; this package forecasts nothing.
//
// Two policies:
//
//   - Pessimistic is Algorithm 1. Applications are served in the order given. All core components of one must have
//     room on their hosts, or the application is evicted; then its elastic ones are served, the oldest first, and those without
//     room are evicted.
//   - Optimistic is the baseline: every component takes what it needs, and those that find nothing left fail.
//
// Beyond the paper: CPU may be short where an application accepts a yield below 1; memory falls in steps, never
// below a floor, and not soon after it grew; a host may keep a reserve for what components can take back
// by themselves; and memory that is taken from one may be withheld from the others until it is really free.
//
// Values go in and values come out. A Rightsizer keeps its scratch and its result from call to call, so that a look at
// some 10,000 components allocates nothing. It never sorts applications (see Before), does no input or output,
// reads no clock and draws nothing at random: time comes in with Options.
package rightsizing
