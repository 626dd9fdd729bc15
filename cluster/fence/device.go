package fence

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"
)

// Device is one fence device of a host, and how to reach it.
type Device struct {
	// Agent is the name of the program, without a path: fence_ipmilan.
	Agent string `yaml:"agent"`
	// Options are the agent's own, by the names that its manual page gives for
	// standard input: ip, username, plug, ... No action, and no secrets.
	Options map[string]string `yaml:"options"`
	// PasswordFile holds the value of the option password; "": none is needed.
	PasswordFile string `yaml:"passwordFile"`
	// SecretFiles hold the values of other secret options by name, such as snmp_priv_passwd.
	SecretFiles map[string]string `yaml:"secretFiles"`
	// Timeout bounds each run of the agent; 0: DefaultTimeout.
	Timeout time.Duration `yaml:"timeout"`
}

// Level has devices that must all be off for the host to be: one for each power supply.
type Level []Device

// Bounds of a device's Timeout.
const (
	DefaultTimeout = time.Minute
	MaxTimeout     = 10 * time.Minute
)

// maxOptions bounds the options of one device, maxValue the bytes of one of them: far above any use.
const (
	maxOptions = 64
	maxValue   = 4096
)

var (
	agentName  = regexp.MustCompile(`^fence_[a-z0-9_]{1,40}$`)
	optionName = regexp.MustCompile(`^[a-z][a-z0-9_-]{0,40}$`)
)

// notPower are agents of the family whose success does not mean that the power is off.
var notPower = map[string]string{
	"fence_ack_manual":      "it asks a person; use vcctl host confirm-dead",
	"fence_dummy":           "it pretends",
	"fence_heuristics_ping": "it only looks at the network",
	"fence_kdump":           "it waits for a crash that may never come",
	"fence_crosslink":       "it only looks at the network",
	"fence_evacuate":        "it moves instances of OpenStack",
	"fence_compute":         "it moves instances of OpenStack",
	"fence_scsi":            "it cuts storage, and the VMs run on",
	"fence_mpath":           "it cuts storage, and the VMs run on",
	"fence_sanbox2":         "it cuts storage, and the VMs run on",
	"fence_brocade":         "it cuts storage, and the VMs run on",
	"fence_cisco_mds":       "it cuts storage, and the VMs run on",
	"fence_hds_cb":          "it acts on a partition's storage paths",
	"fence_ifmib":           "it cuts a network port, and the VMs run on",
}

// secretOptions must come from files.
var secretOptions = []string{"passwd", "password", "snmp_priv_passwd", "snmp-priv-passwd", "snmp_priv_password", "session_token", "token", "apitoken", "secret_key"}

// reserved options are set by this package, or change what an action means.
var reserved = map[string]string{
	"action":         "the action is given with each call",
	"option":         "the action is given with each call",
	"method":         "a method other than off and on proves nothing",
	"nodename":       "name the outlet or the machine with the agent's own option (plug)",
	"missing_as_off": "a misspelt plug would be proof of a power failure",
	"missing-as-off": "a misspelt plug would be proof of a power failure",
	"verbose":        "agents would write the password to the system's log",
	"verbose_level":  "agents would write the password to the system's log",
	"verbose-level":  "agents would write the password to the system's log",
	"debug":          "agents would write the password to a file",
	"debug_file":     "agents would write the password to a file",
	"debug-file":     "agents would write the password to a file",
}

// Check says what is wrong with a device, every part of it, as far as that can be known without running anything.
func (d Device) Check() error {
	var errs []error
	add := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if !agentName.MatchString(d.Agent) {
		add("agent %q: give the program's name without a path, fence_ipmilan for example", d.Agent)
	}
	if why, ok := notPower[d.Agent]; ok {
		add("agent %s does not prove that the power is off: %s", d.Agent, why)
	}
	if n := len(d.Options) + len(d.SecretFiles); n > maxOptions {
		add("%d options; at most %d are taken", n, maxOptions)
	}
	for _, name := range slices.Sorted(maps.Keys(d.Options)) {
		value := d.Options[name]
		switch {
		case !optionName.MatchString(name):
			add("option %q is no name of an option", name)
		case reserved[name] != "":
			add("option %s: %s", name, reserved[name])
		case strings.HasPrefix(name, "pcmk_"):
			add("option %s is Pacemaker's, and means nothing to an agent", name)
		case slices.Contains(secretOptions, name):
			add("option %s: put the secret into a file and name it in passwordFile or secretFiles", name)
		default:
			// The value itself stays out of the error: it may be a secret under a name of the agent's own.
			if err := checkValue(value); err != nil {
				add("option %s: %w", name, err)
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(d.SecretFiles)) {
		_, twice := d.Options[name]
		switch {
		case !optionName.MatchString(name):
			add("secret %q is no name of an option", name)
		case reserved[name] != "":
			add("secret %s: %s", name, reserved[name])
		case twice, d.PasswordFile != "" && (name == "password" || name == "passwd"):
			add("option %s is given twice", name)
		case d.SecretFiles[name] == "":
			add("secret %s has no file", name)
		}
	}
	if d.Timeout < 0 || d.Timeout > MaxTimeout {
		add("time-out %v: at most %v", d.Timeout, MaxTimeout)
	}
	return errors.Join(errs...)
}

// checkValue refuses values that would arrive changed: agents read lines, trim them, and take quotes off.
func checkValue(v string) error {
	switch {
	case len(v) > maxValue:
		return fmt.Errorf("the value is longer than %d bytes", maxValue)
	case strings.ContainsFunc(v, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }):
		return errors.New("the value has a line break or another control character")
	case v != strings.TrimSpace(v):
		return errors.New("the value begins or ends with a blank, which agents take off")
	case len(v) >= 2 && strings.HasPrefix(v, `"`) && strings.HasSuffix(v, `"`):
		return errors.New("the value is in quotes, which agents take off")
	}
	return nil
}

// Check says what is wrong with the levels of a host.
func Check(levels []Level) error {
	if len(levels) == 0 {
		return errors.New("no fence device")
	}
	var errs []error
	for i, level := range levels {
		if len(level) == 0 {
			errs = append(errs, fmt.Errorf("level %d has no device", i+1))
		}
		for j, d := range level {
			if err := d.Check(); err != nil {
				errs = append(errs, fmt.Errorf("level %d, device %d: %w", i+1, j+1, err))
			}
		}
	}
	return errors.Join(errs...)
}

func (d Device) timeout() time.Duration {
	if d.Timeout == 0 {
		return DefaultTimeout
	}
	return d.Timeout
}

// input is what the agent gets on its standard input.
func (d Device) input(action string, secrets map[string]string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "action=%s\n", action)
	for _, name := range slices.Sorted(maps.Keys(d.Options)) {
		fmt.Fprintf(&b, "%s=%s\n", name, d.Options[name])
	}
	for _, name := range slices.Sorted(maps.Keys(secrets)) {
		fmt.Fprintf(&b, "%s=%s\n", name, secrets[name])
	}
	return b.String()
}
