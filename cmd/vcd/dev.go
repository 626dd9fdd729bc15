package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/urfave/cli/v2"

	"evenkeel/api/server"
	"evenkeel/api/v1"
	"evenkeel/cluster/agent"
	"evenkeel/cluster/single"
	"evenkeel/cluster/state"
	"evenkeel/hypervisor"
	"evenkeel/internal/statefile"
)

func devCommand() *cli.Command {
	return &cli.Command{
		Name:  "dev",
		Usage: "run a cluster of one server: API, Raft on disk and the agents of its hosts",
		Description: `Prints "ready" and its address on one line once it serves. The admin token is in DIR/admin.token, the
certificate to trust in DIR/ca.pem:

  vcd dev --data-dir /var/lib/evenkeel/dev &
  export EVENKEEL_ADDRESS=https://127.0.0.1:7480 EVENKEEL_CACERT=/var/lib/evenkeel/dev/ca.pem
  EVENKEEL_TOKEN=$(cat /var/lib/evenkeel/dev/admin.token) vcctl host list

Guests of simulated hosts use all their vCPUs, and say nothing of their memory, unless the kernel's command line in their VC file
has ek.burn=N (busy vCPUs), ek.duty=PERCENT or ek.touch=MiB (memory in use).`,
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "data-dir", Usage: "keep state, token and certificates in `DIR`", Value: defaultDataDir()},
			&cli.StringFlag{Name: "listen", Usage: "serve the API on `ADDRESS`", Value: "127.0.0.1:7480"},
			&cli.StringFlag{Name: "hypervisor", Usage: "auto, simulated, or a libvirt `URI`; auto takes the local libvirt if there is one", Value: "auto"},
			&cli.StringFlag{Name: "hosts", Usage: "simulated: `N` hosts of 32 cores and 128 GiB, or numbers of hosts with their cores and memory, such as 8x32x128GiB,4x64x512GiB", Value: "12"},
			&cli.Float64Flag{Name: "allowance-cpu", Usage: "`CORES` of each host that VMs may use (default: all but max(0.25, 5%))"},
			&cli.StringFlag{Name: "allowance-memory", Usage: "memory of each host that VMs may use, a `SIZE` such as 8GiB (default: all but max(512 MiB, 5%))"},
			&cli.Float64Flag{Name: "min-yield", Usage: "least `YIELD` of a virtual cluster that names none", Value: 0.5},
			&cli.DurationFlag{Name: "forecast-step", Usage: "for trying out: forecast use by steps of `TIME`, from 1s, and look at what VMs need as often", Value: time.Minute},
			&cli.BoolFlag{Name: "emulation", Usage: "never use KVM, even where libvirt offers it"},
			&cli.StringFlag{Name: "guest", Usage: "put vmlinuz and initrd.img in `DIR` into the catalogue as image \"tiny\", the default image", Value: defaultGuestDir()},
			&cli.StringFlag{Name: "log-level", Usage: "debug, info, warn or error", Value: "info"},
		},
		Action: dev,
	}
}

func defaultDataDir() string {
	if os.Geteuid() == 0 {
		return "/var/lib/evenkeel/dev"
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "evenkeel-dev"
	}
	return filepath.Join(home, ".local", "state", "evenkeel", "dev")
}

// dev runs until its context ends.
func dev(c *cli.Context) error {
	if c.Args().Present() {
		return cli.Exit(fmt.Sprintf("dev takes no arguments, but there is %q", c.Args().First()), 2)
	}
	log, err := logger(c.String("log-level"))
	if err != nil {
		return cli.Exit(err, 2)
	}
	allow, err := allowance(c)
	if err != nil {
		return cli.Exit(err, 2)
	}
	if y := c.Float64("min-yield"); !(y >= 0 && y <= 1) {
		return cli.Exit(fmt.Sprintf("--min-yield %g: must be from 0 to 1", y), 2)
	}
	if d := c.Duration("forecast-step"); d < time.Second || d > time.Hour {
		return cli.Exit(fmt.Sprintf("--forecast-step %s: must be from 1s to 1h", d), 2)
	}
	if c.String("data-dir") == "" { // an unset variable of a script, and not the current directory
		return cli.Exit("--data-dir: must not be empty", 2)
	}
	dir, err := filepath.Abs(c.String("data-dir"))
	if err != nil {
		return fmt.Errorf("data directory: %w", err)
	}
	// The hypervisor's user must reach images and disks below it; secrets have modes of their own.
	if err := os.MkdirAll(dir, 0o711); err != nil {
		return fmt.Errorf("data directory: %w", err)
	}
	metricsToPrometheus(log)
	set := state.DefaultSettings()
	set.MinYield = c.Float64("min-yield")
	var (
		f        *fleet
		listener net.Listener
	)
	cluster, err := single.Start(c.Context, single.Options{Dir: dir, ID: "dev", Settings: set, Logger: log, Used: exists(filepath.Join(dir, ownerFile)),
		Open: func(ctx context.Context) (map[string]hypervisor.Host, error) {
			// After the log, whose lock refuses a second vcd on the directory; before anything is done with a host.
			if listener, err = net.Listen("tcp", c.String("listen")); err != nil {
				return nil, fmt.Errorf("listen for the API: %w", err)
			}
			if f, err = openFleet(ctx, c, dir, log); err != nil {
				return nil, err
			}
			log.Info("hypervisor", "kind", f.kind, "hosts", len(f.hosts))
			return f.hosts, nil
		},
		Inspect: func(img state.Image) (state.Image, error) { return inspector(f.world != nil)(img) },
		Step:    c.Duration("forecast-step"),
		Agent:   agent.Options{Allowance: allow, Overhead: overhead}})
	if f != nil {
		defer f.close()
	}
	if listener != nil {
		defer listener.Close() //nolint:errcheck // closed by the server before, if it served
	}
	if d := new(statefile.Damaged); errors.As(err, &d) {
		return fmt.Errorf("%w; begin again with another --data-dir: this one has the disks of its VMs, and there is no second server to take the state from", err)
	}
	if err != nil {
		return err
	}
	defer func() {
		if err := cluster.Close(); err != nil {
			log.Error("close the log", "error", err)
		}
	}()
	if err := f.seed(c.Context, cluster.Service, c.String("guest"), dir, log); err != nil {
		return err
	}
	return serve(c, cluster, f, listener, dir, log)
}

// overhead is what a VM takes of its host beyond its own memory: QEMU's own,
// and under emulation the cache of translated code.
func overhead(c hypervisor.Capacity) int64 {
	switch {
	case c.Cgroup == 0: // simulated
		return 32 << 20
	case c.KVM:
		return 64 << 20
	}
	return 128 << 20
}

// allowance of a host by the flags, or by the standard rule.
func allowance(c *cli.Context) (func(hypervisor.Capacity) agent.Limits, error) {
	cpu := c.Float64("allowance-cpu")
	if c.IsSet("allowance-cpu") && !(cpu > 0 && cpu < 1e6) {
		return nil, fmt.Errorf("--allowance-cpu %g: must be a number of cores above 0", cpu)
	}
	f, err := allowanceOf(cpu, c.String("allowance-memory"))
	if err != nil {
		return nil, fmt.Errorf("--allowance-memory %w", err)
	}
	return f, nil
}

// allowanceOf a host; 0 and "" are the standard rule.
func allowanceOf(cpu float64, size string) (func(hypervisor.Capacity) agent.Limits, error) {
	var memory int64
	if size != "" {
		n, err := v1.ParseSize(size)
		if err != nil || n == 0 {
			return nil, fmt.Errorf("%q: must be a size such as 8GiB", size)
		}
		memory = int64(n)
	}
	return func(h hypervisor.Capacity) agent.Limits {
		l := agent.Limits{CPU: max(0, h.CPU-max(0.25, 0.05*h.CPU)), Memory: max(0, h.Memory-max(512<<20, h.Memory/20))}
		if cpu > 0 {
			l.CPU = min(cpu, h.CPU)
		}
		if memory > 0 {
			l.Memory = min(memory, h.Memory)
		}
		return l
	}, nil
}

// readyWithin is more than all hosts take for their first report while their libvirt answers: a look at the host has two time-outs of a
// minute.
const readyWithin = 3 * time.Minute

// awaitReady returns once every host has reported, or says which did not, and what of its hypervisor hangs.
func awaitReady(ctx context.Context, cluster interface{ AwaitReady(context.Context) error }, f *fleet) error {
	bounded, cancel := context.WithTimeout(ctx, readyWithin)
	defer cancel()
	err := cluster.AwaitReady(bounded)
	if err == nil || ctx.Err() != nil {
		return err
	}
	if hung := f.hanging(); hung != "" {
		err = fmt.Errorf("%w: libvirt does not answer: %s", err, hung)
	}
	if f.world == nil && bounded.Err() != nil {
		err = lookAt(f.kind, err)
	}
	return err
}

// serve the API until the context ends or an agent fails.
func serve(c *cli.Context, cluster *single.Cluster, f *fleet, listener net.Listener, dir string, log *slog.Logger) error {
	token, err := server.EnsureAdminToken(filepath.Join(dir, "admin.token"))
	if err != nil {
		return err
	}
	addr := listener.Addr().String()
	certs, err := server.EnsureCertificates(dir, addr)
	if err != nil {
		return err
	}
	trail, err := openAudit(dir, "dev", log)
	if err != nil {
		return err
	}
	defer trail.Close() //nolint:errcheck // what was added is written
	api := server.New(cluster.Service, server.Options{Tokens: []server.TokenHash{token}, Version: version, Logger: log, Audit: trail, Gatherer: prometheus.DefaultGatherer})
	ctx, cancel := context.WithCancel(c.Context)
	defer cancel()
	served := make(chan error, 1)
	go func() {
		err := api.Serve(ctx, listener, certs.TLS())
		cancel()
		served <- err
	}()
	if err := awaitReady(ctx, cluster, f); err != nil {
		cancel()
		return errors.Join(err, <-served)
	}
	fmt.Printf("ready https://%s\n", addr)
	if _, err := daemon.SdNotify(false, daemon.SdNotifyReady); err != nil {
		log.Warn("notify systemd", "error", err)
	}
	select {
	case err = <-cluster.Failed():
	case <-ctx.Done():
	}
	log.Info("stopping; VMs run on")
	cancel()
	return errors.Join(err, <-served)
}
