package libvirt

import (
	"context"
	"fmt"
	"slices"

	"libvirt.org/go/libvirt"
	"libvirt.org/go/libvirtxml"

	"evenkeel/hypervisor"
)

// Partner is what this host has that VMs need where they move to.
func (h *Host) Partner(ctx context.Context) (hypervisor.Partner, error) {
	caps, err := h.hostCaps(ctx)
	if err != nil {
		return hypervisor.Partner{}, err
	}
	p, err := call(calling(ctx, "virConnectGetDomainCapabilities", "", ""), h, h.slow(), func(c *libvirt.Connect) (hypervisor.Partner, error) {
		p := hypervisor.Partner{KVM: caps.kvm, CPUModel: emulatedCPU, Pools: map[string]string{}}
		text, err := c.GetCapabilities()
		if err != nil {
			return p, err
		}
		var all libvirtxml.Caps
		if err := all.Unmarshal(text); err != nil {
			return p, fmt.Errorf("read capabilities: %w", err)
		}
		p.Machines = machinesOf(all, caps.kvm)
		if caps.kvm {
			p.CPUModel = "host-model"
			if all.Host.CPU != nil {
				p.CPUModel += " " + all.Host.CPU.Model
			}
		}
		v, err := c.GetVersion()
		if err != nil {
			return p, err
		}
		p.QEMU = version(v)
		if p.Networks, err = networksOf(c); err != nil {
			return p, err
		}
		if err := poolsOf(c, p.Pools); err != nil {
			return p, err
		}
		if _, has := p.Pools[defaultPool]; !has && h.opts.StateDir != "" {
			p.Pools[defaultPool] = "dir " + h.poolDir() // it is made when it is needed
		}
		return p, nil
	})
	if err != nil {
		return p, fmt.Errorf("what the host has for moves: %w", err)
	}
	return p, nil
}

// machinesOf are the versions of machineType that the host can run, the one that new VMs get first.
func machinesOf(caps libvirtxml.Caps, kvm bool) []string {
	var out []string
	kind := "qemu"
	if kvm {
		kind = "kvm"
	}
	for _, g := range caps.Guests {
		if g.OSType != "hvm" || g.Arch.Name != "x86_64" {
			continue
		}
		machines := g.Arch.Machines
		for _, d := range g.Arch.Domains {
			if d.Type == kind && len(d.Machines) > 0 {
				machines = d.Machines
			}
		}
		for _, m := range machines {
			switch {
			case m.Name == machineType && m.Canonical != "":
				out = slices.Insert(out, 0, m.Canonical)
			case len(m.Name) > len("pc-"+machineType) && m.Name[:len("pc-"+machineType)] == "pc-"+machineType:
				out = append(out, m.Name)
			}
		}
	}
	if len(out) > 0 {
		first := out[0]
		slices.Sort(out[1:])
		out = append(out[:1], slices.DeleteFunc(out[1:], func(m string) bool { return m == first })...)
	}
	return slices.Compact(out)
}

// networksOf are the networks and bridges that VMs can be on.
func networksOf(c *libvirt.Connect) ([]string, error) {
	out := []string{} // nil would say that it is not known
	networks, err := c.ListAllNetworks(libvirt.CONNECT_LIST_NETWORKS_ACTIVE)
	if err != nil && !isCode(err, libvirt.ERR_NO_SUPPORT) {
		return nil, fmt.Errorf("list networks: %w", err)
	}
	for i := range networks {
		if name, err := networks[i].GetName(); err == nil {
			out = append(out, name)
		}
		_ = networks[i].Free()
	}
	interfaces, err := c.ListAllInterfaces(libvirt.CONNECT_LIST_INTERFACES_ACTIVE)
	if err != nil {
		return nil, nil // a libvirt without an interface driver cannot list bridges
	}
	for i := range interfaces {
		if name, err := interfaces[i].GetName(); err == nil {
			out = append(out, bridgePrefix+name)
		}
		_ = interfaces[i].Free()
	}
	slices.Sort(out)
	return out, nil
}

func poolsOf(c *libvirt.Connect, out map[string]string) error {
	pools, err := c.ListAllStoragePools(libvirt.CONNECT_LIST_STORAGE_POOLS_ACTIVE)
	if err != nil {
		return fmt.Errorf("list storage pools: %w", err)
	}
	for i := range pools {
		if text, err := pools[i].GetXMLDesc(0); err == nil {
			var x libvirtxml.StoragePool
			if err := x.Unmarshal(text); err == nil {
				out[x.Name] = x.Type
				if x.Target != nil && x.Target.Path != "" {
					out[x.Name] += " " + x.Target.Path
				}
			}
		}
		_ = pools[i].Free()
	}
	return nil
}
