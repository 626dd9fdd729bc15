package oidc

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/go-jose/go-jose/v4"
)

// Of a key set, the keys that can sign tokens are taken, and no others.
func TestKeys(t *testing.T) {
	large, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	small, err := rsa.GenerateKey(rand.Reader, 1024)
	if err != nil {
		t.Fatal(err)
	}
	p256, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	p384, err := ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	edwards, _, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	set, err := json.Marshal(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{
		{KeyID: "rsa", Key: &large.PublicKey}, {KeyID: "rsa-sig", Key: &large.PublicKey, Use: "sig", Algorithm: "RS256"},
		{KeyID: "ec", Key: &p256.PublicKey}, {KeyID: "ed", Key: edwards},
		{KeyID: "private", Key: large}, {KeyID: "encryption", Key: &large.PublicKey, Use: "enc"}, {KeyID: "other-alg", Key: &large.PublicKey, Algorithm: "PS256"},
		{KeyID: "small", Key: &small.PublicKey}, {KeyID: "other-curve", Key: &p384.PublicKey}, {KeyID: "symmetric", Key: []byte("secret")},
		{KeyID: strings.Repeat("x", maxKeyID+1), Key: &large.PublicKey},
	}})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ algorithms, want []string }{
		{algorithms, []string{"", "ec", "ed", "rsa", "rsa-sig"}},
		{[]string{"ES256"}, []string{"", "ec"}},
		{[]string{"EdDSA", "RS256"}, []string{"", "ed", "rsa", "rsa-sig"}},
	} {
		keys, err := parseKeys(set, c.algorithms)
		if got := slices.Sorted(maps.Keys(keys)); err != nil || !slices.Equal(got, c.want) || len(keys[""]) != len(c.want)-1 {
			t.Errorf("%v: %q, %v", c.algorithms, got, err)
		}
	}
	many := `{"keys":[` + strings.Repeat(`{},`, maxKeys) + `{}]}`
	if _, err := parseKeys([]byte(many), algorithms); err == nil || !strings.Contains(err.Error(), "65 keys") {
		t.Errorf("%v", err)
	}
}

// No key set brings parseKeys down.
func FuzzKeys(f *testing.F) {
	f.Add([]byte(`{"keys":[{"kty":"RSA","n":"AQAB","e":"AQAB"},{"kty":"EC","crv":"P-256","x":"AA","y":"AA"},{"kty":"OKP","crv":"Ed25519","x":"AA"}]}`))
	f.Add([]byte(`{"keys":[null]}`))
	f.Fuzz(func(t *testing.T, doc []byte) {
		keys, err := parseKeys(doc, algorithms)
		if (err == nil) == (len(keys) == 0) {
			t.Errorf("%v, %v", keys, err)
		}
	})
}
