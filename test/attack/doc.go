// Package attack holds tests that attack a running cluster as strangers do. They start three real `vcd run`, and where it
// says so a `vcd dev`, and speak to them over real TLS. docs/reference/claims.md says which claim each test tries.
//
// By default each test is short; EVENKEEL_ATTACK_LONG=1 runs the long forms. EVENKEEL_VCD and EVENKEEL_VCCTL name programs to
// attack instead of those of this tree. The package changes nothing on the machine: all processes and directories end with the tests.
package attack
