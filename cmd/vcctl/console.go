package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/term"
)

// leave is the key that ends a console: ctrl-].
const leave = 0x1d

// rawTerminal hands every key on as it is. restore gives the terminal back.
func rawTerminal(f *os.File) (restore func(), err error) {
	fd := int(f.Fd())
	before, err := term.MakeRaw(fd)
	if err != nil {
		return nil, fmt.Errorf("switch the terminal to raw mode: %w", err)
	}
	return func() { _ = term.Restore(fd, before) }, nil // the program ends: an error would change nothing
}

func vmConsole(c *call) error {
	t, name := c.t, c.arg
	ctx, cancel := context.WithCancel(c.ctx)
	defer cancel()
	tty, err := c.api.Console(ctx, c.name)
	if err != nil {
		return doing(err, "opening the console of VM %s", c.arg)
	}
	defer tty.Close() //nolint:errcheck // nothing is kept in it

	in, terminal := t.in.(*os.File)
	terminal = terminal && isTerminal(in)
	if terminal {
		t.say("Console of %s; ctrl-] leaves.\n", name)
		restore, err := rawTerminal(in)
		if err != nil {
			return err
		}
		defer func() {
			restore()
			t.say("\nLeft the console of %s; the VM runs on.\n", name)
		}()
	}
	left := make(chan error, 2)
	go func() {
		err := keys(tty, t.in, terminal)
		if terminal || err != nil { // where the input is a file, the output goes on after its end
			left <- err
		}
	}()
	go func() {
		_, err := io.Copy(t.out, tty)
		if err == nil || errors.Is(err, io.EOF) {
			err = failed(statusFailed, "the console of VM %s ended: the VM stopped, or another reader took it over", name)
		}
		left <- err
	}()
	select {
	case err := <-left:
		return err
	case <-ctx.Done():
		return nil
	}
}

// keys copies the input to the console up to the key that leaves.
func keys(to io.Writer, from io.Reader, terminal bool) error {
	b := make([]byte, 1024)
	for {
		n, err := from.Read(b)
		part, leaving := b[:n], false
		if at := bytes.IndexByte(part, leave); terminal && at >= 0 {
			part, leaving = part[:at], true
		}
		if len(part) > 0 {
			if _, err := to.Write(part); err != nil {
				return nil // the other side says why
			}
		}
		if leaving || errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read the input: %w", err)
		}
	}
}
