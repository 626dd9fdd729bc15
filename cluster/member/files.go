package member

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"evenkeel/cluster/pki"
	"evenkeel/internal/secretfile"
	"evenkeel/internal/statefile"
)

// Files of a member's directory.
const (
	caKeyFile      = "ca.key"       // servers only
	gossipKeyFile  = "gossip.key"   // 32 bytes, made with the cluster and never changed
	gossipKeysFile = "gossip.keys"  // that gossip is sealed with now; none: the one above
	serversFile    = "servers.json" // where the cluster was last found
	usedFile       = "raft.used"    // Raft has run here: a missing log is an error
	revokedFile    = "revoked.json" // certificates that count no more
)

// gossipKeyBytes of an encrypted gossip.
const gossipKeyBytes = 32

func pkiDir(dir string) string { return filepath.Join(dir, "pki") }

// HasIdentity says whether the directory is a member's of some cluster.
func HasIdentity(dir string) bool {
	_, err := os.Stat(pki.FilesIn(pkiDir(dir)).Cert)
	return err == nil
}

// foundingOf identifies the founding of the cluster by the gossip key made then, which all its members have; "" = there is
// none. It does not reveal the key.
func foundingOf(dir string) (string, error) {
	key, err := readSecret(dir, gossipKeyFile)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err == nil && len(key) != gossipKeyBytes {
		path := filepath.Join(dir, gossipKeyFile)
		err = &statefile.Damaged{Path: path, Err: fmt.Errorf("it has %d bytes, not %d", len(key), gossipKeyBytes),
			Way: "all members have the same one: copy it from another's data directory, and chmod 600 " + path}
	}
	if err != nil {
		return "", fmt.Errorf("key of the gossip: %w", err)
	}
	sum := sha256.Sum256(append([]byte("evenkeel founding\x00"), key...))
	return hex.EncodeToString(sum[:16]), nil
}

// Entered says whether the directory is a member's of some cluster: it has an identity, or, where the member has a certificate
// of the operator's own PKI (own), what it knows of the cluster.
func Entered(dir string, own bool) bool {
	if HasIdentity(dir) {
		return true
	}
	_, err := os.Stat(filepath.Join(dir, serversFile))
	return own && err == nil
}

// Orphan says whether the directory is that of a member whose certificate was of the operator's own PKI, and which the
// configuration no longer names.
func Orphan(dir string, own bool) bool {
	if own || HasIdentity(dir) {
		return false
	}
	_, err := os.Stat(filepath.Join(dir, usedFile))
	notes, _ := filepath.Glob(filepath.Join(dir, "agents", "*.json"))
	return err == nil || len(notes) > 0
}

// writeSecret writes a file of mode 0600, whole or not at all.
func writeSecret(path string, content []byte) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	return secretfile.Write(path, content, 0o600)
}

// maxSecret bounds the files of keys, bytes.
const maxSecret = 64 << 10

// readSecret reads a key in the directory of a member.
func readSecret(dir, name string) ([]byte, error) {
	return secretfile.Read(filepath.Join(dir, name), secretfile.Rule{MaxBytes: maxSecret})
}

func newGossipKey() []byte {
	key := make([]byte, gossipKeyBytes)
	_, _ = rand.Read(key) // crypto/rand never fails: it ends the program first
	return key
}

// readServers returns the servers of the cluster, as this member last received them. current is false if the list is a copy
// that may be older.
func readServers(dir string) (servers []string, current bool, err error) {
	path := filepath.Join(dir, serversFile)
	fallback, err := statefile.Read(path, func(b []byte) error {
		servers = nil
		return json.Unmarshal(b, &servers)
	})
	if errors.Is(err, fs.ErrNotExist) {
		return nil, true, nil
	}
	if damaged := new(statefile.Damaged); errors.As(err, &damaged) {
		damaged.Way = fmt.Sprintf("write where servers of the cluster are into it: echo '[\"ADDRESS:7480\"]' > %s", path)
	}
	if err != nil {
		return nil, false, fmt.Errorf("servers of the cluster: %w", err)
	}
	return servers, fallback == nil, nil
}

func writeServers(dir string, servers []string) error {
	b, err := json.Marshal(servers)
	if err != nil {
		return err
	}
	return statefile.WriteIn(filepath.Join(dir, serversFile), b)
}
