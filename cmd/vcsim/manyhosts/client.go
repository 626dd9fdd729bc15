package manyhosts

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"
	"time"
)

// Offer is a stream of requests. A process of its own sends them, so that the CPU that clients use is measured apart
// from what hosts use.
type Offer struct {
	Servers []string      `json:"servers"`
	Token   string        `json:"token"`
	CA      string        `json:"ca"` // file
	Clients int           `json:"clients"`
	Rate    float64       `json:"rate"` // virtual clusters a second
	During  time.Duration `json:"during"`
	Life    time.Duration `json:"life"` // of each
	Largest int           `json:"largest"`
	CPU     float64       `json:"cpu"`
	Seed    uint64        `json:"seed"`
	Prefix  string        `json:"prefix"`
}

// Ask is the process of the clients: it reads an Offer, carries it out and writes what became of it (Load).
func Ask(ctx context.Context, in io.Reader, out io.Writer) error {
	var o Offer
	if err := json.NewDecoder(in).Decode(&o); err != nil {
		return fmt.Errorf("read what is to be offered: %w", err)
	}
	all, err := clients(o.Clients, o.Servers, o.Token, o.CA)
	if err != nil {
		return err
	}
	return json.NewEncoder(out).Encode(offer(ctx, all, o))
}

// ask has a process of its own carry out an offer; used is the CPU that it took. begun is called once it runs.
func ask(ctx context.Context, o Offer, begun func() error) (l Load, used time.Duration, err error) {
	exe, err := os.Executable()
	if err != nil {
		return l, 0, err
	}
	in, err := json.Marshal(o)
	if err != nil {
		return l, 0, err
	}
	var out bytes.Buffer
	cmd := exec.CommandContext(ctx, exe, "cluster-clients")
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(in), &out, os.Stderr
	if err := cmd.Start(); err != nil {
		return l, 0, fmt.Errorf("clients: %w", err)
	}
	err = begun()
	if err != nil {
		_ = cmd.Cancel()
	}
	if err := errors.Join(err, cmd.Wait()); err != nil {
		return l, 0, fmt.Errorf("clients: %w", err)
	}
	used = cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	return l, used, json.Unmarshal(out.Bytes(), &l)
}
