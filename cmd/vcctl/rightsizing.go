package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/urfave/cli/v2"

	"evenkeel/api/v1"
)

func (t *tool) rightsizingCommand() *cli.Command {
	return &cli.Command{
		Name: "rightsizing", Usage: "what is reclaimed of what virtual clusters declared and do not use",
		Description: "What VMs are given whose needs are estimated. It is switched by the cluster's settings: rightsizing.mode is off, shadow\n" +
			"(it is only shown what would be) or on.",
		Subcommands: []*cli.Command{{
			Name: "status", Usage: "what is reclaimed or would be, what went wrong or would have, and which VMs are excluded", ArgsUsage: " ", Flags: []cli.Flag{watchFlag}, Action: t.ask("getting what rightsizing does", rightsizingStatus),
			Description: "In the shadow all VMs that run are shown as if their needs were estimated. With -o wide hour by hour, and with every VM.\n\n" +
				"Example: vcctl rightsizing status -o wide",
		}},
	}
}

func rightsizingStatus(c *call) (any, view, error) {
	s, err := c.api.Rightsizing(c.ctx)
	return s, func(wide bool) string { return rightsizingText(s, wide) }, err
}

// maxRecommendationRows of VMs that nothing is wrong with are shown if -o wide is not asked for.
const maxRecommendationRows = 20

func rightsizingText(s v1.Rightsizing, wide bool) string {
	text := fields(rightsizingPairs(s)...)
	if wide && len(s.Stages) > 0 {
		text += "\n" + stagesTable.text(s.Stages, wide)
	}
	if wide && len(s.Hours) > 0 {
		text += "\n" + hoursTable.text(s.Hours, wide)
	}
	if wide && len(s.Admission.Hosts) > 0 {
		text += "\n" + headroomTable.text(s.Admission.Hosts, wide)
	}
	if len(s.VMs) > 0 {
		text += "\n" + recommendationsTable(s.VMs, wide)
	}
	return text
}

// rightsizingPairs say what is reclaimed, and what came of it.
func rightsizingPairs(s v1.Rightsizing) []string {
	reclaimed, short := "Reclaimed", "Short"
	if s.Mode == "shadow" {
		reclaimed, short = "Would be reclaimed", "Would have been short"
	}
	evaluated := stamp(s.EvaluatedAt)
	if s.EvaluatedAt.IsZero() {
		evaluated = "not yet, since this server began to lead"
	}
	var off []string
	for _, stage := range s.Stages {
		if !stage.On {
			off = append(off, stage.Stage)
		}
	}
	sum := sumOfHours(s.Hours, s.Mode)
	pairs := []string{"Mode", s.Mode, "Needs", s.Needs + ", " + s.Aggressiveness + " (of virtual clusters that say nothing)", "Looked", evaluated,
		reclaimed, fmt.Sprintf("%s cores and %s", cores(s.Reclaimed.CPU), s.Reclaimed.Memory.Short()),
		short + " of CPU", sum.share(sum.shortCPU), short + " of memory", sum.share(sum.shortMemory)}
	if worst := sum.worst; worst.WorstVM != "" {
		pairs = append(pairs, "At the worst", fmt.Sprintf("VM %s: %s cores and %s short, in the hour of %s", worst.WorstVM, cores(worst.WorstCPU), worst.WorstMemory.Short(), stamp(worst.From)))
	}
	pairs = append(pairs, admissionPairs(s.Admission, off)...)
	if sum.preempted > 0 {
		pairs = append(pairs, "Preempted", strconv.Itoa(sum.preempted)+" VMs")
	}
	if len(s.Waiting) > 0 {
		pairs = append(pairs, "Wait for room", strings.Join(s.Waiting, ", "))
	}
	if len(off) > 0 {
		pairs = append(pairs, "Switched off", strings.Join(off, ", ")+" (rightsizing.disabledStages)")
	}
	if s.Mode == "shadow" {
		pairs = append(pairs, "To put it in force", "vcctl cluster settings set rightsizing.mode=on")
	}
	return pairs
}

// hoursSum adds up the hours of one mode. Times are in VM-minutes.
type hoursSum struct {
	vms, shortCPU, shortMemory float64
	preempted                  int
	worst                      v1.RightsizingHour // by the memory that a VM was short of
}

func sumOfHours(hours []v1.RightsizingHour, mode string) (sum hoursSum) {
	for _, h := range hours {
		if h.Mode != mode {
			continue
		}
		sum.vms += h.VMMinutes
		sum.shortCPU += h.ShortCPU
		sum.shortMemory += h.ShortMemory
		sum.preempted += h.Preempted
		if h.WorstMemory > sum.worst.WorstMemory || sum.worst.WorstVM == "" {
			sum.worst = h
		}
	}
	return sum
}

func (s hoursSum) share(minutes float64) string {
	if s.vms == 0 {
		return "no VM was looked at"
	}
	return fmt.Sprintf("%.0f of %.0f VM-minutes (%.2f%%)", minutes, s.vms, 100*minutes/s.vms)
}

// effects are what the figures of a stage are.
var effects = map[string]string{
	"forecast":     "reclaimed of what was declared",
	"margin":       "kept from new VMs: estimated needs count more",
	"availability": "kept from new VMs: hosts report less to be available",
	"reserve":      "kept free: a quarter of what all VMs may take back, beyond what one may",
	"emergency":    "what guests under memory pressure have beyond their targets",
}

var stagesTable = tableOf("STAGE,STATE,CPU,MEMORY,WHAT THAT IS", "", func(s v1.RightsizingStage) []string {
	if !s.On {
		return []string{s.Stage, "off", "", "", ""}
	}
	return []string{s.Stage, "on", cores(s.Effect.CPU), s.Effect.Memory.Short(), effects[s.Stage]}
})

var hoursTable = tableOf("HOUR,MODE,MINUTES,CPU,MEMORY,SHORT OF CPU,SHORT OF MEMORY,WORST,PREEMPTED", "", func(h v1.RightsizingHour) []string {
	return []string{stamp(h.From), h.Mode, fmt.Sprintf("%.0f", h.Minutes), cores(h.Reclaimed.CPU), h.Reclaimed.Memory.Short(), fmt.Sprintf("%.0f min", h.ShortCPU),
		fmt.Sprintf("%.0f min", h.ShortMemory), h.WorstVM, strconv.Itoa(h.Preempted)}
})

// recommendationsTable lists VMs; unless wide, not all of those that nothing is wrong with.
func recommendationsTable(vms []v1.RightsizedVM, wide bool) string {
	tab := newTable("VM", "HOST", "CPU", "NEED", "MEMORY", "BALLOON", "REASON")
	left := 0
	for i, m := range vms {
		if !wide && i >= maxRecommendationRows && !m.Excluded && !m.UnderPressure && m.ShortCPU == 0 && m.ShortMemory == 0 {
			left++
			continue
		}
		why := m.Reason
		if m.ShortMemory > 0 {
			why = fmt.Sprintf("it uses %s more than it would have; ", m.ShortMemory.Short()) + why
		}
		tab.row(m.VM, m.Host, cores(m.CPU), cores(m.Need), m.Memory.Short(), m.Balloon.Short(), why)
	}
	text := tab.String()
	if left > 0 {
		text += fmt.Sprintf("and %d more; -o wide shows all\n", left)
	}
	return text
}

// admissionPairs say by what new VMs are placed, some stages of rightsizing being off.
func admissionPairs(a v1.Admission, off []string) []string {
	if len(a.Margins) == 0 {
		return nil
	}
	quality := "not known yet"
	if a.Quality != nil {
		had := "had"
		if !a.InForce {
			had = "would have had"
		}
		quality = fmt.Sprintf("in %.1f%% of the last looks at VMs they %s what they could use; aimed at: more than %.0f%%", 100**a.Quality, had, 100*a.Target)
	}
	var factors []string
	for _, p := range a.Margins {
		factors = append(factors, fmt.Sprintf("%.2f times (%s)", p.Factor, p.Aggressiveness))
	}
	label := "Needs count"
	if !a.InForce {
		label = "Needs would count"
	}
	pairs := []string{"Quality", quality, label, strings.Join(factors, ", ") + " where new VMs are placed"}
	ignored := 0
	for _, h := range a.Hosts {
		if h.Ignored != "" {
			ignored++
		}
	}
	if ignored > 0 && !slices.Contains(off, "availability") {
		pairs = append(pairs, "Hosts' own words", fmt.Sprintf("%d of %d are missing or too old, and count for nothing", ignored, len(a.Hosts)))
	}
	return pairs
}

// headroomTable is what hosts have for new VMs.
var headroomTable = tableOf("HOST,NEEDED,COUNTS AS,ROOM BY ESTIMATES,SAYS ITSELF,ROOM", "", func(h v1.HostHeadroom) []string {
	both := func(r v1.Resources) string { return cores(r.CPU) + ", " + r.Memory.Short() }
	says := h.Ignored
	if w := h.Available; says == "" && w != nil {
		says = cores(w.CPU) + ", " + w.Memory.Short()
	}
	return []string{h.Host, both(h.Needs), both(h.CountAs), both(h.Estimated), says, both(h.Headroom)}
})
