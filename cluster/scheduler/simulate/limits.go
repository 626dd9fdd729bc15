package simulate

// effort bounds the search for hosts of VMs: see migration.Problem.
const effort = 50_000_000
