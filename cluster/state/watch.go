package state

import "sync"

// hostWatches wake the readers of single hosts' desired state. With many hosts a watch on the whole state would wake all
// readers for what concerns one host.
type hostWatches struct {
	mu sync.Mutex
	by map[string]chan struct{}
}

// WatchHost returns a channel that is closed once a change is in force that may concern what a host is to run: a change of its
// own row, of a VM that is there or on its way there, of the virtual cluster of such a VM, of images, or of the cluster's own
// row. The caller takes the channel before it takes the snapshot that it reads. The channel is closed before Apply returns.
func (s *Store) WatchHost(host string) <-chan struct{} {
	w := &s.watches
	w.mu.Lock()
	defer w.mu.Unlock()
	ch, ok := w.by[host]
	if !ok {
		ch = make(chan struct{})
		w.by[host] = ch
	}
	return ch
}

func (w *hostWatches) fire(hosts map[string]bool, all bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if all {
		for _, ch := range w.by {
			close(ch)
		}
		clear(w.by)
		return
	}
	for host := range hosts {
		if ch, ok := w.by[host]; ok {
			close(ch)
			delete(w.by, host)
		}
	}
}

// concern marks the hosts that a row is about. It is called before a row is put or dropped.
func (w *writer) concern(row any) {
	on := func(vm *VM) { w.hosts[vm.Host], w.hosts[vm.MovingTo] = true, true }
	switch r := row.(type) {
	case *Meta, *Image:
		w.all = true
	case *Host:
		w.hosts[r.Name] = true
		if old, ok := peek[Host](w.read(), tHosts, "id", r.Name); ok && old.MigrateURI != r.MigrateURI {
			w.read().eachVM("movingTo", r.Name, func(vm *VM) bool { on(vm); return true })
		}
	case *Migration:
		w.hosts[r.From], w.hosts[r.To] = true, true
	case *VM:
		on(r)
		if old, ok := peek[VM](w.read(), tVMs, "id", r.ID); ok {
			on(old)
		}
	case *VC:
		w.read().eachVM("vc", r.ID, func(vm *VM) bool { on(vm); return true })
	}
}
