package cluster

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"evenkeel/api/client"
	"evenkeel/api/v1"
)

// singleVMs moves, stops, starts, restarts and resets one VM. Each time the vcd of its host is killed as soon as the request is
// answered, and started again. The request must come to its end, and the other VM of the virtual cluster must not notice.
func singleVMs(t *testing.T, s *site, tab *table) {
	s.create(t, loaded("pair", 2, s.hosts[0]), nil)
	const name, other = "pair-g-0", "pair-g-1"
	get := func(name string) v1.VM {
		return must(t, s, func(ctx context.Context, c *client.Client) (v1.VM, error) { return c.VM(ctx, name) })
	}
	vm, beside := get(name), get(other)
	process, ok := s.watch.Of(beside.Domain)
	if !ok {
		t.Fatalf("%s has no process", other)
	}
	beats := s.beats(t, vm)
	beating(t, beats, time.Now())

	// ask for something, kill the agent, and wait for the end.
	ends := func(what string, request func(context.Context, *client.Client, ...client.Option) (*v1.Operation, error)) v1.Operation {
		t.Helper()
		begun := time.Now()
		key := client.IdempotencyKey(fmt.Sprint("one VM ", what, begun.UnixNano()))
		op := must(t, s, func(ctx context.Context, c *client.Client) (*v1.Operation, error) { return request(ctx, c, key) })
		if op == nil {
			t.Fatalf("%s: no operation", what)
		}
		undo := killed(t, s.host(vm.Host))
		undo()
		eventually(t, 2*time.Minute, what+" ends", func(ctx context.Context) error {
			now, err := ask(ctx, s.hosts, func(ctx context.Context, c *client.Client) (v1.Operation, error) { return c.Operation(ctx, op.ID) })
			if err != nil {
				return err
			}
			if *op = now; now.State == v1.OperationPending {
				return errors.New(now.Text)
			}
			return nil
		})
		vm = get(name)
		tab.add("one VM: "+what, "%s after %.1f s: %s; %s on %s, generation %d", op.State, time.Since(begun).Seconds(), op.Text, vm.State, vm.Host, vm.Generation)
		return *op
	}
	verb := func(f func(*client.Client, context.Context, string, ...client.Option) (v1.Result, error)) func(context.Context, *client.Client, ...client.Option) (*v1.Operation, error) {
		return func(ctx context.Context, c *client.Client, opts ...client.Option) (*v1.Operation, error) {
			r, err := f(c, ctx, name, opts...)
			return r.Operation, err
		}
	}
	expect := func(what string, right bool) {
		t.Helper()
		if !right {
			t.Errorf("%s: %+v", what, vm)
		}
	}

	from := vm.Host
	to := s.others(s.host(from))[0].Name
	op := ends("migrate", func(ctx context.Context, c *client.Client, opts ...client.Option) (*v1.Operation, error) {
		r, err := c.MigrateVM(ctx, name, v1.MigrateRequest{To: to}, opts...)
		return r.Operation, err
	})
	expect("it runs on, in one place", vm.State == "running" && vm.Generation == 1 && (vm.Host == to) == (op.State == v1.OperationDone))
	beating(t, beats, time.Now())

	op = ends("stop", verb((*client.Client).StopVM))
	expect("it is stopped", op.State == v1.OperationDone && vm.State == "stopped")
	if i, ok := s.watch.Of(vm.Domain); ok {
		t.Errorf("it is stopped, and there is %v", i)
	}
	op = ends("start", verb((*client.Client).StartVM))
	expect("it runs again", op.State == v1.OperationDone && vm.State == "running" && vm.Generation == 2)
	beating(t, beats, time.Now())
	op = ends("restart", verb((*client.Client).RestartVM))
	expect("it was started again", op.State == v1.OperationDone && vm.State == "running" && vm.Generation == 3)
	beating(t, beats, time.Now())

	before, _ := s.watch.Of(vm.Domain)
	asked := time.Now()
	op = ends("reset", verb((*client.Client).ResetVM))
	expect("it runs on", vm.State == "running" && vm.Generation == 3)
	if after, ok := s.watch.Of(vm.Domain); !ok || after.PID != before.PID {
		t.Errorf("a reset made another process: %v, then %v", before, after)
	}
	beating(t, beats, time.Now())
	boots := 0
	all := beats.All()
	for i := 1; i < len(all); i++ {
		if all[i].At.After(asked) && all[i].Seq < all[i-1].Seq {
			boots++
		}
	}
	if boots > 1 || boots == 0 && op.State == v1.OperationDone {
		t.Errorf("the guest booted %d times after a reset that is %s: %s", boots, op.State, op.Text)
	}
	if now, ok := s.watch.Of(beside.Domain); !ok || now.PID != process.PID || get(other).Generation != 1 {
		t.Errorf("%s was touched: %v, then %v", other, process, now)
	}
}
