// Command protoactor runs the workloads on Proto.Actor for Go with its defaults:
// unbounded mailbox, a goroutine for each turn of up to 300 messages, no metrics.
// All actors share one Props.
package main

import (
	"context"
	"log/slog"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/runnel-dev/runnel/bench/actors/workload"
)

type ref = *actor.PID

type message = workload.Message[ref]

type behavior struct{ state workload.State[ref] }

func (b *behavior) Receive(c actor.Context) {
	switch m := c.Message().(type) {
	case *message:
		if m.IsAsk() {
			c.Respond(b.state.Answer(m))
		} else if next, again := b.state.Handle(m); again {
			c.Send(next, m)
		}
	case *actor.Started:
		b.state.Begin(c.Self().Id)
	}
}

type peer struct {
	system *actor.ActorSystem
	root   *actor.RootContext
	props  *actor.Props
}

func open(context.Context, workload.Env) (workload.Peer[ref], error) {
	s := actor.NewActorSystem(actor.WithLoggerFactory(func(*actor.ActorSystem) *slog.Logger {
		return slog.New(slog.DiscardHandler)
	}))
	return &peer{s, s.Root, actor.PropsFromProducer(func() actor.Actor { return &behavior{} })}, nil
}

func (p *peer) Spawn(name string) (ref, error) { return p.root.SpawnNamed(p.props, name) }

func (p *peer) Tell(to ref, m *message) error {
	p.root.Send(to, m)
	return nil
}

func (p *peer) TellName(name string, m *message) error {
	return p.Tell(p.system.NewLocalPID(name), m)
}

func (p *peer) Askers(n int, loop func(int, workload.Ask[ref])) error {
	return workload.GoAskers(n, loop, func() (workload.Ask[ref], func()) {
		return func(to ref, m *message) (*message, error) {
			r, err := p.root.RequestFuture(to, m, workload.AskTimeout).Result()
			if err != nil {
				return nil, err
			}
			answer, _ := r.(*message)
			return answer, nil
		}, func() {}
	})
}

func main() { workload.Main(open) }
