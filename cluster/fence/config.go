package fence

import (
	"errors"
	"fmt"
)

// Config is how a configuration file (YAML) describes the fence devices of one
// host: a device by itself, or levels of devices.
//
//	h2: {agent: fence_ipmilan, options: {ip: 192.0.2.102, lanplus: 1}, passwordFile: FILE}
//	h3:
//	  levels:
//	    - - {agent: fence_ipmilan, options: {ip: 192.0.2.103, lanplus: 1}, passwordFile: FILE}
//	    - - {agent: fence_apc_snmp, options: {ip: 192.0.2.250, plug: 7}}
//	      - {agent: fence_apc_snmp, options: {ip: 192.0.2.251, plug: 7}}
type Config struct {
	Device `yaml:",inline"`
	Levels []Level `yaml:"levels"`
}

// Check says what is wrong with the devices of the host of that name, and returns its levels if nothing is.
func (c Config) Check(host string) ([]Level, error) {
	levels := c.Levels
	single := c.Agent != "" || len(c.Options) > 0 || c.PasswordFile != "" || len(c.SecretFiles) > 0 || c.Timeout != 0
	switch {
	case single && len(levels) > 0:
		return nil, fmt.Errorf("fence %s: %w", host, errors.New("give one device or levels, not both"))
	case single:
		levels = []Level{{c.Device}}
	}
	if err := Check(levels); err != nil {
		return nil, fmt.Errorf("fence %s: %w", host, err)
	}
	return levels, nil
}
