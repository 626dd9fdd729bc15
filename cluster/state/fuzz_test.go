package state_test

import (
	"bytes"
	"fmt"
	"os"
	"testing"

	"evenkeel/cluster/state"
)

// Whatever bytes come: Decode does not panic, and what it accepts can be applied, to an empty
// and to a populated state, with the same outcome in every copy. An entry that made apply
// panic would stop every server of a cluster, and again at each start.
func FuzzDecodeCommand(f *testing.F) {
	for v := 1; v <= state.FormatVersion; v++ {
		log, err := os.ReadFile(fmt.Sprintf("testdata/log-v%d.jsonl", v))
		if err != nil {
			f.Fatal(err)
		}
		for _, entry := range bytes.Split(bytes.TrimSpace(log), []byte("\n")) {
			f.Add(entry)
		}
	}
	for _, body := range []string{
		`{"v":1,"kind":"cluster-init","at":"2026-01-01T00:00:00Z","body":null}`,
		`{"v":1,"kind":"host-report","at":"2026-01-01T00:00:00Z","body":{"name":"","allowance":{"cpu":1e308,"memory":9223372036854775807}}}`,
		`{"v":1,"kind":"plan","at":"9999-12-31T23:59:59+14:00","body":{"vc":{},"vms":[{}],"allocations":[{}],"affectedHosts":[""],"operation":{},"remembered":{}}}`,
		`{"v":1,"kind":"vm-report","at":"2026-01-01T00:00:00Z","body":{"host":"h1","vms":[{"vm":"vm-a-0","generation":1,"phase":"weird","chargedMemory":-1}]}}`,
		`{"v":1,"kind":"image-put","at":"2026-01-01T00:00:00Z","body":{"name":"\u0000"}}`,
		`{"v":1,"kind":"move-plan","at":"2026-01-01T00:00:00Z","body":{"plan":{"id":"a","kind":"drain","state":"running","steps":[{"vm":"x","from":"a","to":"b","state":"moving","after":[7]}]}}}`,
		`{"v":1,"kind":"drain","at":"2026-01-01T00:00:00Z","body":{"host":"h1","drain":{"state":"draining"},"movePlan":{"plan":{}}}}`,
		`{"v":1,"kind":"move","at":"2026-01-01T00:00:00Z","body":{"vm":"vm-a-0","generation":1,"to":"h2","open":true,"id":"m","plan":"p","step":-1}}`,
		`{"v":1,"kind":"settings","at":"2026-01-01T00:00:00Z","body":{}}`,
		`{"v":1,"kind":"admin-token","at":"2026-01-01T00:00:00Z","body":{"id":"0000000000000001","hash":"x","name":"\u0000","role":"root","tenant":"t"}}`,
		`{"v":1,"kind":"token-drop","at":"2026-01-01T00:00:00Z","body":{"id":"0000000000000001","by":"\n"}}`,
		`{"v":1,"kind":"tokens-used","at":"2026-01-01T00:00:00Z","body":{"used":[{},{"id":"0000000000000001","at":"9999-12-31T23:59:59Z"}]}}`,
		`{"v":2,"kind":"role-put","at":"2026-01-01T00:00:00Z","body":{"id":"0000000000000001","subject":{"kind":"user","issuer":"x","name":"\u0000"},"role":"admin"}}`,
		`{"v":2,"kind":"role-drop","at":"2026-01-01T00:00:00Z","body":{"id":""}}`,
		`{"v":2,"kind":"subject-revoke","at":"2026-01-01T00:00:00Z","body":{"id":"oidc:1","subject":"1","before":"9999-12-31T23:59:59Z"}}`,
		`{"v":1,"kind":"plan","body":{}}`, `{"v":1`, ``,
	} {
		f.Add([]byte(body))
	}
	populated := small(f, 2)
	populated.must(f, state.KindPlan, planOf(populated.Snapshot(), "a", 1, gib, "h1", "h2"))
	populated.must(f, state.KindVMReport, report("h1", "vm-a-0", 1, state.Running))
	saved := save(f, populated.Snapshot())
	next := populated.Snapshot().Index() + 1
	f.Fuzz(func(t *testing.T, entry []byte) {
		if _, _, err := state.Decode(entry); err != nil {
			return
		}
		_ = state.New().Apply(1, entry)
		var was string
		for range 2 {
			s := state.New()
			if err := s.Restore(bytes.NewReader([]byte(saved))); err != nil {
				t.Fatal(err)
			}
			outcome := s.Apply(next, entry)
			is := save(t, s.Snapshot())
			if outcome != nil {
				is += outcome.Error()
			}
			if was != "" && is != was {
				t.Fatalf("applied twice:\n%s\nand\n%s", was, is)
			}
			was = is
			again := state.New()
			if err := again.Restore(bytes.NewReader([]byte(save(t, s.Snapshot())))); err != nil {
				t.Fatalf("what it made cannot be restored: %v", err)
			}
		}
	})
}
