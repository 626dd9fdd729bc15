// Package pki is the cluster's public key infrastructure: its CA, the
// certificates of members, the identities they carry, and the tokens by which
// new members join.
//
// A member is known by URIs in its certificate, one per role:
// evenkeel://CLUSTER/server/NAME and evenkeel://CLUSTER/agent/NAME. No address,
// DNS name or common name gives a right. Verify names the member that presented
// a chain, or says why it is refused, in a form fit for an audit event.
//
// Time, randomness and what is revoked come in with the call. Files are touched
// on behalf of a certificate store, which has the certificate of this member and gives it
// to TLS, and of a RevokedFile, which has the revoked certificates of which this member
// knows. The package opens no connection and decides nothing about membership:
// which tokens exist and which serials are revoked is the replicated state's.
package pki
