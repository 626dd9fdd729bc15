package fence

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
)

// Hosts has the fence devices of a cluster's hosts, by the hosts' names. Several goroutines may use it.
type Hosts struct {
	runner *Runner
	levels map[string][]Level
}

// NewHosts takes checked levels. It keeps the map, which must not change any more.
func NewHosts(r *Runner, levels map[string][]Level) *Hosts { return &Hosts{r, levels} }

// errNone says that there is no device.
var errNone = errors.New("it has no fence device in this server's configuration")

// Has says whether there is a device for the host.
func (h *Hosts) Has(host string) bool { return len(h.levels[host]) > 0 }

// Off turns the host's power off and returns what proves that it is.
func (h *Hosts) Off(ctx context.Context, host string) (string, error) {
	if !h.Has(host) {
		return "", fmt.Errorf("fence host %s: %w", host, errNone)
	}
	proof, err := h.runner.Fence(ctx, host, h.levels[host])
	if err != nil {
		return "", err
	}
	text := fmt.Sprintf("%s: power off, at %s", strings.Join(proof.Agents, " and "), proof.At.UTC().Format(time.RFC3339))
	if proof.Output != "" {
		text += ": " + oneLine(proof.Output)
	}
	return text, nil
}

// On turns the host's power on again.
func (h *Hosts) On(ctx context.Context, host string) error {
	if !h.Has(host) {
		return fmt.Errorf("switch on host %s: %w", host, errNone)
	}
	return h.runner.PowerOn(ctx, host, h.levels[host])
}

// Test asks every device of the host for the power, and returns the answers, a line for each device.
func (h *Hosts) Test(ctx context.Context, host string) (string, error) {
	if !h.Has(host) {
		return "", fmt.Errorf("test the fence devices of host %s: %w", host, errNone)
	}
	all, err := h.runner.Test(ctx, host, h.levels[host])
	if err != nil {
		return "", err
	}
	lines := make([]string, len(all))
	for i, s := range all {
		lines[i] = fmt.Sprintf("level %d, %s: power %s, after %v", s.Level, s.Agent, s.Power, s.Took.Round(time.Millisecond))
		if s.Output != "" {
			lines[i] += ": " + oneLine(s.Output)
		}
	}
	return strings.Join(lines, "\n"), nil
}

// oneLine is an agent's output for a line of text.
func oneLine(s string) string {
	s = strings.Join(strings.Fields(s), " ")
	if len(s) > maxInText {
		s = strings.ToValidUTF8(s[:maxInText], "") + "..."
	}
	return s
}
