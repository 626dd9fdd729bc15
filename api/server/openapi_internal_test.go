package server

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"evenkeel/api/client"
)

// TestOpenAPIRules: what a reader of the OpenAPI document, or a generator of clients, needs of every operation.
func TestOpenAPIRules(t *testing.T) {
	answer := httptest.NewRecorder()
	New(noCluster{}, Options{Members: noMembers{}}).mux.ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/openapi.json", nil))
	var doc struct {
		Servers []struct{ URL string }
		Paths   map[string]map[string]struct {
			OperationID, Summary, Description string
			Tags                              []string
			Security                          *[]map[string][]string
			Parameters                        []struct{ Name, Description string }
			Responses                         map[string]struct{ Content map[string]any }
		}
		Components struct {
			Schemas map[string]struct {
				Properties map[string]struct{ Description string }
			}
		}
	}
	if err := json.Unmarshal(answer.Body.Bytes(), &doc); err != nil {
		t.Fatalf("%v: %s", err, answer.Body)
	}
	if len(doc.Servers) == 0 {
		t.Error("the document names no server")
	}
	for name, schema := range doc.Components.Schemas {
		for property, p := range schema.Properties {
			if p.Description == "" {
				t.Errorf("property %s of schema %s is not described", property, name)
			}
		}
		// A Gap is what a message of the stream of events holds, which no schema can say.
		if name != "Gap" && !strings.Contains(answer.Body.String(), `"#/components/schemas/`+name+`"`) {
			t.Errorf("nothing refers to the schema %s", name)
		}
	}
	ids := map[string]string{}
	for path, methods := range doc.Paths {
		for method, op := range methods {
			name := method + " " + path
			if op.OperationID == "" || op.Summary == "" || op.Description == "" || len(op.Tags) == 0 {
				t.Errorf("%s lacks an id, a summary, a description or a tag: %q, %q, %q, %q", name, op.OperationID, op.Summary, op.Description, op.Tags)
			}
			if other, twice := ids[op.OperationID]; twice {
				t.Errorf("%s and %s have the id %s", name, other, op.OperationID)
			}
			ids[op.OperationID] = name
			for _, p := range op.Parameters {
				if p.Description == "" {
					t.Errorf("%s: parameter %s is not described", name, p.Name)
				}
			}
			problems := 0
			for status, r := range op.Responses {
				if _, ok := r.Content["application/problem+json"]; ok && status[0] == '4' {
					problems++
				}
			}
			if free := op.Security != nil && len(*op.Security) == 0; problems == 0 && !free {
				t.Errorf("%s needs a token and describes no problem of the caller (4xx)", name)
			}
		}
	}
}

// The client sends the parameter tenant exactly where an operation takes it.
func TestClientKnowsOperationsOfTenants(t *testing.T) {
	answer := httptest.NewRecorder()
	New(noCluster{}, Options{Members: noMembers{}}).mux.ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/openapi.json", nil))
	var doc struct {
		Paths map[string]map[string]struct{ Parameters []struct{ Name, In string } }
	}
	if err := json.Unmarshal(answer.Body.Bytes(), &doc); err != nil {
		t.Fatalf("%v: %s", err, answer.Body)
	}
	taking := 0
	for path, methods := range doc.Paths {
		below, ok := strings.CutPrefix(path, "/v1/")
		if !ok {
			continue
		}
		for method, op := range methods {
			takes := false
			for _, p := range op.Parameters {
				takes = takes || p.Name == "tenant" && p.In == "query"
			}
			if sends := client.TakesTenant(strings.ToUpper(method), strings.Split(below, "/")...); sends != takes {
				t.Errorf("%s %s: takes the parameter tenant: %v; the client sends it: %v", method, path, takes, sends)
			}
			if takes {
				taking++
			}
		}
	}
	if taking < 10 {
		t.Errorf("only %d operations take a tenant: the search looks in the wrong place", taking)
	}
}
