package main

import "evenkeel/api/v1"

// about says what an operation is about, and the command that shows how far it is.
func about(op v1.Operation) (subject, watch string) {
	switch {
	case op.VirtualCluster != "":
		name := fullName(op.Tenant, op.VirtualCluster)
		return name, "vcctl vc get " + name + " -w"
	case op.Host != "":
		return "host " + op.Host, "vcctl host get " + op.Host + " -w"
	}
	return "plan " + op.Plan, "vcctl plan get " + op.Plan + " -w"
}

// outcome is nil if an operation ended well, else an error with the status for how it ended.
func outcome(op v1.Operation) error {
	subject, _ := about(op)
	switch op.State {
	case v1.OperationFailed:
		return failed(statusFailed, "%s of %s failed: %s", op.Kind, subject, op.Text)
	case v1.OperationSuperseded:
		return failed(statusConflict, "%s of %s was overtaken: %s", op.Kind, subject, op.Text)
	}
	return nil
}
