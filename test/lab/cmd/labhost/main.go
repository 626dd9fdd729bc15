// Command labhost runs one libvirt host of its own on this machine, in
// namespaces, for a demonstration where no libvirtd runs:
//
//	labhost -dir DIR up            start it, print its libvirt URI
//	labhost -dir DIR uri           print the URI again
//	labhost -dir DIR limit CORES   limit the whole host to so many cores; 0 = no limit
//	labhost -dir DIR down          stop it with all its VMs, remove everything
//
// It outlives the command. It needs root.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"strconv"

	"evenkeel/test/lab"
)

func main() {
	dir := flag.String("dir", "", "directory of the host's state, at most 70 bytes long; \"down\" removes it")
	flag.Usage = func() {
		fmt.Fprintln(flag.CommandLine.Output(), "usage: labhost -dir DIR up|uri|limit CORES|down")
		flag.PrintDefaults()
	}
	flag.Parse()
	if *dir == "" || flag.NArg() == 0 {
		flag.Usage()
		os.Exit(2)
	}
	if err := command(*dir, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "labhost:", err)
		os.Exit(1)
	}
}

func command(dir string, args []string) error {
	switch {
	case args[0] == "up" && len(args) == 1:
		l, err := lab.Start(context.Background(), lab.Options{Dir: dir, Stay: true})
		if err != nil {
			return err
		}
		fmt.Println(l.Host(1).URI())
		return nil
	case args[0] == "limit" && len(args) == 2:
		cores, err := strconv.ParseFloat(args[1], 64)
		if err != nil || !(cores >= 0) {
			return fmt.Errorf("%q is no number of cores", args[1])
		}
		l, err := lab.Open(dir)
		if err != nil {
			return err
		}
		return l.Host(1).LimitCPU(cores)
	case args[0] == "uri" && len(args) == 1:
		l, err := lab.Open(dir)
		if err != nil {
			return err
		}
		fmt.Println(l.Host(1).URI())
		return nil
	case args[0] == "down" && len(args) == 1:
		l, err := lab.Open(dir)
		if errors.Is(err, os.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		return l.Close()
	}
	return fmt.Errorf("unknown command %q", args)
}
