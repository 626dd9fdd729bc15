package v1

import (
	"bufio"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
)

// InspectSnapshot reads a saved state of a cluster, checks that it is whole and unchanged, and says
// what is in it. It understands the frame of the file, not the rows: a server that
// restores it looks at those.
func InspectSnapshot(r io.Reader) (Snapshot, error) {
	in := bufio.NewReaderSize(r, 64<<10)
	first, err := in.ReadBytes('\n')
	if err != nil {
		return Snapshot{}, fmt.Errorf("it is no snapshot: %w", err)
	}
	var h struct {
		Format string `json:"format"`
		Snapshot
		Software string `json:"software"`
		SHA256   string `json:"sha256"`
	}
	if err := json.Unmarshal(first, &h); err != nil || h.Format != "evenkeel-snapshot" {
		return Snapshot{}, errors.New("it is no snapshot of Evenkeel")
	}
	// The seal of the first line is over the line without it.
	plain := strings.Replace(strings.TrimSuffix(string(first), "\n"), h.SHA256, "", 1)
	if got := sha256.Sum256([]byte(plain)); hex.EncodeToString(got[:]) != h.SHA256 {
		return Snapshot{}, errors.New("its first line was changed since it was saved")
	}
	s := h.Snapshot
	s.Version = h.Software
	err = countRows(in, &s)
	return s, err
}

// countRows of the state, up to its seal.
func countRows(in *bufio.Reader, s *Snapshot) error {
	sum := sha256.New()
	for n := 1; ; n++ {
		b, err := in.ReadBytes('\n')
		if err != nil {
			return fmt.Errorf("it ends in the middle, at line %d", n+1)
		}
		var row struct {
			Table string `json:"t"`
			Row   struct {
				SHA256 string `json:"sha256"`
			} `json:"r"`
		}
		if err := json.Unmarshal(b, &row); err != nil {
			return fmt.Errorf("line %d: %w", n+1, err)
		}
		if row.Table == "end" {
			if hex.EncodeToString(sum.Sum(nil)) != row.Row.SHA256 {
				return errors.New("it was changed since it was saved")
			}
			if _, err := in.ReadByte(); err != io.EOF {
				return errors.New("there is more after its end")
			}
			return nil
		}
		sum.Write(b)
		switch row.Table {
		case "hosts":
			s.Hosts++
		case "members":
			s.Members++
		case "vcs":
			s.VirtualClusters++
		case "vms":
			s.VMs++
		case "images":
			s.Images++
		}
	}
}
