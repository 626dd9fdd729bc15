package main

import (
	"bytes"
	"context"
	"os"
	"strings"
	"time"

	"github.com/urfave/cli/v2"
	"golang.org/x/term"

	"evenkeel/api/client"
	"evenkeel/api/v1"
)

func (t *tool) topCommand() *cli.Command {
	return &cli.Command{
		Name: "top", Usage: "hosts and VMs with need, allocation, yield and use, live", ArgsUsage: " ", Action: t.top,
		Description: "Refreshes every second on a terminal; q or ^C leaves. With --once, with -o json or yaml, or where the output\n" +
			"is no terminal, it prints one look and ends.\n\nExample: vcctl top --once",
		Flags: []cli.Flag{&cli.BoolFlag{Name: "once", Usage: "print one look and end"}},
	}
}

// look is what top shows.
type look struct {
	Status          v1.ClusterStatus    `json:"status"`
	Hosts           []v1.Host           `json:"hosts"`
	VirtualClusters []v1.VirtualCluster `json:"virtualClusters"`
	VMs             []v1.VM             `json:"vms"`
}

func takeLook(ctx context.Context, api *client.Client) (look, error) {
	var l look
	var err error
	if l.Status, err = api.Status(ctx); err != nil {
		return l, err
	}
	if l.Hosts, err = api.Hosts(ctx); err != nil {
		return l, err
	}
	if l.VirtualClusters, err = api.VirtualClusters(ctx); err != nil {
		return l, err
	}
	l.VMs, err = api.VMs(ctx, "", "")
	return l, err
}

func (l look) text(wide bool) string {
	return "Minimum yield " + yield(l.Status.MinYield) + "   CPU " + cores(l.Status.Allocated.CPU) + " given of " + cores(l.Status.Allowance.CPU) +
		", " + cores(l.Status.Used.CPU) + " used   memory " + l.Status.Allocated.Memory.Short() + " given of " + l.Status.Allowance.Memory.Short() +
		"   virtual clusters: " + counts(l.Status.VirtualClusters) + "\n\n" +
		hostTable(l.Hosts, wide) + "\n" + vcTable(l.VirtualClusters, wide) + "\n" + vmTable(l.VMs, wide)
}

func (t *tool) top(c *cli.Context) error {
	if _, err := names(c); err != nil {
		return err
	}
	f, err := format(c)
	if err != nil {
		return err
	}
	api, err := t.client(c)
	if err != nil {
		return err
	}
	first, err := takeLook(c.Context, api)
	if err != nil {
		return doing(err, "looking at the cluster")
	}
	in, isFile := t.in.(*os.File)
	if c.Bool("once") || f == formatJSON || f == formatYAML || !isTerminal(t.out) || !isFile || !isTerminal(in) {
		return t.print(c, first, first.text)
	}
	return t.topLive(c.Context, api, in, first, f == formatWide)
}

// topLive draws on the alternate screen until q, ^C or the end of ctx.
func (t *tool) topLive(ctx context.Context, api *client.Client, in *os.File, l look, wide bool) error {
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
		next, err := takeLook(ctx, api)
		trouble = ""
		if err != nil {
			trouble = oneLine(err.Error()) // the last figures stay, and say so
			continue
		}
		l = next
	}
}

// draw one look from the top left, cut to the screen.
func (t *tool) draw(l look, wide bool, trouble string) {
	width, height := 80, 24
	if f, ok := t.out.(*os.File); ok {
		if w, h, err := term.GetSize(int(f.Fd())); err == nil && w > 0 && h > 0 {
			width, height = w, h
		}
	}
	lines := strings.Split(strings.TrimRight(l.text(wide), "\n"), "\n")
	last := "q leaves"
	if trouble != "" {
		last = "Out of date: " + trouble
	}
	if len(lines) > height-1 {
		lines = lines[:height-1]
	}
	var b strings.Builder
	b.WriteString("\x1b[H")
	for _, line := range append(lines, last) {
		if r := []rune(line); len(r) > width {
			line = string(r[:width])
		}
		b.WriteString(line + "\x1b[K\r\n")
	}
	b.WriteString("\x1b[J")
	t.printf("%s", strings.TrimSuffix(b.String(), "\r\n\x1b[J")+"\x1b[J")
}
