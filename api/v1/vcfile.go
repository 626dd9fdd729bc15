package v1

import (
	"bytes"
	"strconv"
	"strings"
)

// VirtualClusterSpec is what a tenant asks for: a VC file.
type VirtualClusterSpec struct {
	Name           string      `json:"name" doc:"Name of the virtual cluster, unique; a DNS label." example:"render"`
	MinYield       *float64    `json:"minYield,omitempty" doc:"Least yield it accepts, from 0 to 1: below it the virtual cluster is refused or queued. Left out: the cluster's default."`
	OnFull         string      `json:"onFull,omitempty" enum:"queue,reject" doc:"What becomes of it if it does not fit now. Left out: the cluster's default."`
	OnHostLoss     string      `json:"onHostLoss,omitempty" enum:"keep,restart" doc:"What becomes of its VMs if their host is lost. keep: nothing until it is back. restart: they are started elsewhere once it is proved that it runs them no more; needs disks that are ephemeral or in a shared pool."`
	Priority       int         `json:"priority,omitempty" doc:"Orders admission: higher first. It never weights a yield."`
	Needs          string      `json:"needs,omitempty" enum:"declared,estimated" doc:"declared: its VMs have what is declared here. estimated: they are given what they are expected to need, never more than declared, once the cluster has seen enough of them. Left out: the cluster's default."`
	Aggressiveness string      `json:"aggressiveness,omitempty" enum:"conservative,balanced,aggressive" doc:"How little is left beside what is expected, where needs are estimated. Left out: the cluster's default."`
	Groups         []GroupSpec `json:"groups" doc:"One or more groups of equal VMs, admitted, run and deleted as one."`
}

// GroupSpec is a set of equal VMs.
type GroupSpec struct {
	Name      string            `json:"name" doc:"Name of the group, unique in the virtual cluster; a DNS label." example:"worker"`
	Count     int               `json:"count,omitempty" doc:"Number of VMs. Left out: 1."`
	CPU       float64           `json:"cpu" doc:"CPU that each VM needs, in cores." example:"1.5"`
	VCPUs     int               `json:"vcpus,omitempty" doc:"Virtual CPUs of each VM. Left out: cpu rounded up."`
	Memory    Size              `json:"memory" doc:"Memory of each VM, in bytes or with a unit." example:"2147483648"`
	MemoryMin Size              `json:"memoryMin,omitempty" doc:"Least memory its balloon may leave it. Left out: memory."`
	Role      string            `json:"role,omitempty" enum:"core,elastic" doc:"core VMs are needed for the virtual cluster to work, elastic ones may be preempted. Left out: core."`
	Image     string            `json:"image,omitempty" doc:"Image to boot, by its name in the catalogue. Left out, and no boot given: the cluster's default."`
	Boot      *Boot             `json:"boot,omitempty" doc:"Kernel and initrd to boot instead, by their names in the catalogue."`
	Disk      *Disk             `json:"disk,omitempty" doc:"Disk of each VM: an object, or the word ephemeral."`
	Network   string            `json:"network,omitempty" doc:"libvirt network by name, or bridge:NAME. Left out: no network."`
	CloudInit *CloudInit        `json:"cloudInit,omitempty" doc:"NoCloud data handed to the guests as it is."`
	Labels    map[string]string `json:"labels,omitempty" doc:"Labels of the VMs, for rules of affinity to name."`
	Affinity  *Affinity         `json:"affinity,omitempty" doc:"Where the VMs may, must and should run."`
}

// Boot names a kernel and an initrd of the image catalogue; never paths.
type Boot struct {
	Kernel  string `json:"kernel" doc:"Kernel image, by its name in the catalogue."`
	Initrd  string `json:"initrd,omitempty" doc:"Initrd image, by its name in the catalogue."`
	Cmdline string `json:"cmdline,omitempty" doc:"Kernel command line."`
}

// Disk of each VM of a group.
type Disk struct {
	Size      Size   `json:"size,omitempty" doc:"Size in bytes or with a unit. Left out: as large as the image."`
	Pool      string `json:"pool,omitempty" doc:"libvirt storage pool. Left out: the cluster's default."`
	Ephemeral bool   `json:"ephemeral,omitempty" doc:"Made again at every start."`
}

// CloudInit data.
type CloudInit struct {
	UserData      string `json:"userData,omitempty" doc:"user-data"`
	MetaData      string `json:"metaData,omitempty" doc:"meta-data; left out: instance id and host name of the VM."`
	NetworkConfig string `json:"networkConfig,omitempty" doc:"network-config"`
}

// Affinity of a group. A term is label=value, host:NAME or vc:NAME.
type Affinity struct {
	Spread  string   `json:"spread,omitempty" enum:"host" doc:"host: no two VMs of the group on one host."`
	Require []string `json:"require,omitempty" doc:"Of the hosts named (host:NAME) the VM is on one; of every other term (vc:NAME, label=value) another VM that it names is on the same host." example:"[\"host:h1\",\"host:h2\"]"`
	Prefer  []string `json:"prefer,omitempty" doc:"Terms as in require; as many of them are met as the minimum yield allows and the search finds." example:"[\"vc:db\"]"`
	Avoid   []string `json:"avoid,omitempty" doc:"The VM is on none of the hosts named, and no other VM that a term names is on the same host, whichever of the two came first." example:"[\"app=db\"]"`
}

// TermFault says what is wrong with the form of a term of affinity, or "".
func TermFault(term string) string {
	kind, name, ok := strings.Cut(term, ":")
	if !ok {
		if key, _, ok := strings.Cut(term, "="); ok && key != "" {
			return ""
		}
		return "must be label=value, host:NAME or vc:NAME"
	}
	switch {
	case kind != "host" && kind != "vc":
		return "must be label=value, host:NAME or vc:NAME"
	case name == "":
		return "names nothing: write " + kind + ":NAME"
	}
	return ""
}

const maxGroups = 64

// ParseVCFile reads a VC file, YAML or JSON. It refuses what it does not know and fills
// in no defaults. Its errors are *Invalid and name the field and the line.
func ParseVCFile(doc []byte) (VirtualClusterSpec, error) {
	parse := yamlTree
	if trimmed := bytes.TrimLeft(doc, " \t\r\n"); len(trimmed) > 0 && trimmed[0] == '{' {
		parse = jsonTree
	}
	return readVC(parse(doc))
}

// ParseVCJSON reads a VC file as the API takes it, which is JSON only.
func ParseVCJSON(doc []byte) (VirtualClusterSpec, error) { return readVC(jsonTree(doc)) }

func readVC(n *node, err error) (VirtualClusterSpec, error) {
	if err != nil {
		return VirtualClusterSpec{}, err
	}
	r := &reader{}
	vc := r.vc(n)
	if err := r.err(); err != nil {
		return VirtualClusterSpec{}, err
	}
	return vc, nil
}

func (r *reader) vc(n *node) VirtualClusterSpec {
	var vc VirtualClusterSpec
	given := r.object(n, "",
		field{"name", r.label(&vc.Name)},
		field{"minYield", func(n *node, path string) {
			y, ok := r.number(n, path)
			if ok && (y < 0 || y > 1) {
				r.fault(n, path, "must be from 0 to 1")
			}
			vc.MinYield = &y
		}},
		field{"onFull", r.oneOf(&vc.OnFull, "queue", "reject")},
		field{"onHostLoss", r.oneOf(&vc.OnHostLoss, "keep", "restart")},
		field{"priority", r.integer(&vc.Priority, -1_000_000, 1_000_000)},
		field{"needs", r.oneOf(&vc.Needs, "declared", "estimated")},
		field{"aggressiveness", r.oneOf(&vc.Aggressiveness, "conservative", "balanced", "aggressive")},
		field{"groups", func(n *node, path string) { vc.Groups = r.groups(n, path) }},
	)
	r.required(n, given, "", "name", "groups")
	return vc
}

func (r *reader) groups(n *node, path string) []GroupSpec {
	if !r.want(n, path, kindList) {
		return nil
	}
	if len(n.items) == 0 || len(n.items) > maxGroups {
		r.fault(n, path, "must have 1 to %d groups, not %d", maxGroups, len(n.items))
		return nil
	}
	var out []GroupSpec
	seen := map[string]bool{}
	for i, item := range n.items {
		if r.full() {
			return nil
		}
		at := path + "[" + strconv.Itoa(i) + "]"
		g := r.group(item, at)
		if g.Name != "" && seen[g.Name] {
			r.fault(&node{line: item.line}, at+".name", "another group is called %s already", g.Name)
		}
		seen[g.Name] = true
		out = append(out, g)
	}
	return out
}

func (r *reader) group(n *node, path string) GroupSpec {
	var g GroupSpec
	given := r.object(n, path,
		field{"name", r.label(&g.Name)},
		field{"count", r.integer(&g.Count, 1, MaxCount)},
		field{"cpu", r.cpu(&g.CPU)},
		field{"vcpus", r.integer(&g.VCPUs, 1, MaxVCPUs)},
		field{"memory", r.size(&g.Memory)},
		field{"memoryMin", r.size(&g.MemoryMin)},
		field{"role", r.oneOf(&g.Role, "core", "elastic")},
		field{"image", r.imageName(&g.Image)},
		field{"boot", func(n *node, path string) { g.Boot = r.boot(n, path) }},
		field{"disk", func(n *node, path string) { g.Disk = r.disk(n, path) }},
		field{"network", r.text(&g.Network, 63)},
		field{"cloudInit", func(n *node, path string) {
			// The cluster has the limit of each of the three; here there is only that of the document.
			g.CloudInit = &CloudInit{}
			r.object(n, path,
				field{"userData", r.text(&g.CloudInit.UserData, MaxBytes)},
				field{"metaData", r.text(&g.CloudInit.MetaData, MaxBytes)},
				field{"networkConfig", r.text(&g.CloudInit.NetworkConfig, MaxBytes)})
		}},
		field{"labels", r.labels(&g.Labels)},
		field{"affinity", func(n *node, path string) {
			g.Affinity = &Affinity{}
			r.object(n, path,
				field{"spread", r.oneOf(&g.Affinity.Spread, "host")},
				field{"require", r.terms(&g.Affinity.Require)},
				field{"prefer", r.terms(&g.Affinity.Prefer)},
				field{"avoid", r.terms(&g.Affinity.Avoid)})
		}},
	)
	r.required(n, given, path, "name", "cpu", "memory")
	at := &node{line: n.line}
	if given["image"] && given["boot"] {
		r.fault(at, join(path, "boot"), "an image and boot are given: leave one of them out")
	}
	if g.VCPUs > 0 && g.CPU > float64(g.VCPUs) {
		r.fault(at, join(path, "vcpus"), "%d virtual CPUs can never use the %g cores of cpu", g.VCPUs, g.CPU)
	}
	if g.Memory > 0 && g.MemoryMin > g.Memory {
		r.fault(at, join(path, "memoryMin"), "must not be more than memory, %s", g.Memory)
	}
	return g
}

// terms reads a list of terms of affinity.
func (r *reader) terms(into *[]string) func(*node, string) {
	return func(n *node, path string) {
		r.texts(into, 64, 255)(n, path)
		for i, term := range *into {
			if why := TermFault(term); why != "" {
				r.fault(n.items[i], path+"["+strconv.Itoa(i)+"]", "%s", why)
			}
		}
	}
}

func (r *reader) boot(n *node, path string) *Boot {
	var b Boot
	given := r.object(n, path,
		field{"kernel", r.imageName(&b.Kernel)},
		field{"initrd", r.imageName(&b.Initrd)},
		field{"cmdline", r.text(&b.Cmdline, 2048)})
	r.required(n, given, path, "kernel")
	return &b
}

func (r *reader) disk(n *node, path string) *Disk {
	if n.kind == kindString {
		if n.text != "ephemeral" {
			r.fault(n, path, "must be an object like {size: 10GiB} or the word ephemeral")
		}
		return &Disk{Ephemeral: true}
	}
	var d Disk
	r.object(n, path,
		field{"size", r.size(&d.Size)},
		field{"pool", r.poolName(&d.Pool)},
		field{"ephemeral", r.boolean(&d.Ephemeral)})
	return &d
}

func (r *reader) poolName(into *string) func(*node, string) {
	return func(n *node, path string) {
		r.text(into, 63)(n, path)
		for _, c := range *into {
			if c == '/' || c < ' ' {
				r.fault(n, path, "must be the name of a libvirt storage pool, not a path")
				*into = ""
				return
			}
		}
	}
}
