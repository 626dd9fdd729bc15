package server

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"evenkeel/api/v1"
	"evenkeel/cluster/leader"
	"evenkeel/cluster/state"
)

// ApplyParams come with a VC file that is applied.
type ApplyParams struct {
	Restart bool `query:"restart" doc:"Running VMs that must restart for the change may. Without it such a change is refused, and the answer names them."`
	Force   bool `query:"force" doc:"Overwrite what others changed since the last file was applied."`
	Edit    bool `query:"edit" doc:"The file is the present spec with changes in it: it is not compared with the last file, and the virtual cluster must exist. Send If-Match."`
	// Base is a text of ours that clients hand back.
	Base string `query:"base" maxLength:"64" doc:"base of the file that this one was made of. This file is compared with that version, or with the last file of the same user if that is newer, instead of the last file of any user. One that is not kept is ignored."`
}

type vcFileAnswer struct {
	ETag string `header:"ETag" doc:"Version of the virtual cluster."`
	Body v1.VirtualClusterFile
}

func (s *Server) registerApply(api huma.API) {
	const base = "/v1/virtual-clusters/{name}"
	change(api, http.MethodPut, route{"applyVirtualCluster", base, tagVC, "Apply a VC file",
		"Creates the virtual cluster, or makes the one that there is what the file says: all or nothing, refused like an admission. VMs that the change does not concern run on. " +
			"What others changed since the last file was applied is kept where this file leaves it as it was; where both changed a field it is a conflict (409) that names the field. With dryRun the answer says what differs and what it takes."},
		http.StatusAccepted, v1.VirtualClusterSpec{},
		func(ctx context.Context, in *struct {
			NameParam
			TenantParams
			CallParams
			ApplyParams
			JSONBody
		}) (*resultAnswer, error) {
			spec, err := body[v1.VirtualClusterSpec](in.JSONBody)
			if err != nil {
				return nil, err
			}
			if spec.Name != in.Name {
				return nil, s.fail(ctx, &v1.Invalid{Fields: []v1.FieldError{{Field: "name", Message: fmt.Sprintf("must be %s, as in the path: a virtual cluster keeps its name", in.Name), Value: spec.Name}}})
			}
			how := leader.Apply{Verb: "apply", Restart: in.Restart, Force: in.Force, Create: !in.Edit, Base: in.Base}
			if in.Edit {
				how.Verb = "edit"
			}
			return s.result(ctx, how.Verb, in.TenantParams, in.Name, in.CallParams, func(ctx context.Context, x scopedView, _ string, call leader.Call) (leader.Result, error) {
				vc, err := x.spec(spec)
				if err != nil {
					return leader.Result{}, err
				}
				how.OfTenant, how.KeepCloudInit = x.restricted, !x.readsSecrets(principalOf(ctx))
				return s.cluster.Apply(ctx, vc, how, call)
			})
		})
	change(api, http.MethodPost, route{"rollbackVirtualCluster", base + "/rollback", tagVC, "Go back to an earlier version of a virtual cluster",
		"Makes it what one of its versions says, as applying that file would."}, http.StatusAccepted, v1.RollbackRequest{},
		func(ctx context.Context, in *struct {
			NameParam
			TenantParams
			CallParams
			JSONBody
		}) (*resultAnswer, error) {
			req, err := body[v1.RollbackRequest](in.JSONBody)
			if err != nil {
				return nil, err
			}
			return s.result(ctx, "rollback", in.TenantParams, in.Name, in.CallParams, func(ctx context.Context, x scopedView, full string, call leader.Call) (leader.Result, error) {
				return s.cluster.Rollback(ctx, full, req.Version, leader.Apply{Restart: req.Restart, OfTenant: x.restricted}, call)
			})
		})
	get(api, route{"getVirtualClusterSpec", base + "/spec", tagVC, "Get the VC file of a virtual cluster",
		"What its users asked for, as they wrote it. Applying it changes nothing."},
		func(ctx context.Context, in *struct {
			NameParam
			TenantParams
			ReadParams
		}) (*vcFileAnswer, error) {
			x, err := s.one(ctx, in.TenantParams, in.ReadParams)
			if err != nil {
				return nil, err
			}
			vc, err := x.vc(in.Name)
			if err != nil {
				return nil, err
			}
			out := &vcFileAnswer{ETag: x.version(vc.ID, vc.ModifyIndex)}
			out.Body.ETag = out.ETag
			spec, _ := x.v.Written(vc, "", state.Author{})
			out.Body.Spec, out.Body.Hidden = x.file(ctx, in.Name, spec)
			if versions := x.v.VersionsOf(vc.ID); len(versions) > 0 {
				newest := versions[len(versions)-1]
				out.Body.Version, out.Body.Base = newest.Number, newest.ID
			}
			return out, nil
		})
	get(api, route{"listVirtualClusterVersions", base + "/versions", tagVC, "List the versions of a virtual cluster",
		fmt.Sprintf("What its users asked for over time, oldest first: the last %d versions, and 1 MiB of them at most.", state.MaxVersions)},
		func(ctx context.Context, in *struct {
			NameParam
			TenantParams
			ReadParams
		}) (*answerOf[v1.List[v1.VCVersion]], error) {
			x, err := s.one(ctx, in.TenantParams, in.ReadParams)
			if err != nil {
				return nil, err
			}
			vc, err := x.vc(in.Name)
			if err != nil {
				return nil, err
			}
			out := &answerOf[v1.List[v1.VCVersion]]{}
			out.Body.Items = x.versions(ctx, in.Name, x.v.VersionsOf(vc.ID))
			return out, nil
		})
}

// versions of the virtual cluster that the request calls name.
func (x scopedView) versions(ctx context.Context, name string, versions []state.VCVersion) []v1.VCVersion {
	out := []v1.VCVersion{}
	for i, v := range versions {
		to := v1.VCVersion{Number: v.Number, At: v.At, Verb: v.Verb, By: v.By}
		if x.restricted && v.By != "" && v.ByTenant != x.tenant {
			to.By = "an operator"
		}
		to.Spec, to.Hidden = x.file(ctx, name, v.Spec)
		if i > 0 && versions[i-1].Number == v.Number-1 {
			to.Changes = x.fieldChanges(leader.Differences(versions[i-1].Spec, v.Spec))
		}
		out = append(out, to)
	}
	return out
}

// file is a spec as a VC file of the scope, and the fields that the caller may not read.
func (x scopedView) file(ctx context.Context, name string, spec state.VCSpec) (out v1.VirtualClusterSpec, hidden []string) {
	out = fileOf(name, spec)
	reads := x.readsSecrets(principalOf(ctx))
	for i := range out.Groups {
		g := &out.Groups[i]
		if g.CloudInit != nil && !reads {
			g.CloudInit = nil
			hidden = append(hidden, fmt.Sprintf("groups[%s].cloudInit", g.Name))
		}
		g.Labels = labelsOut(g.Labels)
		if g.Affinity == nil {
			continue
		}
		for _, list := range []*[]string{&g.Affinity.Require, &g.Affinity.Prefer, &g.Affinity.Avoid} {
			if x.restricted {
				*list = slices.DeleteFunc(slices.Clone(*list), func(t string) bool { return strings.HasPrefix(t, "host:") })
			}
			if *list != nil {
				*list = each(*list, termOut)
			}
		}
	}
	return out, hidden
}

// readsSecrets says whether a caller may read cloud-init data. A role of a tenant that may change virtual clusters reads the tenant's, and
// an operator that of the default tenant. An operator reads no secret of another tenant.
func (x scopedView) readsSecrets(p *principal) bool {
	return p != nil && (x.restricted || x.tenant == state.DefaultTenant) && may(p.Role, "PUT /v1/virtual-clusters/{name}")
}

// fileOf a spec: the inverse of specOf.
func fileOf(name string, spec state.VCSpec) v1.VirtualClusterSpec {
	out := v1.VirtualClusterSpec{Name: name, OnFull: string(spec.OnFull), OnHostLoss: spec.OnHostLoss, Needs: spec.Needs, Aggressiveness: spec.Aggressiveness, Priority: spec.Priority}
	if spec.MinYield >= 0 {
		out.MinYield = &spec.MinYield
	}
	if spec.Periodic.Name != "" {
		out.Periodic = &v1.PeriodicSpec{Name: spec.Periodic.Name, Deadline: durationText(spec.Periodic.Deadline)}
	}
	out.Duration = durationText(spec.Duration)
	for _, g := range spec.Groups {
		to := v1.GroupSpec{Name: g.Name, Count: g.Count, CPU: g.CPU, VCPUs: g.VCPUs, Memory: v1.Size(g.Memory), MemoryMin: v1.Size(g.MemoryMin),
			Role: g.Role, Image: imageOut(g.Image), Network: g.Network, Labels: g.Labels}
		if g.Boot != (state.Boot{}) {
			to.Boot = &v1.Boot{Kernel: imageOut(g.Boot.Kernel), Initrd: imageOut(g.Boot.Initrd), Cmdline: g.Boot.Cmdline}
		}
		if g.Disk != (state.Disk{}) {
			to.Disk = &v1.Disk{Size: v1.Size(g.Disk.Size), Pool: g.Disk.Pool, Ephemeral: g.Disk.Ephemeral}
		}
		if a := g.Affinity; !a.Empty() {
			to.Affinity = &v1.Affinity{Spread: a.Spread, Require: a.Require, Prefer: a.Prefer, Avoid: a.Avoid}
		}
		if c := g.CloudInit; c != (state.CloudInit{}) {
			to.CloudInit = &v1.CloudInit{UserData: c.UserData, MetaData: c.MetaData, NetworkConfig: c.NetworkConfig}
		}
		out.Groups = append(out.Groups, to)
	}
	return out
}

// fieldChanges as the scope shows them: a restricted one sees no rule that names a host, and no host that a VM is on.
func (x scopedView) fieldChanges(in []leader.FieldChange) []v1.FieldChange {
	var out []v1.FieldChange
	for _, f := range in {
		to := v1.FieldChange{Field: fieldOut(f.Field), From: x.termsText(f.Field, f.From), To: x.termsText(f.Field, f.To), Effect: f.Effect}
		for _, vm := range f.VMs {
			_, name := x.names(vm.VM)
			why := x.text(vm.Why)
			if x.restricted && strings.Contains(f.Field, "].") && (strings.Contains(f.Field, ".affinity.") || strings.HasSuffix(f.Field, ".labels")) {
				why = "may not be where it is"
			}
			to.VMs = append(to.VMs, v1.VMEffect{VM: name, Why: why})
		}
		if to.From == to.To && f.From != f.To { // an operator's rule
			continue
		}
		out = append(out, to)
	}
	return out
}

// conflicts are an error with its fields and their values as the tenant wrote them; another error stays as it is.
func (x scopedView) conflicts(err error) error {
	var in *leader.Conflicts
	if !errors.As(err, &in) {
		return err
	}
	out := &leader.Conflicts{Fields: slices.Clone(in.Fields)}
	for i := range out.Fields {
		f := &out.Fields[i]
		f.Was, f.Now, f.Mine = x.termsText(f.Field, f.Was), x.termsText(f.Field, f.Now), x.termsText(f.Field, f.Mine)
		f.Field = fieldOut(f.Field)
	}
	return out
}

// fieldOut is the name of a field as the tenant wrote it: a label as a field of its own has its tenant's mark in the cluster.
func fieldOut(field string) string {
	if before, rest, marked := strings.Cut(field, labelMark); marked {
		_, after, _ := strings.Cut(rest, "]")
		return before + "]" + after
	}
	return field
}

// termsText is the text of labels or terms of affinity as the tenant wrote them; that of another field as it is.
func (x scopedView) termsText(field, text string) string {
	if strings.HasSuffix(field, ".image") || strings.Contains(field, ".boot.") {
		return x.text(text)
	}
	if !strings.Contains(field, ".affinity.") && !strings.HasSuffix(field, ".labels") {
		return text
	}
	var out []string
	for _, t := range strings.Fields(text) {
		if !x.restricted || !strings.HasPrefix(t, "host:") {
			out = append(out, termOut(t))
		}
	}
	return strings.Join(out, " ")
}
