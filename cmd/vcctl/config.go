package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"strings"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/urfave/cli/v2"

	"evenkeel/api/client"
	"evenkeel/api/v1"
	"evenkeel/internal/secretfile"
)

// config is the client's configuration file.
type config struct {
	Address   string `yaml:"address"`
	Token     string `yaml:"token"`
	TokenFile string `yaml:"tokenFile"`
	CACert    string `yaml:"cacert"`
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

// readConfig reads a configuration file; one that is not there is an empty one.
func readConfig(path string) (config, error) {
	var c config
	if path == "" {
		return c, nil
	}
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return c, nil
	}
	if err != nil {
		return c, fmt.Errorf("read the configuration: %w", err)
	}
	if len(strings.TrimSpace(string(b))) == 0 {
		return c, nil
	}
	if err := v1.PlainYAML(b); err != nil {
		return config{}, usage("%s: %v", path, err)
	}
	if err := yaml.UnmarshalWithOptions(b, &c, yaml.Strict()); err != nil {
		// Without the excerpt that the parser offers: it may show the token.
		var at yaml.Error
		if errors.As(err, &at) && at.GetToken() != nil {
			return config{}, usage("%s: line %d: %s (it may hold address, token, tokenFile and cacert)", path, at.GetToken().Position.Line, at.GetMessage())
		}
		return config{}, usage("%s cannot be read as YAML", path)
	}
	// Files are named relative to the file that names them.
	for _, f := range []*string{&c.TokenFile, &c.CACert} {
		if *f != "" && !filepath.IsAbs(*f) {
			*f = filepath.Join(filepath.Dir(path), *f)
		}
	}
	return c, nil
}

// leaderWait is how long a command waits for a leader: longer than an election takes.
var leaderWait = 5 * time.Second

// client of the server that flags, environment and configuration name, in that order.
func (t *tool) client(c *cli.Context) (*client.Client, error) {
	conf, addresses, err := t.clientConfig(c)
	if err != nil {
		return nil, err
	}
	if conf.Token, err = t.token(tokenSource{token: c.String("token"), path: c.String("token-file"), flag: true},
		tokenSource{token: os.Getenv("EVENKEEL_TOKEN"), path: os.Getenv("EVENKEEL_TOKEN_FILE")}); err != nil {
		return nil, err
	}
	if conf.Token == "" {
		if err := t.kept(&conf, addresses); err != nil {
			return nil, err
		}
	}
	api, err := client.New(conf)
	if err != nil {
		return nil, &failure{statusUsage, err}
	}
	return api, nil
}

// kept adds the token that is kept for the servers: by a log-in, or in the configuration.
func (t *tool) kept(conf *client.Config, addresses []string) error {
	all, err := readSessions()
	if err != nil {
		return err
	}
	if _, ok := all.of(addresses); ok {
		conf.Credentials = func(ctx context.Context) (string, error) { return bearer(ctx, addresses) }
		return nil
	}
	file, err := readConfig(configFile())
	if err != nil {
		return err
	}
	conf.Token, err = t.token(tokenSource{token: file.Token, path: file.TokenFile, config: configFile()})
	return err
}

// clientConfig is how to reach the servers that flags, environment and configuration name, in that order, without a token.
func (t *tool) clientConfig(c *cli.Context) (conf client.Config, addresses []string, err error) {
	file, err := readConfig(configFile())
	if err != nil {
		return conf, nil, err
	}
	conf = client.Config{
		Address:  cmp.Or(c.String("address"), os.Getenv("EVENKEEL_ADDRESS"), file.Address),
		CAFile:   cmp.Or(c.String("cacert"), os.Getenv("EVENKEEL_CACERT"), file.CACert),
		Agent:    "vcctl/" + version,
		Patience: leaderWait,
		Dial:     t.dial,
	}
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
