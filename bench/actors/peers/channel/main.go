// Command channel runs the workloads on a goroutine and a channel for each actor:
// what one would write without any runtime. Channels have 16 places; a sender
// that finds them full waits, so that two actors that send to each other can
// stop each other for good.
package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/runnel-dev/runnel/bench/actors/workload"
)

const places = 16

type ref chan delivery

type message = workload.Message[ref]

// delivery is a message and where its answer goes, if one is wanted.
type delivery struct {
	m     *message
	reply chan *message
}

type peer struct {
	ctx      context.Context
	deadline bool
	mu       sync.RWMutex
	names    map[string]ref
}

func open(ctx context.Context, env workload.Env) (workload.Peer[ref], error) {
	return &peer{ctx: ctx, deadline: env.AskDeadline, names: map[string]ref{}}, nil
}

func (p *peer) Spawn(name string) (ref, error) {
	r := make(ref, places)
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, taken := p.names[name]; taken {
		return nil, fmt.Errorf("name %s taken", name)
	}
	p.names[name] = r
	go r.live(name)
	return r, nil
}

func (r ref) live(name string) {
	var s workload.State[ref]
	s.Begin(name)
	for d := range r {
		if d.reply != nil {
			d.reply <- s.Answer(d.m)
		} else if next, again := s.Handle(d.m); again {
			next <- delivery{m: d.m}
		}
	}
}

func (p *peer) Tell(to ref, m *message) error {
	to <- delivery{m: m}
	return nil
}

func (p *peer) TellName(name string, m *message) error {
	p.mu.RLock()
	r, ok := p.names[name]
	p.mu.RUnlock()
	if !ok {
		return fmt.Errorf("no actor %s", name)
	}
	return p.Tell(r, m)
}

func (p *peer) Askers(n int, loop func(int, workload.Ask[ref])) error {
	return workload.GoAskers(n, loop, func() (workload.Ask[ref], func()) {
		// A late answer to an asker that has given up finds room here.
		reply := make(chan *message, 1)
		if !p.deadline {
			return func(to ref, m *message) (*message, error) {
				to <- delivery{m, reply}
				return <-reply, nil
			}, func() {}
		}
		timer := time.NewTimer(workload.AskTimeout)
		return func(to ref, m *message) (*message, error) {
			timer.Reset(workload.AskTimeout)
			select {
			case to <- delivery{m, reply}:
			case <-timer.C:
				return nil, context.DeadlineExceeded
			}
			select {
			case r := <-reply:
				return r, nil
			case <-timer.C:
				return nil, context.DeadlineExceeded
			}
		}, func() { timer.Stop() }
	})
}

func main() { workload.Main(open) }
