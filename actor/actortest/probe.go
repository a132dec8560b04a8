package actortest

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/runnel-dev/runnel/actor"
)

// capacity is how much a Probe keeps that the test has not received.
const capacity = 4096

// Probe receives messages, or events, for a test.
type Probe[M any] struct {
	// Within is how long each method waits for what must come; 30 s unless set.
	Within time.Duration

	t    testing.TB
	ref  actor.Ref[M]
	msgs <-chan M
}

// NewProbe makes a probe that is an actor, a child of at with a generated name.
// More than 4,096 messages that the test does not receive fail it.
func NewProbe[M any](t testing.TB, at actor.Spawner) *Probe[M] {
	t.Helper()
	msgs := make(chan M, capacity)
	ref := Spawn(t, at, "", actor.Stateless(func(_ actor.Context[M], m M) error {
		select {
		case msgs <- m:
			return nil
		default:
			return fmt.Errorf("probe holds %d messages that the test does not receive", capacity)
		}
	}), actor.Props{
		Mailbox:     actor.Mailbox{Capacity: capacity},
		Supervision: actor.Supervision{OnError: actor.Resume},
	})
	return &Probe[M]{Within: patience, t: t, ref: ref, msgs: msgs}
}

// Events makes a probe of the System's events of type E; it is no actor and its
// Ref is zero.
func Events[E any](t testing.TB, s *actor.System) *Probe[E] {
	sub := actor.Subscribe[E](s, capacity)
	t.Cleanup(sub.Close)
	return &Probe[E]{Within: patience, t: t, msgs: sub.C()}
}

// Ref returns the probe's address.
func (p *Probe[M]) Ref() actor.Ref[M] { return p.ref }

// Receive returns the next message.
func (p *Probe[M]) Receive() M {
	p.t.Helper()
	m, ok := p.next(time.After(p.Within))
	if !ok {
		p.t.Fatalf("got no message within %v", p.Within)
	}
	return m
}

// Expect fails the test unless the next message equals want deeply.
func (p *Probe[M]) Expect(want M) {
	p.t.Helper()
	if got := p.Receive(); !reflect.DeepEqual(got, want) {
		p.t.Fatalf("got message %+v, want %+v", got, want)
	}
}

// ExpectNone fails the test if a message comes within d. Inside a synctest
// bubble that takes no time.
func (p *Probe[M]) ExpectNone(d time.Duration) {
	p.t.Helper()
	if m, ok := p.next(time.After(d)); ok {
		p.t.Fatalf("got message %+v, want none within %v", m, d)
	}
}

// Fish returns the first message that is wanted and drops those before it.
func (p *Probe[M]) Fish(wanted func(M) bool) M {
	p.t.Helper()
	var others []string
	limit := time.After(p.Within)
	for {
		m, ok := p.next(limit)
		if !ok {
			p.t.Fatalf("got no wanted message within %v, but %d others: %s", p.Within, len(others), strings.Join(others, ", "))
			return m
		}
		if wanted(m) {
			return m
		}
		others = append(others, fmt.Sprintf("%+v", m))
	}
}

// Drain returns all messages that have come and are not received.
func (p *Probe[M]) Drain() []M {
	var all []M
	for {
		select {
		case m, ok := <-p.msgs:
			if !ok {
				return all
			}
			all = append(all, m)
		default:
			return all
		}
	}
}

func (p *Probe[M]) next(limit <-chan time.Time) (M, bool) {
	select {
	case m, ok := <-p.msgs:
		return m, ok
	case <-limit:
		var zero M
		return zero, false
	}
}
