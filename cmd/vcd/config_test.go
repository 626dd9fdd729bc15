package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"evenkeel/api/oidc"
	"evenkeel/internal/secretfile"
)

const minConfig = "name: h1\nserver: true\nadvertise: 192.0.2.11:7480\n"

// What is wrong with a configuration is said with the key, or the line that cannot be read.
func TestBadConfig(t *testing.T) {
	for _, c := range []struct {
		name, text string
		want       []string
	}{
		{"nothing", "", []string{"server, agent: one of them must be true", "advertise: "}},
		{"unknown key", minConfig + "colour: red\n", []string{"[4:1]", "colour"}},
		{"unknown key below another", minConfig + "snapshots:\n  evry: 1h\n", []string{"[5:3]", "evry"}},
		{"no YAML", "name: [h1\nserver: true\n", []string{"[2:1]"}},
		{"a list", "- name: h1\n", []string{"[1:"}},
		{"a key twice", minConfig + "name: h2\n", []string{"[4:1]", "name"}},
		{"an alias", "name: &a h1\nserver: true\nadvertise: *a\n", []string{"line 1", "anchors and aliases are not supported"}},
		{"two documents", minConfig + "---\nname: h2\n", []string{"more than one document"}},
		{"wrong type", minConfig + "agent: perhaps\n", []string{"[4:8]", "agent"}},
		{"name", strings.Replace(minConfig, "h1", "Host_1", 1), []string{"name: ", "DNS label"}},
		{"long name", strings.Replace(minConfig, "h1", strings.Repeat("h", 64), 1), []string{"name: "}},
		{"no role", "name: h1\nadvertise: 192.0.2.11:7480\n", []string{"server, agent: "}},
		{"listen", minConfig + "listen: 7480\n", []string{"listen: "}},
		{"port", minConfig + "listen: 0.0.0.0:http\n", []string{"listen: "}},
		{"port of advertise", "server: true\nname: h1\nadvertise: 192.0.2.11:0\n", []string{"advertise: "}},
		{"high port", minConfig + "gossip: 0.0.0.0:70000\n", []string{"gossip: "}},
		{"advertise everywhere", "server: true\nname: h1\nadvertise: 0.0.0.0:7480\n", []string{"advertise: "}},
		{"no advertise", "server: true\nname: h1\n", []string{"advertise: "}},
		{"dataDir", minConfig + "dataDir: data\n", []string{"dataDir: "}},
		{"socket", minConfig + "socket: vcd.sock\n", []string{"socket: "}},
		{"long socket", minConfig + "socket: /" + strings.Repeat("x", 107) + "\n", []string{"socket: "}},
		{"CPU", minConfig + "allowance: {cpu: -1}\n", []string{"allowance.cpu: "}},
		{"CPU that is none", minConfig + "allowance: {cpu: .nan}\n", []string{"allowance.cpu: "}},
		{"memory", minConfig + "allowance: {memory: lots}\n", []string{"allowance.memory: "}},
		{"memory without a unit", "logLevel: info\n" + minConfig + "allowance:\n  memory: 3\n", []string{"line 6: allowance.memory: ", "unit", "GiB"}},
		{"lease", minConfig + "lease: 1s\n", []string{"lease: "}},
		{"no duration", minConfig + "lease: soon\n", []string{"soon", "not a duration"}},
		{"a number", minConfig + "lease: 20\n", []string{"20", "not a duration"}},
		{"watchdog", minConfig + "watchdog: {device: /dev/watchdog, timeout: 1s}\n", []string{"watchdog.timeout: "}},
		{"fence", minConfig + "fence:\n  h2: {agent: fence_scsi}\n", []string{"fence.h2: "}},
		{"fence without agent", minConfig + "fence:\n  h2: {}\n", []string{"fence.h2: "}},
		{"fence of an unknown host", minConfig + "fence:\n  Host_2: {agent: fence_ipmilan}\n", []string{"fence.Host_2: "}},
		{"fence twice", minConfig + "fence:\n  h2: {agent: fence_ipmilan, options: {ip: 192.0.2.1}, levels: [[{agent: fence_ipmilan}]]}\n", []string{"fence.h2: "}},
		{"oidc", minConfig + "oidc: {issuer: https://id.example.org}\n", []string{"oidc.audience: "}},
		{"oidc of nothing", minConfig + "oidc: {}\n", []string{"oidc.issuer: "}},
		{"oidc without TLS", minConfig + "oidc: {issuer: http://id.example.org, clientID: vcctl, roles: [{group: ops, role: operator}]}\n", []string{"oidc.issuer: ", "https://"}},
		{"oidc with a symmetric algorithm", minConfig + "oidc: {issuer: https://id.example.org, clientID: vcctl, algorithms: [HS256], roles: [{group: ops, role: operator}]}\n", []string{"oidc.algorithms: ", "HS256"}},
		{"a role in a tenant", minConfig + "oidc:\n  issuer: https://id.example.org\n  clientID: vcctl\n  roles:\n    - {group: ops, role: operator}\n    - {group: render-devs, role: admin, tenant: render}\n", []string{"line 9: oidc.roles[1]: ", "is no role in a tenant"}},
		{"an unknown key of oidc", minConfig + "oidc: {isuer: https://id.example.org}\n", []string{"isuer"}},
		{"userInfo with ID tokens", minConfig + "oidc: {issuer: https://id.example.org, clientID: vcctl, userInfo: true, roles: [{group: ops, role: operator}]}\n", []string{"oidc.userInfo: ", "access tokens"}},
		{"an age that is none", minConfig + "oidc: {maxAge: soon}\n", []string{"soon"}},
		{"oidc on an agent", "name: h1\nagent: true\nadvertise: 192.0.2.11:7480\noidc: {issuer: https://id.example.org, clientID: vcctl, roles: [{group: ops, role: operator}]}\n", []string{"oidc: ", "servers"}},
		{"pki", minConfig + "pki: {ca: /x}\n", []string{"pki: "}},
		{"snapshots", minConfig + "snapshots: {keep: 0}\n", []string{"snapshots: "}},
		{"removeDeadServersAfter", minConfig + "removeDeadServersAfter: -1h\n", []string{"removeDeadServersAfter: "}},
		{"a rate of nearly nothing", minConfig + "requestRate: 0.5\n", []string{"requestRate: "}},
		{"pools", minConfig + "sharedPools: ['']\n", []string{"sharedPools: "}},
		{"network", minConfig + "migrationNetwork: 192.0.2.1\n", []string{"migrationNetwork: "}},
		{"level", minConfig + "logLevel: loud\n", []string{"logLevel: "}},
		{"format", minConfig + "logFormat: xml\n", []string{"logFormat: "}},
		{"several faults", "name: H\nserver: true\nadvertise: x\n", []string{"name: ", "advertise: "}},
		{"large", strings.Repeat("# nothing\n", maxConfigBytes/10+1), []string{"more than"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := parseConfig([]byte(c.text))
			if err == nil {
				t.Fatalf("taken: %+v", got)
			}
			for _, w := range c.want {
				if !strings.Contains(err.Error(), w) {
					t.Errorf("%q does not say %q", err, w)
				}
			}
		})
	}
}

// Faults of a file name the file, and vcd ends with status 2 and touches nothing.
func TestConfigFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "vcd.yaml")
	if _, err := readConfig(path); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("%v", err)
	}
	if err := os.WriteFile(path, []byte(minConfig+"lease: 1s\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := readConfig(path); err == nil || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), "lease") {
		t.Errorf("%v", err)
	}
	if err := os.Chmod(path, 0o664); err != nil {
		t.Fatal(err)
	}
	if _, err := readConfig(path); !errors.Is(err, secretfile.ErrExposed) {
		t.Errorf("a configuration that others may write: %v", err)
	}
	if err := os.Chmod(path, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := readConfig(path); err == nil || errors.Is(err, secretfile.ErrExposed) {
		t.Errorf("a configuration that others may only read: %v", err)
	}
	for _, cmd := range []string{"run", "recover"} {
		var out, errs strings.Builder
		if status := run(t.Context(), []string{"vcd", cmd, "--config", path}, &out, &errs); status != 2 {
			t.Errorf("vcd %s: exit status %d, %s%s", cmd, status, &out, &errs)
		}
	}
}

func TestConfigDefaults(t *testing.T) {
	c, err := parseConfig([]byte(minConfig))
	if err != nil {
		t.Fatal(err)
	}
	if c.Listen != "0.0.0.0:7480" || c.Gossip != "0.0.0.0:7481" || c.DataDir != "/var/lib/evenkeel" || c.Socket != "/run/evenkeel/vcd.sock" ||
		time.Duration(c.Lease) != 20*time.Second || c.Snapshots.Dir != "/var/lib/evenkeel/snapshots" || c.Snapshots.Keep != 24 || c.migrateURI() != "qemu+tls://192.0.2.11:16514/system" {
		t.Errorf("%+v", c)
	}
	// The file that is installed has to be completed by nothing but the address.
	b, err := os.ReadFile("../../packaging/vcd.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := parseConfig(append(b, "\nname: h1\nadvertise: 192.0.2.11:7480\n"...)); err != nil {
		t.Error(err)
	}
	// Each key that is commented out there is one, with a value that is good.
	var all []string
	for line := range strings.Lines(string(b)) {
		if rest, ok := strings.CutPrefix(line, "#"); ok && !strings.HasPrefix(rest, " ") && !strings.HasPrefix(rest, "\n") || ok && strings.HasPrefix(rest, "  ") {
			line = rest
		}
		if !strings.HasPrefix(line, "#") {
			all = append(all, line)
		}
	}
	c, err = parseConfig([]byte(strings.Join(all, "")))
	if err != nil {
		t.Fatalf("%v in\n%s", err, strings.Join(all, ""))
	}
	if o := c.OIDC; o == nil || o.Issuer == "" || o.MaxAge != time.Hour || len(o.Roles) != 2 || o.Roles[1] != (oidc.Mapping{Group: "auditors", Role: "auditor"}) {
		t.Errorf("%+v", o)
	}
	if c.Fence["h2"].Agent == "" || c.Watchdog.Device == "" || c.PKI.Key == "" {
		t.Errorf("%+v", c)
	}
}

func FuzzParseConfig(f *testing.F) {
	f.Add([]byte(minConfig))
	f.Add([]byte(minConfig + "fence:\n  h2: {agent: fence_ipmilan, options: {ip: 192.0.2.1}}\nlease: 4s\n"))
	if b, err := os.ReadFile("../../packaging/vcd.yaml"); err == nil {
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		c, err := parseConfig(b)
		if err != nil {
			if strings.TrimSpace(err.Error()) == "" {
				t.Error("an error without words")
			}
			return
		}
		if c.check(func(string) int { return 0 }) != nil || !c.Server && !c.Agent || c.Name == "" || time.Duration(c.Lease) < 4*time.Second {
			t.Errorf("%+v", c)
		}
	})
}
