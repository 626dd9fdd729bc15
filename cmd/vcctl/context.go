package main

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/urfave/cli/v2"

	"evenkeel/api/client"
	"evenkeel/api/v1"
	"evenkeel/internal/secretfile"
)

// defaultContext is what the top of the configuration says.
const defaultContext = "default"

var contextName = regexp.MustCompile(`^[a-zA-Z0-9][-._a-zA-Z0-9]{0,62}$`)

func (t *tool) configCommand() *cli.Command {
	return &cli.Command{
		Name: "config", Usage: "clusters and tenants that vcctl is used for: set-context, use-context, get-contexts, current-context, delete-context",
		Description: "A context has a name, and an address, a token file, a CA certificate and a tenant. They are kept in ~/.config/evenkeel/config.yaml\n" +
			"(mode 0600), and chosen by --context, EVENKEEL_CONTEXT or vcctl config use-context. The context default is what the top of the file\n" +
			"says. A context without an address is of the same cluster.",
		Subcommands: []*cli.Command{
			{
				Name: "set-context", Usage: "make a context, or change one", ArgsUsage: "CONTEXT", Flags: []cli.Flag{checkFlag}, Action: t.offline(setContext),
				Description: "Takes --address, --token-file, --cacert and --tenant; what is not given stays, and an empty value goes. A token is kept in a file of its\n" +
					"own, never on the command line.\n\n" +
					"Example: vcctl config set-context lab --address https://192.0.2.11:7480 --token-file lab.token --cacert lab.pem\n" +
					"   vcctl config set-context film --tenant film",
			},
			{
				Name: "use-context", Usage: "use a context from now on", ArgsUsage: "CONTEXT", Flags: []cli.Flag{checkFlag}, Action: t.offline(useContext),
				Description: "Example: vcctl config use-context film",
			},
			{
				Name: "get-contexts", Usage: "list the contexts", ArgsUsage: " ", Flags: []cli.Flag{sortFlag}, Action: t.offline(getContexts),
				Description: "With what each takes from the top of the file. * marks the one in use.\n\nExample: vcctl config get-contexts",
			},
			{
				Name: "current-context", Usage: "print the name of the context in use", ArgsUsage: " ", Action: t.offline(currentContext),
				Description: "Example: vcctl config current-context",
			},
			{
				Name: "delete-context", Usage: "forget a context", ArgsUsage: "CONTEXT", Flags: []cli.Flag{checkFlag}, Action: t.offline(deleteContext),
				Description: "Its token file stays, and the token is good until it is revoked. After the current one, default is in use.\n\n" +
					"Example: vcctl config delete-context lab",
			},
		},
	}
}

// context of that name, with what it takes from the top of the file. One with an address takes nothing: the token of one cluster is
// never sent to another.
func (f config) context(name string) (connection, error) {
	if name == defaultContext {
		return f.connection(), nil
	}
	k, there := f.Contexts[name]
	if !there {
		return k, usage("there is no context %q; there are %s: make it with `vcctl config set-context %s`", name, strings.Join(f.contextNames(), ", "), name)
	}
	if k.Address != "" {
		return k, nil
	}
	k.Address, k.CACert = f.Address, cmp.Or(k.CACert, f.CACert)
	if k.Token == "" && k.TokenFile == "" {
		k.Token, k.TokenFile = f.Token, f.TokenFile
	}
	return k, nil
}

func (f config) contextNames() []string {
	return append([]string{defaultContext}, slices.Sorted(maps.Keys(f.Contexts))...)
}

// chosenContext is the name of the context in use; flag: the command line names it.
func chosenContext(c *cli.Context, f config) (name string, flag bool) {
	if name = c.String("context"); name != "" {
		return name, true
	}
	return cmp.Or(os.Getenv("EVENKEEL_CONTEXT"), f.CurrentContext, defaultContext), false
}

// contextRow is a context as it is shown: never with a token.
type contextRow struct {
	Name      string `json:"name"`
	Current   bool   `json:"current"`
	Address   string `json:"address,omitempty"`
	TokenFile string `json:"tokenFile,omitempty"`
	CACert    string `json:"cacert,omitempty"`
	Tenant    string `json:"tenant,omitempty"`
}

func (f config) row(name, current string) (contextRow, error) {
	k, err := f.context(name)
	if k.Token != "" {
		k.TokenFile = "in the configuration"
	}
	return contextRow{name, name == current, k.Address, k.TokenFile, k.CACert, k.Tenant}, err
}

var contextTable = tableOf("CURRENT,NAME,ADDRESS,TENANT,TOKEN FILE,CA", "", func(k contextRow) []string {
	current := " "
	if k.Current {
		current = "*"
	}
	return []string{current, k.Name, k.Address, k.Tenant, k.TokenFile, k.CACert}
})

func getContexts(c *call) error {
	f, err := readConfig(c.t.configFile())
	if err != nil {
		return err
	}
	current, _ := chosenContext(c.Context, f)
	var rows []contextRow
	for _, name := range f.contextNames() {
		row, err := f.row(name, current)
		if err != nil {
			return err
		}
		rows = append(rows, row)
	}
	value, text, _ := contextTable.answer(rows, nil)
	return c.print(value, text)
}

func currentContext(c *call) error {
	f, err := readConfig(c.t.configFile())
	if err != nil {
		return err
	}
	current, _ := chosenContext(c.Context, f)
	row, err := f.row(current, current)
	if err != nil {
		return err
	}
	return c.print(row, func(bool) string { return current + "\n" })
}

func setContext(c *call) error {
	if !contextName.MatchString(c.name) {
		return usage("context %q: a name has letters, digits and - . _, at most 63, the first a letter or a digit", c.name)
	}
	if c.IsSet("token") {
		return usage("--token: a token on the command line is seen by others: put it into a file of mode 0600, and name that with --token-file")
	}
	flags := []string{"address", "token-file", "cacert", "tenant"}
	if !slices.ContainsFunc(flags, c.IsSet) {
		return usage("config set-context: nothing to set: give --address, --token-file, --cacert or --tenant")
	}
	return c.changeContexts(func(f *config) (string, error) {
		k := f.Contexts[c.name]
		if c.name == defaultContext {
			k = f.connection()
		}
		var err error
		for name, to := range map[string]*string{"address": &k.Address, "token-file": &k.TokenFile, "cacert": &k.CACert, "tenant": &k.Tenant} {
			value := c.String(name)
			switch {
			case !c.IsSet(name):
				continue
			case value == "" || name == "tenant":
			case name == "address":
				if _, err := client.New(client.Config{Address: value}); err != nil {
					return "", &failure{statusUsage, err}
				}
			default: // a file, named from where the user is
				if value, err = filepath.Abs(value); err != nil {
					return "", fmt.Errorf("context %s: %w", c.name, err)
				}
			}
			*to = value
		}
		if k.TokenFile != "" {
			k.Token = ""
		}
		if c.name == defaultContext {
			f.Address, f.Token, f.TokenFile, f.CACert, f.Tenant = k.Address, k.Token, k.TokenFile, k.CACert, k.Tenant
			return "Context default is set: it is the top of the configuration.", nil
		}
		if f.Contexts == nil {
			f.Contexts = map[string]connection{}
		}
		f.Contexts[c.name] = k
		return fmt.Sprintf("Context %s is set. Use it with --context %s, or from now on with `vcctl config use-context %s`.", c.name, c.name, c.name), nil
	})
}

func useContext(c *call) error {
	return c.changeContexts(func(f *config) (string, error) {
		if _, err := f.context(c.name); err != nil {
			return "", err
		}
		if f.CurrentContext = c.name; c.name == defaultContext {
			f.CurrentContext = ""
		}
		return "Context " + c.name + " is in use.", nil
	})
}

func deleteContext(c *call) error {
	return c.changeContexts(func(f *config) (string, error) {
		if c.name == defaultContext {
			return "", usage("context default is the top of the configuration: remove what is there by hand, or set other values")
		}
		if _, there := f.Contexts[c.name]; !there {
			return "", failed(statusNotFound, "there is no context %q; there are %s", c.name, strings.Join(f.contextNames(), ", "))
		}
		delete(f.Contexts, c.name)
		text := "Context " + c.name + " is deleted."
		if f.CurrentContext == c.name {
			f.CurrentContext = ""
			text += " Context default is in use."
		}
		return text, nil
	})
}

// changeContexts changes the configuration, unless it is a dry run; change says what was done.
func (c *call) changeContexts(change func(*config) (string, error)) error {
	path := c.t.configFile()
	if path == "" {
		return usage("where the configuration is kept is not known: set HOME or XDG_CONFIG_HOME")
	}
	f, comments, err := parseConfig(path)
	if err != nil {
		return err
	}
	done, err := change(&f)
	if err != nil {
		return err
	}
	if !c.dry() {
		if err := writeConfig(path, f, comments); err != nil {
			return err
		}
	}
	return c.print(map[string]string{"context": c.name}, c.changed("", done))
}

// writeConfig puts a configuration in the place of what is there, with its comments. It may come to hold a token: others never read it.
func writeConfig(path string, f config, comments yaml.CommentMap) error {
	b, err := yaml.MarshalWithOptions(f, yaml.WithComment(comments))
	if err != nil {
		return fmt.Errorf("write the configuration: %w", err)
	}
	var again config
	if err := yaml.UnmarshalWithOptions(b, &again, yaml.Strict()); err != nil || !reflect.DeepEqual(again, f) {
		return fmt.Errorf("write the configuration: the comments in %s are in the way: remove them, or change it by hand", path)
	}
	if real, err := filepath.EvalSymlinks(path); err == nil { // what a link leads to is written
		path = real
	} else if !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("write the configuration: %w", err)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return fmt.Errorf("write the configuration: %w", err)
	}
	return secretfile.Write(path, b, 0o600)
}

// parseConfig reads a configuration file as it stands, with its comments. One that is not there is an empty one.
func parseConfig(path string) (config, yaml.CommentMap, error) {
	var f config
	comments := yaml.CommentMap{}
	if path == "" {
		return f, comments, nil
	}
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return f, comments, nil
	}
	if err != nil {
		return f, comments, fmt.Errorf("read the configuration: %w", err)
	}
	if len(strings.TrimSpace(string(b))) == 0 {
		return f, comments, nil
	}
	if err := v1.PlainYAML(b); err != nil {
		return config{}, nil, usage("%s: %v", path, err)
	}
	if err := yaml.UnmarshalWithOptions(b, &f, yaml.Strict(), yaml.CommentToMap(comments)); err != nil {
		// Without the excerpt that the parser offers: it may show the token.
		var at yaml.Error
		if errors.As(err, &at) && at.GetToken() != nil {
			return config{}, nil, usage("%s: line %d: %s (it may hold address, token, tokenFile, cacert and tenant, and currentContext and contexts)", path, at.GetToken().Position.Line, at.GetMessage())
		}
		return config{}, nil, usage("%s cannot be read as YAML", path)
	}
	if _, there := f.Contexts[defaultContext]; there {
		return config{}, nil, usage("%s: context default is what the top of the file says: give it another name", path)
	}
	return f, comments, nil
}
