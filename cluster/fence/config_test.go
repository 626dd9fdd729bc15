package fence

import (
	"strings"
	"testing"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/google/go-cmp/cmp"
)

// TestConfig reads what an operator may write.
func TestConfig(t *testing.T) {
	ipmi := Device{Agent: "fence_ipmilan", Options: map[string]string{"ip": "192.0.2.102", "lanplus": "1"}, PasswordFile: "/etc/evenkeel/fence/h2.password"}
	outlet := func(ip string) Device {
		return Device{Agent: "fence_apc_snmp", Options: map[string]string{"ip": ip, "plug": "7"}, SecretFiles: map[string]string{"community": "c"}, Timeout: 90 * time.Second}
	}
	tests := []struct {
		name, text string
		want       []Level
		err        string
	}{
		{"one device", `
agent: fence_ipmilan
options: {ip: 192.0.2.102, lanplus: 1}
passwordFile: /etc/evenkeel/fence/h2.password`, []Level{{ipmi}}, ""},
		{"levels", `
levels:
  - - {agent: fence_ipmilan, options: {ip: 192.0.2.102, lanplus: "1"}, passwordFile: /etc/evenkeel/fence/h2.password}
  - - {agent: fence_apc_snmp, options: {ip: 192.0.2.250, plug: 7}, secretFiles: {community: c}, timeout: 90s}
    - {agent: fence_apc_snmp, options: {ip: 192.0.2.251, plug: 7}, secretFiles: {community: c}, timeout: 90s}`,
			[]Level{{ipmi}, {outlet("192.0.2.250"), outlet("192.0.2.251")}}, ""},
		{"both", "agent: fence_ipmilan\nlevels: [[{agent: fence_apc}]]", nil, "fence h2: give one device or levels"},
		{"nothing", "{}", nil, "fence h2: no fence device"},
		{"an empty level", "levels: [[]]", nil, "fence h2: level 1 has no device"},
		{"an agent that proves nothing", "agent: fence_scsi", nil, "fence h2: level 1, device 1: agent fence_scsi"},
		{"an unknown key", "agent: fence_ipmilan\npassword: hunter2", nil, "unknown field"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var c Config
			err := yaml.UnmarshalWithOptions([]byte(tt.text), &c, yaml.Strict())
			var got []Level
			if err == nil {
				got, err = c.Check("h2")
			}
			if (err == nil) != (tt.err == "") || err != nil && !strings.Contains(err.Error(), tt.err) {
				t.Fatalf("error %v, want %q", err, tt.err)
			}
			if d := cmp.Diff(tt.want, got); d != "" {
				t.Error(d)
			}
		})
	}
}
