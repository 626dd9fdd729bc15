package ui

import (
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"evenkeel/api/client"
	"evenkeel/api/v1"
)

// MayOperate says whether the role may change what is of the whole cluster.
func (v *visit) MayOperate() bool {
	return v.OfCluster() && (v.Self.Role == "admin" || v.Self.Role == "operator")
}

// MayAudit says whether the role may read the audit log.
func (v *visit) MayAudit() bool {
	return v.OfCluster() && (v.Self.Role == "admin" || v.Self.Role == "auditor")
}

// settingRow is a setting and its default.
type settingRow struct {
	v1.SettingRow
	Default string
}

type settingsData struct {
	Rows  []settingRow
	Dry   []v1.SettingRow // what a change would make of those that it changes
	Key   string          // of the form that was refused or checked
	Value string
}

func readSettings(v *visit) (settingsData, error) {
	s, err := v.api.Settings(v.r.Context())
	v.Title = "Settings"
	var d settingsData
	defaults := v.ui.Defaults.Rows()
	ofTenant := s.Moves == (v1.MoveSettings{}) // its answer has neither placement, moves nor rightsizing
	for i, row := range s.Rows() {
		if of, _, _ := strings.Cut(row.Name, "."); ofTenant && slices.Contains([]string{"placement", "moves", "rightsizing"}, of) {
			continue
		}
		d.Rows = append(d.Rows, settingRow{row, defaults[i].Value}) // the rows follow from the type
	}
	return d, err
}

func changeSetting(v *visit) error {
	_, dry, form := v.asked()
	key, value := form.Get("key"), strings.TrimSpace(form.Get("value"))
	patch, err := v1.ParseSettingPairs([]string{key + "=" + value})
	var after v1.ClusterSettings
	if err == nil {
		after, err = v.api.SetSettings(v.r.Context(), patch, options(nil, dry)...)
	}
	problem, err := refusal(err)
	if err != nil {
		return err
	}
	if problem == nil && !dry {
		return v.to("/ui/settings", nil)
	}
	return again(v, "settings", problem, readSettings, func(d *settingsData) {
		if d.Key, d.Value = key, value; problem == nil {
			d.Dry = slices.DeleteFunc(after.Rows(), func(r v1.SettingRow) bool {
				return slices.ContainsFunc(d.Rows, func(now settingRow) bool { return now.Name == r.Name && now.Value == r.Value })
			})
		}
	})
}

type imagesData struct {
	rows[v1.Image]
	Asked url.Values // the form that was refused
}

func readImages(v *visit) (imagesData, error) {
	all, err := v.api.Images(v.r.Context())
	v.Title = "Images"
	return imagesData{rows: rowsOf(v, all, func(i v1.Image) string { return fullName(i.Tenant, i.Name) + " " + i.Kind + " " + i.File })}, err
}

func changeImages(v *visit) error {
	do, _, form := v.asked()
	var err error
	switch do {
	case "add":
		spec := v1.ImageSpec{Name: strings.TrimSpace(form.Get("name")), Kind: form.Get("kind"), File: strings.TrimSpace(form.Get("file"))}
		var of []client.Option
		if tenant := strings.TrimSpace(form.Get("tenant")); tenant != "" {
			of = append(of, client.OfTenant(tenant))
		}
		_, err = v.api.AddImage(v.r.Context(), spec, of...)
	case "delete":
		err = v.api.DeleteImage(v.r.Context(), form.Get("name"), client.OfTenant(form.Get("tenant")))
	default:
		return unknownForm(do)
	}
	problem, err := refusal(err)
	if err != nil {
		return err
	}
	if problem == nil {
		return v.to("/ui/images", nil)
	}
	return again(v, "images", problem, readImages, func(d *imagesData) {
		if do == "add" {
			d.Asked = form
		}
	})
}

type auditData struct {
	v1.AuditList
	Actor, Verb, Object, Outcome string
}

func auditLog(v *visit) error {
	q := v.r.URL.Query()
	d := auditData{Actor: strings.TrimSpace(q.Get("actor")), Verb: strings.TrimSpace(q.Get("verb")), Object: strings.TrimSpace(q.Get("object")), Outcome: q.Get("outcome")}
	var err error
	if d.AuditList, err = v.api.Audit(v.r.Context(), client.AuditQuery{Actor: d.Actor, Verb: d.Verb, Object: d.Object, Outcome: d.Outcome, Limit: maxEvents}); err != nil {
		return err
	}
	slices.Reverse(d.Items)
	v.Title, v.Data = "Audit log", d
	return v.show("audit")
}

type simulateData struct {
	Form   map[string]string
	Result *v1.SimulateResult
}

// simulateFields of the form.
var simulateFields = []string{"hosts", "cpu", "memory", "remove", "virtualCluster", "group", "need", "budget"}

var errNoSimulation = refuse(http.StatusForbidden, "Simulations are of the whole cluster", "they are for operators and admins")

func simulate(v *visit) error {
	if !v.MayOperate() {
		return errNoSimulation
	}
	v.Title, v.Data = "Simulate", simulateData{Form: map[string]string{}}
	return v.show("simulate")
}

func askSimulation(v *visit) error {
	if !v.MayOperate() {
		return errNoSimulation
	}
	_, _, form := v.asked()
	d := simulateData{Form: map[string]string{}}
	for _, name := range simulateFields {
		d.Form[name] = strings.TrimSpace(form.Get(name))
	}
	q, err := simulationOf(d.Form)
	var result v1.SimulateResult
	if err == nil {
		result, err = v.api.Simulate(v.r.Context(), q)
	}
	problem, err := refusal(err)
	if err != nil {
		return err
	}
	v.Title, v.Problem = "Simulate", problem
	if problem != nil {
		v.Data = d
		return v.showAs(problem.Status, "simulate")
	}
	d.Result = &result
	v.Data = d
	return v.show("simulate")
}

// simulationOf reads the fields of a form. What is left empty stays as it is.
func simulationOf(form map[string]string) (v1.SimulateRequest, error) {
	var q v1.SimulateRequest
	var faults []v1.FieldError
	number := func(name string, minimum float64) float64 {
		n, err := strconv.ParseFloat(form[name], 64)
		if err != nil || !(n >= minimum && n <= 4096) {
			faults = append(faults, v1.FieldError{Field: name, Message: "must be a number from " + strconv.FormatFloat(minimum, 'f', -1, 64) + " to 4096", Value: form[name]})
		}
		return n
	}
	if form["hosts"] != "" {
		h := v1.SimulatedHost{Count: int(number("hosts", 1)), CPU: number("cpu", 0)}
		var err error
		if h.Memory, err = v1.ParseSize(form["memory"]); err != nil {
			faults = append(faults, v1.FieldError{Field: "memory", Message: err.Error(), Value: form["memory"]})
		}
		q.AddHosts = []v1.SimulatedHost{h}
	}
	q.RemoveHosts = strings.FieldsFunc(form["remove"], func(c rune) bool { return c == ',' || c == ' ' })
	if form["virtualCluster"] != "" {
		q.Needs = []v1.SimulatedNeed{{VirtualCluster: form["virtualCluster"], Group: form["group"], CPU: number("need", 0)}}
	}
	if form["budget"] != "" {
		budget, err := v1.ParseBound(form["budget"])
		if err != nil {
			faults = append(faults, v1.FieldError{Field: "budget", Message: err.Error(), Value: form["budget"]})
		}
		q.MaxBytes = &budget
	}
	if faults != nil {
		return q, &v1.Invalid{Fields: faults}
	}
	return q, nil
}
