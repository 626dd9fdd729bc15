package reservation

import "fmt"

// Restore puts a slot back that was accepted before, with its hosts: an agenda that is made again from what was recorded has it so. It
// fails, and changes nothing, if a host is gone, takes no VM or has not the room any more.
func (a *Agenda) Restore(s *Accepted) error {
	if err := a.known(s); err != nil {
		return err
	}
	for _, h := range s.Witness.Hosts {
		if host := &a.cluster.Hosts[h]; host.Cordoned {
			return fmt.Errorf("restore the slot of %s: host %s takes no VM", s.Slot.Request.Name, host.Name)
		}
	}
	for at, need := range a.byHost(s) {
		usable, taken := a.usable(at.host), a.taken(&s.Slot.Request, at.host, at.step)
		for r := range need[:VMs] {
			if left := usable[r] - taken[r]; need[r] > left+1e-9*usable[r] {
				return fmt.Errorf("restore the slot of %s: host %s has not the room any more", s.Slot.Request.Name, a.cluster.Hosts[at.host].Name)
			}
		}
	}
	a.enter(s)
	a.reserve(s)
	return nil
}

// Occupy keeps room for VMs that run now and end in time, on the hosts they are on, whether or not that fits.
func (a *Agenda) Occupy(s *Accepted) error {
	if err := a.known(s); err != nil {
		return err
	}
	a.enter(s)
	a.reserve(s)
	return nil
}

func (a *Agenda) known(s *Accepted) error {
	r := &s.Slot.Request
	if err := r.validate(a.cluster.Steps); err != nil {
		return err
	}
	if a.names[r.Name] {
		return fmt.Errorf("restore the slot of %s: it is there already", r.Name)
	}
	count, _ := s.Slot.count()
	if count != len(s.Witness.Hosts) || s.Slot.Start < 0 || len(s.Slot.Amounts) > a.cluster.Steps {
		return fmt.Errorf("restore the slot of %s: %d hosts for %d VMs, %d steps from %d", r.Name, len(s.Witness.Hosts), count, len(s.Slot.Amounts), s.Slot.Start)
	}
	for _, h := range s.Witness.Hosts {
		if h < 0 || h >= len(a.cluster.Hosts) {
			return fmt.Errorf("restore the slot of %s: host %d is gone", r.Name, h)
		}
	}
	return nil
}
