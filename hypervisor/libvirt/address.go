package libvirt

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	"libvirt.org/go/libvirt"

	"evenkeel/hypervisor"
)

// agentTime is how long a guest agent has for an answer, seconds. It may be broken, or mean harm.
const agentTime = 1

// addressSources are where libvirt finds addresses, the one that knows most first. What a guest agent states comes first, for
// it knows addresses that were set by hand. Leases are those of libvirt's own DHCP servers; the host's neighbour table
// (ARP) has what spoke to the host lately, on a bridge too.
var addressSources = []libvirt.DomainInterfaceAddressesSource{
	libvirt.DOMAIN_INTERFACE_ADDRESSES_SRC_AGENT, libvirt.DOMAIN_INTERFACE_ADDRESSES_SRC_LEASE, libvirt.DOMAIN_INTERFACE_ADDRESSES_SRC_ARP,
}

// Addresses implements hypervisor.Addressing. One VM at a time is asked, so that one whose guest agent hangs delays no other
// call of the host.
func (h *Host) Addresses(ctx context.Context) (map[string][]netip.Addr, error) {
	vms, err := h.List(ctx)
	if err != nil {
		return nil, err
	}
	out := map[string][]netip.Addr{}
	for _, vm := range vms {
		if vm.Foreign || vm.State != hypervisor.Running {
			continue
		}
		found, err := onVM(calling(ctx, "virDomainInterfaceAddresses", vm.Identity.VM, vm.Name), h, h.opts.CallTimeout+agentTime*time.Second, vm.Identity.VM,
			func(_ *libvirt.Connect, dom *libvirt.Domain, m mark) ([]string, error) { return addressesOf(dom, macOf(m.ID)), nil })
		if ctx.Err() != nil {
			return nil, fmt.Errorf("addresses of VMs: %w", ctx.Err())
		}
		if err != nil {
			continue // it ended, or is busy: the next time will do
		}
		if all := hypervisor.Addresses(found); len(all) > 0 {
			out[vm.Identity.VM] = all
		}
	}
	return out, nil
}

// addressesOf a domain, by the first source that knows any. Of a guest agent only the interface with the VM's own MAC address
// counts: others are the guest's affair.
func addressesOf(dom *libvirt.Domain, mac string) []string {
	_ = dom.AgentSetResponseTimeout(agentTime, 0) // a libvirt that cannot has a default of its own
	for _, source := range addressSources {
		interfaces, err := dom.ListAllInterfaceAddresses(source)
		if err != nil {
			continue // it has no agent, or libvirt does not know this source
		}
		var out []string
		for _, i := range interfaces {
			if source == libvirt.DOMAIN_INTERFACE_ADDRESSES_SRC_AGENT && i.Hwaddr != mac {
				continue
			}
			for _, a := range i.Addrs {
				out = append(out, a.Addr)
			}
		}
		if len(hypervisor.Addresses(out)) > 0 {
			return out
		}
	}
	return nil
}
