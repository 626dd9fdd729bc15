package batch

import (
	"errors"
	"fmt"
	"math"
)

// Job is a parallel job.
type Job struct {
	Submit float64 // seconds
	Run    float64 // seconds that it takes if every task gets all it needs
	Tasks  int
	CPU    float64 // need of one task, as a part of a node, in (0, 1]
	Memory float64 // of one task, as a part of a node, in (0, 1]
}

// Cluster is equal nodes.
type Cluster struct {
	Nodes   int
	Memory  float64 // of a node, bytes: what pauses and moves cost is counted in it
	Penalty float64 // seconds without progress after a pause or a move
}

// slack is what sums of parts of a node may differ from a whole by rounding.
const slack = 1e-9

// Threshold is the run time below which stretches do not grow: see Stretch.
const Threshold = 10

// Stretch of a job is how long it was in the cluster over how long it takes alone, bounded as in the paper: run times
// count as at least Threshold seconds, and no stretch is below 1.
func Stretch(flow, run float64) float64 { return max(1, flow/max(Threshold, run)) }

// validate reports the first thing wrong.
func validate(c Cluster, jobs []Job) error {
	finite := func(v float64) bool { return v >= 0 && v <= math.MaxFloat64 }
	if c.Nodes < 1 || c.Nodes > 1<<20 || !finite(c.Memory) || !finite(c.Penalty) {
		return fmt.Errorf("a cluster of %d nodes with %g bytes and a penalty of %g s cannot be", c.Nodes, c.Memory, c.Penalty)
	}
	if len(jobs) == 0 {
		return errors.New("no jobs")
	}
	for i, j := range jobs {
		part := func(v float64) bool { return v > 0 && v <= 1 }
		if !finite(j.Submit) || !finite(j.Run) || j.Run == 0 || !part(j.CPU) || !part(j.Memory) {
			return fmt.Errorf("job %d: submitted at %g s, %g s long, with %g of a node's CPU and %g of its memory, cannot be", i, j.Submit, j.Run, j.CPU, j.Memory)
		}
		if i > 0 && j.Submit < jobs[i-1].Submit {
			return fmt.Errorf("job %d is submitted before job %d", i, i-1)
		}
		if limit := int(1/j.Memory+slack) * c.Nodes; j.Tasks < 1 || j.Tasks > limit {
			return fmt.Errorf("job %d: of %d tasks %d have room on %d nodes", i, j.Tasks, limit, c.Nodes)
		}
		if whole := j.wholeNodes(); whole > c.Nodes {
			return fmt.Errorf("job %d: wants %d nodes of %d", i, whole, c.Nodes)
		}
	}
	return nil
}

// perNode is how many tasks have room on a node at full speed.
func (j *Job) perNode() int {
	return max(1, min(int(1/j.CPU+slack), int(1/j.Memory+slack)))
}

// wholeNodes is how many nodes the job takes if it shares none.
func (j *Job) wholeNodes() int { return (j.Tasks + j.perNode() - 1) / j.perNode() }

// Outcome of one job.
type Outcome struct {
	Begin   float64 // when it was first placed
	End     float64
	Stretch float64
	Pauses  int
	Moves   int // times that one task or more changed nodes
}

// Result of a replay.
type Result struct {
	Jobs       []Outcome
	MaxStretch float64
	AvgStretch float64

	Makespan      float64 // seconds from the first submission to the last end
	PausedBytes   float64 // written for pauses and read for resumptions
	MovedBytes    float64 // of tasks that went to other nodes
	Pauses, Moves int     // of jobs

	// Idle is the CPU that was free although a job wanted it, over the CPU of all work: what the jobs in the cluster
	// need, though no more than the nodes have, less what became progress, integrated over time.
	Idle float64

	// MeanYield and MinYield are over all seconds of jobs that were placed; a penalty counts as 0 in the mean and not in the least.
	MeanYield, MinYield float64

	Decisions int // times the policy was asked
	Live      int // most jobs in the cluster at once
}

// BytesPerSecond that pauses and moves wrote and read over the makespan.
func (r *Result) BytesPerSecond() float64 { return (r.PausedBytes + r.MovedBytes) / r.Makespan }
