// Command hollywood runs the workloads on Hollywood with its defaults: an inbox of
// 1024 places that grows, a goroutine for each turn. Where there are very many
// actors the inbox has 16 places, since a million of the default size would need
// 24 GiB.
package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/anthdm/hollywood/actor"

	"github.com/runnel-dev/runnel/bench/actors/workload"
)

const (
	actorKind  = "t"
	crowdInbox = 16
)

type ref = *actor.PID

type message = workload.Message[ref]

type behavior struct{ state workload.State[ref] }

func (b *behavior) Receive(c *actor.Context) {
	switch m := c.Message().(type) {
	case *message:
		if m.IsAsk() {
			c.Respond(b.state.Answer(m))
		} else if next, again := b.state.Handle(m); again {
			c.Send(next, m)
		}
	case actor.Started:
		b.state.Begin(strings.TrimPrefix(c.PID().ID, actorKind+"/"))
	}
}

func producer() actor.Receiver { return &behavior{} }

type peer struct {
	engine *actor.Engine
	crowd  bool
}

func open(_ context.Context, env workload.Env) (workload.Peer[ref], error) {
	e, err := actor.NewEngine(actor.NewEngineConfig())
	return &peer{e, env.Crowd}, err
}

func (p *peer) Spawn(name string) (ref, error) {
	if p.crowd {
		return p.engine.Spawn(producer, actorKind, actor.WithID(name), actor.WithInboxSize(crowdInbox)), nil
	}
	return p.engine.Spawn(producer, actorKind, actor.WithID(name)), nil
}

func (p *peer) Tell(to ref, m *message) error {
	p.engine.Send(to, m)
	return nil
}

func (p *peer) TellName(name string, m *message) error {
	pid := p.engine.Registry.GetPID(actorKind, name)
	if pid == nil {
		return fmt.Errorf("no actor %s", name)
	}
	return p.Tell(pid, m)
}

func (p *peer) Askers(n int, loop func(int, workload.Ask[ref])) error {
	return workload.GoAskers(n, loop, func() (workload.Ask[ref], func()) {
		return func(to ref, m *message) (*message, error) {
			r, err := p.engine.Request(to, m, workload.AskTimeout).Result()
			if err != nil {
				return nil, err
			}
			answer, _ := r.(*message)
			return answer, nil
		}, func() {}
	})
}

func main() { workload.Main(open) }
