package server

import (
	"encoding/json"
	"strings"
	"testing"

	"evenkeel/api/v1"
	"evenkeel/cluster/state"
)

// Each setting that a request names changes that setting and no other, and the answer shows it.
func TestEachSettingIsTaken(t *testing.T) {
	values := map[string]string{"onFull": "reject", "image": "debian", "pool": "fast", "placement": "pack", "sharedPools": "a,b", "networks": "lab=film,public", "pools": "fast=film", "minMemory": "134217728", "moves.maxBytes": "3221225472", "moves.bandwidth": "2097152",
		"moves.mode": "propose", "rightsizing.mode": "on", "rightsizing.needs": "estimated", "rightsizing.aggressiveness": "conservative",
		"rightsizing.disabledStages": strings.Join(state.Stages[:], ",")}
	for _, key := range []string{"moves.period", "moves.minResidency", "moves.coolDown", "moves.stabilizationWindow", "moves.deadline"} {
		values[key] = "11m"
	}
	for _, key := range []string{"moves.autoConverge", "moves.postCopy", "moves.copyStorage", "moves.onJoin"} {
		values[key] = "true"
	}
	for _, key := range []string{"minYield", "moves.minGain", "moves.idleBelow", "periodic.reprovision"} {
		values[key] = "0.125"
	}
	for _, key := range []string{"maxVMs", "moves.perHost", "moves.total"} {
		values[key] = "7"
	}
	before := flat(t, settings(state.DefaultSettings()))
	for _, key := range v1.SettingKeys() {
		value, ok := values[key]
		if !ok {
			t.Errorf("%s: the test has no value for it", key)
			continue
		}
		patch, err := v1.ParseSettingPairs([]string{key + "=" + value})
		if err != nil {
			t.Error(err)
			continue
		}
		changed := state.DefaultSettings()
		if err := patchSettings(&changed, patch); err != nil {
			t.Error(err)
		}
		if err := (state.SettingsPut{Settings: changed}).Check(); err != nil {
			t.Errorf("%s=%s: %v", key, value, err)
		}
		after := flat(t, settings(changed))
		delete(after, "moves.budget") // follows from others
		if after[key] != value {
			t.Errorf("%s=%s: the answer says %q", key, value, after[key])
		}
		for other, is := range after {
			if other != key && is != before[other] {
				t.Errorf("%s=%s changed %s from %s to %s", key, value, other, before[other], is)
			}
		}
	}
}

// flat is the values of a document by their names, those of nested ones with a dot, as people write them.
func flat(t *testing.T, doc any) map[string]string {
	t.Helper()
	text, err := json.Marshal(doc)
	if err != nil {
		t.Fatal(err)
	}
	var values map[string]any
	d := json.NewDecoder(strings.NewReader(string(text)))
	d.UseNumber()
	if err := d.Decode(&values); err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	var add func(prefix string, of map[string]any)
	add = func(prefix string, of map[string]any) {
		for name, v := range of {
			switch x := v.(type) {
			case map[string]any:
				add(prefix+name+".", x)
			case string:
				out[prefix+name] = x
			case []any:
				var list []string
				for _, e := range x {
					s, _ := e.(string)
					list = append(list, s)
				}
				out[prefix+name] = strings.Join(list, ",")
			default:
				b, _ := json.Marshal(v)
				out[prefix+name] = string(b)
			}
		}
	}
	add("", values)
	return out
}
