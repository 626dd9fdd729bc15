package solvefile

import (
	"bytes"
	"encoding/json"
	"strconv"
)

// Status of an answer.
type Status string

// The statuses. Infeasible and Optimal are proved; Failed says only that the
// algorithm found no placement.
const (
	Optimal    Status = "optimal"
	Feasible   Status = "feasible"
	Infeasible Status = "infeasible"
	Failed     Status = "failed"
	Timeout    Status = "timeout"
	Bound      Status = "bound"
	Invalid    Status = "invalid"
)

// Result is the answer to one instance.
type Result struct {
	Name           string
	Algorithm      string
	Status         Status
	MinYield       float64
	AverageYield   float64
	UpperBound     float64
	MovedBytes     float64
	ElapsedSeconds float64
	Error          string // of an invalid instance

	// The placement, of the entries of Instance; nil: none.
	Instance *Instance
	Hosts    [][]int   // [entry][task]: index into Instance.Hosts
	CPU      []float64 // [entry]: CPU of each task
}

// chunk is about how many bytes Encode emits at once.
const chunk = 1 << 16

// Encode writes the answer as one line of JSON, newline included, by calling
// emit with one piece after the other; a piece is valid during the call only.
func (r *Result) Encode(emit func([]byte) error) error {
	b := make([]byte, 0, 512)
	b = append(b, `{"name":`...)
	b = appendString(b, r.Name)
	b = append(b, `,"algorithm":`...)
	b = appendString(b, r.Algorithm)
	b = append(b, `,"status":`...)
	b = appendString(b, string(r.Status))
	for _, f := range []struct {
		key   string
		value float64
	}{
		{"minYield", r.MinYield}, {"averageYield", r.AverageYield}, {"upperBound", r.UpperBound},
		{"movedBytes", r.MovedBytes}, {"elapsedSeconds", r.ElapsedSeconds},
	} {
		b = append(append(append(b, `,"`...), f.key...), `":`...)
		b = strconv.AppendFloat(b, f.value, 'g', -1, 64)
	}
	if r.Error != "" {
		b = append(b, `,"error":`...)
		b = appendString(b, r.Error)
	}
	b = append(b, `,"placements":[`...)
	b, err := r.placements(b, emit)
	if err != nil {
		return err
	}
	return emit(append(b, "]}\n"...))
}

func (r *Result) placements(b []byte, emit func([]byte) error) ([]byte, error) {
	if r.Hosts == nil {
		return b, nil
	}
	hosts := make([][]byte, len(r.Instance.Hosts))
	for j := range hosts {
		hosts[j] = appendString(nil, r.Instance.Hosts[j].Name)
	}
	first := true
	for i := range r.Hosts {
		name := appendString(nil, r.Instance.VirtualClusters[i].Name)
		cpu := strconv.AppendFloat(nil, r.CPU[i], 'g', -1, 64)
		for task, j := range r.Hosts[i] {
			if !first {
				b = append(b, ',')
			}
			first = false
			b = append(append(b, `{"virtualCluster":`...), name...)
			b = strconv.AppendInt(append(b, `,"task":`...), int64(task), 10)
			b = append(append(b, `,"host":`...), hosts[j]...)
			b = append(append(b, `,"cpu":`...), cpu...)
			b = append(b, '}')
			if len(b) >= chunk {
				if err := emit(b); err != nil {
					return nil, err
				}
				b = b[:0]
			}
		}
	}
	return b, nil
}

func appendString(b []byte, s string) []byte {
	var buf bytes.Buffer
	e := json.NewEncoder(&buf)
	e.SetEscapeHTML(false)
	if err := e.Encode(s); err != nil {
		return append(b, `""`...) // cannot be: every string can be encoded
	}
	return append(b, bytes.TrimSuffix(buf.Bytes(), []byte("\n"))...)
}
