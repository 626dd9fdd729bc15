package fence

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
)

// Proof is the proof that the power of a host is off.
type Proof struct {
	Level  int       // the level that proved it, from 1
	Agents []string  // the agents of that level's devices
	At     time.Time // when the last of the questions was put that all devices answered with off
	Output string    // what the agents printed then, without secrets
}

// Power is what a device reports of the host's power.
type Power string

// What a device may report.
const (
	PowerOn      Power = "on"
	PowerOff     Power = "off"
	PowerUnknown Power = "unknown" // no answer, or one that means neither; Err has more
)

// Status is one device's answer to the question for the host's power.
type Status struct {
	Level, Device int // from 1
	Agent         string
	Power         Power
	Took          time.Duration
	Output        string // without secrets
	Err           error
}

// Fence switches the host off, by the first level that can prove it. Without an
// error the power was off at Proof.At. With one nothing is proved, whatever
// happened to the host: it may be off, on, or on its way down.
func (r *Runner) Fence(ctx context.Context, host string, levels []Level) (Proof, error) {
	if err := Check(levels); err != nil {
		return Proof{}, fmt.Errorf("fence host %s: %w", host, err)
	}
	var errs []error
	for i, level := range levels {
		proof, err := r.fence(ctx, level)
		if err == nil {
			proof.Level = i + 1
			return proof, nil
		}
		errs = append(errs, fmt.Errorf("level %d: %w", i+1, err))
		if ctx.Err() != nil {
			break
		}
	}
	return Proof{}, fmt.Errorf("fence host %s: nothing is proved: %w", host, errors.Join(errs...))
}

func (r *Runner) fence(ctx context.Context, level Level) (Proof, error) {
	for _, d := range level {
		if err := r.command(ctx, d, "off"); err != nil {
			return Proof{}, err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, r.verify)
	defer cancel()
	var last error // from the last round that the time-out did not cut off
	for {
		proof, err := r.allOff(ctx, level)
		if err == nil {
			return proof, nil
		}
		if last == nil || ctx.Err() == nil {
			last = err
		}
		pause := time.NewTimer(r.poll)
		select {
		case <-ctx.Done():
			pause.Stop()
			return Proof{}, fmt.Errorf("switched off without complaint, and still not found off after %v: %w", r.verify, last)
		case <-pause.C:
		}
	}
}

// command has a device do something, and returns an error unless the device reports that it did.
func (r *Runner) command(ctx context.Context, d Device, action string) error {
	a, err := r.run(ctx, d, action)
	if err != nil {
		return fmt.Errorf("%s: %w", d.Agent, err)
	}
	if a.exit != 0 {
		return withOutput(fmt.Errorf("%s: %s failed with status %d", d.Agent, action, a.exit), a.output)
	}
	return nil
}

// allOff asks every device of the level, one round.
func (r *Runner) allOff(ctx context.Context, level Level) (Proof, error) {
	var proof Proof
	var output []string
	for _, d := range level {
		proof.At = time.Now()
		power, a, err := r.power(ctx, d)
		if err != nil {
			return Proof{}, err
		}
		if power != PowerOff {
			return Proof{}, withOutput(fmt.Errorf("%s says that the power is on", d.Agent), a.output)
		}
		proof.Agents = append(proof.Agents, d.Agent)
		output = append(output, a.output)
	}
	proof.Output = strings.TrimSpace(strings.Join(output, "\n"))
	return proof, nil
}

// power asks one device.
func (r *Runner) power(ctx context.Context, d Device) (Power, answer, error) {
	a, err := r.run(ctx, d, "status")
	if err != nil {
		return PowerUnknown, a, fmt.Errorf("%s: %w", d.Agent, err)
	}
	switch a.exit {
	case exitOn:
		return PowerOn, a, nil
	case exitOff:
		return PowerOff, a, nil
	}
	return PowerUnknown, a, withOutput(fmt.Errorf("%s: status failed with %d", d.Agent, a.exit), a.output)
}

// Test asks every device of every level for the host's power, and changes
// nothing. Agents ignore options that they do not know and say so in their
// output: read it.
func (r *Runner) Test(ctx context.Context, host string, levels []Level) ([]Status, error) {
	if err := Check(levels); err != nil {
		return nil, fmt.Errorf("test the fence devices of host %s: %w", host, err)
	}
	var all []Status
	var errs []error
	for i, level := range levels {
		for j, d := range level {
			start := time.Now()
			power, a, err := r.power(ctx, d)
			all = append(all, Status{Level: i + 1, Device: j + 1, Agent: d.Agent, Power: power, Took: time.Since(start), Output: a.output, Err: err})
			if err != nil {
				errs = append(errs, fmt.Errorf("level %d: %w", i+1, err))
			}
		}
	}
	if err := errors.Join(errs...); err != nil {
		return all, fmt.Errorf("test the fence devices of host %s: %w", host, err)
	}
	return all, nil
}

// PowerOn switches the host on again: every device of every level, the last
// level first, since any of them may have cut the power, and a machine's
// own controller (level 1) may itself hang on an outlet (a later level). A device that
// fails does not keep the others from being switched on.
func (r *Runner) PowerOn(ctx context.Context, host string, levels []Level) error {
	if err := Check(levels); err != nil {
		return fmt.Errorf("switch on host %s: %w", host, err)
	}
	var errs []error
	for i := len(levels) - 1; i >= 0; i-- {
		for _, d := range levels[i] {
			if err := r.command(ctx, d, "on"); err != nil {
				errs = append(errs, fmt.Errorf("level %d: %w", i+1, err))
			}
		}
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("switch on host %s: %w", host, err)
	}
	return nil
}
