package v1

// ScaleRequest changes the size or the needs of one group. What is left out stays.
type ScaleRequest struct {
	Group  string   `json:"group,omitempty" doc:"Group to change; may be left out if there is only one."`
	Count  *int     `json:"count,omitempty" doc:"Number of VMs it is to have."`
	CPU    *float64 `json:"cpu,omitempty" doc:"CPU that each VM is to need, in cores."`
	Memory *Size    `json:"memory,omitempty" doc:"Memory of each VM, in bytes or with a unit."`
}

// ParseScale reads a scale request from JSON. Its errors are *Invalid.
func ParseScale(doc []byte) (ScaleRequest, error) {
	var s ScaleRequest
	n, err := jsonTree(doc)
	if err != nil {
		return s, err
	}
	r := &reader{}
	given := r.object(n, "",
		field{"group", r.label(&s.Group)},
		field{"count", func(n *node, path string) {
			s.Count = new(int)
			r.integer(s.Count, 1, MaxCount)(n, path)
		}},
		field{"cpu", func(n *node, path string) {
			s.CPU = new(float64)
			r.cpu(s.CPU)(n, path)
		}},
		field{"memory", func(n *node, path string) {
			s.Memory = new(Size)
			r.size(s.Memory)(n, path)
		}})
	if n.kind == kindObject && len(r.faults) == 0 && !given["count"] && !given["cpu"] && !given["memory"] {
		r.fault(nil, "count", "nothing to change: give count, cpu or memory")
	}
	if err := r.err(); err != nil {
		return ScaleRequest{}, err
	}
	return s, nil
}

// ImageSpec adds a file to the image catalogue.
type ImageSpec struct {
	Name    string `json:"name" doc:"Name in the catalogue." example:"debian-12"`
	Kind    string `json:"kind" enum:"disk,kernel,initrd" doc:"disk: a qcow2 base over which VMs get overlays; kernel; initrd."`
	File    string `json:"file" doc:"Absolute path of the file on the hosts." example:"/var/lib/evenkeel/images/debian-12.qcow2"`
	Size    Size   `json:"size,omitempty" doc:"Size of the file in bytes, for people."`
	Initrd  string `json:"initrd,omitempty" doc:"kernel only: initrd image it boots with, by name."`
	Cmdline string `json:"cmdline,omitempty" doc:"kernel only: its default command line."`
}

// ParseImage reads an image to add from JSON. Its errors are *Invalid.
func ParseImage(doc []byte) (ImageSpec, error) {
	var s ImageSpec
	n, err := jsonTree(doc)
	if err != nil {
		return s, err
	}
	r := &reader{}
	given := r.object(n, "",
		field{"name", r.imageName(&s.Name)},
		field{"kind", r.oneOf(&s.Kind, "disk", "kernel", "initrd")},
		field{"file", func(n *node, path string) {
			r.text(&s.File, 4096)(n, path)
			if s.File != "" && !cleanPath(s.File) {
				r.fault(n, path, "must be an absolute path without . or .. in it")
			}
		}},
		field{"size", r.size(&s.Size)},
		field{"initrd", r.imageName(&s.Initrd)},
		field{"cmdline", r.text(&s.Cmdline, 2048)})
	r.required(n, given, "", "name", "kind", "file")
	if s.Kind != "kernel" {
		for _, name := range []string{"initrd", "cmdline"} {
			if given[name] {
				r.fault(nil, name, "only an image of kind kernel has one")
			}
		}
	}
	if err := r.err(); err != nil {
		return ImageSpec{}, err
	}
	return s, nil
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
	Reason string `json:"reason,omitempty" doc:"Why, shown with the host." example:"disk replacement"`
}

// ParseCordon reads a cordon request from JSON; an empty body is one without a reason.
func ParseCordon(doc []byte) (CordonRequest, error) {
	var c CordonRequest
	if len(doc) == 0 {
		return c, nil
	}
	n, err := jsonTree(doc)
	if err != nil {
		return c, err
	}
	r := &reader{}
	r.object(n, "", field{"reason", r.text(&c.Reason, 500)})
	return c, r.err()
}
