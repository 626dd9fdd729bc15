package server

import (
	"errors"
	"reflect"
	"strconv"
	"strings"
	"testing"

	"evenkeel/api/v1"
	"evenkeel/cluster/leader"
)

// A label that is a field of its own has no mark of its tenant, in what an apply kept and in what is a conflict; other fields stay.
func TestLabelFieldsAsWritten(t *testing.T) {
	for _, x := range []scopedView{{scope: scope{tenant: "film", restricted: true}}, {scope: scope{tenant: "film"}}} {
		for in, want := range map[string]string{
			"groups[w].labels[zone@film]":       "groups[w].labels[zone]",
			"groups[w].labels[a.b/c@film]":      "groups[w].labels[a.b/c]",
			"groups[w].labels[zone]":            "groups[w].labels[zone]",
			"groups[w].labels":                  "groups[w].labels",
			"groups[w].labels[x.affinity.y@fi]": "groups[w].labels[x.affinity.y]",
			"priority":                          "priority",
		} {
			if got := x.fieldChanges([]leader.FieldChange{{Field: in, From: "1", To: "2"}}); len(got) != 1 || got[0].Field != want || got[0].From != "1" || got[0].To != "2" {
				t.Errorf("%s: %+v, want %s", in, got, want)
			}
			was := &leader.Conflicts{Fields: []leader.Conflict{{Field: in, Was: "1", Now: "2", Mine: "3"}}}
			var got *leader.Conflicts
			if err := x.conflicts(was); !errors.As(err, &got) || got.Fields[0] != (leader.Conflict{Field: want, Was: "1", Now: "2", Mine: "3"}) || strings.Contains(err.Error(), "@") {
				t.Errorf("%s: %v", in, err)
			}
			if was.Fields[0].Field != in {
				t.Errorf("the cluster's own error became %v", was)
			}
		}
	}
}

// A merge allows as many labels as a file may have.
func TestMaxLabelsIsThatOfFiles(t *testing.T) {
	f, _ := reflect.TypeFor[v1.GroupSpec]().FieldByName("Labels")
	if got := f.Tag.Get("maxProperties"); got != strconv.Itoa(leader.MaxLabels) {
		t.Errorf("a file may have %s labels, a merge %d", got, leader.MaxLabels)
	}
}
