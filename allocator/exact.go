package allocator

// Exact is Best with a proof: it goes on until no placement with a greater
// minimum yield is left, or the work is used up. Problems of some dozen VMs are
// proved in milliseconds; for those of more than 256 VMs only bounds are
// compared, and Exact is Best.
func Exact(p Problem, s Search) Outcome { return solve(p, s, true) }
