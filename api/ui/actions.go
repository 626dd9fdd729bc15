package ui

import (
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"evenkeel/api/client"
	"evenkeel/api/v1"
)

// asked is the form of a request: what to do, and whether only to say what it would do.
func (v *visit) asked() (do string, dry bool, form url.Values) {
	form = v.r.PostForm
	return form.Get("do"), form.Get("dry") != "", form
}

// options of a change.
func options(of []client.Option, dry bool) []client.Option {
	if dry {
		return append([]client.Option{client.DryRun()}, of...)
	}
	return of
}

// to ends a change: the browser loads a page, which shows the operation if there is one.
func (v *visit) to(path string, op *v1.Operation) error {
	if op != nil {
		path += "?operation=" + url.QueryEscape(op.ID)
	}
	http.Redirect(v.w, v.r, path, http.StatusSeeOther)
	return nil
}

// refusal is the problem that a page shows beside what it shows anyway; an error that is not about the request is returned.
func refusal(err error) (*v1.Problem, error) {
	var invalid *v1.Invalid
	var refused *client.Error
	switch {
	case err == nil:
		return nil, nil
	case errors.As(err, &invalid):
		return &v1.Problem{Status: http.StatusUnprocessableEntity, Title: "Invalid request", Errors: invalid.Fields}, nil
	case errors.As(err, &refused) && refused.Problem.Status != http.StatusUnauthorized:
		return problemOf(err), nil
	}
	return nil, err
}

func changeVirtualCluster(v *visit) error {
	name, of := named(v)
	do, dry, form := v.asked()
	ctx, opts := v.r.Context(), options(of, dry)
	var result v1.Result
	var err error
	switch do {
	case "scale":
		var q v1.ScaleRequest
		if q, err = scaleOf(form); err == nil {
			result, err = v.api.Scale(ctx, name, q, opts...)
		}
	case "start":
		result, err = v.api.Start(ctx, name, opts...)
	case "stop":
		result, err = v.api.Stop(ctx, name, opts...)
	case "delete":
		result, err = v.api.Delete(ctx, name, opts...)
	default:
		return unknownForm(do)
	}
	problem, err := refusal(err)
	if err != nil {
		return err
	}
	if problem == nil && !dry {
		if do == "delete" {
			return v.to("/ui/virtual-clusters", nil)
		}
		return v.to(v.r.URL.Path, result.Operation)
	}
	return again(v, "virtualcluster", problem, readVC, func(d *vcData) {
		if d.Asked = form; problem == nil {
			d.Dry = &result
		}
	})
}

// shown is the handler of a page that shows what read reads.
func shown[D any](page string, read func(*visit) (D, error)) func(*visit) error {
	return func(v *visit) error {
		d, err := read(v)
		if err != nil {
			return err
		}
		v.Data = d
		return v.show(page)
	}
}

// again shows the page of a form once more: with a problem, or with what a check found. fill puts that into what is read for the page.
func again[D any](v *visit, page string, problem *v1.Problem, read func(*visit) (D, error), fill func(*D)) error {
	d, err := read(v)
	if err != nil {
		return err
	}
	fill(&d)
	v.Live, v.Data = false, d
	return v.showWith(problem, page)
}

// showWith shows a page and, if the request was refused (problem is not nil), why, with the status of the problem.
func (v *visit) showWith(problem *v1.Problem, page string) error {
	if v.Problem = problem; problem != nil {
		return v.showAs(problem.Status, page)
	}
	return v.show(page)
}

// unknownForm is the answer to a form that asks for what its page does not have.
func unknownForm(do string) error {
	return refuse(http.StatusBadRequest, "The form asks for nothing that is known", do)
}

// scaleOf reads the fields of a form. What is left empty stays as it is.
func scaleOf(form url.Values) (v1.ScaleRequest, error) {
	q := v1.ScaleRequest{Group: form.Get("group")}
	field := func(name, why string) error {
		return &v1.Invalid{Fields: []v1.FieldError{{Field: name, Message: why, Value: form.Get(name)}}}
	}
	if text := strings.TrimSpace(form.Get("count")); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil {
			return q, field("count", "must be a whole number")
		}
		q.Count = &n
	}
	if text := strings.TrimSpace(form.Get("cpu")); text != "" {
		n, err := strconv.ParseFloat(text, 64)
		if err != nil {
			return q, field("cpu", "must be a number of cores, such as 0.5")
		}
		q.CPU = &n
	}
	if text := strings.TrimSpace(form.Get("memory")); text != "" {
		n, err := v1.ParseSize(text)
		if err != nil {
			return q, field("memory", err.Error())
		}
		q.Memory = &n
	}
	if q.Count == nil && q.CPU == nil && q.Memory == nil {
		return q, field("count", "nothing is to change: give a count, cores or memory")
	}
	return q, nil
}

type newData struct {
	File string
	Dry  *v1.Result
}

// example is the VC file that the form begins with.
const example = `name: web
minYield: 0.5
onFull: reject
groups:
  - name: server
    count: 2
    cpu: 1
    memory: 512MiB
`

func newVirtualCluster(v *visit) error {
	v.Title, v.Data = "New virtual cluster", newData{File: example}
	return v.show("new")
}

func createVirtualCluster(v *visit) error {
	_, dry, form := v.asked()
	d := newData{File: strings.ReplaceAll(form.Get("file"), "\r\n", "\n")}
	var of []client.Option
	if tenant := strings.TrimSpace(form.Get("tenant")); tenant != "" {
		of = append(of, client.OfTenant(tenant))
	}
	spec, err := v1.ParseVCFile([]byte(d.File))
	var result v1.Result
	if err == nil {
		result, err = v.api.Create(v.r.Context(), spec, options(of, dry)...)
	}
	problem, err := refusal(err)
	if err != nil {
		return err
	}
	v.Title, v.Problem = "New virtual cluster", problem
	switch {
	case problem != nil:
		v.Data = d
		return v.showAs(problem.Status, "new")
	case dry:
		d.Dry = &result
		v.Data = d
		return v.show("new")
	}
	return v.to("/ui/virtual-clusters/"+fullName(form.Get("tenant"), spec.Name), result.Operation)
}

func changeHost(v *visit) error {
	name := v.r.PathValue("name")
	do, dry, form := v.asked()
	ctx, opts, reason := v.r.Context(), options(nil, dry), strings.TrimSpace(form.Get("reason"))
	var result v1.DrainResult
	var err error
	switch do {
	case "drain":
		result, err = v.api.Drain(ctx, name, v1.DrainRequest{Reason: reason, OnBlocked: form.Get("onBlocked")}, opts...)
	case "undrain":
		_, err = v.api.Undrain(ctx, name, opts...)
	case "cordon":
		_, err = v.api.Cordon(ctx, name, reason, opts...)
	case "uncordon":
		_, err = v.api.Uncordon(ctx, name, opts...)
	default:
		return unknownForm(do)
	}
	problem, err := refusal(err)
	if err != nil {
		return err
	}
	if problem == nil && !dry {
		return v.to("/ui/hosts/"+url.PathEscape(name), result.Operation)
	}
	return again(v, "host", problem, readHost, func(d *hostData) {
		if d.Asked = form; problem == nil {
			d.Dry = &result
		}
	})
}

// propose shows the plan that a budget of bytes buys, or applies it.
func propose(v *visit) error {
	_, dry, form := v.asked()
	budget, err := v1.ParseBound(strings.TrimSpace(form.Get("budget")))
	var result v1.PlanResult
	if err != nil {
		err = &v1.Invalid{Fields: []v1.FieldError{{Field: "budget", Message: err.Error(), Value: form.Get("budget")}}}
	} else {
		result, err = v.api.Rebalance(v.r.Context(), v1.RebalanceRequest{MaxBytes: &budget, Reason: "asked for on the dashboard"}, options(nil, dry)...)
	}
	problem, err := refusal(err)
	if err != nil {
		return err
	}
	if problem == nil && !dry {
		return v.to("/ui/plans/"+url.PathEscape(result.Plan.ID), nil)
	}
	return again(v, "plans", problem, readPlans, func(d *plansData) {
		if d.Budget = form.Get("budget"); problem == nil {
			d.Dry = &result
		}
	})
}

func changePlan(v *visit) error {
	id := v.r.PathValue("id")
	do, _, _ := v.asked()
	var err error
	switch do {
	case "apply":
		_, err = v.api.ApplyPlan(v.r.Context(), id)
	case "stop":
		_, err = v.api.StopPlan(v.r.Context(), id)
	default:
		return unknownForm(do)
	}
	if err != nil {
		return err
	}
	return v.to("/ui/plans/"+url.PathEscape(id), nil)
}
