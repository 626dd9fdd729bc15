package v1

import (
	"bytes"
	"fmt"
	"math"
	"regexp"
	"strings"
)

// VirtualClusterSpec is what a tenant asks for: a VC file.
type VirtualClusterSpec struct {
	Name           string        `json:"name" maxLength:"63" pattern:"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$" patternDescription:"a DNS label: a to z, 0 to 9 and, inside, hyphens" doc:"Name of the virtual cluster, unique; a DNS label." example:"render"`
	MinYield       *float64      `json:"minYield,omitempty" minimum:"0" maximum:"1" doc:"Least yield it accepts, from 0 to 1: below it the virtual cluster is refused or queued. Left out: the cluster's default."`
	OnFull         string        `json:"onFull,omitempty" enum:"queue,reject" doc:"What becomes of it if it does not fit now. Left out: the cluster's default."`
	OnHostLoss     string        `json:"onHostLoss,omitempty" enum:"keep,restart" doc:"What becomes of its VMs if their host is lost. keep: nothing until it is back. restart: they are started elsewhere once it is proved that it runs them no more; needs disks that are ephemeral or in a shared pool."`
	Priority       int           `json:"priority,omitempty" minimum:"-1000000" maximum:"1000000" doc:"Orders admission: higher first. It never weights a yield."`
	Needs          string        `json:"needs,omitempty" enum:"declared,estimated" doc:"declared: its VMs have what is declared here. estimated: they are given what they are expected to need, never more than declared, once the cluster has seen enough of them. Left out: the cluster's default."`
	Aggressiveness string        `json:"aggressiveness,omitempty" enum:"conservative,balanced,aggressive" doc:"How little is left beside what is expected, where needs are estimated. Left out: the cluster's default."`
	Periodic       *PeriodicSpec `json:"periodic,omitempty" doc:"Periodic work: the job that it is a run of."`
	Duration       string        `json:"duration,omitempty" text:"duration" doc:"How long it is to run, as a Go duration: it may use room that is reserved for later. It is not stopped then. Left out: a day, or longer." example:"30m"`
	Groups         []GroupSpec   `json:"groups" minItems:"1" maxItems:"64" doc:"One or more groups of equal VMs, admitted, run and deleted as one."`
}

// GroupSpec is a set of equal VMs.
type GroupSpec struct {
	Name      string            `json:"name" maxLength:"63" pattern:"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$" patternDescription:"a DNS label: a to z, 0 to 9 and, inside, hyphens" doc:"Name of the group, unique in the virtual cluster; a DNS label." example:"worker"`
	Count     int               `json:"count,omitempty" minimum:"1" maximum:"1048576" doc:"Number of VMs. Left out: 1."`
	CPU       float64           `json:"cpu" minimum:"0.001" maximum:"1024" unit:"cores" doc:"CPU that each VM needs, in cores." example:"1.5"`
	VCPUs     int               `json:"vcpus,omitempty" minimum:"1" maximum:"1024" doc:"Virtual CPUs of each VM. Left out: cpu rounded up."`
	Memory    Size              `json:"memory" doc:"Memory of each VM, in bytes or with a unit." example:"2147483648"`
	MemoryMin Size              `json:"memoryMin,omitempty" doc:"Least memory its balloon may leave it. Left out: memory."`
	Role      string            `json:"role,omitempty" enum:"core,elastic" doc:"core VMs are needed for the virtual cluster to work, elastic ones may be preempted. Left out: core."`
	Image     string            `json:"image,omitempty" pattern:"^[a-zA-Z0-9][-._a-zA-Z0-9]{0,126}$" patternDescription:"a name in the image catalogue, not a path (vcctl image list shows them)" doc:"Image to boot, by its name in the catalogue. Left out, and no boot given: the cluster's default."`
	Boot      *Boot             `json:"boot,omitempty" doc:"Kernel and initrd to boot instead, by their names in the catalogue."`
	Disk      *Disk             `json:"disk,omitempty" doc:"Disk of each VM: an object, or the word ephemeral."`
	Network   string            `json:"network,omitempty" maxLength:"63" pattern:"^((bridge:)?[a-zA-Z0-9][-._a-zA-Z0-9]*)?$" patternDescription:"the name of a libvirt network, or bridge:NAME" doc:"libvirt network by name, or bridge:NAME. Left out: no network."`
	CloudInit *CloudInit        `json:"cloudInit,omitempty" doc:"NoCloud data handed to the guests as it is."`
	Labels    map[string]string `json:"labels,omitempty" maxProperties:"64" doc:"Labels of the VMs, for rules of affinity to name."`
	Affinity  *Affinity         `json:"affinity,omitempty" doc:"Where the VMs may, must and should run."`
}

// Boot names a kernel and an initrd of the image catalogue; never paths.
type Boot struct {
	Kernel  string `json:"kernel" pattern:"^[a-zA-Z0-9][-._a-zA-Z0-9]{0,126}$" patternDescription:"a name in the image catalogue, not a path (vcctl image list shows them)" doc:"Kernel image, by its name in the catalogue."`
	Initrd  string `json:"initrd,omitempty" pattern:"^[a-zA-Z0-9][-._a-zA-Z0-9]{0,126}$" patternDescription:"a name in the image catalogue, not a path (vcctl image list shows them)" doc:"Initrd image, by its name in the catalogue."`
	Cmdline string `json:"cmdline,omitempty" maxLength:"2048" pattern:"^[^\\x00-\\x1f\\x7f]*$" patternDescription:"one line of text" doc:"Kernel command line."`
}

// Disk of each VM of a group.
type Disk struct {
	Size      Size   `json:"size,omitempty" doc:"Size in bytes or with a unit. Left out: as large as the image."`
	Pool      string `json:"pool,omitempty" maxLength:"63" pattern:"^([a-zA-Z0-9][-._a-zA-Z0-9]*)?$" patternDescription:"the name of a libvirt storage pool, not a path" doc:"libvirt storage pool. Left out: the cluster's default."`
	Ephemeral bool   `json:"ephemeral,omitempty" doc:"Made again at every start."`
}

// CloudInit data.
type CloudInit struct {
	UserData      string `json:"userData,omitempty" maxLength:"65536" doc:"user-data"`
	MetaData      string `json:"metaData,omitempty" maxLength:"65536" doc:"meta-data; left out: instance id and host name of the VM."`
	NetworkConfig string `json:"networkConfig,omitempty" maxLength:"65536" doc:"network-config"`
}

// Affinity of a group. A term is label=value, host:NAME or vc:NAME.
type Affinity struct {
	Spread  string   `json:"spread,omitempty" enum:"host" doc:"host: no two VMs of the group on one host."`
	Require []string `json:"require,omitempty" maxItems:"64" doc:"Of the hosts named (host:NAME) the VM is on one; of every other term (vc:NAME, label=value) another VM that it names is on the same host." example:"[\"host:h1\",\"host:h2\"]"`
	Prefer  []string `json:"prefer,omitempty" maxItems:"64" doc:"Terms as in require; as many of them are met as the minimum yield allows and the search finds." example:"[\"vc:db\"]"`
	Avoid   []string `json:"avoid,omitempty" maxItems:"64" doc:"The VM is on none of the hosts named, and no other VM that a term names is on the same host, whichever of the two came first." example:"[\"app=db\"]"`
}

// check what the fields of a virtual cluster have to do with each other.
func (vc *VirtualClusterSpec) check(fault func(field, format string, args ...any)) {
	seen := map[string]bool{}
	for i, g := range vc.Groups {
		if g.Name != "" && seen[g.Name] {
			fault(fmt.Sprintf("groups[%d].name", i), "another group is called %s already", g.Name)
		}
		seen[g.Name] = true
	}
}

var (
	labelName  = regexp.MustCompile(`^[a-zA-Z0-9]([-._/a-zA-Z0-9]{0,61}[a-zA-Z0-9])?$`)
	labelValue = regexp.MustCompile(`^([a-zA-Z0-9]([-._a-zA-Z0-9]{0,61}[a-zA-Z0-9])?)?$`)
)

func (g *GroupSpec) check(fault func(field, format string, args ...any)) {
	if g.Image != "" && g.Boot != nil {
		fault("boot", "an image and boot are given: leave one of them out")
	}
	if g.VCPUs > 0 && g.CPU > float64(g.VCPUs) {
		fault("vcpus", "%d virtual CPUs can never use the %g cores of cpu: give at least %g", g.VCPUs, g.CPU, math.Ceil(g.CPU))
	}
	if g.Memory > 0 && g.MemoryMin > g.Memory {
		fault("memoryMin", "must not be more than memory, %s", g.Memory)
	}
	for name, value := range g.Labels {
		if !labelName.MatchString(name) || !labelValue.MatchString(value) {
			fault("labels", "label %s=%s: must be letters, digits and - . _ (and / in names), at most 63, with a letter or digit at both ends", clip(name, 60), clip(value, 60))
			return // one says it for all
		}
	}
}

func (a *Affinity) check(fault func(field, format string, args ...any)) {
	required := map[string]bool{}
	for _, list := range []struct {
		field string
		terms []string
	}{{"require", a.Require}, {"prefer", a.Prefer}, {"avoid", a.Avoid}} {
		for i, term := range list.terms {
			at := fmt.Sprintf("%s[%d]", list.field, i)
			if why := termFault(term); why != "" {
				fault(at, "%s", why)
			}
			switch list.field {
			case "require":
				required[term] = true
			case "avoid":
				if required[term] {
					fault(at, "is required as well: no host could satisfy both")
				}
			}
		}
	}
}

// termFault says what is wrong with the form of a term of affinity, or "".
func termFault(term string) string {
	kind, name, named := strings.Cut(term, ":")
	key, value, labelled := strings.Cut(term, "=")
	switch {
	case named && (kind == "host" || kind == "vc"):
		if name == "" {
			return "names nothing: write " + kind + ":NAME"
		}
		return ""
	case labelled && labelName.MatchString(key) && labelValue.MatchString(value):
		return ""
	}
	return "must be label=value, host:NAME or vc:NAME"
}

// ParseVCFile reads a VC file, YAML or JSON. It refuses what it does not know and fills
// in no defaults. Its errors are *Invalid and name the field and the line.
func ParseVCFile(doc []byte) (VirtualClusterSpec, error) {
	if looksJSON(doc) {
		return decode[VirtualClusterSpec](jsonTree(doc))
	}
	return decode[VirtualClusterSpec](yamlTree(doc))
}

// looksJSON: a brace, and then a quoted key or nothing of one. A bare key after it is YAML in flow style.
func looksJSON(doc []byte) bool {
	inside, is := bytes.CutPrefix(bytes.TrimLeft(doc, " \t\r\n"), []byte("{"))
	inside = bytes.TrimLeft(inside, " \t\r\n")
	return is && (len(inside) == 0 || inside[0] == '"' || inside[0] == '}')
}
