package actor

import (
	"fmt"
	"sync"
	"sync/atomic"
)

// Reason says why a message had no live recipient.
type Reason uint8

const (
	ReasonStopped   Reason = iota // the recipient has stopped, or stopped before it came to the message
	ReasonOverflow                // a full mailbox dropped it
	ReasonStale                   // a piped result of an earlier generation
	ReasonLateReply               // an answer to an Ask that has ended or was answered
	ReasonInvalid                 // nil
	ReasonDropped                 // Config.Before dropped it
	numReasons
)

// String returns the lower-case name.
func (r Reason) String() string {
	if r < numReasons {
		return [...]string{"stopped", "overflow", "stale", "late-reply", "invalid", "dropped"}[r]
	}
	return fmt.Sprintf("reason(%d)", uint8(r))
}

// err is the error that an asker gets.
func (r Reason) err() error {
	switch r {
	case ReasonOverflow:
		return ErrMailboxFull
	case ReasonInvalid:
		return ErrNilMessage
	}
	return ErrStopped
}

// DeadLetter is published for each message without a live recipient.
type DeadLetter struct {
	Path    string // of the recipient; "" for a late reply
	Message any    // the message, piped result or reply
	Reason  Reason
}

// deadLetter disposes of an envelope that c will not handle.
func (c *cell) deadLetter(e any, why Reason) {
	switch m := e.(type) {
	case *timer, *termination:
		return // the actor asked for it and has ended: nobody misses it
	case *piped:
		e = m.result
		if m.err != nil {
			e = m.err
		}
	case *kept:
		e = m.msg
	case *future:
		e = m.msg
		m.drop(why.err())
	}
	sys := c.spec.sys
	path := ""
	if sys.events.active() {
		path = c.path()
	}
	sys.deadLetter(path, e, why)
}

func (s *System) deadLetter(path string, msg any, why Reason) {
	s.dropped[why].Add(1)
	if s.events.active() {
		s.events.publish(DeadLetter{Path: path, Message: msg, Reason: why})
	}
}

// Subscribe delivers the events of type E that are published from now on: the
// System's DeadLetter and ActorFailed, and what Publish is given. E may be any
// for all of them. capacity bounds the subscription's queue; 0 or less means 256.
// An event that finds it full is dropped for this subscriber and counted.
func Subscribe[E any](s *System, capacity int) *Subscription[E] {
	if capacity <= 0 {
		capacity = 256
	}
	sub := &Subscription[E]{from: &s.events, c: make(chan E, capacity)}
	s.events.add(sub)
	return sub
}

// Publish offers e to all subscribers of its type and does not wait.
func (s *System) Publish(e any) { s.events.publish(e) }

// Subscription is one subscriber's bounded queue of events.
type Subscription[E any] struct {
	from    *stream
	dropped atomic.Uint64
	mu      sync.Mutex // guards closed against sends
	closed  bool
	c       chan E
}

// C is closed by Close and by the System's Shutdown.
func (s *Subscription[E]) C() <-chan E { return s.c }

// Dropped counts the events that found the queue full.
func (s *Subscription[E]) Dropped() uint64 { return s.dropped.Load() }

// Close ends the subscription; closing twice does nothing.
func (s *Subscription[E]) Close() {
	s.from.remove(s)
	s.end()
}

func (s *Subscription[E]) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed {
		s.closed = true
		close(s.c)
	}
}

func (s *Subscription[E]) offer(e any) {
	ev, ok := e.(E)
	if !ok {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	select {
	case s.c <- ev:
	default:
		s.dropped.Add(1)
	}
}

type subscriber interface {
	offer(any)
	end()
}

// stream is the list of subscribers, copied on change so that publishing takes
// no lock.
type stream struct {
	subs atomic.Pointer[[]subscriber]
	mu   struct {
		sync.Mutex // guards changes of subs
		closed     bool
	}
}

func (s *stream) list() []subscriber {
	if p := s.subs.Load(); p != nil {
		return *p
	}
	return nil
}

func (s *stream) active() bool { return len(s.list()) > 0 }

func (s *stream) publish(e any) {
	for _, sub := range s.list() {
		sub.offer(e)
	}
}

func (s *stream) add(sub subscriber) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.closed {
		sub.end()
		return
	}
	old := s.list()
	subs := append(old[:len(old):len(old)], sub)
	s.subs.Store(&subs)
}

func (s *stream) remove(sub subscriber) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var subs []subscriber
	for _, o := range s.list() {
		if o != sub {
			subs = append(subs, o)
		}
	}
	s.subs.Store(&subs)
}

// close ends all subscriptions.
func (s *stream) close() {
	s.mu.Lock()
	s.mu.closed = true
	subs := s.list()
	s.subs.Store(nil)
	s.mu.Unlock()
	for _, sub := range subs {
		sub.end()
	}
}
