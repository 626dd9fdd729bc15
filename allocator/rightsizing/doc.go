// Package rightsizing decides who keeps, grows, shrinks and goes once what components need is known better than
// what was asked for: the resource rightsizer of Pace, Milios, Carra and Michiardi ("Dynamic Resource Shaping for Compute Clusters", sec. III-B).
//
// A component is a VM, an application a virtual cluster: it dies with its core components and lives on
// without its elastic ones. Needs hold the forecast and its buffer already; this package forecasts nothing.
//
// Two policies:
//
//   - Pessimistic is Algorithm 1. Applications are served in the order given. All core components of one must have
//     room on their hosts, or the application goes; then its elastic ones are served, the oldest first, and those without room go.
//   - Optimistic is the baseline: everybody takes what they need, and those who find nothing left fail.
//
// Beyond the paper: CPU may be short where an application accepts a yield below 1; memory falls in steps, never
// below a floor, and not soon after it grew; a host may keep a reserve for what components can take back
// by themselves; and memory that is taken from one may be withheld from the others until it is really free.
//
// Values go in and values come out. A Shaper keeps its scratch and its result from call to call, so that a look at
// some 10,000 components allocates nothing. It never sorts applications (see Before), never talks to
// anybody, and knows neither time nor chance but what it is told.
package rightsizing
