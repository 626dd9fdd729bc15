// Command labhost runs libvirt hosts of their own on this machine, in
// namespaces, for demonstrations and for trying things by hand; and does to them, or
// to those of a test's lab, what happens to hosts. It needs root.
//
//	labhost -dir DIR [-hosts N] [-shared] [-tls] [-qemu TREE] [-state-size BYTES] up
//	                               start N hosts, h1, h2, ...; print the libvirt URI of each
//	labhost -dir DIR down          stop them with all their VMs, remove everything
//	labhost -dir DIR uri [HOST]    print the URI again
//	labhost -dir DIR address [HOST|desk]
//	                               print the IP address in the lab's network
//	labhost -dir DIR migrate-uri HOST
//	                               print the URI by which the other hosts reach its libvirt
//	labhost -dir DIR run HOST COMMAND [ARG...]
//	                               run a command in a host
//	labhost -dir DIR desk COMMAND [ARG...]
//	                               run a command of this machine on the lab's network
//	labhost -dir DIR off|on|state HOST
//	                               the power switch: a power failure, or a start; "state" prints "on" or "off".
//	                               Inside a host it works by way of "serve"
//	labhost -dir DIR serve         let hosts switch one another, until interrupted
//	labhost -dir DIR pull|plug HOST
//	                               the network cable
//	labhost -dir DIR freeze|thaw HOST
//	labhost -dir DIR partition HOST,HOST,... [HOST,...]
//	                               hosts of different groups do not hear one another (the rest is a group)
//	labhost -dir DIR heal          end partition
//	labhost -dir DIR fill|free HOST
//	                               fill the disk of a host; with -state-size only
//	labhost -dir DIR limit CORES [HOST]
//	                               limit a whole host to so many cores; 0 = no limit
//
// HOST is h1 where it may be left out. The hosts outlive the command "up"; those of a test end with it.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"evenkeel/test/lab"
)

const usage = `usage: labhost -dir DIR COMMAND
  up | down | uri [HOST] | address [HOST|desk] | migrate-uri HOST
  run HOST COMMAND [ARG...] | desk COMMAND [ARG...]
  off HOST | on HOST | state HOST | pull HOST | plug HOST | freeze HOST | thaw HOST
  serve | partition HOST,HOST,... [HOST,...] | heal | fill HOST | free HOST | limit CORES [HOST]`

func main() {
	var opts lab.Options
	flag.StringVar(&opts.Dir, "dir", "", "directory of the lab's state, at most 70 bytes long; \"down\" removes it")
	flag.IntVar(&opts.Hosts, "hosts", 1, "up: how many hosts")
	flag.BoolVar(&opts.TLS, "tls", false, "up: certificates for the hosts, so that VMs move over TLS")
	flag.BoolVar(&opts.Shared, "shared", false, "up: a storage pool \"shared\" between the hosts, and libvirt's lock manager")
	flag.StringVar(&opts.QEMU, "qemu", "", "up: directory of unpacked packages to lay over /usr in the hosts")
	flag.Int64Var(&opts.StateSize, "state-size", 0, "up: bytes that fit on the disk of each host; 0 = what fits on this machine's")
	flag.Usage = func() {
		fmt.Fprintln(flag.CommandLine.Output(), usage)
		flag.PrintDefaults()
	}
	flag.Parse()
	if opts.Dir == "" || flag.NArg() == 0 {
		flag.Usage()
		os.Exit(2)
	}
	if err := command(opts, flag.Arg(0), flag.Args()[1:]); err != nil {
		if ended, ok := errors.AsType[*attended](err); ok {
			os.Exit(ended.status)
		}
		fmt.Fprintln(os.Stderr, "labhost:", err)
		os.Exit(1)
	}
}

func command(opts lab.Options, verb string, args []string) error {
	switch verb {
	case "up":
		return up(opts)
	case "down":
		return down(opts)
	}
	l, err := lab.Open(opts.Dir)
	if errors.Is(err, lab.ErrInside) && len(args) == 1 && (verb == "off" || verb == "on" || verb == "state") {
		return askPower(verb, args[0])
	}
	if err != nil {
		return err
	}
	if verb == "address" && slices.Equal(args, []string{"desk"}) {
		fmt.Println(l.Desk())
		return nil
	}
	if does, known := labVerbs[verb]; known && len(args) >= does.min && len(args) <= does.max {
		return does.to(l, args)
	}
	if does, known := verbs[verb]; known {
		return onHost(l, verb, args, does)
	}
	return fmt.Errorf("unknown command: %s %s", verb, strings.Join(args, " "))
}

func up(opts lab.Options) error {
	opts.Stay = true
	l, err := lab.Start(context.Background(), opts)
	if err != nil {
		return err
	}
	for _, h := range l.Hosts() {
		fmt.Println(h.URI())
	}
	return nil
}

func down(opts lab.Options) error {
	l, err := lab.Open(opts.Dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return l.Close()
}

// askPower switches a host from inside another one, by way of "serve".
func askPower(verb, host string) error {
	is, err := lab.AskPower(context.Background(), verb, host)
	if err == nil && verb == "state" {
		fmt.Println(is)
	} else if err == nil && is != verb {
		err = fmt.Errorf("host %s is %s", host, is)
	}
	return err
}

// labVerbs are what is done to a lab, by how many arguments there may be.
var labVerbs = map[string]struct {
	min, max int
	to       func(l *lab.Lab, args []string) error
}{
	"serve":     {0, 0, serve},
	"partition": {0, math.MaxInt, partition},
	"heal":      {0, 0, func(l *lab.Lab, _ []string) error { return l.Heal() }},
	"desk": {1, math.MaxInt, func(l *lab.Lab, args []string) error {
		return attend(l.Command(context.Background(), args[0], args[1:]...))
	}},
	"limit": {1, math.MaxInt, limit},
	"run":   {2, math.MaxInt, run},
}

func serve(l *lab.Lab, _ []string) error {
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer cancel()
	stop, err := l.ServePower()
	if err != nil {
		return err
	}
	<-ctx.Done()
	return stop()
}

func partition(l *lab.Lab, args []string) error {
	var groups [][]*lab.Host
	for _, arg := range args {
		var group []*lab.Host
		for name := range strings.SplitSeq(arg, ",") {
			h, err := hostOf(l, name)
			if err != nil {
				return err
			}
			group = append(group, h)
		}
		groups = append(groups, group)
	}
	return l.Partition(groups...)
}

func limit(l *lab.Lab, args []string) error {
	cores, err := strconv.ParseFloat(args[0], 64)
	if err != nil || !(cores >= 0) {
		return fmt.Errorf("%q is no number of cores", args[0])
	}
	return onHost(l, "limit", args[1:], func(h *lab.Host) error { return h.LimitCPU(cores) })
}

func run(l *lab.Lab, args []string) error {
	return onHost(l, "run", args[:1], func(h *lab.Host) error {
		if !h.Up() {
			return fmt.Errorf("host %s has no power", h.Name)
		}
		return attend(h.Command(context.Background(), args[1], args[2:]...))
	})
}

// verbs are what is done to one host.
var verbs = map[string]func(*lab.Host) error{
	"uri":         func(h *lab.Host) error { fmt.Println(h.URI()); return nil },
	"address":     func(h *lab.Host) error { fmt.Println(h.Address()); return nil },
	"migrate-uri": func(h *lab.Host) error { fmt.Println(h.MigrationURI()); return nil },
	"off":         (*lab.Host).PowerOff,
	"on":          func(h *lab.Host) error { return h.PowerOn(context.Background()) },
	"state": func(h *lab.Host) error {
		if h.Up() {
			fmt.Println("on")
		} else {
			fmt.Println("off")
		}
		return nil
	},
	"pull":   func(h *lab.Host) error { return h.CutCable(true) },
	"plug":   func(h *lab.Host) error { return h.CutCable(false) },
	"freeze": (*lab.Host).Freeze,
	"thaw":   (*lab.Host).Thaw,
	"fill":   (*lab.Host).FillDisk,
	"free":   (*lab.Host).FreeDisk,
}

// onHost does something to the host that args name. A command that changes nothing may leave the name out.
func onHost(l *lab.Lab, verb string, args []string, does func(*lab.Host) error) error {
	if len(args) == 0 && (verb == "uri" || verb == "address" || verb == "limit") {
		return does(l.Host(1))
	}
	if len(args) != 1 {
		return fmt.Errorf("%s: which host?", verb)
	}
	h, err := hostOf(l, args[0])
	if err != nil {
		return err
	}
	return does(h)
}

func hostOf(l *lab.Lab, name string) (*lab.Host, error) {
	for _, h := range l.Hosts() {
		if h.Name == name {
			return h, nil
		}
	}
	return nil, fmt.Errorf("no host %q", name)
}

// attended is the end of a program that had this terminal, and said there why it failed.
type attended struct{ status int }

func (a *attended) Error() string { return fmt.Sprintf("exit status %d", a.status) }

// attend runs a program on this terminal. An interrupt reaches the program, too, and the program decides when to end.
func attend(cmd *exec.Cmd) error {
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	ignored := make(chan os.Signal, 1)
	signal.Notify(ignored, os.Interrupt, syscall.SIGQUIT)
	err := cmd.Run()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok && exit.ExitCode() >= 0 {
		return &attended{exit.ExitCode()}
	}
	return err
}
