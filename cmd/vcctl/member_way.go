package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"evenkeel/api/v1"
	"evenkeel/internal/secretfile"
)

// maxToken of a file, bytes.
const maxToken = 4096

// way says how much of what vcctl needs for the cluster is kept on this host.
type way int

const (
	wayNone  way = iota // nothing: there is no place to keep it
	wayThere            // an earlier configuration, which stays as it was
	wayOpen             // addresses and CA certificate, but no token
	wayWhole            // all it needs
)

// keepWay writes the configuration of vcctl for the cluster that this host has joined, unless there is one already. tokenFile
// has the token to keep; "" = there is none.
func keepWay(config string, addresses []string, ca, tokenFile string) (way, error) {
	if config == "" || ca == "" {
		return wayNone, nil
	}
	if _, err := os.Stat(config); err == nil {
		return wayThere, nil
	} else if !errors.Is(err, fs.ErrNotExist) {
		return wayNone, err
	}
	dir := filepath.Dir(config)
	urls := make([]string, len(addresses))
	for i, a := range addresses {
		urls[i] = "https://" + a
	}
	text := "address: " + strings.Join(urls, ",") + "\ncacert: ca.pem\n"
	kept := wayOpen
	if tokenFile != "" {
		token, err := secretfile.Read(tokenFile, secretfile.Rule{MaxBytes: maxToken})
		if err != nil {
			return wayNone, err
		}
		if err := keepFile(filepath.Join(dir, "token"), strings.TrimSpace(string(token))+"\n"); err != nil {
			return wayNone, err
		}
		text, kept = text+"tokenFile: token\n", wayWhole
	}
	if err := keepFile(filepath.Join(dir, "ca.pem"), ca); err != nil {
		return wayNone, err
	}
	return kept, keepFile(config, text) // last: it names the other files
}

// joinedText says what a host is now, and what vcctl on it lacks.
func joinedText(a v1.SetupAnswer, kept way) string {
	text := fmt.Sprintf("This host is a member of cluster %s: %s, at %s.\n", a.Cluster, a.Roles, a.Address)
	switch kept {
	case wayOpen:
		text += "vcctl on this host knows the cluster, and has no token yet: log in with `vcctl login`, or keep one that `vcctl token create` made elsewhere:\n" +
			"vcctl config set-context default --token-file FILE\n"
	case wayNone:
		text += "vcctl on this host has no access yet: copy ~/.config/evenkeel (config.yaml, ca.pem and a token) from a host where it has.\n"
	}
	return text + missingText(a.Host)
}

// missingText says what a host lacks, and the command that mends it; "" if it lacks nothing.
func missingText(host []v1.HostFinding) string {
	if len(host) == 0 {
		return ""
	}
	var text strings.Builder
	text.WriteString("This host lacks (`vcd check` says it again):\n")
	for _, f := range host {
		fmt.Fprintf(&text, "%-8s %-12s %s\n", f.Level, f.Check, f.Text)
		if f.Mend != "" {
			fmt.Fprintf(&text, "%-8s %-12s -> %s\n", "", "", f.Mend)
		}
	}
	return text.String()
}
