// Command ergo runs the workloads on Ergo: network and log off, unlimited
// mailboxes, registered names. Only a process can call another, so askers are
// processes.
package main

import (
	"context"
	"sync"
	"time"

	"ergo.services/ergo"
	"ergo.services/ergo/act"
	"ergo.services/ergo/gen"

	"github.com/runnel-dev/runnel/bench/actors/workload"
)

type ref = gen.PID

type message = workload.Message[ref]

type behavior struct {
	act.Actor
	state workload.State[ref]
}

func factory() gen.ProcessBehavior { return &behavior{} }

func (b *behavior) Init(...any) error {
	b.state.Begin(string(b.Name()))
	return nil
}

func (b *behavior) HandleMessage(_ gen.PID, msg any) error {
	if m, ok := msg.(*message); ok {
		if next, again := b.state.Handle(m); again {
			return b.Send(next, m)
		}
	}
	return nil
}

func (b *behavior) HandleCall(_ gen.PID, _ gen.Ref, request any) (any, error) {
	m, _ := request.(*message)
	return b.state.Answer(m), nil
}

type peer struct{ node gen.Node }

func open(context.Context, workload.Env) (workload.Peer[ref], error) {
	var o gen.NodeOptions
	o.Network.Mode = gen.NetworkModeDisabled
	o.Log.Level = gen.LogLevelDisabled
	o.Log.DefaultLogger.Disable = true
	n, err := ergo.StartNode("bench@localhost", o)
	return &peer{n}, err
}

func (p *peer) Spawn(name string) (ref, error) {
	return p.node.SpawnRegister(gen.Atom(name), factory, gen.ProcessOptions{})
}

func (p *peer) Tell(to ref, m *message) error { return p.node.Send(to, m) }

func (p *peer) TellName(name string, m *message) error { return p.node.Send(gen.Atom(name), m) }

// asker is a process that runs one loop of questions when it is told anything.
type asker struct {
	act.Actor
	run func(workload.Ask[ref])
}

func (a *asker) HandleMessage(gen.PID, any) error {
	a.run(func(to ref, m *message) (*message, error) {
		r, err := a.CallWithTimeout(to, m, int(workload.AskTimeout/time.Second))
		if err != nil {
			return nil, err
		}
		answer, _ := r.(*message)
		return answer, nil
	})
	return nil
}

func (p *peer) Askers(n int, loop func(int, workload.Ask[ref])) error {
	var wg sync.WaitGroup
	for i := range n {
		wg.Add(1)
		pid, err := p.node.Spawn(func() gen.ProcessBehavior {
			return &asker{run: func(ask workload.Ask[ref]) {
				defer wg.Done()
				loop(i, ask)
			}}
		}, gen.ProcessOptions{})
		if err != nil {
			return err
		}
		if err := p.node.Send(pid, "go"); err != nil {
			return err
		}
	}
	wg.Wait()
	return nil
}

func main() { workload.Main(open) }
