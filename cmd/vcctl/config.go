package main

import (
	"cmp"
	"context"
	"os"
	"os/user"
	"path/filepath"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"evenkeel/api/client"
	"evenkeel/internal/secretfile"
)

// config is the client's configuration file.
type config struct {
	Address        string                `yaml:"address,omitempty"`
	Token          string                `yaml:"token,omitempty"`
	TokenFile      string                `yaml:"tokenFile,omitempty"`
	CACert         string                `yaml:"cacert,omitempty"`
	Tenant         string                `yaml:"tenant,omitempty"`
	CurrentContext string                `yaml:"currentContext,omitempty"`
	Contexts       map[string]connection `yaml:"contexts,omitempty"`
}

// connection is a way to a cluster, and a tenant there.
type connection struct {
	Address   string `yaml:"address,omitempty"`
	Token     string `yaml:"token,omitempty"`
	TokenFile string `yaml:"tokenFile,omitempty"`
	CACert    string `yaml:"cacert,omitempty"`
	Tenant    string `yaml:"tenant,omitempty"`
}

// connection of the top of the file.
func (f config) connection() connection {
	return connection{f.Address, f.Token, f.TokenFile, f.CACert, f.Tenant}
}

// configFile is $XDG_CONFIG_HOME/evenkeel/config.yaml, by default below ~/.config. Where HOME is not set, as in scripts of
// the first boot, ~ is what the user database says; "" if that is not known either.
func configFile() string {
	dir := os.Getenv("XDG_CONFIG_HOME")
	if !filepath.IsAbs(dir) {
		home, err := os.UserHomeDir()
		if err != nil {
			u, err := user.Current()
			if err != nil || !filepath.IsAbs(u.HomeDir) {
				return ""
			}
			home = u.HomeDir
		}
		dir = filepath.Join(home, ".config")
	}
	return filepath.Join(dir, "evenkeel", "config.yaml")
}

// configFile of the tool.
func (t *tool) configFile() string {
	if t.config != "" {
		return t.config
	}
	return configFile()
}

// readConfig reads a configuration file; one that is not there is an empty one. Files are named relative to the file that names them.
func readConfig(path string) (config, error) {
	f, _, err := parseConfig(path)
	if err != nil {
		return f, err
	}
	beside := func(names ...*string) {
		for _, name := range names {
			if *name != "" && !filepath.IsAbs(*name) {
				*name = filepath.Join(filepath.Dir(path), *name)
			}
		}
	}
	beside(&f.TokenFile, &f.CACert)
	for name, k := range f.Contexts {
		beside(&k.TokenFile, &k.CACert)
		f.Contexts[name] = k
	}
	return f, nil
}

// leaderWait is how long a command waits for a leader: longer than an election takes.
var leaderWait = 5 * time.Second

// access is how a command reaches the cluster, and the tenant that it acts in.
type access struct {
	address, cacert, token string
	loggedIn               []string // the servers at which there is a log-in, which has the token
	tenant                 string
	tenantChosen           bool // on the command line
}

// places are where the parts of an access are looked for beside the command line. With a context on the command line the
// environment does not count: its token is not sent to the context's cluster.
type places struct{ env, kept connection }

func (t *tool) places(c *cli.Context) (places, error) {
	file, err := readConfig(t.configFile())
	if err != nil {
		return places{}, err
	}
	name, flag := chosenContext(c, file)
	kept, err := file.context(name)
	if err != nil || flag {
		return places{kept: kept}, err
	}
	return places{connection{os.Getenv("EVENKEEL_ADDRESS"), os.Getenv("EVENKEEL_TOKEN"), os.Getenv("EVENKEEL_TOKEN_FILE"), os.Getenv("EVENKEEL_CACERT"), os.Getenv("EVENKEEL_TENANT")}, kept}, nil
}

// access that the command line, the environment and the configuration name. A log-in at the servers comes before the token of the
// configuration.
func (t *tool) access(c *cli.Context) (access, error) {
	from, err := t.places(c)
	if err != nil {
		return access{}, err
	}
	a := from.reach(c)
	t.unconfigured = a.address == ""
	if a.tenant, a.tenantChosen, err = chosenTenant(c); err != nil {
		return a, err
	}
	if !a.tenantChosen {
		a.tenant = cmp.Or(from.env.Tenant, from.kept.Tenant)
	}
	if a.token, err = t.token(tokenSource{token: c.String("token"), path: c.String("token-file"), flag: true},
		tokenSource{token: from.env.Token, path: from.env.TokenFile}); err != nil || a.token != "" {
		return a, err
	}
	addresses, err := client.Addresses(a.address)
	if err != nil {
		return a, &failure{statusUsage, err}
	}
	all, err := readSessions()
	if err != nil {
		return a, err
	}
	if _, ok := all.of(addresses); ok {
		a.loggedIn = addresses
		return a, nil
	}
	a.token, err = t.token(tokenSource{token: from.kept.Token, path: from.kept.TokenFile, config: t.configFile()})
	return a, err
}

// reach is the access without token and tenant.
func (p places) reach(c *cli.Context) access {
	return access{address: cmp.Or(c.String("address"), p.env.Address, p.kept.Address), cacert: cmp.Or(c.String("cacert"), p.env.CACert, p.kept.CACert)}
}

// client of the server that flags, environment and configuration name.
func (t *tool) client(c *cli.Context) (*client.Client, error) {
	a, err := t.access(c)
	if err != nil {
		return nil, err
	}
	return t.connect(a)
}

func (t *tool) connect(a access) (*client.Client, error) {
	conf := t.configOf(a)
	conf.Token, conf.Tenant = a.token, a.tenant
	if a.loggedIn != nil {
		conf.Credentials = func(ctx context.Context) (string, error) { return bearer(ctx, a.loggedIn) }
	}
	api, err := client.New(conf)
	if err != nil {
		return nil, &failure{statusUsage, err}
	}
	return api, nil
}

func (t *tool) configOf(a access) client.Config {
	return client.Config{Address: a.address, CAFile: a.cacert, Agent: "vcctl/" + version, Patience: leaderWait, Dial: t.dial}
}

// clientConfig is how to reach the servers that flags, environment and configuration name, without a token.
func (t *tool) clientConfig(c *cli.Context) (conf client.Config, addresses []string, err error) {
	from, err := t.places(c)
	if err != nil {
		return conf, nil, err
	}
	conf = t.configOf(from.reach(c))
	if addresses, err = client.Addresses(conf.Address); err != nil {
		return conf, nil, &failure{statusUsage, err}
	}
	return conf, addresses, nil
}

// tokenSource is a place that may have a token: the token itself, or a file that holds it.
type tokenSource struct {
	token, path string
	flag        bool   // the token is from the command line
	config      string // the configuration file that the token is from
}

// token from the first place that has one. A token that others may have seen serves, with a warning.
func (t *tool) token(places ...tokenSource) (string, error) {
	for _, from := range places {
		if from.token != "" {
			t.warn(from.risk())
			return strings.TrimSpace(from.token), nil
		}
		if from.path != "" {
			t.warn(from.risk())
			b, err := os.ReadFile(from.path)
			if err != nil {
				return "", usage("read the token: %v", err)
			}
			text := strings.TrimSpace(string(b))
			if text == "" {
				return "", usage("read the token: %s is empty: `vcctl token create NAME` prints a token", from.path)
			}
			return text, nil
		}
	}
	return "", nil
}

// risk says how others may come to know the token; "" = no way is known.
func (s tokenSource) risk() string {
	path := s.path
	switch {
	case s.token != "" && s.flag:
		return "all users of this machine can see a token after --token in the list of processes: use --token-file"
	case s.token != "" && s.config == "":
		return "" // the environment is the user's own
	case s.token != "":
		path = s.config
	}
	if err := secretfile.Check(path); err != nil {
		return "file of the token: " + err.Error()
	}
	return ""
}

// warn says a risk on standard error, once.
func (t *tool) warn(risk string) {
	if risk == "" || t.warned[risk] {
		return
	}
	if t.warned == nil {
		t.warned = map[string]bool{}
	}
	t.warned[risk] = true
	t.say("vcctl: warning: %s\n", risk)
}
