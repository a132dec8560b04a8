// Command runnel runs the workloads on this module's package actor with its
// default dispatcher and unbounded mailboxes, as the other runtimes have.
package main

import (
	"context"
	"strings"

	"github.com/runnel-dev/runnel/actor"

	"github.com/runnel-dev/runnel/bench/actors/workload"
)

// ref takes a *message, or a *question when an answer is wanted.
type ref = actor.Ref[any]

type message = workload.Message[ref]

type question struct {
	m  *message
	to actor.Reply[*message]
}

type behavior struct{ state workload.State[ref] }

func setup(c actor.Context[any]) (actor.Behavior[any], error) {
	b := &behavior{}
	b.state.Begin(strings.TrimPrefix(c.Path(), "/user/"))
	return b, nil
}

func (b *behavior) Receive(c actor.Context[any], msg any) error {
	switch m := msg.(type) {
	case *message:
		if next, again := b.state.Handle(m); again {
			return actor.Tell(c, next, any(m))
		}
	case *question:
		m.to.Send(b.state.Answer(m.m))
	}
	return nil
}

type peer struct {
	ctx      context.Context
	deadline bool
	system   *actor.System
}

func open(ctx context.Context, env workload.Env) (workload.Peer[ref], error) {
	s, err := actor.New(actor.Config{Mailbox: actor.Mailbox{Capacity: actor.Unbounded}})
	return &peer{ctx, env.AskDeadline, s}, err
}

func (p *peer) Spawn(name string) (ref, error) { return actor.Spawn(p.system, name, setup) }

func (p *peer) Tell(to ref, m *message) error { return to.Tell(m) }

func (p *peer) TellName(name string, m *message) error {
	to, err := actor.Lookup[any](p.system, "/user/"+name)
	if err != nil {
		return err
	}
	return to.Tell(m)
}

// Askers gives each asker one deadline for all that it asks, and if the case
// demands it another for each question.
func (p *peer) Askers(n int, loop func(int, workload.Ask[ref])) error {
	return workload.GoAskers(n, loop, func() (workload.Ask[ref], func()) {
		ctx, cancel := context.WithTimeout(p.ctx, 60*workload.AskTimeout)
		q := &question{} // free again when its ask has returned
		fill := func(to actor.Reply[*message]) any {
			q.to = to
			return q
		}
		ask := func(to ref, m *message) (*message, error) {
			q.m = m
			return actor.Ask(ctx, to, fill)
		}
		if !p.deadline {
			return ask, cancel
		}
		return func(to ref, m *message) (*message, error) {
			ctx, cancel := context.WithTimeout(ctx, workload.AskTimeout)
			defer cancel()
			q.m = m
			return actor.Ask(ctx, to, fill)
		}, cancel
	})
}

func main() { workload.Main(open) }
