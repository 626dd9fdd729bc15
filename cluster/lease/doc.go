// Package lease has both sides of the rule that a restartable VM runs in one place only: the agent's
// right to run such VMs, which ends by itself, and the leader's judgement whether the right of a host has surely ended.
//
// It sends nothing and stops nothing, and except for Boottime reads no clock: times come in as durations on a clock of the
// caller's that neither jumps nor stops while the machine sleeps (CLOCK_BOOTTIME), one for the holder and one for the leader.
// The two are never compared; they need only run at the same rate within 1%.
package lease
