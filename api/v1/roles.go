package v1

import (
	"strings"
	"time"
)

// Subject is who has a role.
type Subject struct {
	Kind string `json:"kind" enum:"user,group,token" doc:"user: of the OpenID Connect issuer, by the claim sub. group: of the issuer, by its name. token: of the API, by its id."`
	Name string `json:"name" maxLength:"255" doc:"sub of the user, name of the group, or id of the token." example:"film-people"`
}

// RoleBindingRequest gives a subject a role.
type RoleBindingRequest struct {
	Subject Subject `json:"subject" doc:"Who gets the role."`
	Role    string  `json:"role" enum:"admin,operator,auditor,metrics,owner,editor,viewer" doc:"The role, instead of the one that the subject may have there. Of the cluster: admin, operator, auditor, metrics. Of a tenant: owner, editor, viewer."`
	Tenant  string  `json:"tenant,omitempty" maxLength:"63" doc:"Tenant that the role is in. Left out: the cluster, or the tenant of the caller."`
}

func (q *RoleBindingRequest) check(fault func(field, format string, args ...any)) {
	if strings.TrimSpace(q.Subject.Name) == "" {
		fault("subject.name", "is needed: sub of the user, name of the group, or id of the token")
	}
}

// RoleBinding is a role that a subject has.
type RoleBinding struct {
	ID      string    `json:"id" doc:"16 hex digits, which follow from subject and tenant."`
	Subject Subject   `json:"subject" doc:"Who has the role."`
	Issuer  string    `json:"issuer,omitempty" doc:"Issuer that the user or the group is of. Tokens of another one do not give this role."`
	Role    string    `json:"role" doc:"The role."`
	Tenant  string    `json:"tenant,omitempty" doc:"Tenant that the role is in; left out: the cluster."`
	MadeAt  time.Time `json:"madeAt,omitzero" doc:"When the role was set."`
	MadeBy  string    `json:"madeBy,omitempty" doc:"Who asked for it."`
}

// UserRevocationRequest refuses the tokens of a user of OpenID Connect.
type UserRevocationRequest struct {
	User string `json:"user" maxLength:"255" doc:"The claim sub of the user, as the audit log has it: oidc:SUB, or SUB." example:"7f3a"`
}

func (q *UserRevocationRequest) check(fault func(field, format string, args ...any)) {
	if strings.TrimSpace(q.User) == "" || strings.IndexFunc(q.User, func(r rune) bool { return r < ' ' || r > '~' }) >= 0 {
		fault("user", "must be 1 to 255 printable ASCII characters: the claim sub of the user")
	}
}

// UserRevocation says that the tokens which were issued to a user before a time are refused.
type UserRevocation struct {
	ID     string    `json:"id" doc:"Of the user, as GET /v1/auth/self has it."`
	User   string    `json:"user" doc:"The claim sub of the user."`
	Before time.Time `json:"before" doc:"Tokens that were issued earlier are refused. It is 30 s after the request, by which the issuer's clock may be ahead."`
	Until  time.Time `json:"until" doc:"When the revocation ends: no token from before is accepted then, because of its age."`
	MadeAt time.Time `json:"madeAt,omitzero" doc:"When it was asked for."`
	MadeBy string    `json:"madeBy,omitempty" doc:"Who asked for it."`
}

// AssignedRole is a role that the holder of a token has.
type AssignedRole struct {
	Role    string `json:"role" doc:"The role."`
	Tenant  string `json:"tenant,omitempty" doc:"Tenant that it is in; left out: the cluster."`
	Binding string `json:"binding,omitempty" doc:"Id of the role binding that gives it; left out: the token itself, or oidc.roles in vcd.yaml."`
}

// Permissions are what the holder of the token of the request may do.
type Permissions struct {
	Role   string       `json:"role" doc:"Role that the holder acts in."`
	Tenant string       `json:"tenant,omitempty" doc:"Tenant that the role is in; left out: the cluster."`
	Items  []Permission `json:"items" nullable:"false" doc:"What the role allows, by kind and verb."`
}

// Permission is one verb on one kind.
type Permission struct {
	Kind       string   `json:"kind" doc:"Kind of objects." example:"virtual-cluster"`
	Verb       string   `json:"verb" doc:"What is done to them." example:"create"`
	Roles      []string `json:"roles" nullable:"false" doc:"The roles that may."`
	Operations []string `json:"operations" nullable:"false" doc:"The operations of the API that it stands for." example:"[\"POST /v1/virtual-clusters\"]"`
}

// MayI says whether the holder of the token of the request may do something.
type MayI struct {
	Allowed bool   `json:"allowed" doc:"Whether the role allows it. Quotas, and what the cluster is doing, may still refuse it."`
	Role    string `json:"role" doc:"Role that the holder acts in."`
	Tenant  string `json:"tenant,omitempty" doc:"Tenant that the role is in; left out: the cluster."`
	Text    string `json:"text" doc:"The answer in words."`
	Permission
}
