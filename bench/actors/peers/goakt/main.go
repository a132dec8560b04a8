// Command goakt runs the workloads on GoAKT with the settings of its own
// benchmarks (no log, one attempt to start an actor), its default dispatcher and
// mailbox, and actors that live until they are stopped.
package main

import (
	"context"

	"github.com/tochemey/goakt/v4/actor"
	"github.com/tochemey/goakt/v4/log"

	"github.com/runnel-dev/runnel/bench/actors/workload"
)

// maxActors bounds the cases with very many actors: a million take minutes to
// spawn. Figures for each actor change little beyond.
const maxActors = 100_000

type ref = *actor.PID

type message = workload.Message[ref]

type behavior struct{ state workload.State[ref] }

func (b *behavior) PreStart(c *actor.Context) error {
	b.state.Begin(c.ActorName())
	return nil
}

func (b *behavior) PostStop(*actor.Context) error { return nil }

func (b *behavior) Receive(c *actor.ReceiveContext) {
	if m, ok := c.Message().(*message); ok {
		if m.IsAsk() {
			c.Response(b.state.Answer(m))
		} else if next, again := b.state.Handle(m); again {
			c.Tell(next, m)
		}
	}
}

type peer struct {
	ctx    context.Context
	system actor.ActorSystem
}

func open(ctx context.Context, _ workload.Env) (workload.Peer[ref], error) {
	s, err := actor.NewActorSystem("bench", actor.WithLogger(log.DiscardLogger), actor.WithActorInitMaxRetries(1))
	if err == nil {
		err = s.Start(ctx)
	}
	return &peer{ctx, s}, err
}

// MaxActors implements workload.Limited.
func (p *peer) MaxActors() int { return maxActors }

func (p *peer) Spawn(name string) (ref, error) {
	return p.system.Spawn(p.ctx, name, &behavior{}, actor.WithLongLived())
}

func (p *peer) Tell(to ref, m *message) error { return actor.Tell(p.ctx, to, m) }

func (p *peer) TellName(name string, m *message) error {
	pid, err := p.system.ActorOf(p.ctx, name)
	if err != nil {
		return err
	}
	return p.Tell(pid, m)
}

func (p *peer) Askers(n int, loop func(int, workload.Ask[ref])) error {
	return workload.GoAskers(n, loop, func() (workload.Ask[ref], func()) {
		return func(to ref, m *message) (*message, error) {
			r, err := actor.Ask(p.ctx, to, m, workload.AskTimeout)
			if err != nil {
				return nil, err
			}
			answer, _ := r.(*message)
			return answer, nil
		}, func() {}
	})
}

func main() { workload.Main(open) }
