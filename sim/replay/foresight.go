package replay

import "evenkeel/forecast"

// Oracle knows what will be used. It is the bound on what foresight can be worth (Pace et al., sec. IV-B).
type Oracle struct{ cpu, memory [1]forecast.Prediction }

// Name implements Foresight.
func (*Oracle) Name() string { return "oracle" }

// Begin implements Foresight.
func (*Oracle) Begin(*Cluster) {}

// Watch implements Foresight.
func (*Oracle) Watch(*Cluster) {}

// Ahead implements Foresight.
func (o *Oracle) Ahead(c *Cluster, s int32) (cpu, memory []forecast.Prediction) {
	o.cpu[0].Mean, o.memory[0].Mean = c.Truth(s)
	return o.cpu[:], o.memory[:]
}

// Persist says that use stays as it was in the latest tick, without saying how sure that is: the cheapest foresight there is.
type Persist struct{ cpu, memory [1]forecast.Prediction }

// Name implements Foresight.
func (*Persist) Name() string { return "persist" }

// Begin implements Foresight.
func (*Persist) Begin(*Cluster) {}

// Watch implements Foresight.
func (*Persist) Watch(*Cluster) {}

// Ahead implements Foresight.
func (f *Persist) Ahead(c *Cluster, s int32) (cpu, memory []forecast.Prediction) {
	if c.Measured[s] == 0 {
		return nil, nil
	}
	f.memory[0].Mean = c.UsedMemory[s]
	if c.Short[s] {
		return nil, f.memory[:] // what it would have used is not known
	}
	f.cpu[0].Mean = c.UsedCPU[s]
	return f.cpu[:], f.memory[:]
}
