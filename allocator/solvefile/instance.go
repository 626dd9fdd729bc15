package solvefile

import (
	"evenkeel/allocator"
)

// Limits of one instance.
const (
	MaxCount = 1_000_000        // VMs of one entry
	MaxTasks = allocator.MaxVMs // VMs in sum
)

// Instance is one problem as it was written.
type Instance struct {
	Name            string
	Hosts           []Host
	VirtualClusters []VirtualCluster

	// MaxMigrationBytes bounds the memory of the VMs that change hosts; nil: no bound.
	MaxMigrationBytes *float64

	// Placement is "spread", "pack" or "": the one that is found.
	Placement string
}

// Host has an amount of CPU and memory, both > 0.
type Host struct {
	Name        string
	CPU, Memory float64
}

// VirtualCluster is Count equal VMs.
type VirtualCluster struct {
	Name        string
	Cluster     string // entries of equal value are groups of one virtual cluster; "": one by itself
	Count       int
	CPU, Memory float64 // need of one VM
	MinYield    *float64
	Current     []int // where each VM is: index into Instance.Hosts, -1 = not placed; nil: not given
	Priority    int
	Labels      map[string]string
	Affinity    *Affinity
}

// Affinity says which hosts VMs need, like and avoid. A term is label=value,
// host:NAME or vc:NAME.
type Affinity struct {
	Spread                 string
	Require, Prefer, Avoid []string
}

// Options names the parts of the input, in the order of the contract, that
// only some algorithms take.
func (in *Instance) Options() []string {
	var current, minYield, affinity bool
	for i := range in.VirtualClusters {
		vc := &in.VirtualClusters[i]
		current = current || vc.Current != nil
		minYield = minYield || vc.MinYield != nil
		affinity = affinity || vc.Affinity != nil
	}
	var options []string
	for _, o := range []struct {
		name string
		used bool
	}{{"current", current}, {"maxMigrationBytes", in.MaxMigrationBytes != nil}, {"minYield", minYield}, {"affinity", affinity}, {"placement", in.Placement != ""}} {
		if o.used {
			options = append(options, o.name)
		}
	}
	return options
}

// policies by the names that files have for them.
var policies = map[string]allocator.Policy{"": allocator.AsFound, "spread": allocator.Spread, "pack": allocator.Pack}

// Problem is the instance in the allocator's terms: one group per entry, in order.
func (in *Instance) Problem() allocator.Problem {
	p := allocator.Problem{
		Hosts:  make([]allocator.Host, len(in.Hosts)),
		Groups: make([]allocator.Group, len(in.VirtualClusters)),
		Policy: policies[in.Placement],
	}
	for j, h := range in.Hosts {
		p.Hosts[j] = allocator.Host{Name: h.Name, CPU: h.CPU, Memory: h.Memory}
	}
	for i := range in.VirtualClusters {
		vc := &in.VirtualClusters[i]
		p.Groups[i] = allocator.Group{
			Cluster: vc.Cluster, Name: vc.Name, Count: vc.Count,
			CPU: vc.CPU, Memory: vc.Memory, Hosts: vc.Current,
		}
		if vc.MinYield != nil {
			p.Groups[i].MinYield = *vc.MinYield
		}
	}
	return p
}

// Rules are the labels and affinities of the entries, nil if there are none.
func (in *Instance) Rules() *allocator.Rules {
	n := len(in.VirtualClusters)
	r := &allocator.Rules{Labels: make([]map[string]string, n), Affinity: make([]*allocator.Affinity, n)}
	given := false
	for i := range in.VirtualClusters {
		vc := &in.VirtualClusters[i]
		r.Labels[i] = vc.Labels
		if a := vc.Affinity; a != nil {
			given = true
			r.Affinity[i] = &allocator.Affinity{Spread: a.Spread, Require: a.Require, Prefer: a.Prefer, Avoid: a.Avoid}
		}
	}
	if !given {
		return nil
	}
	return r
}
