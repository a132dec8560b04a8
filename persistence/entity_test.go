package persistence

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/runnel-dev/runnel/actor"
)

// The test entity counts; each event carries what to add.
type counted struct{ N int }

// fakeStore is a journal of one entity in memory whose answers a test can hold
// back and replace. Its methods run one at a time: the tests wait in between.
type fakeStore struct {
	Store
	events  []EncodedEvent
	hold    bool // keep answers until flush
	held    []func()
	answers []error // of the next appends, which then store nothing
	reading error   // of every read
	reads   int
}

func (s *fakeStore) Shards() uint32 { return 256 }

func (s *fakeStore) AppendAsync(req AppendRequest, done func(uint64, error)) {
	var err error
	if len(s.answers) > 0 {
		err, s.answers = s.answers[0], s.answers[1:]
	}
	if err == nil && req.Expected != uint64(len(s.events)) {
		err = &ConflictError{req.Entity, req.Expected, uint64(len(s.events))}
	}
	if s.hold {
		s.held = append(s.held, func() { s.finish(req, err, done) })
		return
	}
	s.finish(req, err, done)
}

func (s *fakeStore) finish(req AppendRequest, err error, done func(uint64, error)) {
	if err != nil {
		done(0, err)
		return
	}
	s.events = append(s.events, req.Events...)
	done(uint64(len(s.events)), nil)
}

func (s *fakeStore) flush() {
	held := s.held
	s.held, s.hold = nil, false
	for _, f := range held {
		f()
	}
}

func (s *fakeStore) ReadEntity(_ context.Context, id EntityID, after uint64, fn func(StoredEvent) error) error {
	s.reads++
	if s.reading != nil {
		return s.reading
	}
	for i, e := range s.events[after:] {
		if err := fn(StoredEvent{Entity: id, Seq: after + uint64(i) + 1, EncodedEvent: e}); err != nil {
			return err
		}
	}
	return nil
}

// fakeHost counts what the entity says.
type fakeHost struct{ done, kept, stopped, deposed int }

func (h *fakeHost) Done()         { h.done++ }
func (h *fakeHost) Kept()         { h.kept++ }
func (h *fakeHost) Stopped()      { h.stopped++ }
func (h *fakeHost) Deposed(error) { h.deposed++ }

type bench struct {
	t     *testing.T
	store *fakeStore
	host  *fakeHost
	ref   EntityRef
	given int
}

// answer is what became of a command; done is false while it waits.
type answer struct {
	mu    sync.Mutex // guards all
	reply any
	err   error
	done  bool
}

func (a *answer) answered() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.done
}

// inBubble runs f on an entity with a fake store and fake time.
func inBubble(t *testing.T, f func(*bench)) {
	synctest.Test(t, func(t *testing.T) {
		sys, err := actor.New(actor.Config{})
		if err != nil {
			t.Fatal(err)
		}
		reg := NewRegistry()
		if err := RegisterEvent[counted](reg, "counted"); err != nil {
			t.Fatal(err)
		}
		def := Definition[int]{
			Type:    "count",
			Initial: func(EntityID) int { return 0 },
			Decide: func(s int, cmd any) Decision {
				switch c := cmd.(type) {
				case int:
					return Decision{Events: []any{counted{c}}, Reply: s + c}
				case string:
					if c == "panic" {
						panic(c)
					}
				}
				return Decision{Reply: s}
			},
			Apply: func(s int, ev any) int { return s + ev.(counted).N },
			Effects: func(x EffectContext, s int, events []any) {
				var err error
				switch events[0].(counted).N {
				case 7:
					err = x.Pipe(func(ctx context.Context) any { panic("piped") })
				case 8:
					_, err = x.After(time.Minute, 100)
				}
				if err != nil {
					t.Error(err)
				}
			},
		}
		id, err := EntityIDOf("count", "x", "y")
		if err != nil {
			t.Fatal(err)
		}
		b := &bench{t: t, store: &fakeStore{}, host: &fakeHost{}}
		b.ref, err = def.Kind().Spawn(sys, "entity", EntityProps{ID: id, Store: b.store, Registry: reg, Epoch: 1, Host: b.host, MaxPending: 16, Log: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		f(b)
		synctest.Wait()
		if err := sys.Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
		if b.host.done != b.given || b.host.stopped != 1 {
			t.Errorf("got %d commands back and %d stops, want %d and 1", b.host.done, b.host.stopped, b.given)
		}
	})
}

// give tells the entity a command and waits until nothing moves.
func (b *bench) give(cmd any) *answer {
	b.t.Helper()
	a := &answer{}
	b.given++
	if err := b.ref.Tell(&Command{Msg: cmd, Reply: func(reply any, err error) {
		a.mu.Lock()
		defer a.mu.Unlock()
		if a.done {
			b.t.Errorf("command %v is answered twice", cmd)
		}
		a.reply, a.err, a.done = reply, err, true
	}}); err != nil {
		b.t.Fatal(err)
	}
	synctest.Wait()
	return a
}

func (b *bench) want(what string, a *answer, reply any, is error) {
	b.t.Helper()
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.done || a.reply != reply || !errors.Is(a.err, is) {
		b.t.Errorf("%s: got %v, %v, answered %v, want %v, %v", what, a.reply, a.err, a.done, reply, is)
	}
}

// While an append is in flight commands wait; they are decided in order by what
// came out of it.
func TestEntityStashesWhileAppending(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.store.hold = true
		first, second, third := b.give(1), b.give(2), b.give("get")
		if first.answered() || second.answered() || third.answered() {
			t.Error("a command was answered before its events were durable")
		}
		b.store.flush()
		synctest.Wait()
		b.want("first", first, 1, nil)
		b.want("second", second, 3, nil)
		b.want("third", third, 3, nil)
	})
}

// What an append's error means for the state in memory.
func TestEntityAppendErrors(t *testing.T) {
	tests := []struct {
		err   error
		reads int // replays that follow
	}{
		{ErrBusy, 0}, {ErrFull, 0}, {ErrReadOnly, 0}, {ErrTooLarge, 0}, {ErrClosed, 0},
		{ErrUnknownOutcome, 1}, {fmt.Errorf("%w: %w", ErrFull, ErrUnknownOutcome), 1}, {errors.New("anything else"), 1},
	}
	for _, tt := range tests {
		t.Run(tt.err.Error(), func(t *testing.T) {
			inBubble(t, func(b *bench) {
				b.want("before", b.give(1), 1, nil)
				reads := b.store.reads
				b.store.answers = []error{tt.err}
				b.want("failing", b.give(2), nil, tt.err)
				if got := b.store.reads - reads; got != tt.reads {
					t.Errorf("got %d replays, want %d", got, tt.reads)
				}
				b.want("after", b.give(4), 5, nil)
			})
		})
	}
}

// Conflict after conflict, the command is given up and the entity goes on.
func TestEntityConflictGivesUp(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.want("before", b.give(1), 1, nil)
		reads := b.store.reads
		for range maxDecides {
			b.store.answers = append(b.store.answers, &ConflictError{})
		}
		b.want("failing", b.give(2), nil, ErrConflict)
		if got, want := b.store.reads-reads, maxDecides; got != want {
			t.Errorf("got %d replays, want %d", got, want)
		}
		b.store.answers = []error{&ConflictError{}}
		b.want("decided again", b.give(4), 5, nil)
	})
}

// A command behind one that is decided again keeps its place.
func TestEntityConflictKeepsOrder(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.store.answers, b.store.hold = []error{&ConflictError{}}, true
		first, second := b.give(1), b.give(10)
		b.store.flush()
		synctest.Wait()
		b.want("first", first, 1, nil)
		b.want("second", second, 11, nil)
	})
}

func TestEntityDeposed(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.store.answers = []error{&DeposedError{}}
		b.want("deposed", b.give(1), nil, ErrDeposed)
		if got, want := b.host.deposed, 1; got != want {
			t.Errorf("got %d, want %d: the host does not know", got, want)
		}
	})
}

// A recovery that fails is an answer, for as long as the backoff says; then the
// next command tries again.
func TestEntityRecoversLater(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.want("before", b.give(3), 3, nil)
		broken := errors.New("broken disk")
		b.store.reading = broken
		b.store.answers = []error{ErrUnknownOutcome}
		b.want("unknown", b.give(1), nil, ErrUnknownOutcome)
		reads := b.store.reads
		for range 3 {
			a := b.give("get")
			b.want("broken", a, nil, broken)
			var fault *RecoveryError
			if !errors.As(a.err, &fault) || fault.Entity.String() != "count/x/y" {
				t.Errorf("got %v, want a RecoveryError of the entity", a.err)
			}
		}
		if b.store.reads != reads {
			t.Error("got a replay before the backoff has passed")
		}
		<-time.After(2 * time.Second)
		b.want("still broken", b.give("get"), nil, broken)
		b.store.reading = nil
		<-time.After(3 * time.Second)
		b.want("mended", b.give("get"), 3, nil)
	})
}

// A panic answers its command; those behind it wait for the restart.
func TestEntityRestart(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.want("before", b.give(3), 3, nil)
		b.want("panic", b.give("panic"), nil, ErrRestarted)
		behind := b.give("get")
		if behind.answered() {
			t.Error("answered during the restart")
		}
		<-time.After(time.Second)
		synctest.Wait()
		b.want("behind", behind, 3, nil)
	})
}

func TestEntityPassivates(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.want("before", b.give(3), 3, nil)
		b.store.hold = true
		busy := b.give(1)
		passivate := func(force bool) {
			if err := b.ref.Passivate(force); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		passivate(false)
		if got, want := *b.host, (fakeHost{done: 1, kept: 1}); got != want {
			t.Errorf("with an append under way: got %+v, want %+v", got, want)
		}
		passivate(true)
		if b.host.stopped != 0 {
			t.Error("stopped before its command was answered")
		}
		b.store.flush()
		synctest.Wait()
		b.want("busy", busy, 4, nil)
		if got, want := *b.host, (fakeHost{done: 2, kept: 1, stopped: 1}); got != want {
			t.Errorf("by force: got %+v, want %+v", got, want)
		}
	})
}

// A pipe that panics becomes a command, not a loss.
func TestEntityPipePanics(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.want("seven", b.give(7), 7, nil)
		if err := b.ref.Passivate(false); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if got, want := b.host.stopped, 1; got != want {
			t.Errorf("got %d, want %d: the pipe that panicked still counts", got, want)
		}
	})
}

// A timer of a state that was given up does not come, and does not count.
func TestEntityTimerOfOldState(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.want("eight", b.give(8), 8, nil)
		b.store.answers = []error{&ConflictError{}}
		b.want("decided again", b.give(1), 9, nil)
		b.want("a timer again", b.give(8), 17, nil)
		b.store.answers = []error{ErrUnknownOutcome}
		b.want("unknown", b.give(1), nil, ErrUnknownOutcome)
		<-time.After(2 * time.Minute)
		synctest.Wait()
		b.want("after the timers", b.give("get"), 17, nil)
		b.want("the last timer", b.give(8), 25, nil)
		if err := b.ref.Passivate(false); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if got, want := b.host.kept, 1; got != want {
			t.Errorf("got kept %d times, want %d: a live timer does not count", got, want)
		}
		<-time.After(2 * time.Minute)
		synctest.Wait()
		b.want("the last timer came", b.give("get"), 125, nil)
	})
}
