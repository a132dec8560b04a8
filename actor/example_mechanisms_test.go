package actor_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/runnel-dev/runnel/actor"
	"github.com/runnel-dev/runnel/retry"
)

// withSystem runs an example in a System that it shuts down.
func withSystem(c actor.Config, do func(context.Context, *actor.System) error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	sys, err := actor.New(c)
	if err != nil {
		fmt.Println(err)
		return
	}
	err = do(ctx, sys)
	if err := errors.Join(err, sys.Shutdown(ctx)); err != nil {
		fmt.Println(err)
	}
}

// lines is an actor that prints what it is told, and stops at "stop".
func lines(actor.Context[string]) (actor.Behavior[string], error) {
	return actor.Func[string](func(x actor.Context[string], m string) error {
		if m == "stop" {
			x.Stop()
			return nil
		}
		fmt.Println(m)
		return nil
	}), nil
}

// finish tells an actor to stop after what it has and waits for it.
func finish(ctx context.Context, ref actor.Ref[string]) error {
	if err := ref.Tell("stop"); err != nil {
		return err
	}
	return ref.Await(ctx)
}

// A behavior can return the next one.
func ExampleState() {
	withSystem(actor.Config{}, func(ctx context.Context, sys *actor.System) error {
		var open, closed actor.State[string]
		closed = func(x actor.Context[string], m string) (actor.State[string], error) {
			fmt.Println("closed:", m)
			return open, nil
		}
		open = func(x actor.Context[string], m string) (actor.State[string], error) {
			fmt.Println("open:", m)
			if m == "stop" {
				x.Stop()
			}
			return closed, nil
		}
		door, err := actor.Spawn(sys, "door", func(actor.Context[string]) (actor.Behavior[string], error) { return closed, nil })
		if err != nil {
			return err
		}
		return errors.Join(door.Tell("knock"), door.Tell("enter"), door.Tell("knock"), finish(ctx, door))
	})
	// Output:
	// closed: knock
	// open: enter
	// closed: knock
	// open: stop
}

// Messages that come too early are put aside and come back in order.
func ExampleContext_Stash() {
	withSystem(actor.Config{}, func(ctx context.Context, sys *actor.System) error {
		ready := false
		ref, err := actor.Spawn(sys, "a", actor.Stateless(func(x actor.Context[string], m string) error {
			switch {
			case m == "ready":
				ready = true
				fmt.Println("unstashed", x.Unstash())
			case !ready:
				return x.Stash()
			case m == "stop":
				x.Stop()
			default:
				fmt.Println(m)
			}
			return nil
		}))
		if err != nil {
			return err
		}
		return errors.Join(ref.Tell("one"), ref.Tell("two"), ref.Tell("ready"), ref.Tell("three"), finish(ctx, ref))
	})
	// Output:
	// unstashed 2
	// one
	// two
	// three
}

type alarm string

func (alarm) Priority() int { return 1 }

// The urgent is handled first, the rest in the order sent.
func ExamplePrioritized() {
	withSystem(actor.Config{}, func(ctx context.Context, sys *actor.System) error {
		entered, gate := make(chan struct{}), make(chan struct{})
		ref, err := actor.Spawn(sys, "a", actor.Stateless(func(x actor.Context[any], m any) error {
			if m == "wait" {
				close(entered)
				<-gate
			}
			fmt.Println(m)
			if m == "last" {
				x.Stop()
			}
			return nil
		}), actor.Props{Mailbox: actor.Mailbox{Order: actor.ByPriority}})
		if err != nil {
			return err
		}
		if err := ref.Tell("wait"); err != nil {
			return err
		}
		<-entered
		err = errors.Join(ref.Tell("usual"), ref.Tell("last"), ref.Tell(alarm("alarm")))
		close(gate)
		return errors.Join(err, ref.Await(ctx))
	})
	// Output:
	// wait
	// alarm
	// usual
	// last
}

// A full mailbox that blocks slows its senders down; one worker is enough.
func ExampleOverflow_block() {
	withSystem(actor.Config{Dispatchers: map[string]actor.Dispatcher{actor.DefaultDispatcher: {Workers: 1}}},
		func(ctx context.Context, sys *actor.System) error {
			slow, err := actor.Spawn(sys, "slow", lines, actor.Props{Mailbox: actor.Mailbox{Capacity: 1, Overflow: actor.Block}})
			if err != nil {
				return err
			}
			fast, err := actor.Spawn(sys, "fast", actor.Stateless(func(x actor.Context[string], m string) error {
				return actor.Tell(x, slow, m) // suspends this actor when slow is full
			}))
			if err != nil {
				return err
			}
			for _, m := range []string{"1", "2", "3", "4", "stop"} {
				err = errors.Join(err, fast.Tell(m))
			}
			return errors.Join(err, slow.Await(ctx))
		})
	// Output:
	// 1
	// 2
	// 3
	// 4
}

// Handlers that wait get a dispatcher of their own.
func ExampleDispatcher() {
	withSystem(actor.Config{Dispatchers: map[string]actor.Dispatcher{
		"io": {Kind: actor.Elastic, Workers: 100, HoldLimit: time.Minute},
	}}, func(ctx context.Context, sys *actor.System) error {
		gate := make(chan struct{})
		wait := actor.Stateless(func(x actor.Context[string], m string) error {
			<-gate
			x.Stop()
			return nil
		})
		var refs []actor.Ref[string]
		for range 10 {
			ref, err := actor.Spawn(sys, "", wait, actor.Props{Dispatcher: "io"})
			if err != nil {
				return err
			}
			refs = append(refs, ref)
			if err := ref.Tell("wait"); err != nil {
				return err
			}
		}
		close(gate)
		for _, ref := range refs {
			if err := ref.Await(ctx); err != nil {
				return err
			}
		}
		for _, d := range sys.Dispatchers() {
			fmt.Println(d.Name, d.Kind, d.Workers > 0, d.Utilisation() >= 0)
		}
		return nil
	})
	// Output:
	// default shared true true
	// io elastic true true
	// system shared true true
}

// A failed child is restarted; when its budget is used up it stops, and its
// watcher learns why.
func ExampleSupervision() {
	withSystem(actor.Config{}, func(ctx context.Context, sys *actor.System) error {
		failed := actor.Subscribe[actor.ActorFailed](sys, 8)
		ref, err := actor.Spawn(sys, "a", actor.Stateless(func(actor.Context[string], string) error {
			return errors.New("no connection")
		}), actor.Props{Supervision: actor.Supervision{Backoff: retry.Policy{Initial: time.Millisecond, MaxAttempts: 1}}})
		if err != nil {
			return err
		}
		err = errors.Join(ref.Tell("x"), ref.Tell("y"), ref.Await(ctx))
		for range 2 {
			e := <-failed.C()
			fmt.Println(e.Failure, "->", e.Directive)
		}
		return err
	})
	// Output:
	// actor /user/a: no connection -> restart
	// actor /user/a: no connection -> stop
}

// An idle actor stops only when nothing waits, and loses no message by it.
func ExampleContext_Passivate() {
	type idle struct{}
	withSystem(actor.Config{}, func(ctx context.Context, sys *actor.System) error {
		ref, err := actor.Spawn(sys, "a", func(x actor.Context[any]) (actor.Behavior[any], error) {
			x.ReceiveTimeout(10*time.Millisecond, idle{})
			return actor.Func[any](func(x actor.Context[any], m any) error {
				if m == (idle{}) {
					x.Passivate()
				}
				return nil
			}), nil
		})
		if err != nil {
			return err
		}
		err = ref.Await(ctx)
		fmt.Println(errors.Is(ref.Tell("late"), actor.ErrStopped))
		return err
	})
	// Output: true
}

// Select finds actors by path; Tree shows them.
func ExampleSelect() {
	withSystem(actor.Config{}, func(ctx context.Context, sys *actor.System) error {
		for _, name := range []string{"shop-eu", "shop-us", "depot"} {
			if _, err := actor.Spawn(sys, name, lines); err != nil {
				return err
			}
		}
		refs, err := actor.Select[string](sys, "/user/shop-*")
		for _, ref := range refs {
			fmt.Println(ref)
		}
		return err
	})
	// Output:
	// /user/shop-eu
	// /user/shop-us
}

// What nobody handles is published with the reason.
func ExampleDeadLetter() {
	withSystem(actor.Config{}, func(ctx context.Context, sys *actor.System) error {
		letters := actor.Subscribe[actor.DeadLetter](sys, 8)
		ref, err := actor.Spawn(sys, "a", lines)
		if err != nil {
			return err
		}
		if err := finish(ctx, ref); err != nil {
			return err
		}
		fmt.Println(ref.Tell("too late"))
		l := <-letters.C()
		fmt.Println(l.Path, l.Message, l.Reason)
		return nil
	})
	// Output:
	// actor stopped
	// /user/a too late stopped
}

// Timers come as messages; a repeating one never piles up.
func ExampleContext_Every() {
	withSystem(actor.Config{}, func(ctx context.Context, sys *actor.System) error {
		n := 0
		ref, err := actor.Spawn(sys, "a", func(x actor.Context[string]) (actor.Behavior[string], error) {
			x.Every(time.Millisecond, "tick")
			return actor.Func[string](func(x actor.Context[string], m string) error {
				fmt.Println(m)
				if n++; n == 3 {
					x.Stop()
				}
				return nil
			}), nil
		})
		if err != nil {
			return err
		}
		return ref.Await(ctx)
	})
	// Output:
	// tick
	// tick
	// tick
}

type hitCount struct{ n int }

var hits = actor.NewExtension("hits", func(*actor.System) (*hitCount, error) { return &hitCount{}, nil })

// Each System has one of each extension.
func ExampleExtension() {
	withSystem(actor.Config{}, func(ctx context.Context, sys *actor.System) error {
		a, err := hits.Get(sys)
		b, err2 := hits.Get(sys)
		fmt.Println(a == b)
		return errors.Join(err, err2)
	})
	// Output: true
}

// Shutdown runs tasks in phases around the end of the actors.
func ExampleSystem_OnShutdown() {
	withSystem(actor.Config{}, func(ctx context.Context, sys *actor.System) error {
		for _, phase := range []string{actor.PhaseClose, actor.PhaseDrain} {
			_, err := sys.OnShutdown(phase, "example", func(context.Context) error { fmt.Println(phase); return nil })
			if err != nil {
				return err
			}
		}
		return nil
	})
	// Output:
	// drain
	// close
}

// Waiting happens elsewhere; its result comes back as a message of the generation
// that asked for it.
func ExamplePipeToSelf() {
	withSystem(actor.Config{}, func(ctx context.Context, sys *actor.System) error {
		ref, err := actor.Spawn(sys, "a", actor.Stateless(func(x actor.Context[string], m string) error {
			if m != "load" {
				fmt.Println(m)
				x.Stop()
				return nil
			}
			return actor.PipeToSelf(x,
				func(context.Context) (int, error) { return 42, nil },
				func(n int, err error) string { return fmt.Sprint("loaded ", n, " ", err) })
		}))
		if err != nil {
			return err
		}
		return errors.Join(ref.Tell("load"), ref.Await(ctx))
	})
	// Output: loaded 42 <nil>
}

// The end of a watched actor is a signal.
func ExampleContext_Watch() {
	withSystem(actor.Config{}, func(ctx context.Context, sys *actor.System) error {
		watched, err := actor.Spawn(sys, "watched", lines)
		if err != nil {
			return err
		}
		w, err := actor.Spawn(sys, "watcher", func(x actor.Context[string]) (actor.Behavior[string], error) {
			x.Watch(watched)
			return watcher{}, nil
		})
		if err != nil {
			return err
		}
		return errors.Join(finish(ctx, watched), w.Await(ctx))
	})
	// Output: /user/watched has stopped
}

type watcher struct{}

func (watcher) Receive(actor.Context[string], string) error { return nil }

func (watcher) Signal(x actor.Context[string], sig actor.Signal) error {
	if t, ok := sig.(actor.Terminated); ok {
		fmt.Println(t.Addr, "has stopped")
		x.Stop()
	}
	return nil
}
