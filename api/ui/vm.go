package ui

import (
	"context"
	"net/url"
	"strings"

	"evenkeel/api/client"
	"evenkeel/api/v1"
)

// vmPath is the page of a VM.
func vmPath(tenant, name string) string { return "/ui/vms/" + escapedName(tenant, name) }

type vmData struct {
	VM    v1.VM
	Full  string
	Dry   *v1.Result     // what a verb would do
	Moves *v1.PlanResult // what a migration would do
	Asked url.Values
}

// vmVerb is what can be asked for one VM.
type vmVerb struct {
	Name, Label, Text string
	Ask               bool // before it is done
}

var vmVerbs = []vmVerb{
	{"start", "Start", "if it does not run", false},
	{"stop", "Stop", "and keep it stopped; its disk is kept", true},
	{"restart", "Restart", "stop it, and start it again on its host", true},
	{"reset", "Reset", "have the guest boot again at once, as by its reset button", true},
}

func readVM(v *visit) (vmData, error) {
	name, of := named(v)
	vm, err := v.api.VM(v.r.Context(), name, of...)
	if err != nil {
		return vmData{}, err
	}
	d := vmData{VM: vm, Full: fullName(vm.Tenant, vm.Name)}
	v.Title, v.Live = d.Full, true
	return d, v.readOperation(of)
}

func changeVM(v *visit) error {
	name, of := named(v)
	do, dry, form := v.asked()
	verbs := map[string]func(context.Context, string, ...client.Option) (v1.Result, error){
		"start": v.api.StartVM, "stop": v.api.StopVM, "restart": v.api.RestartVM, "reset": v.api.ResetVM}
	var result v1.Result
	var moves v1.PlanResult
	var err error
	switch verb, known := verbs[do]; {
	case known:
		result, err = verb(v.r.Context(), name, options(of, dry)...)
	case do == "migrate":
		moves, err = v.api.MigrateVM(v.r.Context(), name, v1.MigrateRequest{To: strings.TrimSpace(form.Get("to"))}, options(of, dry)...)
		result.Operation = moves.Operation
	default:
		return unknownForm(do)
	}
	problem, err := refusal(err)
	if err != nil {
		return err
	}
	if problem == nil && !dry {
		return v.to(v.r.URL.Path, result.Operation)
	}
	return again(v, "vm", problem, readVM, func(d *vmData) {
		switch d.Asked = form; {
		case problem != nil:
		case do == "migrate":
			d.Moves = &moves
		default:
			d.Dry = &result
		}
	})
}
