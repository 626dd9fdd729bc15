package main

import (
	"strings"
	"testing"

	"evenkeel/hypervisor/simulated"
)

func TestMachinesOf(t *testing.T) {
	got, err := machinesOf("2x32x128GiB, 1x0.5x1GiB")
	want := []simulated.Machine{{Name: "h1", CPU: 32, Memory: 128 << 30}, {Name: "h2", CPU: 32, Memory: 128 << 30}, {Name: "h3", CPU: 0.5, Memory: 1 << 30}}
	if err != nil || len(got) != len(want) {
		t.Fatalf("%v, %v", got, err)
	}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("host %d: %+v, want %+v", i, got[i], want[i])
		}
	}
	if got, err := machinesOf("12"); err != nil || len(got) != 12 || got[11] != (simulated.Machine{Name: "h12", CPU: 32, Memory: 128 << 30}) {
		t.Errorf("%v, %v", got, err)
	}
	for text, cause := range map[string]string{
		"":                       `"" is not a number of hosts`,
		"0":                      `"0" is not a number of hosts`,
		"10001":                  "too many",
		"9999x1x1GiB,2x1x1GiB":   "too many",
		"12,12":                  `"12" is not NUMBERxCORESxMEMORY`,
		"8x32":                   `"8x32" is not NUMBERxCORESxMEMORY`,
		"8x32x128GiBx1":          "is not NUMBERxCORESxMEMORY",
		"8xNaNx128GiB":           `"NaN" is not a number of cores`,
		"8x5000x128GiB":          `"5000" is not a number of cores`,
		"8x32x5MiB":              `"5MiB" is not a size of memory`,
		"8x32x128":               `"128" is not a size of memory`,
		"8x32x99999999999999GiB": "is not a size of memory",
	} {
		if _, err := machinesOf(text); err == nil || !strings.Contains(err.Error(), cause) {
			t.Errorf("%q: %v, want %q", text, err, cause)
		}
	}
}
