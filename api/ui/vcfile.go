package ui

import (
	"net/url"
	"slices"
	"strconv"
	"strings"

	"evenkeel/api/client"
	"evenkeel/api/v1"
)

// filePath is the page with the file of a virtual cluster and its history.
func filePath(tenant, name string) string { return "/ui/file/" + escapedName(tenant, name) }

type fileData struct {
	Full, Tenant, Name string
	Text               string // of the form
	ETag               string // of the file that the form began with
	Hidden             []string
	Asked              url.Values
	Versions           []v1.VCVersion // newest first
	Dry                *v1.Result
	Command            string // that does the same
}

func readFile(v *visit) (fileData, error) {
	name, of := named(v)
	ctx := v.r.Context()
	file, err := v.api.VirtualClusterFile(ctx, name, of...)
	if err != nil {
		return fileData{}, err
	}
	tenant, own, ok := strings.Cut(v.r.PathValue("name"), "/")
	if !ok {
		tenant, own = "", name
	}
	d := fileData{Full: fullName(tenant, own), Tenant: tenant, Name: own, ETag: file.ETag, Hidden: file.Hidden}
	if d.Text, err = file.Text(); err != nil {
		return d, err
	}
	if d.Versions, err = v.api.Versions(ctx, name, of...); err != nil {
		return d, err
	}
	slices.Reverse(d.Versions)
	v.Title = "File and history of " + d.Full
	return d, v.readOperation(of)
}

func changeVCFile(v *visit) error {
	name, of := named(v)
	do, dry, form := v.asked()
	var result v1.Result
	var command string
	var err error
	switch do {
	case "edit", "apply":
		result, err = applyFile(v, do, name, of)
		if command = "vcctl vc edit " + v.r.PathValue("name"); do == "apply" {
			command = applyCommand(form, v.r.PathValue("name"))
		}
	case "rollback":
		var q v1.RollbackRequest
		if q, err = rollbackOf(form); err == nil {
			result, err = v.api.Rollback(v.r.Context(), name, q, options(of, dry)...)
		}
		parts := []string{"vcctl", "vc", "rollback", v.r.PathValue("name"), "--to", strconv.Itoa(q.Version)}
		if q.Restart {
			parts = append(parts, "--restart")
		}
		command = shellCommand(parts...)
	default:
		return unknownForm(do)
	}
	problem, err := refusal(err)
	if err != nil {
		return err
	}
	if problem == nil && !dry {
		tenant, own, ok := strings.Cut(v.r.PathValue("name"), "/")
		if !ok {
			tenant, own = "", name
		}
		return v.to(vcPath(tenant, own), result.Operation)
	}
	return again(v, "file", problem, readFile, func(d *fileData) {
		d.Asked = form
		if do != "rollback" {
			d.Text, d.ETag = plainText(form.Get("file")), form.Get("etag")
		}
		if problem == nil {
			d.Dry, d.Command = &result, command
		}
	})
}

// plainText of a form: browsers end its lines with CR and LF.
func plainText(text string) string { return strings.ReplaceAll(text, "\r\n", "\n") }

// applyFile makes a virtual cluster what the form's file says: with edit, the file is the present one with changes in it. A file of the
// user's may say which version it was made of: then it is compared with that one.
func applyFile(v *visit, do, name string, of []client.Option) (v1.Result, error) {
	_, dry, form := v.asked()
	text := []byte(plainText(form.Get("file")))
	spec, err := v1.ParseVCFile(text)
	if err != nil {
		return v1.Result{}, err
	}
	if spec.Name != name {
		return v1.Result{}, &v1.Invalid{Fields: []v1.FieldError{{Field: "name", Message: "must stay " + strconv.Quote(name) + ": a virtual cluster keeps its name", Value: spec.Name}}}
	}
	if _, err := v.api.VirtualClusterFile(v.r.Context(), name, of...); err != nil {
		return v1.Result{}, err // the page is of one that is there; apply would create it
	}
	opts := options(of, dry)
	if do == "edit" {
		opts = append(opts, client.Edit(), client.IfTag(form.Get("etag")))
	} else if base := v1.BaseOf(text); base != "" {
		opts = append(opts, client.Base(base))
	}
	if form.Get("restart") != "" {
		opts = append(opts, client.Restart())
	}
	if form.Get("force") != "" && do == "apply" {
		opts = append(opts, client.Force())
	}
	return v.api.Apply(v.r.Context(), spec, opts...)
}

func applyCommand(form url.Values, full string) string {
	parts := []string{"vcctl", "vc", "apply", "-f", "FILE"}
	if tenant, _, ok := strings.Cut(full, "/"); ok {
		parts = append(parts, "--tenant", tenant)
	}
	for _, flag := range []string{"restart", "force"} {
		if form.Get(flag) != "" {
			parts = append(parts, "--"+flag)
		}
	}
	return shellCommand(parts...)
}

func rollbackOf(form url.Values) (q v1.RollbackRequest, err error) {
	q.Restart = form.Get("restart") != ""
	if q.Version, err = strconv.Atoi(form.Get("version")); err != nil || q.Version < 1 {
		return q, &v1.Invalid{Fields: []v1.FieldError{{Field: "version", Message: "must be the number of a version", Value: form.Get("version")}}}
	}
	return q, nil
}
