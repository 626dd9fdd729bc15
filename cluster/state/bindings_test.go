package state_test

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"evenkeel/cluster/state"
)

const issuerURL = "https://id.example.org"

// binding of a role to a subject, in the tenant or, with "", in the cluster.
func binding(kind state.SubjectKind, name string, role state.Role, tenant string) state.RoleBinding {
	b := state.RoleBinding{Subject: state.Subject{Kind: kind, Name: name}, Role: role, Tenant: tenant, MadeBy: "ann (token:1)"}
	if kind != state.SubjectToken {
		b.Subject.Issuer = issuerURL
	}
	b.ID = state.BindingID(b.Subject, tenant)
	return b
}

// revocation of the tokens of a user that were issued before a time.
func revocation(user string, before time.Time) state.Revocation {
	return state.Revocation{ID: "oidc:" + user, Subject: user, Before: before, MadeBy: "ann (token:1)"}
}

// withBindings adds every kind of command about bindings, with every field. The tenant film is there.
func withBindings(t *testing.T, k *cluster) {
	t.Helper()
	user, group := binding(state.SubjectUser, "7f3a", state.RoleOperator, ""), binding(state.SubjectGroup, "film-people", state.RoleEditor, "film")
	k.must(t, state.KindRolePut, user)
	k.must(t, state.KindRolePut, group)
	k.must(t, state.KindRolePut, binding(state.SubjectToken, token("deploy", "").ID, state.RoleViewer, "film"))
	if err := k.apply(t, state.KindRolePut, binding(state.SubjectToken, token("leaked", "").ID, state.RoleViewer, "film")); !errors.Is(err, state.ErrNotFound) {
		t.Fatalf("a role for a token that is not there: %v", err)
	}
	k.must(t, state.KindRoleDrop, state.RoleDrop{ID: user.ID, By: "ann"})
	k.must(t, state.KindSubjectRevoke, revocation("7f3a", start))
}

func TestRoleBindings(t *testing.T) {
	with := func(b state.RoleBinding, change func(*state.RoleBinding)) state.RoleBinding {
		change(&b)
		return b
	}
	good := binding(state.SubjectGroup, "Kamera & Schnitt", state.RoleEditor, "film")
	for _, c := range []struct {
		what string
		row  state.RoleBinding
		err  error
		text string // of the error
	}{
		{"a group in a tenant", good, nil, ""},
		{"a user in the cluster", binding(state.SubjectUser, "7f3a", state.RoleAuditor, ""), nil, ""},
		{"a group beyond ASCII", binding(state.SubjectGroup, "Fakultät", state.RoleViewer, "film"), nil, ""},
		{"a token in a tenant", binding(state.SubjectToken, token("deploy", "").ID, state.RoleViewer, "film"), nil, ""},
		{"a token that is not there", binding(state.SubjectToken, token("gone", "").ID, state.RoleViewer, "film"), state.ErrNotFound, "token"},
		{"a tenant that is not there", binding(state.SubjectUser, "7f3a", state.RoleViewer, "law"), state.ErrNotFound, "tenant law"},
		{"a tenant that is suspended", binding(state.SubjectUser, "7f3a", state.RoleViewer, "closed"), state.ErrSuspended, "suspended"},
		{"a role of the cluster in a tenant", binding(state.SubjectUser, "7f3a", state.RoleAdmin, "film"), state.ErrInvalid, "not known to tenants"},
		{"a role of a tenant in the cluster", binding(state.SubjectUser, "7f3a", state.RoleOwner, ""), state.ErrInvalid, "not known to the cluster"},
		{"another kind", binding("host", "h1", state.RoleViewer, "film"), state.ErrInvalid, "not known"},
		{"no name", binding(state.SubjectUser, "", state.RoleViewer, "film"), state.ErrInvalid, "1 to 255"},
		{"a line in the name", binding(state.SubjectUser, "a\nb", state.RoleViewer, "film"), state.ErrInvalid, "1 to 255"},
		{"a long name", binding(state.SubjectGroup, strings.Repeat("g", 256), state.RoleViewer, "film"), state.ErrInvalid, "1 to 255"},
		{"a user without an issuer", with(good, func(b *state.RoleBinding) {
			b.Subject.Issuer = ""
			b.ID = state.BindingID(b.Subject, b.Tenant)
		}), state.ErrInvalid, "issuer"},
		{"another id", with(good, func(b *state.RoleBinding) { b.ID = strings.Repeat("0", 16) }), state.ErrInvalid, "id"},
		{"a long maker", with(good, func(b *state.RoleBinding) { b.MadeBy = strings.Repeat("n", 201) }), state.ErrInvalid, "madeBy"},
	} {
		t.Run(c.what, func(t *testing.T) {
			k := bound(t)
			before := rows(t, k.Snapshot())
			err := k.apply(t, state.KindRolePut, c.row)
			if !errors.Is(err, c.err) || err != nil && !strings.Contains(err.Error(), c.text) {
				t.Fatalf("%v, want %v with %q", err, c.err, c.text)
			}
			if err != nil {
				if rows(t, k.Snapshot()) != before {
					t.Error("refused, and the state changed")
				}
				return
			}
			if got := k.Snapshot().BindingsOf(c.row.Subject); len(got) != 1 || got[0].ID != c.row.ID || got[0].Role != c.row.Role || got[0].MadeAt.IsZero() {
				t.Errorf("rows %+v", got)
			}
			last := k.Snapshot().EventsAfter(0, 0)
			if e := last[len(last)-1]; e.Kind != "role-granted" || e.OwnerOf() != "" || !strings.Contains(e.Text, string(c.row.Role)) || !strings.Contains(e.Text, c.row.MadeBy) {
				t.Errorf("event %+v", e)
			}
			restored := state.New()
			if err := restored.Restore(strings.NewReader(save(t, k.Snapshot()))); err != nil || save(t, restored.Snapshot()) != save(t, k.Snapshot()) {
				t.Errorf("restored: %v", err)
			}
		})
	}
}

// bound is a cluster with the tenants film and closed, which is suspended, and the token deploy.
func bound(t *testing.T) *cluster {
	t.Helper()
	k := small(t, 1)
	for _, name := range []string{"film", "closed"} {
		k.must(t, state.KindTenantPut, state.TenantPut{Tenant: state.Tenant{Name: name, Salt: name}})
	}
	closed, _ := k.Snapshot().Tenant("closed")
	version := closed.ModifyIndex
	closed.Suspended = true
	k.must(t, state.KindTenantPut, state.TenantPut{Tenant: closed, Version: version})
	k.must(t, state.KindAdminToken, token("deploy", state.RoleOperator))
	return k
}

// A subject has one role in each place: granting another one replaces it. Bindings go with their token and their tenant, and a
// tenant that is made again under the name has none.
func TestRoleBindingsComeAndGo(t *testing.T) {
	k := bound(t)
	deploy := token("deploy", "").ID
	viewer, editor := binding(state.SubjectUser, "7f3a", state.RoleViewer, "film"), binding(state.SubjectUser, "7f3a", state.RoleEditor, "film")
	ofToken, elsewhere := binding(state.SubjectToken, deploy, state.RoleViewer, "film"), binding(state.SubjectUser, "7f3a", state.RoleAuditor, "")
	for _, b := range []state.RoleBinding{viewer, editor, ofToken, elsewhere} {
		k.must(t, state.KindRolePut, b)
	}
	if got := k.Snapshot().BindingsOf(viewer.Subject); len(got) != 2 || len(k.Snapshot().RoleBindings()) != 3 {
		t.Fatalf("bindings %+v", got)
	}
	if b, _ := k.Snapshot().RoleBinding(viewer.ID); b.Role != state.RoleEditor {
		t.Errorf("granted twice: %+v", b)
	}
	k.must(t, state.KindTokenDrop, state.TokenDrop{ID: deploy})
	if _, there := k.Snapshot().RoleBinding(ofToken.ID); there {
		t.Error("the binding of a token that was revoked")
	}
	k.must(t, state.KindTenantDrop, state.TenantDrop{Name: "film"})
	k.must(t, state.KindTenantPut, state.TenantPut{Tenant: state.Tenant{Name: "film", Salt: "another"}})
	if got := k.Snapshot().RoleBindings(); len(got) != 1 || got[0].ID != elsewhere.ID {
		t.Errorf("after the tenant: %+v", got)
	}
	k.must(t, state.KindRoleDrop, state.RoleDrop{ID: elsewhere.ID, By: "ann"})
	if err := k.apply(t, state.KindRoleDrop, state.RoleDrop{ID: elsewhere.ID}); !errors.Is(err, state.ErrNotFound) {
		t.Errorf("revoked twice: %v", err)
	}
}

// The numbers are bounded, for the cluster and for each tenant apart. What is there can still be changed.
func TestBoundOfRoleBindings(t *testing.T) {
	for tenant, limit := range map[string]int{"": state.MaxRoleBindings, "film": 100} {
		k := bound(t)
		role, another := state.RoleAuditor, state.RoleMetrics
		if tenant != "" {
			role, another = state.RoleViewer, state.RoleEditor
		}
		for i := range limit {
			k.must(t, state.KindRolePut, binding(state.SubjectUser, fmt.Sprint(i), role, tenant))
		}
		if err := k.apply(t, state.KindRolePut, binding(state.SubjectUser, "more", role, tenant)); !errors.Is(err, state.ErrConflict) {
			t.Errorf("%q: one more than %d: %v", tenant, limit, err)
		}
		k.must(t, state.KindRolePut, binding(state.SubjectUser, "0", another, tenant))
		if tenant != "" {
			k.must(t, state.KindRolePut, binding(state.SubjectUser, "more", state.RoleAuditor, ""))
		}
	}
}

// A revocation holds as long as a token from before it could be accepted, and is never taken back by an earlier one.
func TestRevocations(t *testing.T) {
	k := bound(t)
	k.must(t, state.KindSubjectRevoke, revocation("7f3a", start.Add(time.Hour)))
	k.must(t, state.KindSubjectRevoke, revocation("7f3a", start))
	if r, there := k.Snapshot().Revocation("oidc:7f3a"); !there || !r.Before.Equal(start.Add(time.Hour)) || r.MadeAt.IsZero() {
		t.Errorf("%+v", r)
	}
	for _, bad := range []state.Revocation{{Subject: "x", Before: start}, {ID: "x", Before: start}, {ID: "x", Subject: strings.Repeat("s", 256)}, {ID: "x", Subject: "a\nb"}} {
		if err := k.apply(t, state.KindSubjectRevoke, bad); !errors.Is(err, state.ErrInvalid) {
			t.Errorf("%+v: %v", bad, err)
		}
	}
	ages := func(d time.Duration) int {
		later, err := state.Encode(state.KindAudit, start.Add(d), state.Audit{Kind: "x", Object: "x", Name: "x"})
		if err != nil {
			t.Fatal(err)
		}
		s := state.New()
		if err := s.Restore(bytes.NewReader([]byte(save(t, k.Snapshot())))); err != nil {
			t.Fatal(err)
		}
		for at := s.Snapshot().Index() + 1; at <= 512; at++ { // old rows are looked for every 256 entries
			if err := s.Apply(at, later); err != nil {
				t.Fatal(err)
			}
		}
		return len(s.Snapshot().Revocations())
	}
	if before, after := ages(time.Hour+state.MaxTokenLife), ages(3*time.Hour+state.MaxTokenLife+24*time.Hour); before != 1 || after != 0 {
		t.Errorf("%d revocations while tokens from before may be accepted, %d afterwards", before, after)
	}
}

// A restore brings back no role that was taken away since, and no token that was revoked. Another cluster that takes the state over
// keeps its own roles in the cluster beside the saved ones.
func TestRestoreOfRoleBindings(t *testing.T) {
	k := bound(t)
	old, kept := binding(state.SubjectUser, "old", state.RoleAdmin, ""), binding(state.SubjectUser, "kept", state.RoleAdmin, "")
	k.must(t, state.KindRolePut, old)
	saved := save(t, k.Snapshot())
	k.must(t, state.KindRoleDrop, state.RoleDrop{ID: old.ID})
	k.must(t, state.KindRolePut, kept)
	k.must(t, state.KindSubjectRevoke, revocation("7f3a", start))
	restored := func(now *state.Snapshot) *state.Snapshot {
		t.Helper()
		var out bytes.Buffer
		if err := state.PrepareRestore(strings.NewReader(saved), &out, "restore", start.Add(time.Hour), now); err != nil {
			t.Fatal(err)
		}
		s := state.New()
		if err := s.Restore(&out); err != nil {
			t.Fatal(err)
		}
		return s.Snapshot()
	}
	s := restored(k.Snapshot())
	if _, there := s.RoleBinding(old.ID); there {
		t.Error("a role that was taken away is back")
	}
	if _, there := s.RoleBinding(kept.ID); !there || len(s.Revocations()) != 1 {
		t.Error("what was made since is gone")
	}
	another := newCluster()
	another.must(t, state.KindInit, state.Init{ID: "cluster-2"})
	another.must(t, state.KindTenantPut, state.TenantPut{Tenant: state.Tenant{Name: "film", Salt: "another"}})
	another.must(t, state.KindRolePut, kept)
	ofFilm := binding(state.SubjectUser, "kept", state.RoleOwner, "film")
	another.must(t, state.KindRolePut, ofFilm)
	s = restored(another.Snapshot())
	for b, want := range map[state.RoleBinding]bool{old: true, kept: true, ofFilm: false} {
		if _, there := s.RoleBinding(b.ID); there != want {
			t.Errorf("with another cluster: %+v is there: %v", b, there)
		}
	}
}

// A server that does not know bindings and revocations does not come in beside one.
func TestServerWithoutRoleBindings(t *testing.T) {
	for _, c := range []struct {
		kind state.Kind
		body any
	}{{state.KindRolePut, binding(state.SubjectUser, "7f3a", state.RoleAuditor, "")}, {state.KindSubjectRevoke, revocation("7f3a", start)}} {
		k := small(t, 1)
		old := state.Member{Name: "old", Server: true, Address: "10.0.0.9:7480", Format: 1}
		k.must(t, state.KindMemberPut, old)
		if _, err := k.Snapshot().Encode(c.kind, start, c.body); !errors.Is(err, state.ErrTooNew) {
			t.Errorf("%s beside an older server: %v", c.kind, err)
		}
		k.must(t, state.KindMemberDrop, state.MemberDrop{Name: "old"})
		k.must(t, c.kind, c.body)
		if err := k.apply(t, state.KindMemberPut, old); !errors.Is(err, state.ErrConflict) {
			t.Errorf("an older server beside %s: %v", c.kind, err)
		}
	}
}
