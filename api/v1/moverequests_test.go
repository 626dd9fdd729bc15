package v1

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"
)

// faultsOf an error, as field names.
func faultsOf(t *testing.T, err error) []string {
	t.Helper()
	var invalid *Invalid
	if !errors.As(err, &invalid) {
		t.Fatalf("%v is no *Invalid", err)
	}
	var out []string
	for _, f := range invalid.Fields {
		out = append(out, f.Field)
	}
	return out
}

func bound(v int64) *Bound { b := Bound(v); return &b }

func TestBound(t *testing.T) {
	for text, want := range map[string]Bound{"0": 0, "4096": 4096, "64GiB": 64 << 30, "unlimited": Unlimited} {
		got, err := ParseBound(text)
		if err != nil || got != want {
			t.Errorf("%s: %d, %v", text, got, err)
		}
		if back, err := ParseBound(got.String()); err != nil || back != want {
			t.Errorf("%s is written as %s", text, got)
		}
	}
	for _, text := range []string{"", "-1", "64GB", "no", "Unlimited", "1e9"} {
		if got, err := ParseBound(text); err == nil {
			t.Errorf("%q is taken for %d", text, got)
		}
	}
}

func TestRebalanceRequest(t *testing.T) {
	for doc, want := range map[string]RebalanceRequest{
		``:                         {},
		`{}`:                       {},
		`{"maxBytes":null}`:        {},
		`{"maxBytes":0}`:           {MaxBytes: bound(0)},
		`{"maxBytes":"64GiB"}`:     {MaxBytes: bound(64 << 30)},
		`{"maxBytes":"unlimited"}`: {MaxBytes: bound(-1)},
		`{"reason":"new host"}`:    {Reason: "new host"},
	} {
		got, err := Decode[RebalanceRequest]([]byte(doc))
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v, %v", doc, got, err)
		}
		sent, err := json.Marshal(want)
		if err != nil {
			t.Fatal(err)
		}
		if back, err := Decode[RebalanceRequest](sent); err != nil || !reflect.DeepEqual(back, want) {
			t.Errorf("%s is sent as %s", doc, sent)
		}
	}
	for doc, field := range map[string]string{
		`{"maxBytes":-1}`: "maxBytes", `{"maxBytes":true}`: "maxBytes", `{"maxbytes":1}`: "maxbytes", `{"dryRun":true}`: "dryRun", `{"maxBytes":1.5}`: "maxBytes",
	} {
		if _, err := Decode[RebalanceRequest]([]byte(doc)); faultsOf(t, err)[0] != field {
			t.Errorf("%s: %v", doc, err)
		}
	}
}

func TestDrainRequest(t *testing.T) {
	got, err := Decode[DrainRequest]([]byte(`{"deadline":"90m","maxBytes":"64GiB","onBlocked":"shutdown","reason":"a new disk","otherHosts":["h2"]}`))
	want := DrainRequest{Deadline: "1h30m", MaxBytes: bound(64 << 30), OnBlocked: OnBlockedShutdown, Reason: "a new disk", OtherHosts: []string{"h2"}}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, %v", got, err)
	}
	if got, err := Decode[DrainRequest](nil); err != nil || got.OnBlocked != OnBlockedStop {
		t.Errorf("no body: %+v, %v", got, err)
	}
	for doc, field := range map[string]string{
		`{"deadline":"soon"}`: "deadline", `{"deadline":"0s"}`: "deadline", `{"deadline":"-1h"}`: "deadline", `{"deadline":3600}`: "deadline",
		`{"deadline":"99999h"}`: "deadline", `{"onBlocked":"kill"}`: "onBlocked", `{"force":true}`: "force", `{"reason":"` + strings.Repeat("x", 501) + `"}`: "reason",
	} {
		if _, err := Decode[DrainRequest]([]byte(doc)); faultsOf(t, err)[0] != field {
			t.Errorf("%s: %v", doc, err)
		}
	}
}

func TestParseSimulate(t *testing.T) {
	doc := `{"addHosts":[{"cpu":32,"memory":"128GiB","count":2}],"removeHosts":["h1"],"needs":[{"virtualCluster":"web","group":"front","cpu":6},{"virtualCluster":"film/web","cpu":1}],
		"maxBytes":"unlimited","snapshot":"` + base64.StdEncoding.EncodeToString([]byte("a saved state")) + `"}`
	got, err := ParseSimulate([]byte(doc))
	want := SimulateRequest{AddHosts: []SimulatedHost{{CPU: 32, Memory: 128 << 30, Count: 2}}, RemoveHosts: []string{"h1"},
		Needs: []SimulatedNeed{{VirtualCluster: "web", Group: "front", CPU: 6}, {VirtualCluster: "film/web", CPU: 1}}, MaxBytes: bound(-1), Snapshot: []byte("a saved state")}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, %v", got, err)
	}
	for doc, field := range map[string]string{
		`{"addHosts":[{"cpu":32}]}`:                             "addHosts[0].memory",
		`{"addHosts":[{"cpu":0,"memory":1}]}`:                   "addHosts[0].cpu",
		`{"addHosts":{"cpu":1,"memory":1}}`:                     "addHosts",
		`{"needs":[{"cpu":1}]}`:                                 "needs[0].virtualCluster",
		`{"needs":[{"virtualCluster":"a/b/c","cpu":1}]}`:        "needs[0].virtualCluster",
		`{"needs":[{"virtualCluster":"/b","cpu":1}]}`:           "needs[0].virtualCluster",
		`{"needs":[{"virtualCluster":"a/","cpu":1}]}`:           "needs[0].virtualCluster",
		`{"removeHosts":[1]}`:                                   "removeHosts[0]",
		`{"snapshot":"%"}`:                                      "snapshot",
		`{"snapshot":"` + "YQ==" + `","loseHosts":["h1"]}`:      "loseHosts",
		`{"addHosts":[{"cpu":1,"memory":"1GiB","count":9999}]}`: "addHosts[0].count",
	} {
		if _, err := ParseSimulate([]byte(doc)); faultsOf(t, err)[0] != field {
			t.Errorf("%s: %v", doc, err)
		}
	}
	// A saved state may be larger than other documents.
	large := base64.StdEncoding.EncodeToString(make([]byte, 2*MaxBytes))
	if got, err := ParseSimulate([]byte(`{"snapshot":"` + large + `"}`)); err != nil || len(got.Snapshot) != 2*MaxBytes {
		t.Errorf("%d bytes, %v", len(got.Snapshot), err)
	}
}

func TestDuration(t *testing.T) {
	for text, want := range map[string]string{"0s": "0s", "600s": "10m", "90m": "1h30m", "60m": "1h", "1500ms": "1.5s", "20m0s": "20m", "10s": "10s"} {
		d, err := ParseDuration(text)
		if err != nil || FormatDuration(d) != want {
			t.Errorf("%s: %s, %v", text, FormatDuration(d), err)
		}
	}
	if _, err := ParseDuration(maxDuration.String()); err != nil {
		t.Error(err)
	}
	if d, err := ParseDuration((maxDuration + time.Second).String()); err == nil {
		t.Errorf("%s is taken", d)
	}
}

func TestParseSettings(t *testing.T) {
	got, err := ParseSettingPairs([]string{"minYield=0.6", "onFull=reject", "image=", "minMemory=128MiB", "sharedPools=nfs,ceph", "moves.mode=propose",
		"moves.period=5m", "moves.maxBytes=0", "moves.bandwidth=100MiB", "moves.postCopy=true", "moves.perHost=1", "moves.minGain=0.2"})
	if err != nil {
		t.Fatal(err)
	}
	sent, err := json.Marshal(got)
	if err != nil {
		t.Fatal(err)
	}
	want := `{"minYield":0.6,"onFull":"reject","image":"","minMemory":134217728,"sharedPools":["nfs","ceph"],` +
		`"moves":{"mode":"propose","period":"5m","minGain":0.2,"maxBytes":0,"perHost":1,"bandwidth":104857600,"postCopy":true}}`
	if string(sent) != want {
		t.Errorf("%s\nwant %s", sent, want)
	}
	if back, err := ParseSettings(sent); err != nil || !reflect.DeepEqual(back, got) {
		t.Errorf("%+v, %v", back, err)
	}
	if got, err := ParseSettingPairs([]string{"sharedPools="}); err != nil || got.SharedPools == nil || len(*got.SharedPools) != 0 {
		t.Errorf("no shared pools: %+v, %v", got, err)
	}
	for pair, field := range map[string]string{
		"minYield": "minYield", "minYield=2": "minYield", "minYield=x": "minYield", "moves.mode=maybe": "moves.mode", "moves.perHost=0": "moves.perHost",
		"moves.period=5": "moves.period", "period=5m": "period", "moves=auto": "moves", "moves.postCopy=1": "moves.postCopy", "moves.maxBytes=-1": "moves.maxBytes",
		"moves.autoConverge=yes": "moves.autoConverge", `minYield={"a":1}`: "minYield",
	} {
		_, err := ParseSettingPairs([]string{pair})
		if faults := faultsOf(t, err); faults[0] != field {
			t.Errorf("%s: %v", pair, err)
		}
		if strings.Contains(err.Error(), "line ") {
			t.Errorf("%s: a line of a document that does not exist: %v", pair, err)
		}
	}
	if _, err := ParseSettingPairs([]string{"moves.mode=off", "moves.mode=auto"}); faultsOf(t, err)[0] != "moves.mode" {
		t.Errorf("given twice: %v", err)
	}
	for _, doc := range []string{`{}`, `{"moves":{}}`, `{"moves":{"speed":1}}`, `[]`, ``} {
		if _, err := ParseSettings([]byte(doc)); err == nil {
			t.Errorf("%q is taken", doc)
		}
	}
	for _, key := range SettingKeys() { // each key that may be named is one that the reader knows
		if _, err := ParseSettingPairs([]string{key + "=\x01"}); err != nil && strings.Contains(err.Error(), "unknown") {
			t.Errorf("%s: %v", key, err)
		}
	}
}
