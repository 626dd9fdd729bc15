package trace

import (
	"fmt"
	"io"
	"math"
	"strconv"
)

// LoadOpenB reads the pods and the nodes of Alibaba's GPU cluster trace of 2023 (Weng et al., USENIX ATC 2023), pods in order of
// creation. Either source may be nil. A pod that was never scheduled has no Start and no Run.
func LoadOpenB(o Options, pods, nodes *Source) ([]Request, []Machine, error) {
	o = o.withDefaults()
	var requests []Request
	var machines []Machine
	if pods != nil {
		seen := map[string]bool{}
		columns := []string{"name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli", "creation_time", "scheduled_time", "deletion_time"}
		err := pods.read(o, func(r io.Reader) error {
			return table(r, o.MaxLength, columns, func(field []string) error {
				if seen[field[0]] {
					return fmt.Errorf("pod %q is there twice", field[0])
				}
				seen[field[0]] = true
				q, err := openBPod(columns, field)
				requests = append(requests, q)
				return err
			})
		})
		if err != nil {
			return nil, nil, err
		}
		bySubmit(requests)
	}
	if nodes != nil {
		seen := map[string]bool{}
		columns := []string{"sn", "cpu_milli", "memory_mib", "gpu"}
		err := nodes.read(o, func(r io.Reader) error {
			return table(r, o.MaxLength, columns, func(field []string) error {
				cpu, err := amount(columns[1], field[1])
				if err != nil {
					return err
				}
				memory, err := amount(columns[2], field[2])
				if err != nil {
					return err
				}
				gpus, err := strconv.ParseUint(field[3], 10, 16)
				if err != nil {
					return fmt.Errorf("%s: %q is no number of GPUs", columns[3], field[3])
				}
				if seen[field[0]] {
					return fmt.Errorf("node %q is there twice", field[0])
				}
				seen[field[0]] = true
				machines = append(machines, Machine{Name: field[0], CPU: cpu / 1000, Memory: memory * (1 << 20), GPUs: int(gpus)})
				return nil
			})
		})
		if err != nil {
			return nil, nil, err
		}
	}
	return requests, machines, nil
}

func openBPod(columns, field []string) (q Request, err error) {
	var v [8]float64
	for i := 1; i < len(columns); i++ {
		get := amount
		if i == 6 {
			get = maybe
		}
		if v[i], err = get(columns[i], field[i]); err != nil {
			return q, err
		}
	}
	q = Request{Name: field[0], Batch: -1, CPU: v[1] / 1000, Memory: v[2] * (1 << 20), GPUs: v[3], Submit: v[5], Start: v[6], Run: math.NaN()}
	if v[3] == 1 { // a share of one
		q.GPUs = v[4] / 1000
	}
	switch {
	case v[7] < v[5] || v[6] < v[5] || v[7] < v[6]:
		return q, fmt.Errorf("pod %q: created at %g, scheduled at %g, deleted at %g", q.Name, v[5], v[6], v[7])
	case !math.IsNaN(q.Start):
		q.Run = v[7] - q.Start
	}
	return q, nil
}
