package workload

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"
)

type kind uint8

const (
	count    kind = iota // the next message of the only sender
	fan                  // the next message of one of maxSenders
	ping                 // bounce
	tally                // report how many bounces there were
	work                 // hold the actor for workTime
	stamp                // note how long the message was on its way
	ask                  // compute an answer
	identify             // tell the actor's id
)

const (
	seqMask    = 255 // sequence numbers count modulo 256
	maxSenders = 4   // State has a 16 bit counter for each
	workTime   = 100 * time.Microsecond
)

// Message is what all actors take, as a pointer.
type Message[R any] struct {
	kind   kind
	sender uint8
	seq    uint8
	gate   *Gate

	in, out int64         // ask: question and answer
	sent    time.Duration // stamp: since epoch
	took    time.Duration // stamp: result; never 0 once set
	queued  *atomic.Int64 // work: messages sent and not yet handled
	bounce  *bounce[R]    // ping, tally
	id      string        // identify: result
}

// IsAsk reports whether the sender waits for an answer.
func (m *Message[R]) IsAsk() bool { return m.kind == ask }

// bounce is a game of ping-pong.
type bounce[R any] struct {
	refs  [2]R
	at    int
	left  int
	hops  [2]int64 // what each actor has counted, reported by tally
	tells int
}

// epoch is where monotonic times are measured from.
var epoch = time.Now()

// State is the state of every actor: a number and a string.
type State[R any] struct {
	n  int64
	id string
}

// begun is the gate of the actors that are being spawned, if a case waits for them.
var begun atomic.Pointer[Gate]

// Begin is called by the actor when it starts, before its first message. id is
// the name it was spawned under.
func (s *State[R]) Begin(id string) {
	s.id = id
	if g := begun.Load(); g != nil {
		g.pass()
	}
}

// Handle is the code of every actor. If again is true, the actor must send m to
// the actor next, in the way that is best inside an actor.
func (s *State[R]) Handle(m *Message[R]) (next R, again bool) {
	switch m.kind {
	case count:
		if uint8(s.n) != m.seq {
			m.gate.wrong.Add(1)
		}
		if s.n++; s.n == m.gate.each {
			m.gate.pass()
		}
	case fan:
		s.handleFan(m)
	case ping:
		s.n++
		b := m.bounce
		b.at = 1 - b.at
		if b.left--; b.left == 0 {
			m.kind = tally
		}
		return b.refs[b.at], true
	case tally:
		return s.handleTally(m)
	case work:
		for t := time.Now(); time.Since(t) < workTime; {
		}
		m.queued.Add(-1)
	case stamp:
		s.handleStamp(m)
	case identify:
		m.id = s.id
		m.gate.pass()
	}
	return next, false
}

// Answer is the code of an actor that is asked: it returns the message to answer
// with.
func (s *State[R]) Answer(m *Message[R]) *Message[R] {
	s.n++
	m.out = answer(m.in)
	return m
}

func answer(in int64) int64 { return in*3 + 1 }

func (s *State[R]) handleFan(m *Message[R]) {
	shift := 16 * m.sender
	if uint8(s.n>>shift) != m.seq {
		m.gate.wrong.Add(1)
	}
	s.n += 1 << shift
	if int64(uint16(s.n>>shift)) == m.gate.each {
		m.gate.pass()
	}
}

func (s *State[R]) handleTally(m *Message[R]) (next R, again bool) {
	b := m.bounce
	b.hops[b.at] = s.n
	b.at = 1 - b.at
	if b.tells++; b.tells == 2 {
		m.gate.pass()
		return next, false
	}
	return b.refs[b.at], true
}

func (s *State[R]) handleStamp(m *Message[R]) {
	if m.took != 0 {
		m.gate.wrong.Add(1)
	}
	m.took = max(1, time.Since(epoch)-m.sent)
	m.gate.pass()
}

// Gate opens when a number of actors have got all that they expect.
type Gate struct {
	each  int64 // messages that an actor expects of a sender
	left  atomic.Int64
	wrong atomic.Int64 // messages out of order, doubled, or for somebody else
	open  chan struct{}
	err   atomic.Pointer[error] // first failure of a sender
}

// newGate makes a gate that opens after n passes.
func newGate(n int, each int64) *Gate {
	g := &Gate{each: each, open: make(chan struct{})}
	g.left.Store(int64(n))
	return g
}

func (g *Gate) pass() {
	switch left := g.left.Add(-1); {
	case left == 0:
		close(g.open)
	case left < 0:
		g.wrong.Add(1)
	}
}

// fail keeps the first error of a sender.
func (g *Gate) fail(err error) { g.err.CompareAndSwap(nil, &err) }

// wait returns once the gate is open, or with what is wrong.
func (g *Gate) wait(ctx context.Context) error {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		if err := g.err.Load(); err != nil {
			return fmt.Errorf("send: %w", *err)
		}
		select {
		case <-g.open:
			if n := g.wrong.Load(); n != 0 {
				return fmt.Errorf("%d messages out of order, doubled, or for another actor", n)
			}
			return nil
		case <-ctx.Done():
			return fmt.Errorf("wait for %d more actors: messages lost or too slow: %w", g.left.Load(), context.Cause(ctx))
		case <-tick.C:
		}
	}
}
