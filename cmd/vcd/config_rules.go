package main

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"evenkeel/api/v1"
	"evenkeel/cluster/pki"
	"evenkeel/cluster/watchdog"
)

// maxSocket is the longest path of a unix socket that the kernel takes, bytes.
const maxSocket = 107

// configRules are what the value of each key must be; a key has as many rows as it has rules. The function returns what is wrong,
// without the key.
var configRules = []struct {
	key   string
	check func(c *config) error
}{
	{"name", func(c *config) error {
		return require(pki.ValidName(c.Name), "%q must be a DNS label in lower case", c.Name)
	}},
	{"server, agent", func(c *config) error { return require(c.Server || c.Agent, "one of them must be true") }},
	{"listen", func(c *config) error { return checkAddress(c.Listen) }},
	{"apiListen", func(c *config) error { return checkOptionalAddress(c.APIListen) }},
	{"gossip", func(c *config) error { return checkOptionalAddress(c.Gossip) }},
	{"advertise", checkAdvertisedPort},
	{"advertise", checkAdvertisedHost},
	{"apiListen", func(c *config) error {
		return require(c.APIListen == "" || c.APIListen != c.Listen, "%q is listen, too: leave it out, or give another address or port", c.APIListen)
	}},
	{"apiListen", func(c *config) error {
		return require(c.APIListen == "" || c.Server, "is for servers: an agent has no API")
	}},
	{"dataDir", func(c *config) error { return require(filepath.IsAbs(c.DataDir), "%q must be a full path", c.DataDir) }},
	{"socket", func(c *config) error {
		return require(filepath.IsAbs(c.Socket) && len(c.Socket) <= maxSocket, "%q must be a full path of at most %d bytes", c.Socket, maxSocket)
	}},
	{"allowance.cpu", func(c *config) error {
		cores := c.Allowance.CPU
		return require(cores >= 0 && cores < 1e6, "%g must be a number of cores", cores)
	}},
	{"allowance.memory", checkMemoryAllowance},
	{"lease", func(c *config) error {
		lease := time.Duration(c.Lease)
		return require(lease >= 4*time.Second && lease <= 10*time.Minute, "%s must be from 4s to 10m", lease)
	}},
	{"watchdog.timeout", func(c *config) error {
		if c.Watchdog.Device == "" {
			return nil
		}
		return watchdog.Check(time.Duration(c.Watchdog.Timeout))
	}},
	{"pki", func(c *config) error {
		given := c.PKI.CA != "" || c.PKI.Cert != "" || c.PKI.Key != ""
		return require(!given || c.PKI.CA != "" && c.PKI.Cert != "" && c.PKI.Key != "", "ca, cert and key belong together")
	}},
	{"snapshots", func(c *config) error {
		return require(c.Snapshots.Keep >= 1 && c.Snapshots.Days >= 0 && c.Snapshots.Every >= 0, "keep must be at least 1, days and every not below 0")
	}},
	{"removeDeadServersAfter", func(c *config) error {
		return require(c.RemoveDead >= 0, "%s must not be below 0", time.Duration(c.RemoveDead))
	}},
	{"requestRate", func(c *config) error {
		return require(c.RequestRate == 0 || c.RequestRate >= 1 && c.RequestRate <= 1e6, "%v must be from 1 to 1000000, or 0 for no limit", c.RequestRate)
	}},
	{"sharedPools", func(c *config) error { return require(!slices.Contains(c.SharedPools, ""), "a name is empty") }},
	{"logLevel", func(c *config) error {
		err := new(slog.Level).UnmarshalText([]byte(c.LogLevel))
		return require(err == nil, "%q must be debug, info, warn or error", c.LogLevel)
	}},
	{"logFormat", func(c *config) error {
		return require(c.LogFormat == "text" || c.LogFormat == "json", "%q must be text or json", c.LogFormat)
	}},
	{"migrationNetwork", func(c *config) error {
		if c.MigrationNetwork == "" {
			return nil
		}
		_, _, err := net.ParseCIDR(c.MigrationNetwork)
		return require(err == nil, "%q must be like 192.0.2.0/24", c.MigrationNetwork)
	}},
}

// check what the configuration says. line is where a key stands, 0 where that is not known.
func (c *config) check(line func(key string) int) error {
	var errs []error
	note := func(key string, err error) {
		if err == nil {
			return
		}
		text := fmt.Sprintf("%s: %v", key, err)
		if n := line(key); n > 0 {
			text = fmt.Sprintf("line %d: %s", n, text)
		}
		errs = append(errs, errors.New(text))
	}
	for _, rule := range configRules {
		note(rule.key, rule.check(c))
	}
	if c.OIDC != nil {
		note("oidc", require(c.Server, "is for servers: an agent has no API"))
		for _, f := range c.OIDC.Check() {
			note("oidc."+f.Key, f.Err)
		}
	}
	for host, f := range c.Fence {
		note("fence."+host, require(pki.ValidName(host), "is no name of a host: a DNS label in lower case"))
		_, err := f.Check(host)
		note("fence."+host, err)
	}
	slices.SortFunc(errs, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	return errors.Join(errs...)
}

// require is nil if ok is true, otherwise an error of that text.
func require(ok bool, format string, args ...any) error {
	if ok {
		return nil
	}
	return fmt.Errorf(format, args...)
}

func checkAddress(address string) error {
	_, err := portOf(address)
	return err
}

func checkOptionalAddress(address string) error {
	if address == "" {
		return nil
	}
	return checkAddress(address)
}

// checkAdvertisedPort: unlike an address to listen on, one for others needs a port that is known.
func checkAdvertisedPort(c *config) error {
	if port, err := portOf(c.Advertise); err != nil || port == 0 {
		return errAddress(c.Advertise)
	}
	return nil
}

func checkAdvertisedHost(c *config) error {
	host, _, err := net.SplitHostPort(c.Advertise)
	reachable := err != nil || host != "" && !net.ParseIP(host).IsUnspecified()
	return require(reachable, "%q: others cannot reach this member there; give the address of this host on their network", c.Advertise)
}

func portOf(address string) (uint64, error) {
	_, text, err := net.SplitHostPort(address)
	if err != nil {
		return 0, errAddress(address)
	}
	port, err := strconv.ParseUint(text, 10, 16)
	if err != nil {
		return 0, errAddress(address)
	}
	return port, nil
}

func errAddress(address string) error {
	return fmt.Errorf("%q must be host:port, the port a number", address)
}

func checkMemoryAllowance(c *config) error {
	size := c.Allowance.Memory
	if size == "" {
		return nil
	}
	if n, err := v1.ParseSize(size); err != nil || n == 0 {
		return fmt.Errorf("%q must be a size such as 8GiB", size)
	}
	return require(strings.HasSuffix(size, "B"), "%s has no unit: write it with KiB, MiB, GiB or TiB, such as 8GiB", size)
}
