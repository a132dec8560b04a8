package actor_test

import (
	"context"
	"fmt"
	"time"

	"github.com/runnel-dev/runnel/actor"
)

// command is what a counter takes: one interface, one type per command.
type command interface{ command() }

type (
	add  struct{ n int }
	load struct {
		from func(context.Context) (int, error)
	}
	loaded struct {
		n   int
		err error
	}
	get struct{ to actor.Reply[int] }
)

func (add) command()    {}
func (load) command()   {}
func (loaded) command() {}
func (get) command()    {}

type counter struct{ total int }

func newCounter(actor.Context[command]) (actor.Behavior[command], error) { return &counter{}, nil }

func (c *counter) Receive(ctx actor.Context[command], m command) error {
	switch m := m.(type) {
	case add:
		c.total += m.n
	case load: // waits elsewhere, comes back as loaded
		return actor.PipeToSelf(ctx, m.from, func(n int, err error) command { return loaded{n, err} })
	case loaded:
		c.total += m.n
		return m.err
	case get:
		m.to.Send(c.total)
	}
	return nil
}

func Example() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	sys, err := actor.New(actor.Config{Dispatchers: map[string]actor.Dispatcher{"control": {Workers: 2}}})
	if err != nil {
		fmt.Println(err)
		return
	}
	ref, err := actor.Spawn(sys, "counter", newCounter, actor.Props{Dispatcher: "control"})
	fmt.Println(ref, err)
	for n := range 5 {
		if err := ref.Tell(add{n}); err != nil {
			fmt.Println(err)
		}
	}
	total, err := actor.Ask(ctx, ref, func(to actor.Reply[int]) command { return get{to} })
	fmt.Println(total, err)
	fmt.Println(sys.Shutdown(ctx))
	// Output:
	// /user/counter <nil>
	// 10 <nil>
	// <nil>
}
