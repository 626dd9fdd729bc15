package main

import (
	"cmp"
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
	tenant                 string
	tenantChosen           bool // on the command line
}

// access that the command line, the environment and the configuration name. With a context on the
// command line the environment does not count: its token is not sent to the context's cluster.
func (t *tool) access(c *cli.Context) (access, error) {
	file, err := readConfig(t.configFile())
	if err != nil {
		return access{}, err
	}
	name, flag := chosenContext(c, file)
	kept, err := file.context(name)
	if err != nil {
		return access{}, err
	}
	var env connection
	if !flag {
		env = connection{os.Getenv("EVENKEEL_ADDRESS"), os.Getenv("EVENKEEL_TOKEN"), os.Getenv("EVENKEEL_TOKEN_FILE"), os.Getenv("EVENKEEL_CACERT"), os.Getenv("EVENKEEL_TENANT")}
	}
	a := access{
		address: cmp.Or(c.String("address"), env.Address, kept.Address),
		cacert:  cmp.Or(c.String("cacert"), env.CACert, kept.CACert),
	}
	if a.tenant, a.tenantChosen, err = chosenTenant(c); err != nil {
		return a, err
	}
	if !a.tenantChosen {
		a.tenant = cmp.Or(env.Tenant, kept.Tenant)
	}
	a.token, err = t.token(c, env, kept)
	return a, err
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
	api, err := client.New(client.Config{
		Address:  a.address,
		CAFile:   a.cacert,
		Token:    a.token,
		Tenant:   a.tenant,
		Agent:    "vcctl/" + version,
		Patience: leaderWait,
		Dial:     t.dial,
	})
	if err != nil {
		return nil, &failure{statusUsage, err}
	}
	return api, nil
}

// tokenSource is a place that may have a token: the token itself, or a file that holds it.
type tokenSource struct {
	token, path string
	flag        bool   // the token is from the command line
	config      string // the configuration file that the token is from
}

// token from the first place that has one. A token that others may have seen serves, with a warning.
func (t *tool) token(c *cli.Context, env, kept connection) (string, error) {
	for _, from := range []tokenSource{
		{token: c.String("token"), path: c.String("token-file"), flag: true},
		{token: env.Token, path: env.TokenFile},
		{token: kept.Token, path: kept.TokenFile, config: t.configFile()},
	} {
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
			return strings.TrimSpace(string(b)), nil
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
