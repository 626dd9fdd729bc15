package state

import (
	"fmt"
	"math"
	"slices"
	"time"
)

// RightsizingHours is how many hours of rightsizing are kept: seven days of one mode.
const RightsizingHours = 7 * 24

// RightsizingHour is what rightsizing did in an hour, or in shadow mode would have done. VM-minutes count each VM for each
// minute.
type RightsizingHour struct {
	ID      string          `json:"id,omitempty"` // by From, then Mode; set when applied
	From    time.Time       `json:"from"`         // a whole hour
	Mode    RightsizingMode `json:"mode"`         // shadow or on
	Minutes float64         `json:"minutes"`      // that were looked at
	Average Resources       `json:"average"`      // reclaimed, of what was declared
	VMs     float64         `json:"vms"`          // VM-minutes
	// ShortCPU and ShortMemory are VM-minutes in which a VM was short. In shadow mode: it used more than it would have been given. With
	// rightsizing on: its cap limited it, or it was short of memory. The Worst fields have the worst case.
	ShortCPU    float64 `json:"shortCPU"`
	ShortMemory float64 `json:"shortMemory"`
	WorstCPU    float64 `json:"worstCPU"`    // cores
	WorstMemory int64   `json:"worstMemory"` // bytes
	WorstVM     string  `json:"worstVM,omitempty"`
	Preempted   int     `json:"preempted"`
}

// RightsizingReport has what rightsizing did, as the leader records it, so that the next leader goes on from there. It has the
// hours that are new, and those of which an earlier report had less.
type RightsizingReport struct {
	Hours []RightsizingHour `json:"hours"`
}

// RightsizingHours returns the recorded hours, oldest first.
func (s *Snapshot) RightsizingHours() []RightsizingHour {
	return all[RightsizingHour](s, tRightsizingHours, "id")
}

// rightsizingReport puts hours in the place of earlier reports of the same hours. It drops the oldest.
func (w *writer) rightsizingReport(b *RightsizingReport) error {
	for _, h := range b.Hours {
		h.From = h.From.UTC()
		h.ID = h.From.Format(time.RFC3339) + " " + string(h.Mode)
		w.put(tRightsizingHours, &h)
	}
	kept := w.read().RightsizingHours()
	for _, h := range kept[:max(0, len(kept)-RightsizingHours)] {
		w.drop(tRightsizingHours, &h)
	}
	return nil
}

func (b *RightsizingReport) valid() error {
	if len(b.Hours) > RightsizingHours {
		return fmt.Errorf("%d hours of rightsizing, more than %d: %w", len(b.Hours), RightsizingHours, ErrInvalid)
	}
	for _, h := range b.Hours {
		if err := h.valid(); err != nil {
			return fmt.Errorf("rightsizing in the hour of %v: %w", h.From, err)
		}
	}
	return nil
}

func (h RightsizingHour) valid() error {
	amounts := []float64{h.Minutes, h.Average.CPU, h.VMs, h.ShortCPU, h.ShortMemory, h.WorstCPU}
	switch year := h.From.UTC().Year(); {
	case year < 1970 || year > 9999: // beyond that times cannot be written
		return fmt.Errorf("year %d: %w", year, ErrInvalid)
	case !h.From.Equal(h.From.Truncate(time.Hour)):
		return fmt.Errorf("it is no whole hour: %w", ErrInvalid)
	case h.Mode != RightsizingShadow && h.Mode != RightsizingOn:
		return fmt.Errorf("mode %q: %w", h.Mode, ErrInvalid)
	case slices.ContainsFunc(amounts, func(x float64) bool { return !(x >= 0) || math.IsInf(x, 0) }):
		return fmt.Errorf("%v: %w", amounts, ErrInvalid)
	case !isMemory(h.Average.Memory) || !isMemory(h.WorstMemory) || h.Preempted < 0:
		return fmt.Errorf("%d and %d bytes, %d VMs: %w", h.Average.Memory, h.WorstMemory, h.Preempted, ErrInvalid)
	}
	return nil
}
