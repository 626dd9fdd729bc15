package main

import (
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"evenkeel/api/client"
	"evenkeel/api/v1"
	"evenkeel/internal/secretfile"
)

var socketFlag = &cli.StringFlag{Name: "socket", Usage: "local `SOCKET` of the vcd on this host", Value: v1.SetupSocket}

// memberCommands are those of `vcctl cluster` that concern its members.
func (t *tool) memberCommands() []*cli.Command {
	return []*cli.Command{
		{
			Name: "init", Usage: "make a new cluster whose first server is this host", ArgsUsage: " ", Action: t.offline(clusterInit),
			Description: "Asks the vcd of this host over its local socket: run it there, as root. It leaves address, admin token and\n" +
				"CA certificate in ~/.config/evenkeel, where vcctl looks for them. If vcd's configuration names a certificate of your own PKI, the\n" +
				"cluster is the one that it names, and has no CA of its own; every other member needs such a certificate, too.\n\nExample: vcctl cluster init",
			Flags: []cli.Flag{socketFlag, &cli.Float64Flag{Name: "min-yield", Usage: "least `YIELD` of a virtual cluster that names none", Value: 0.5}},
		},
		{
			Name: "join-token", Usage: "make a token that lets one host in, once", ArgsUsage: " ", Action: t.action(clusterJoinToken),
			Description: "Without --server and --agent the new member is both. The token is shown once; it is a secret while it lasts.\n" +
				"With --for it lets in the member of that name and no other, also one that is in the cluster already and lost its disk or let its\n" +
				"certificate run out: it must be the same machine, not restarted since if VMs of the cluster run on it, or the old one must be off.\n\n" +
				"Example: vcctl cluster join-token --ttl 15m > token",
			Flags: []cli.Flag{
				&cli.BoolFlag{Name: "server", Usage: "it may be a server"}, &cli.BoolFlag{Name: "agent", Usage: "it may be an agent"},
				&cli.BoolFlag{Name: "non-voting", Usage: "a server that follows the log and takes requests, but never votes"},
				&cli.StringFlag{Name: "for", Usage: "lets in `MEMBER` only, also if it is in the cluster already"},
				&cli.DurationFlag{Name: "ttl", Usage: "how `LONG` it lasts, 1m to 168h", Value: time.Hour},
				&cli.StringFlag{Name: "comment", Aliases: []string{"m"}, Usage: "`TEXT` for the list of tokens"},
				&cli.BoolFlag{Name: "list", Usage: "list the tokens there are instead"},
			},
		},
		{
			Name: "join", Usage: "make this host a member of a cluster", ArgsUsage: "ADDRESS...", Action: t.clusterJoin,
			Description: "Asks the vcd of this host over its local socket: run it there, as root. ADDRESS is host:port of a server of\n" +
				"the cluster, port 7480 if it names none; of several, the first that answers is taken. The join token is read from\n" +
				"standard input or a file, because every user of the machine can see a command line. Where vcctl has no configuration here yet, it leaves\n" +
				"addresses and CA certificate in ~/.config/evenkeel, and with --token-file that token: then it works at once.\n\n" +
				"It prints what the host lacks for VMs, as `vcd check` does, and keeps no host out for that. -o json has it as host.\n\n" +
				"Example: vcctl cluster join --join-token-file token 192.0.2.11:7480",
			Flags: []cli.Flag{socketFlag, &cli.StringFlag{Name: "join-token-file", Usage: "`FILE` with the join token, - for standard input", Value: "-"}},
		},
		{
			Name: "members", Usage: "list the members: servers and agents", ArgsUsage: " ", Flags: []cli.Flag{watchFlag, sortFlag},
			Action: t.ask("listing members", func(c *call) (any, view, error) { return memberTable.answer(c.api.Members(c.ctx)) }),
			Description: "-o wide shows how many entries of the log each server lags behind the leader, whether gossip reaches the member, and when its\n" +
				"certificate expires; it is renewed before.\n\nExample: vcctl cluster members -w\n   vcctl cluster members -o wide",
		},
		{
			Name: "remove", Usage: "take a member out of the cluster", ArgsUsage: "MEMBER", Action: t.ask("removing member %s", func(c *call) (any, view, error) {
				return acknowledged(c.api.RemoveMember(c.ctx, c.name, c.Bool("force")))
			}),
			Description: "Its certificates count no more; its host must have no VM. Deleted VMs of a host that was fenced or confirmed dead go with it.\n\nExample: vcctl cluster remove h3",
			Flags:       []cli.Flag{&cli.BoolFlag{Name: "force", Usage: "also if too few healthy servers are left for a majority"}},
		},
		{
			Name: "transfer-leadership", Usage: "hand leadership on to another server", ArgsUsage: "[MEMBER]", Action: t.ask("handing leadership on", clusterTransfer),
			Description: "Without a name, to the server whose log is the newest.\n\nExample: vcctl cluster transfer-leadership h2",
		},
		t.certificatesCommand(), t.fencingCommand(), t.snapshotCommand(), t.historyCommand(),
	}
}

func clusterInit(c *call) error {
	file := c.t.configFile()
	if file == "" {
		return usage("cluster init: where to keep the admin token is not known: set HOME or XDG_CONFIG_HOME")
	}
	y := c.Float64("min-yield")
	a, err := client.NewLocal(c.String("socket")).Init(c.ctx, v1.SetupInit{MinYield: &y})
	if err != nil {
		return doing(err, "making a cluster with the vcd at %s", c.String("socket"))
	}
	dir := filepath.Dir(file)
	at := a.Address
	if a.API != "" {
		at = a.API
	}
	for name, content := range map[string]string{"admin.token": a.AdminToken + "\n", "ca.pem": a.CA,
		"config.yaml": fmt.Sprintf("address: https://%s\ntokenFile: admin.token\ncacert: ca.pem\n", at)} {
		if err := keepFile(filepath.Join(dir, name), content); err != nil {
			return fmt.Errorf("the cluster is made, but its access is not kept: %w; the admin token is %s", err, a.AdminToken)
		}
	}
	shown := a
	shown.AdminToken = ""
	return c.print(shown, func(bool) string {
		return fmt.Sprintf("Cluster %s is made; %s is its first server, at %s.\nThe admin token is in %s. Let other hosts in with `vcctl cluster join-token`.\n",
			a.Cluster, a.Name, a.Address, filepath.Join(dir, "admin.token")) + missingText(a.Host)
	})
}

// keepFile writes a file that its owner alone may read, so that it survives a loss of power. What was there stays beside it.
func keepFile(path, content string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	if old, err := os.ReadFile(path); err == nil && string(old) != content {
		if err := os.Rename(path, path+".old"); err != nil {
			return err
		}
	}
	return secretfile.Write(path, []byte(content), 0o600)
}

var joinTokenTable = tableOf("ID,ROLES,FOR,UNTIL,USED BY,COMMENT", "", func(k v1.JoinToken) []string {
	return []string{k.ID, roles(k.Server, k.Agent), k.For, stamp(k.Until), k.UsedBy, k.Comment}
})

func clusterJoinToken(c *call) error {
	if c.Bool("list") {
		list, text, err := joinTokenTable.answer(c.api.JoinTokens(c.ctx))
		if err != nil {
			return doing(err, "listing join tokens")
		}
		return c.print(list, text)
	}
	seconds := c.Duration("ttl").Seconds()
	q := v1.JoinTokenRequest{Server: c.Bool("server"), Agent: c.Bool("agent"), NoVote: c.Bool("non-voting"), For: c.String("for"), Seconds: &seconds, Comment: c.String("comment")}
	if !q.Server && !q.Agent {
		q.Server, q.Agent = true, true
	}
	k, err := c.api.MakeJoinToken(c.ctx, q)
	if err != nil {
		return doing(err, "making a join token")
	}
	return c.print(k, func(bool) string { return k.Token + "\n" })
}

func (t *tool) clusterJoin(c *cli.Context) error {
	if c.NArg() == 0 {
		return usage("cluster join: ADDRESS of a server is missing")
	}
	addresses, err := serverAddresses(c.Args().Slice())
	if err != nil {
		return err
	}
	token, err := t.joinToken(c.String("join-token-file"))
	if err != nil {
		return err
	}
	a, err := client.NewLocal(c.String("socket")).Join(c.Context, v1.SetupJoin{Token: token, Addresses: addresses})
	if err != nil {
		return doing(err, "joining through %s", strings.Join(addresses, ", "))
	}
	kept, err := keepWay(t.configFile(), addresses, a.CA, c.String("token-file"))
	if err != nil {
		return fmt.Errorf("this host is a member of cluster %s, but the way into it is not kept for vcctl: %w", a.Cluster, err)
	}
	a.CA = ""
	return t.print(c, a, func(bool) string {
		return joinedText(a, kept)
	})
}

// serverAddresses as vcd wants them, host:port, out of what people write.
func serverAddresses(args []string) ([]string, error) {
	var out []string
	for _, a := range args {
		host := strings.TrimSuffix(strings.TrimPrefix(a, "https://"), "/")
		if _, _, err := net.SplitHostPort(host); err != nil {
			host = net.JoinHostPort(strings.Trim(host, "[]"), defaultPort)
		}
		if name, port, err := net.SplitHostPort(host); err != nil || name == "" || port == "" || strings.HasPrefix(a, "-") || strings.ContainsAny(host, "/ ") {
			return nil, usage("cluster join: %q is no address of a server: write host or host:port", a)
		}
		out = append(out, host)
	}
	return out, nil
}

// defaultPort of a server.
const defaultPort = "7480"

// joinToken reads the token from a file or standard input: an argument would show it to all users of this machine.
func (t *tool) joinToken(path string) (string, error) {
	in := t.in
	if path != "-" {
		f, err := os.Open(path)
		if err != nil {
			return "", usage("join token: %v", err)
		}
		defer f.Close() //nolint:errcheck // it was read only
		in = f
	}
	b, err := io.ReadAll(io.LimitReader(in, 4096))
	if err != nil {
		return "", fmt.Errorf("join token: %w", err)
	}
	token := strings.TrimSpace(string(b))
	if token == "" {
		return "", usage("join token: %s is empty", path)
	}
	return token, nil
}

func clusterTransfer(c *call) (_ any, _ view, err error) {
	to := ""
	if c.Args().Present() {
		if to, err = name(c.Context, "MEMBER"); err != nil {
			return nil, nil, err
		}
	}
	return acknowledged(c.api.TransferLeadership(c.ctx, to))
}

func (t *tool) fencingCommand() *cli.Command {
	return &cli.Command{
		Name: "fencing", Usage: "whether leases that run out stop restartable VMs",
		Description: "Disabled, the end of a lease stops no VM and proves nothing; watchdogs are stopped, and VMs of lost hosts are not restarted.",
		Subcommands: []*cli.Command{
			{
				Name: "enable", Usage: "let leases stop restartable VMs again when they run out", ArgsUsage: " ", Action: t.ask("enabling fencing", setFencing(true)),
				Description: "Example: vcctl cluster fencing enable",
			},
			{
				Name: "disable", Usage: "let leases that run out stop no VM, for work on the network", ArgsUsage: " ", Action: t.ask("disabling fencing", setFencing(false)),
				Description: "While fencing is disabled, VMs of lost hosts are not restarted. `vcctl cluster fencing enable` ends it.\n\nExample: vcctl cluster fencing disable -m 'switch is replaced'",
				Flags:       []cli.Flag{reasonFlag("`TEXT` that says why")},
			},
		},
	}
}

func setFencing(enable bool) func(*call) (any, view, error) {
	return func(c *call) (any, view, error) {
		return acknowledged(c.api.SetFencing(c.ctx, enable, c.String("reason")))
	}
}

var memberTable = tableOf("NAME,ROLES,ADDRESS,SERVER,LEASE,VERSION", "CONTACT,LAG,GOSSIP,JOINED,CERTIFICATE UNTIL", func(m v1.Member) []string {
	contact, lag := "", ""
	if m.Server {
		lag = fmt.Sprintf("%d entries", m.Behind)
	}
	if m.Server && !m.Leader {
		contact = (time.Duration(m.Contact * float64(time.Second))).Round(time.Millisecond).String()
	}
	return []string{m.Name, roles(m.Server, m.Agent), m.Address, serverText(m), leaseState(m.Lease), m.Version, contact, lag, m.Gossip, stamp(m.JoinedAt), stamp(m.CertificateUntil)}
})

func roles(server, agent bool) string {
	switch {
	case server && agent:
		return "server, agent"
	case server:
		return "server"
	}
	return "agent"
}

func serverText(m v1.Member) string {
	switch {
	case !m.Server:
		return ""
	case m.Leader:
		return "leader"
	case !m.Healthy && m.Trouble == "":
		return "not healthy"
	case !m.Healthy:
		return "not healthy: " + m.Trouble
	case m.Voter:
		return "voter"
	}
	return "no vote yet"
}

func (t *tool) snapshotCommand() *cli.Command {
	return &cli.Command{
		Name: "snapshot", Usage: "save, inspect and restore the state of the cluster",
		Description: "Servers save snapshots by themselves too: see snapshots in vcd.yaml(5).",
		Subcommands: []*cli.Command{
			{
				Name: "save", Usage: "save the state to a file", ArgsUsage: "FILE", Action: t.action(snapshotSave),
				Description: "With all that was acknowledged before. It holds cloud-init data and hashes of tokens: keep it like a secret.\n\n" +
					"Example: vcctl cluster snapshot save before-upgrade.snap",
			},
			{
				Name: "inspect", Usage: "check a saved snapshot and say what is in it", ArgsUsage: "FILE", Action: t.offline(snapshotInspect),
				Description: "Needs no server.\n\nExample: vcctl cluster snapshot inspect before-upgrade.snap",
			},
			{
				Name: "restore", Usage: "put a saved state in force on all servers", ArgsUsage: "FILE", Action: t.offline(snapshotRestore),
				Description: "Changes since it was saved are lost. Then nothing starts or stops until every host that it knows has sent its inventory;\n" +
					"`vcctl host confirm-dead` names one that never will. The cluster may not know a host that joined after the snapshot was saved,\n" +
					"and the host may run VMs of the snapshot: name it with --wait-for, or turn it off before.\n\nExample: vcctl cluster snapshot restore --yes before-upgrade.snap",
				Flags: []cli.Flag{
					&cli.BoolFlag{Name: "yes", Usage: "do it; without it the command says what is in the file and changes nothing"},
					&cli.BoolFlag{Name: "foreign", Usage: "also the snapshot of another cluster"},
					&cli.StringSliceFlag{Name: "wait-for", Usage: "wait for `HOST` as well, which joined after the snapshot was saved"},
				},
			},
		},
	}
}

func snapshotSave(c *call) error {
	if err := newFile(c.name, "save the snapshot", func(f *os.File) error {
		_, err := c.api.SaveSnapshot(c.ctx, f)
		return err
	}); err != nil {
		return err
	}
	s, err := inspectSnapshot(c.name)
	if err != nil {
		return err
	}
	return c.print(s, func(bool) string { return "Saved to " + c.name + ".\n" + snapshotText(s) })
}

// newFile writes a file that must not exist yet, and that its owner alone may read.
func newFile(path, what string, write func(*os.File) error) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return doing(err, "%s", what)
	}
	err = write(f)
	if err == nil {
		err = f.Sync()
	}
	if closed := f.Close(); err == nil {
		err = closed
	}
	if err != nil {
		_ = os.Remove(path) // half a file is none
	}
	return doing(err, "%s", what)
}

func snapshotInspect(c *call) error {
	s, err := inspectSnapshot(c.name)
	if err != nil {
		return err
	}
	return c.print(s, func(bool) string { return snapshotText(s) })
}

func snapshotRestore(c *call) error {
	s, err := inspectSnapshot(c.name)
	if err != nil {
		return err
	}
	if !c.Bool("yes") {
		return c.print(s, func(bool) string {
			return snapshotText(s) + "Nothing was changed. Say --yes to put it in force, and --foreign too if it is of another cluster than `vcctl cluster status` names: what was changed since is forgotten. Name hosts that joined since with --wait-for.\n"
		})
	}
	api, err := c.t.client(c.Context)
	if err != nil {
		return err
	}
	b, err := os.ReadFile(c.name)
	if err != nil {
		return fmt.Errorf("restore the snapshot: %w", err)
	}
	s, err = api.RestoreSnapshot(c.ctx, b, c.Bool("foreign"), c.StringSlice("wait-for")...)
	if err != nil {
		return doing(err, "restoring the snapshot")
	}
	return c.print(s, func(bool) string {
		return "Restored.\n" + snapshotText(s) + "Nothing is started or stopped until every host has said what it runs: vcctl cluster status shows whom it waits for.\n"
	})
}

func snapshotText(s v1.Snapshot) string {
	return fields("Cluster", s.Cluster, "Saved", stamp(s.Time)+" by "+s.Server, "Log index", fmt.Sprint(s.Index), "Epoch", fmt.Sprint(s.Epoch),
		"Holds", strings.Join([]string{countOf(s.Hosts, "host"), countOf(s.Members, "member"), countOf(s.VirtualClusters, "virtual cluster"), countOf(s.VMs, "VM"), countOf(s.Images, "image")}, ", "))
}

func inspectSnapshot(path string) (v1.Snapshot, error) {
	f, err := os.Open(path)
	if err != nil {
		return v1.Snapshot{}, usage("snapshot: %v", err)
	}
	defer f.Close() //nolint:errcheck // it was read only
	s, err := v1.InspectSnapshot(f)
	if err != nil {
		return s, usage("snapshot %s: %v", path, err)
	}
	return s, nil
}
