package main

import (
	"bytes"
	"context"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v2"
	"golang.org/x/term"

	"evenkeel/api/client"
	"evenkeel/api/v1"
)

func (t *tool) topCommand() *cli.Command {
	return &cli.Command{
		Name: "top", Usage: "hosts and VMs with need, allocation, yield and use, live", ArgsUsage: " ", Action: t.action(top),
		Description: "Refreshes every second on a terminal; q or ^C leaves. With --once, with -o json or yaml, or where the output\n" +
			"is no terminal, it prints one look and ends. Virtual clusters and VMs are those of all tenants, or of --tenant.\nA token of a tenant sees its own, and its quota in place of the hosts.\n\nExample: vcctl top --once",
		Flags: []cli.Flag{&cli.BoolFlag{Name: "once", Usage: "print one look and end"}},
	}
}

// look is what top shows.
type look struct {
	Status          v1.ClusterStatus    `json:"status"`
	Hosts           []v1.Host           `json:"hosts"`
	VirtualClusters []v1.VirtualCluster `json:"virtualClusters"`
	VMs             []v1.VM             `json:"vms"`
	Migrations      []v1.Migration      `json:"migrations"` // that are under way
}

// takeLook asks for what top shows, of a tenant or of all.
func takeLook(ctx context.Context, api *client.Client, tenant string) (look, error) {
	var l look
	var err error
	if l.Status, err = api.Status(ctx); err != nil {
		return l, err
	}
	if q := l.Status.Quota; q == nil {
		if l.Hosts, err = api.Hosts(ctx); err != nil {
			return l, err
		}
	} else if tenant == client.AllTenants { // it sees itself, and no hosts
		tenant = q.Tenant
	}
	vcs := func(of client.Option) ([]v1.VirtualCluster, error) { return api.VirtualClusters(ctx, of) }
	vms := func(of client.Option) ([]v1.VM, error) { return api.VMs(ctx, "", "", of) }
	if l.VirtualClusters, err = ofTenant(tenant, vcs); err != nil {
		return l, err
	}
	if l.VMs, err = ofTenant(tenant, vms); err != nil {
		return l, err
	}
	l.Migrations, err = api.Migrations(ctx, "", "", "running", 0)
	return l, err
}

func (l look) text(wide bool) string {
	moving := ""
	if len(l.Migrations) > 0 {
		moving = migrationTable.text(l.Migrations, wide) + "\n"
	}
	vcs := slices.Clone(l.VirtualClusters)
	for i := range vcs {
		vcs[i].Name = fullName(vcs[i].Tenant, vcs[i].Name)
	}
	below := moving + vcTable.text(vcs, wide) + "\n" + vmTable.text(withFullNames(l.VMs), wide)
	if l.Status.Quota != nil {
		return tenantStatusText(l.Status) + "\n" + below
	}
	return "Minimum yield " + yield(l.Status.MinYield) + "   CPU " + cores(l.Status.Allocated.CPU) + " given of " + cores(l.Status.Allowance.CPU) +
		", " + cores(l.Status.Used.CPU) + " used   memory " + l.Status.Allocated.Memory.Short() + " given of " + l.Status.Allowance.Memory.Short() +
		"   virtual clusters: " + counts(l.Status.VirtualClusters) + "\n\n" +
		hostTable.text(l.Hosts, wide) + "\n" + below
}

func top(c *call) error {
	tenant := client.AllTenants
	if c.IsSet("tenant") {
		tenant = c.String("tenant")
	}
	take := func(ctx context.Context) (look, error) { return takeLook(ctx, c.api, tenant) }
	first, err := take(c.ctx)
	if err != nil {
		return doing(err, "looking at the cluster")
	}
	in, isFile := c.t.in.(*os.File)
	if c.Bool("once") || !c.human() || !isTerminal(c.t.out) || !isFile || !isTerminal(in) {
		return c.print(first, first.text)
	}
	return c.t.topLive(c.ctx, take, in, first, c.format == formatWide)
}

// topLive draws on the alternate screen until q, ^C or the end of ctx.
func (t *tool) topLive(ctx context.Context, take func(context.Context) (look, error), in *os.File, l look, wide bool) error {
	restore, err := rawTerminal(in)
	if err != nil {
		return err
	}
	defer restore()
	t.printf("\x1b[?1049h\x1b[?25l")
	defer t.printf("\x1b[?25h\x1b[?1049l")
	quit := make(chan struct{})
	go func() {
		defer close(quit)
		key := make([]byte, 16)
		for {
			n, err := in.Read(key)
			if err != nil || bytes.ContainsAny(key[:n], "qQ\x03\x04") {
				return
			}
		}
	}()
	trouble := ""
	for {
		t.draw(l, wide, trouble)
		select {
		case <-quit:
			return nil
		case <-ctx.Done():
			return nil
		case <-time.After(refreshEvery):
		}
		next, err := take(ctx)
		trouble = ""
		if err != nil {
			trouble = oneLine(err.Error()) // the last figures stay, and say so
			continue
		}
		l = next
	}
}

// screen is the size of a terminal, in columns and lines.
func screen(stream any) (width, height int) {
	if f, ok := stream.(*os.File); ok {
		if w, h, err := term.GetSize(int(f.Fd())); err == nil && w > 0 && h > 0 {
			return w, h
		}
	}
	return 80, 24
}

// fit cuts lines to the screen, so that each is one line there, and leaves out those that it has no room for.
func fit(stream any, text string) string {
	width, height := screen(stream)
	lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	lines = lines[:min(len(lines), height-1)]
	for i, line := range lines {
		lines[i] = cut(line, width-1)
	}
	return strings.Join(lines, "\n") + "\n"
}

// cut a line to so many characters.
func cut(line string, width int) string {
	r := []rune(line)
	return string(r[:min(len(r), width)])
}

// draw one look from the top left, cut to the screen.
func (t *tool) draw(l look, wide bool, trouble string) {
	last := "q leaves"
	if trouble != "" {
		last = "Out of date: " + trouble
	}
	width, _ := screen(t.out)
	text := fit(t.out, l.text(wide)) + cut(last, width-1)
	t.printf("\x1b[H%s\x1b[K\x1b[J", strings.ReplaceAll(text, "\n", "\x1b[K\r\n"))
}
