package v1

// ScaleRequest changes the size or the needs of one group. What is left out stays.
type ScaleRequest struct {
	Group  string   `json:"group,omitempty" maxLength:"63" pattern:"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$" patternDescription:"a DNS label: a to z, 0 to 9 and, inside, hyphens" doc:"Group to change; may be left out if there is only one."`
	Count  *int     `json:"count,omitempty" minimum:"1" maximum:"1048576" doc:"Number of VMs it is to have."`
	CPU    *float64 `json:"cpu,omitempty" minimum:"0.001" maximum:"1024" unit:"cores" doc:"CPU that each VM is to need, in cores."`
	Memory *Size    `json:"memory,omitempty" doc:"Memory of each VM, in bytes or with a unit."`
}

func (s *ScaleRequest) check(fault func(field, format string, args ...any)) {
	if s.Count == nil && s.CPU == nil && s.Memory == nil {
		fault("count", "nothing to change: give count, cpu or memory")
	}
}

// ImageSpec adds a file to the image catalogue.
type ImageSpec struct {
	Name    string `json:"name" pattern:"^[a-zA-Z0-9][-._a-zA-Z0-9]{0,126}$" patternDescription:"letters, digits and - . _, at most 127, beginning with a letter or digit" doc:"Name in the catalogue." example:"debian-12"`
	Kind    string `json:"kind" enum:"disk,kernel,initrd" doc:"disk: a qcow2 base over which VMs get overlays; kernel; initrd."`
	File    string `json:"file" maxLength:"4096" doc:"Absolute path of the file on the hosts." example:"/var/lib/evenkeel/images/debian-12.qcow2"`
	Size    Size   `json:"size,omitempty" doc:"Size of the file in bytes, for people."`
	Initrd  string `json:"initrd,omitempty" pattern:"^[a-zA-Z0-9][-._a-zA-Z0-9]{0,126}$" patternDescription:"a name in the image catalogue, not a path (vcctl image list shows them)" doc:"kernel only: initrd image it boots with, by name."`
	Cmdline string `json:"cmdline,omitempty" maxLength:"2048" pattern:"^[^\\x00-\\x1f\\x7f]*$" patternDescription:"one line of text" doc:"kernel only: its default command line."`
}

func (s *ImageSpec) check(fault func(field, format string, args ...any)) {
	if s.File != "" && !cleanPath(s.File) {
		fault("file", "must be an absolute path without . or .. in it")
	}
	if s.Kind == "kernel" || s.Kind == "" {
		return
	}
	for name, value := range map[string]string{"initrd": s.Initrd, "cmdline": s.Cmdline} {
		if value != "" {
			fault(name, "only an image of kind kernel has one")
		}
	}
}

// cleanPath says whether p is absolute and says where it leads.
func cleanPath(p string) bool {
	if p[0] != '/' || p == "/" {
		return false
	}
	for i, part := 1, 1; i <= len(p); i++ {
		if i < len(p) && (p[i] < ' ' || p[i] == 0x7f) {
			return false
		}
		if i == len(p) || p[i] == '/' {
			if s := p[part:i]; s == "" || s == "." || s == ".." {
				return false
			}
			part = i + 1
		}
	}
	return true
}

// CordonRequest closes a host for new VMs.
type CordonRequest struct {
	Reason string `json:"reason,omitempty" maxLength:"500" doc:"Why, shown with the host." example:"disk replacement"`
}
