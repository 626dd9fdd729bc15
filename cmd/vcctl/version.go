package main

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"evenkeel/api/client"
	"evenkeel/api/v1"
)

// versionTime is how long `vcctl version` waits for the servers.
const versionTime = 3 * time.Second

// versions is what `vcctl version` answers.
type versions struct {
	Version string          `json:"version"`
	Server  string          `json:"server,omitempty"` // of the one that answers
	Members []memberVersion `json:"members,omitempty"`
}

type memberVersion struct {
	Name    string   `json:"name"`
	Roles   []string `json:"roles"`
	Version string   `json:"version,omitempty"`
}

func (t *tool) versionCommand() *cli.Command {
	return &cli.Command{
		Name: "version", Usage: "print the versions of vcctl and of the cluster's members", ArgsUsage: " ",
		Description: "Without a way into a cluster, or with --client, only that of vcctl. vcctl --version prints that alone, too.\n\nExample: vcctl version",
		Flags:       []cli.Flag{&cli.BoolFlag{Name: "client", Usage: "only that of vcctl; no server is asked"}},
		Action:      t.offline(vcctlVersion),
	}
}

func vcctlVersion(c *call) error {
	out := versions{Version: version}
	var unknown error
	if !c.Bool("client") {
		unknown = c.memberVersions(&out)
	}
	if err := c.print(out, func(bool) string { return versionText(out) }); err != nil {
		return err
	}
	if unknown != nil && c.human() {
		c.t.say("Servers: %s\n", oneLine(unknown.Error()))
	}
	return nil
}

// memberVersions asks the cluster. A token that may not see the members still learns the version of the server that answers.
func (c *call) memberVersions(out *versions) error {
	ctx, cancel := context.WithTimeout(c.ctx, versionTime)
	defer cancel()
	a, err := c.t.access(c.Context)
	if err != nil {
		return err
	}
	api, err := c.t.connect(a)
	if err != nil {
		return err
	}
	s, err := api.Status(ctx, client.Stale())
	if errors.Is(err, context.DeadlineExceeded) {
		return failed(statusUnreachable, "no answer within %s", versionTime)
	}
	if err != nil {
		return err
	}
	out.Server = s.Version
	for _, m := range s.Members {
		out.Members = append(out.Members, memberVersion{m.Name, rolesOf(m), m.Version})
	}
	return nil
}

func rolesOf(m v1.Member) (out []string) {
	if m.Server {
		out = append(out, "server")
	}
	if m.Agent {
		out = append(out, "agent")
	}
	return out
}

// versionText names each version once, with the members that run it.
func versionText(v versions) string {
	text := "vcctl " + v.Version + "\n"
	if len(v.Members) == 0 {
		if v.Server != "" {
			text += "server " + v.Server + "\n"
		}
		return text
	}
	of := map[string][]string{}
	var order []string
	for _, m := range v.Members {
		shown := m.Version
		if shown == "" {
			shown = "not known"
		}
		if !slices.Contains(order, shown) {
			order = append(order, shown)
		}
		of[shown] = append(of[shown], m.Name)
	}
	slices.Sort(order)
	for _, shown := range order {
		names := of[shown]
		const few = 8
		list := strings.Join(names[:min(few, len(names))], ", ")
		if len(names) > few {
			list += ", ..."
		}
		text += "vcd " + shown + "   " + countOf(len(names), "member") + ": " + oneLine(list) + "\n"
	}
	return text
}
