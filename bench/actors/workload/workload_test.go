package workload

import (
	"context"
	"strings"
	"testing"
	"time"
)

// fault is what a wrong runtime does to messages.
type fault int

const (
	right fault = iota
	loses
	doubles
	swaps
	misanswers
	misnames
	starves
)

type fakeActor struct{ state State[*fakeActor] }

// fakePeer is a runtime with one goroutine and a fault.
type fakePeer struct {
	fault fault
	names map[string]*fakeActor
	queue chan delivery
	held  *delivery // swaps: the message that is to come late
	sent  int
}

type delivery struct {
	to *fakeActor
	m  *Message[*fakeActor]
}

func newFake(t *testing.T, f fault) *fakePeer {
	p := &fakePeer{fault: f, names: map[string]*fakeActor{}, queue: make(chan delivery, 1<<16)}
	quit, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case d := <-p.queue:
				for next, again := d.to.state.Handle(d.m); again; {
					next, again = next.state.Handle(d.m)
				}
			case <-quit:
				return
			}
		}
	}()
	t.Cleanup(func() {
		close(quit)
		<-done
	})
	return p
}

func (p *fakePeer) Spawn(name string) (*fakeActor, error) {
	a := &fakeActor{}
	p.names[name] = a
	if p.fault == misnames {
		name += "x"
	}
	a.state.Begin(name)
	return a, nil
}

func (p *fakePeer) Tell(to *fakeActor, m *Message[*fakeActor]) error {
	if m.kind == work && p.fault == starves {
		return nil
	}
	d := delivery{to, m}
	if p.sent++; p.sent != 5 {
		p.queue <- d
		if p.held != nil {
			p.queue <- *p.held
			p.held = nil
		}
		return nil
	}
	switch p.fault {
	case loses:
	case doubles:
		p.queue <- d
		p.queue <- d
	case swaps:
		p.held = &d
	default:
		p.queue <- d
	}
	return nil
}

func (p *fakePeer) TellName(name string, m *Message[*fakeActor]) error {
	return p.Tell(p.names[name], m)
}

func (p *fakePeer) Askers(n int, loop func(int, Ask[*fakeActor])) error {
	for i := range n {
		loop(i, func(to *fakeActor, m *Message[*fakeActor]) (*Message[*fakeActor], error) {
			m = to.state.Answer(m)
			if p.fault == misanswers && i == 7 {
				m.out++
			}
			return m, nil
		})
	}
	return nil
}

func newRunner(t *testing.T, f fault, limit time.Duration) *runner[*fakeActor] {
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	t.Cleanup(cancel)
	return &runner[*fakeActor]{ctx: ctx, peer: newFake(t, f), scale: .0001}
}

func TestRightPeerPasses(t *testing.T) {
	for _, name := range []string{"memory", "spawn", "one-to-one", "ping-pong", "ask"} {
		samples, err := newRunner(t, right, time.Minute).run(name)
		if err != nil {
			t.Errorf("%s: %v", name, err)
		} else if samples[0].Value == 0 && name != "memory" {
			t.Errorf("%s: got %v", name, samples[0])
		}
	}
}

func TestWrongPeerHasNoNumbers(t *testing.T) {
	for _, c := range []struct {
		fault fault
		deal  func(r *runner[*fakeActor]) error
		want  string
	}{
		{loses, func(r *runner[*fakeActor]) error { return dealTo(r, 1, 1, 300) }, "lost"},
		{doubles, func(r *runner[*fakeActor]) error { return dealTo(r, 1, 1, 300) }, "out of order"},
		{swaps, func(r *runner[*fakeActor]) error { return dealTo(r, 1, 1, 300) }, "out of order"},
		{loses, func(r *runner[*fakeActor]) error { return dealTo(r, 3, 1, 20) }, "lost"},
		{misanswers, func(r *runner[*fakeActor]) error { _, err := r.ask(); return err }, "wrong"},
		{misnames, func(r *runner[*fakeActor]) error { _, err := r.memory(); return err }, "says that it is"},
		{starves, func(r *runner[*fakeActor]) error { _, err := r.latency(); return err }, "starved"},
	} {
		err := c.deal(newRunner(t, c.fault, time.Second))
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("fault %d: got error %v, want one with %q", c.fault, err, c.want)
		}
	}
}

// Counters of different senders must not reach into each other.
func TestFanCountsEachSender(t *testing.T) {
	var s State[*fakeActor]
	g := newGate(maxSenders, 1000)
	for i := range 1000 {
		for sender := range maxSenders {
			s.Handle(&Message[*fakeActor]{kind: fan, sender: uint8(sender), seq: uint8(i), gate: g})
		}
	}
	if err := g.wait(t.Context()); err != nil {
		t.Error(err)
	}
	s.Handle(&Message[*fakeActor]{kind: fan, sender: 2, seq: 7, gate: g})
	if got, want := g.wrong.Load(), int64(1); got != want {
		t.Errorf("got %d wrong messages, want %d", got, want)
	}
}

func dealTo(r *runner[*fakeActor], actors, senders, passes int) error {
	refs, err := r.spawnN("a", actors)
	if err != nil {
		return err
	}
	return r.deal(refs, senders, passes)
}
