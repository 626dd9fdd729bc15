package solvefile

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"unicode/utf8"

	"evenkeel/allocator"
)

// Parse reads one instance. After an error the instance holds its name, if that
// could be read, and nothing else of use.
func Parse(data []byte) (*Instance, error) {
	in := &Instance{}
	if !utf8.Valid(data) {
		return in, errors.New("not valid UTF-8")
	}
	d := decoder{json.NewDecoder(bytes.NewReader(data))}
	d.UseNumber()
	if err := d.instance(in); err != nil {
		return &Instance{Name: nameOf(data)}, err
	}
	if _, err := d.Token(); err != io.EOF {
		return &Instance{Name: in.Name}, fmt.Errorf("text after the end of the object at byte %d", d.InputOffset())
	}
	return in, nil
}

// nameOf finds the name in a bad instance, so that its answer can be distinguished from
// others; "" if it is not to be found.
func nameOf(data []byte) string {
	var named struct {
		Name string `json:"name"`
	}
	if json.Unmarshal(data, &named) != nil {
		return ""
	}
	return named.Name
}

// step is a key as part of the way to an error.
func step(key string) string {
	for _, r := range key {
		if !('a' <= r && r <= 'z' || 'A' <= r && r <= 'Z') {
			return shown(key)
		}
	}
	if key == "" || len(key) > 80 {
		return shown(key)
	}
	return key
}

type decoder struct{ *json.Decoder }

// token reads a token; the end of the input is an error here.
func (d decoder) token() (json.Token, error) {
	t, err := d.Token()
	if err == io.EOF || errors.Is(err, io.ErrUnexpectedEOF) {
		return nil, fmt.Errorf("the JSON ends too early, at byte %d", d.InputOffset())
	}
	if err != nil {
		return nil, fmt.Errorf("not JSON at byte %d: %w", d.InputOffset(), err)
	}
	return t, nil
}

// open reads the token that begins an object or array.
func (d decoder) open(delim json.Delim, what string) error {
	t, err := d.token()
	if err != nil {
		return err
	}
	if t != delim {
		return fmt.Errorf("must be %s, is %s", what, kind(t))
	}
	return nil
}

func kind(t json.Token) string {
	switch t := t.(type) {
	case nil:
		return "null"
	case bool:
		return strconv.FormatBool(t)
	case json.Number:
		return "the number " + t.String()
	case string:
		return "a string"
	case json.Delim:
		if t == '[' {
			return "an array"
		}
		return "an object"
	}
	return fmt.Sprintf("%v", t)
}

// object reads an object, calling field for each key with the decoder at its
// value. field returns errUnknown for a key that it does not know.
func (d decoder) object(field func(key string) error) error {
	if err := d.open('{', "an object"); err != nil {
		return err
	}
	var seen []string
	for d.More() {
		t, err := d.token()
		if err != nil {
			return err
		}
		key, ok := t.(string)
		if !ok {
			return fmt.Errorf("not JSON at byte %d: a field name is missing", d.InputOffset())
		}
		if slices.Contains(seen, key) {
			return fmt.Errorf("%s: given twice", shown(key))
		}
		if seen = append(seen, key); len(seen) > maxFields {
			return fmt.Errorf("more than %d fields", maxFields)
		}
		if err := field(key); err == errUnknown {
			return fmt.Errorf("%s: unknown field", shown(key))
		} else if err != nil {
			return under(step(key), err)
		}
	}
	_, err := d.token()
	return err
}

// maxFields bounds the fields of one object, labels included.
const maxFields = 64

var errUnknown = errors.New("unknown field")

// shown is a name from the input, fit for an error message.
func shown(name string) string {
	const top = 80
	if len(name) <= top {
		return strconv.Quote(name)
	}
	return strconv.Quote(name[:top]) + "..."
}

// array reads an array, calling item with the decoder at each element.
func (d decoder) array(item func(i int) error) error {
	if err := d.open('[', "an array"); err != nil {
		return err
	}
	for i := 0; d.More(); i++ {
		if err := item(i); err != nil {
			return under("["+strconv.Itoa(i)+"]", err)
		}
	}
	_, err := d.token()
	return err
}

// fieldError is an error in a part of the input, with the way to it.
type fieldError struct {
	path string
	err  error
}

func (e *fieldError) Error() string { return e.path + ": " + e.err.Error() }
func (e *fieldError) Unwrap() error { return e.err }

func under(step string, err error) error {
	e, ok := err.(*fieldError)
	switch {
	case !ok:
		return &fieldError{step, err}
	case e.path[0] == '[':
		return &fieldError{step + e.path, e.err}
	}
	return &fieldError{step + "." + e.path, e.err}
}

func (d decoder) text() (string, error) {
	t, err := d.token()
	if err != nil {
		return "", err
	}
	s, ok := t.(string)
	if !ok {
		return "", fmt.Errorf("must be a string, is %s", kind(t))
	}
	return s, nil
}

// name reads a string that is not empty.
func (d decoder) name() (string, error) {
	s, err := d.text()
	if err == nil && s == "" {
		err = errors.New("must not be empty")
	}
	return s, err
}

func (d decoder) number() (float64, error) {
	t, err := d.token()
	if err != nil {
		return 0, err
	}
	n, ok := t.(json.Number)
	if !ok {
		return 0, fmt.Errorf("must be a number, is %s", kind(t))
	}
	x, err := strconv.ParseFloat(n.String(), 64)
	if err != nil || math.IsInf(x, 0) || math.IsNaN(x) {
		return 0, fmt.Errorf("%s is not a finite number", shown(n.String()))
	}
	return x, nil
}

// amount reads a quantity of CPU or memory, >= 0.
func (d decoder) amount() (float64, error) {
	x, err := d.number()
	switch {
	case err != nil:
		return 0, err
	case x < 0:
		return 0, fmt.Errorf("%g is negative", x)
	case x != 0 && (x < allocator.MinNumber || x > allocator.GreatestNumber):
		return 0, fmt.Errorf("%g is out of range (0, or %g to %g)", x, allocator.MinNumber, allocator.GreatestNumber)
	}
	return x, nil
}

func (d decoder) positive() (float64, error) {
	x, err := d.amount()
	if err == nil && x == 0 {
		err = errors.New("must be greater than 0")
	}
	return x, err
}

func (d decoder) integer(lowest, limit int) (int, error) {
	x, err := d.number()
	if err != nil {
		return 0, err
	}
	if x != math.Trunc(x) || x < float64(lowest) || x > float64(limit) {
		return 0, fmt.Errorf("%g is not a whole number in %d..%d", x, lowest, limit)
	}
	return int(x), nil
}

func (d decoder) instance(in *Instance) error {
	var hosts, clusters bool
	current := map[int][]*string{} // by entry; host names are resolved at the end
	err := d.object(func(key string) (err error) {
		switch key {
		case "name":
			in.Name, err = d.text()
		case "hosts":
			hosts = true
			err = d.hosts(in)
		case "virtualClusters":
			clusters = true
			err = d.virtualClusters(in, current)
		case "maxMigrationBytes":
			var x float64
			x, err = d.amount()
			in.MaxMigrationBytes = &x
		case "placement":
			if in.Placement, err = d.text(); err == nil && in.Placement != "spread" && in.Placement != "pack" {
				err = fmt.Errorf("%q is not known (spread and pack are)", in.Placement)
			}
		default:
			err = errUnknown
		}
		return err
	})
	switch {
	case err != nil:
		return err
	case !hosts || len(in.Hosts) == 0:
		return errors.New("hosts: at least one is needed")
	case !clusters:
		return errors.New("virtualClusters: is missing")
	}
	return in.resolve(current)
}

// resolve turns the names in `current` into indexes.
func (in *Instance) resolve(current map[int][]*string) error {
	if len(current) == 0 {
		return nil
	}
	index := make(map[string]int, len(in.Hosts))
	for j := range in.Hosts {
		index[in.Hosts[j].Name] = j
	}
	for i := range in.VirtualClusters {
		names, ok := current[i]
		if !ok {
			continue
		}
		vc := &in.VirtualClusters[i]
		if len(names) != vc.Count {
			return fmt.Errorf("virtualClusters[%d].current: has %d entries for %d VMs", i, len(names), vc.Count)
		}
		vc.Current = make([]int, len(names))
		for k, name := range names {
			if name == nil {
				vc.Current[k] = -1
				continue
			}
			j, ok := index[*name]
			if !ok {
				return fmt.Errorf("virtualClusters[%d].current[%d]: there is no host %s", i, k, shown(*name))
			}
			vc.Current[k] = j
		}
	}
	return nil
}

func (d decoder) hosts(in *Instance) error {
	names := map[string]bool{}
	return d.array(func(int) error {
		var h Host
		var has [3]bool
		err := d.object(func(key string) (err error) {
			switch key {
			case "name":
				has[0] = true
				h.Name, err = d.name()
			case "cpu":
				has[1] = true
				h.CPU, err = d.positive()
			case "memory":
				has[2] = true
				h.Memory, err = d.positive()
			default:
				err = errUnknown
			}
			return err
		})
		if err == nil {
			err = complete(has)
		}
		if err == nil && names[h.Name] {
			err = &fieldError{"name", fmt.Errorf("%s is given twice", shown(h.Name))}
		}
		names[h.Name] = true
		in.Hosts = append(in.Hosts, h)
		return err
	})
}

// complete reports which of name, cpu and memory is missing.
func complete(has [3]bool) error {
	for i, field := range [...]string{"name", "cpu", "memory"} {
		if !has[i] {
			return &fieldError{field, errors.New("is missing")}
		}
	}
	return nil
}

func (d decoder) virtualClusters(in *Instance, current map[int][]*string) error {
	names := map[string]bool{}
	tasks := 0
	return d.array(func(i int) error {
		vc := VirtualCluster{Count: 1}
		var has [3]bool
		err := d.object(func(key string) (err error) {
			switch key {
			case "name":
				has[0] = true
				vc.Name, err = d.name()
			case "cpu":
				has[1] = true
				vc.CPU, err = d.amount()
			case "memory":
				has[2] = true
				vc.Memory, err = d.amount()
			case "count":
				vc.Count, err = d.integer(1, MaxCount)
			case "cluster":
				vc.Cluster, err = d.name()
			case "minYield":
				vc.MinYield, err = d.share()
			case "current":
				current[i], err = d.hostNames()
			case "priority":
				vc.Priority, err = d.integer(math.MinInt32, math.MaxInt32)
			case "labels":
				vc.Labels, err = d.labels()
			case "affinity":
				vc.Affinity, err = d.affinity()
			default:
				err = errUnknown
			}
			return err
		})
		if err == nil {
			err = complete(has)
		}
		if err == nil && names[vc.Name] {
			err = &fieldError{"name", fmt.Errorf("%s is given twice", shown(vc.Name))}
		}
		if tasks += vc.Count; err == nil && tasks > MaxTasks {
			err = &fieldError{"count", fmt.Errorf("more than %d VMs in sum", MaxTasks)}
		}
		names[vc.Name] = true
		in.VirtualClusters = append(in.VirtualClusters, vc)
		return err
	})
}

func (d decoder) share() (*float64, error) {
	x, err := d.number()
	if err == nil && (x < 0 || x > 1) {
		err = fmt.Errorf("%g is not in 0..1", x)
	}
	return &x, err
}

// hostNames reads an array of names and nulls.
func (d decoder) hostNames() ([]*string, error) {
	names := []*string{}
	err := d.array(func(int) error {
		t, err := d.token()
		if err != nil {
			return err
		}
		switch t := t.(type) {
		case nil:
			names = append(names, nil)
		case string:
			names = append(names, &t)
		default:
			return fmt.Errorf("must be the name of a host or null, is %s", kind(t))
		}
		return nil
	})
	return names, err
}

func (d decoder) labels() (map[string]string, error) {
	labels := map[string]string{}
	err := d.object(func(key string) (err error) {
		labels[key], err = d.text()
		return err
	})
	return labels, err
}

func (d decoder) affinity() (*Affinity, error) {
	a := &Affinity{}
	terms := func(to *[]string) error {
		return d.array(func(int) error {
			s, err := d.name()
			*to = append(*to, s)
			return err
		})
	}
	err := d.object(func(key string) (err error) {
		switch key {
		case "spread":
			a.Spread, err = d.name()
		case "require":
			err = terms(&a.Require)
		case "prefer":
			err = terms(&a.Prefer)
		case "avoid":
			err = terms(&a.Avoid)
		default:
			err = errUnknown
		}
		return err
	})
	return a, err
}
