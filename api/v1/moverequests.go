package v1

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
)

// Bound is a most number of bytes in a request: written as a size, or "unlimited".
type Bound int64

// Unlimited is no bound at all.
const Unlimited Bound = -1

// ParseBound reads a size, 0 included, or "unlimited".
func ParseBound(s string) (Bound, error) {
	if s == "unlimited" {
		return Unlimited, nil
	}
	v, err := ParseSize(s)
	if err != nil {
		return 0, fmt.Errorf("%w, or unlimited", err)
	}
	return Bound(v), nil
}

// String is how ParseBound reads it back.
func (b Bound) String() string {
	if b < 0 {
		return "unlimited"
	}
	return Size(b).String()
}

// MarshalJSON writes bytes, or "unlimited".
func (b Bound) MarshalJSON() ([]byte, error) {
	if b < 0 {
		return []byte(`"unlimited"`), nil
	}
	return strconv.AppendInt(nil, int64(b), 10), nil
}

// maxDuration of anything that a request may name.
const maxDuration = 366 * 24 * time.Hour

// ParseDuration reads a Go duration from zero to a year.
func ParseDuration(s string) (time.Duration, error) {
	d, err := time.ParseDuration(s)
	if err != nil || d < 0 || d > maxDuration {
		return 0, fmt.Errorf("%q is no duration: write it like 30s, 10m or 1h30m", clip(s, 40))
	}
	return d, nil
}

// FormatDuration is a duration as people write it: 10m, not 10m0s.
func FormatDuration(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = s[:len(s)-2]
	}
	if strings.HasSuffix(s, "h0m") {
		s = s[:len(s)-2]
	}
	return s
}

// RebalanceRequest asks for the best moves within some bytes.
type RebalanceRequest struct {
	MaxBytes *Bound `json:"maxBytes,omitempty" doc:"Most bytes that all moves together may send: bytes, a size with a unit, or \"unlimited\". 0: only caps change. Left out: the cluster's own bound."`
	Reason   string `json:"reason,omitempty" maxLength:"500" doc:"Why, shown with the plan."`
}

// What becomes of VMs that cannot leave a host that is drained.
const (
	OnBlockedStop     = "stop"
	OnBlockedSkip     = "skip"
	OnBlockedShutdown = "shutdown"
)

// DrainRequest asks for a drain of a host.
type DrainRequest struct {
	Deadline   string   `json:"deadline,omitempty" text:"duration" doc:"Time after which no further move begins, as a Go duration. Left out: there is none." example:"1h"`
	MaxBytes   *Bound   `json:"maxBytes,omitempty" doc:"Most bytes that its moves may send: bytes, a size with a unit, or \"unlimited\". Left out: unlimited."`
	OnBlocked  string   `json:"onBlocked,omitempty" default:"stop" enum:"stop,skip,shutdown" doc:"What becomes of VMs that cannot move. stop: the drain is refused (409 blocked), and nothing moves; the default. skip: they stay, all others leave. shutdown: their guests are asked to power off."`
	OtherHosts []string `json:"otherHosts,omitempty" maxItems:"1000" doc:"Names of other hosts that are about to be emptied as well: no VM goes there."`
	Reason     string   `json:"reason,omitempty" maxLength:"500" doc:"Why, shown with the host."`
}

func (q *DrainRequest) check(fault func(field, format string, args ...any)) {
	if q.Deadline == "0s" {
		fault("deadline", "must be more than 0")
	}
}

// SimulatedHost is a host, or some equal ones, that a simulation adds.
type SimulatedHost struct {
	CPU    float64 `json:"cpu" exclusiveMinimum:"0" maximum:"4096" unit:"cores" doc:"Its allowance, cores."`
	Memory Size    `json:"memory" doc:"Its allowance, bytes or a size with a unit."`
	Count  int     `json:"count,omitempty" default:"1" minimum:"1" maximum:"1000" doc:"How many of them; default 1."`
}

// SimulatedNeed is another CPU need of a virtual cluster's VMs.
type SimulatedNeed struct {
	VirtualCluster string  `json:"virtualCluster" maxLength:"127" pattern:"^([a-z0-9]([-a-z0-9]*[a-z0-9])?/)?[a-z0-9]([-a-z0-9]*[a-z0-9])?$" patternDescription:"a DNS label: a to z, 0 to 9 and, inside, hyphens; or two, TENANT/NAME" doc:"Full name of the virtual cluster: TENANT/NAME where it is not of the default tenant."`
	Group          string  `json:"group,omitempty" maxLength:"63" pattern:"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$" patternDescription:"a DNS label: a to z, 0 to 9 and, inside, hyphens" doc:"Its group; may be left out if there is only one."`
	CPU            float64 `json:"cpu" exclusiveMinimum:"0" maximum:"4096" unit:"cores" doc:"What each VM would need, cores."`
}

// SimulateRequest asks what would be if the cluster were another. Nothing is changed.
type SimulateRequest struct {
	AddHosts    []SimulatedHost `json:"addHosts,omitempty" maxItems:"1000" doc:"Hosts that are not there."`
	RemoveHosts []string        `json:"removeHosts,omitempty" maxItems:"1000" doc:"Names of hosts to think away; their VMs go elsewhere."`
	Needs       []SimulatedNeed `json:"needs,omitempty" maxItems:"1000" doc:"CPU needs other than the present ones."`
	MaxBytes    *Bound          `json:"maxBytes,omitempty" doc:"Most bytes that all moves together may send: bytes, a size with a unit, or \"unlimited\". Left out: the cluster's own bound."`
	Snapshot    []byte          `json:"snapshot,omitempty" doc:"A saved state of the cluster in base64, to be asked in place of the present one."`
}

// ParseSimulate reads a simulation from JSON. The snapshot, which may be large, is taken out first; the faults'
// lines are then not those of the document.
func ParseSimulate(doc []byte) (SimulateRequest, error) {
	var q SimulateRequest
	doc, snapshot, err := takeSnapshot(doc)
	if err != nil {
		return q, err
	}
	if q, err = Decode[SimulateRequest](doc); err != nil {
		return SimulateRequest{}, err
	}
	q.Snapshot = snapshot
	return q, nil
}

// takeSnapshot takes the field snapshot, which may be hundreds of megabytes, out of a document that has one; of all else it reads at
// most MaxBytes. What is not a JSON object of that size is left as it is, and jsonTree says what is wrong with it.
func takeSnapshot(doc []byte) (rest, snapshot []byte, err error) {
	if !bytes.Contains(doc, []byte(`"snapshot"`)) {
		return doc, nil, nil
	}
	d := json.NewDecoder(bytes.NewReader(doc))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return doc, nil, nil
	}
	others, found := []byte("{"), false
	for n := 0; d.More(); n++ {
		if n > maxValues {
			return nil, nil, malformed(0, "", "the document has more than %d values", maxValues)
		}
		key, err := d.Token()
		name, isText := key.(string)
		if err != nil || !isText {
			return doc, nil, nil
		}
		if name == "snapshot" {
			if found {
				return nil, nil, malformed(0, name, "given twice")
			}
			found = true
			var wrong *json.UnmarshalTypeError
			var base64 base64.CorruptInputError
			switch err := d.Decode(&snapshot); {
			case errors.As(err, &wrong), errors.As(err, &base64):
				return nil, nil, &Invalid{Fields: []FieldError{{Field: name, Message: "must be a saved state of the cluster in base64"}}}
			case err != nil:
				return nil, nil, malformed(0, name, "not JSON: %v", err)
			}
			continue
		}
		var value json.RawMessage
		if err := d.Decode(&value); err != nil {
			return nil, nil, malformed(0, clip(name, 60), "not JSON: %v", err)
		}
		if len(others) > 1 {
			others = append(others, ',')
		}
		quoted, _ := json.Marshal(name) // text always can be
		others = append(append(append(others, quoted...), ':'), value...)
		if err := tooLarge(len(others)); err != nil {
			return nil, nil, err
		}
	}
	if !found {
		return doc, nil, nil
	}
	if _, err := d.Token(); err != nil { // the closing brace
		return nil, nil, malformed(0, "", "the JSON document ends in the middle")
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, nil, malformed(0, "", "there is more after the end of the document")
	}
	return append(others, '}'), snapshot, nil
}
