package oidc

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/go-jose/go-jose/v4"
)

// Bounds of the issuer's keys.
const (
	maxKeys    = 64
	minRSABits = 2048
	maxKeyID   = 512 // bytes
)

// keySet has the keys of an issuer that sign tokens, by their ids. The id "" has all keys.
type keySet map[string][]jose.JSONWebKey

// parseKeys of a JSON Web Key Set (RFC 7517, section 5). Keys that cannot sign by any of the algorithms are left out: a symmetric
// key, a private one, one for encryption, one that is too small.
func parseKeys(doc []byte, algorithms []string) (keySet, error) {
	var set struct {
		Keys []json.RawMessage `json:"keys"`
	}
	if err := json.Unmarshal(doc, &set); err != nil {
		return nil, fmt.Errorf("the keys cannot be read: %w", err)
	}
	if len(set.Keys) > maxKeys {
		return nil, fmt.Errorf("there are %d keys, more than %d", len(set.Keys), maxKeys)
	}
	out := keySet{}
	for _, raw := range set.Keys {
		var k jose.JSONWebKey
		if k.UnmarshalJSON(raw) != nil || !usable(k, algorithms) {
			continue // of a kind that is not used here
		}
		out[""] = append(out[""], k)
		if k.KeyID != "" {
			out[k.KeyID] = append(out[k.KeyID], k)
		}
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("none of %d keys can sign a token by %v", len(set.Keys), algorithms)
	}
	return out, nil
}

func usable(k jose.JSONWebKey, algorithms []string) bool {
	if !k.Valid() || k.Use != "" && k.Use != "sig" || len(k.KeyID) > maxKeyID {
		return false
	}
	for _, a := range algorithms {
		if signs(k, a) {
			return true
		}
	}
	return false
}

// signs says whether a key signs by an algorithm. The kind of the key decides, so that no token chooses how a key is used.
func signs(k jose.JSONWebKey, algorithm string) bool {
	if k.Algorithm != "" && k.Algorithm != algorithm {
		return false
	}
	switch key := k.Key.(type) {
	case *rsa.PublicKey:
		return algorithm == "RS256" && key.N.BitLen() >= minRSABits
	case *ecdsa.PublicKey:
		return algorithm == "ES256" && key.Curve == elliptic.P256()
	case ed25519.PublicKey:
		return algorithm == "EdDSA"
	}
	return false
}

var (
	errUnknownKey = errors.New("it was signed with a key that the issuer does not list")
	errSignature  = errors.New("its signature is not the issuer's")
)

// verify the signature of a token, and return its payload. errUnknownKey: no key of that id and algorithm is there.
func (s keySet) verify(jws *jose.JSONWebSignature) ([]byte, error) {
	header := jws.Signatures[0].Protected
	err := errUnknownKey
	for _, k := range s[header.KeyID] {
		if !signs(k, header.Algorithm) {
			continue
		}
		if payload, wrong := jws.Verify(k); wrong == nil {
			return payload, nil
		}
		err = errSignature
	}
	return nil, err
}
