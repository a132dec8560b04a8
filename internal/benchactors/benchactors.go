package benchactors

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/runnel-dev/runnel/actor"
)

// Result is what both experiments showed.
type Result struct {
	Sharing  SharingResult  `json:"sharing"`
	Starving StarvingResult `json:"starving"`
}

// Run does both experiments.
func Run(ctx context.Context) (Result, error) {
	var r Result
	var err error
	if r.Sharing, err = Sharing(ctx, SharingOptions{}); err != nil {
		return r, err
	}
	r.Starving, err = Starving(ctx, StarvingOptions{})
	return r, err
}

// Faults names what differs from what the runtime promises.
func (r Result) Faults() []string {
	var faults []string
	check := func(ok bool, format string, a ...any) {
		if !ok {
			faults = append(faults, fmt.Sprintf(format, a...))
		}
	}
	s := r.Sharing
	check(s.Handled == s.Messages, "%d of %d messages were handled", s.Handled, s.Messages)
	check(s.Goroutines <= s.Workers, "%d goroutines ran handlers, more than the %d workers", s.Goroutines, s.Workers)
	check(s.Overlaps == 0, "%d handlers of one actor overlapped", s.Overlaps)
	check(s.OrderErrors == 0, "%d messages came out of order", s.OrderErrors)
	check(s.IdleHandlers == 0, "%d handlers ran while there was no message", s.IdleHandlers)
	t := r.Starving
	check(!t.ThirdWhileBlocked, "the third actor was handled although both workers were blocked")
	check(t.OtherAnswered, "the other dispatcher did not answer")
	check(t.ElasticAnswered, "the elastic dispatcher did not answer beside two blocked handlers")
	check(t.ThirdAfterRelease, "the third actor was not handled after the release")
	check(len(t.Named) == 2, "the watchdog named %d of the 2 blocked actors", len(t.Named))
	return faults
}

// SharingOptions sizes Sharing; each zero field has the default given.
type SharingOptions struct {
	Actors     int           // 10,000
	Each       int           // messages to each actor: 4
	Workers    int           // 2
	Throughput int           // messages a turn: 5
	Idle       time.Duration // how long to watch the idle actors: 300 ms
}

// SharingResult is what Sharing saw.
type SharingResult struct {
	Actors       int     `json:"actors"`
	Messages     int     `json:"messages"`
	Workers      int     `json:"workers"`
	Handled      int     `json:"handled"`
	Goroutines   int     `json:"goroutines"`       // that ran handlers
	Added        int     `json:"goroutines_added"` // by the actors, to those of the empty system
	Concurrent   int     `json:"concurrent"`       // handlers at the same time, at most
	Overlaps     int     `json:"overlaps"`         // of handlers of one actor
	OrderErrors  int     `json:"order_errors"`     // messages whose number was not the next
	IdleHandlers int     `json:"idle_handlers"`    // that ran while no message came
	Seconds      float64 `json:"seconds"`          // from the first Tell to the last handler; the checks take most of it
}

// sharing counts what the handlers of Sharing see.
type sharing struct {
	mu         sync.Mutex
	goroutines map[string]struct{}

	handled, running, most, overlaps, disorder atomic.Int64
	done                                       chan struct{}
	want                                       int64
}

// Sharing runs many actors on few workers and checks what each handler sees.
func Sharing(ctx context.Context, o SharingOptions) (SharingResult, error) {
	o.Actors, o.Each, o.Workers = or(o.Actors, 10_000), or(o.Each, 4), or(o.Workers, 2)
	o.Throughput, o.Idle = or(o.Throughput, 5), or(o.Idle, 300*time.Millisecond)
	r := SharingResult{Actors: o.Actors, Messages: o.Actors * o.Each, Workers: o.Workers}
	sys, err := actor.New(actor.Config{Dispatchers: map[string]actor.Dispatcher{
		"two": {Workers: o.Workers, Throughput: o.Throughput},
	}})
	if err != nil {
		return r, fmt.Errorf("start the system: %w", err)
	}
	x := &sharing{goroutines: map[string]struct{}{}, done: make(chan struct{}), want: int64(r.Messages)}
	before := runtime.NumGoroutine()
	refs := make([]actor.Ref[int], o.Actors)
	for i := range refs {
		refs[i], err = actor.Spawn(sys, fmt.Sprintf("table-%d", i), x.setup, actor.Props{Dispatcher: "two"})
		if err != nil {
			return r, errors.Join(err, sys.Shutdown(ctx))
		}
	}
	begin := time.Now()
	for m := 1; m <= o.Each; m++ {
		for _, ref := range refs {
			if err := ref.Tell(m); err != nil {
				return r, errors.Join(err, sys.Shutdown(ctx))
			}
		}
	}
	if err := wait(ctx, x.done); err != nil {
		return r, errors.Join(fmt.Errorf("await %d messages, %d handled: %w", r.Messages, x.handled.Load(), err), sys.Shutdown(ctx))
	}
	r.Seconds = time.Since(begin).Seconds()
	r.Added = runtime.NumGoroutine() - before
	if err := pause(ctx, o.Idle); err != nil {
		return r, errors.Join(err, sys.Shutdown(ctx))
	}
	r.IdleHandlers = int(x.handled.Load()) - r.Messages
	r.Handled = r.Messages + r.IdleHandlers
	r.Goroutines, r.Concurrent = len(x.goroutines), int(x.most.Load())
	r.Overlaps, r.OrderErrors = int(x.overlaps.Load()), int(x.disorder.Load())
	return r, end(ctx, sys)
}

// setup makes one table: it checks that its handlers do not overlap and that its
// messages are numbered from 1.
func (x *sharing) setup(actor.Context[int]) (actor.Behavior[int], error) {
	var inside atomic.Int32
	last := 0
	return actor.Func[int](func(_ actor.Context[int], m int) error {
		if inside.Add(1) != 1 {
			x.overlaps.Add(1)
		}
		now := x.running.Add(1)
		for most := x.most.Load(); now > most && !x.most.CompareAndSwap(most, now); most = x.most.Load() {
		}
		if m != last+1 {
			x.disorder.Add(1)
		}
		last = m
		x.note(goroutine())
		x.running.Add(-1)
		inside.Add(-1)
		if x.handled.Add(1) == x.want {
			close(x.done)
		}
		return nil
	}), nil
}

func (x *sharing) note(name string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.goroutines[name] = struct{}{}
}

// goroutine names the calling goroutine: the first line of its stack, "goroutine
// 7 [running]:".
func goroutine() string {
	var buf [40]byte
	text := string(buf[:runtime.Stack(buf[:], false)])
	for i, r := range text {
		if r == '[' {
			return text[:i]
		}
	}
	return text
}

// StarvingOptions sizes Starving.
type StarvingOptions struct {
	Watch time.Duration // how long the third actor is watched; 0 means 300 ms
}

// StarvingResult is what Starving saw.
type StarvingResult struct {
	WatchedFor        time.Duration `json:"watched_ns"`
	ThirdWhileBlocked bool          `json:"third_while_blocked"` // the third actor was handled although both workers were blocked
	OtherAnswered     bool          `json:"other_answered"`      // the other dispatcher did, meanwhile
	ElasticAnswered   bool          `json:"elastic_answered"`    // an elastic dispatcher with two blocked handlers did, meanwhile
	ThirdAfterRelease bool          `json:"third_after_release"`
	Named             []string      `json:"named"` // actors that the watchdog named as holding their workers
}

// Starving blocks two handlers on two workers and watches a third actor.
func Starving(ctx context.Context, o StarvingOptions) (StarvingResult, error) {
	o.Watch = or(o.Watch, 300*time.Millisecond)
	r := StarvingResult{WatchedFor: o.Watch}
	sys, err := actor.New(actor.Config{Dispatchers: map[string]actor.Dispatcher{
		"shared":  {Workers: 2, HoldLimit: o.Watch / 3},
		"control": {Workers: 1},
		"io":      {Kind: actor.Elastic, Workers: 8},
	}})
	if err != nil {
		return r, fmt.Errorf("start the system: %w", err)
	}
	held := actor.Subscribe[actor.WorkerHeld](sys, 64)
	release := make(chan struct{})
	err = r.starve(ctx, sys, o.Watch, release)
	select {
	case <-release:
	default:
		close(release)
	}
	err = errors.Join(err, end(ctx, sys))
	seen := map[string]bool{}
	for h := range held.C() {
		if !seen[h.Path] {
			seen[h.Path] = true
			r.Named = append(r.Named, h.Path)
		}
	}
	return r, err
}

func (r *StarvingResult) starve(ctx context.Context, sys *actor.System, watch time.Duration, release chan struct{}) error {
	entered := make(chan struct{}, 4)
	block := actor.Stateless(func(actor.Context[int], int) error {
		entered <- struct{}{}
		<-release
		return nil
	})
	for _, dispatcher := range []string{"shared", "io"} {
		for i := range 2 {
			if err := tell(sys, fmt.Sprintf("blocked-%s-%d", dispatcher, i), dispatcher, block); err != nil {
				return err
			}
			if err := wait(ctx, entered); err != nil {
				return fmt.Errorf("await a blocked handler: %w", err)
			}
		}
	}
	third, other, elastic := make(chan struct{}), make(chan struct{}), make(chan struct{})
	for _, a := range []struct {
		name, dispatcher string
		done             chan struct{}
	}{{"third", "shared", third}, {"other", "control", other}, {"elastic", "io", elastic}} {
		setup := actor.Stateless(func(actor.Context[int], int) error { close(a.done); return nil })
		if err := tell(sys, a.name, a.dispatcher, setup); err != nil {
			return err
		}
	}
	if err := pause(ctx, watch); err != nil {
		return err
	}
	r.ThirdWhileBlocked, r.OtherAnswered, r.ElasticAnswered = closed(third), closed(other), closed(elastic)
	close(release)
	if err := wait(ctx, third); err != nil {
		return fmt.Errorf("await the third actor after the release: %w", err)
	}
	r.ThirdAfterRelease = true
	return nil
}

// tell makes an actor and tells it one message.
func tell(sys *actor.System, name, dispatcher string, setup actor.Setup[int]) error {
	ref, err := actor.Spawn(sys, name, setup, actor.Props{Dispatcher: dispatcher})
	if err != nil {
		return err
	}
	return ref.Tell(1)
}

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// end shuts the system down within 30 s, also when ctx is over.
func end(ctx context.Context, sys *actor.System) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
	defer cancel()
	return sys.Shutdown(ctx)
}

func wait(ctx context.Context, c <-chan struct{}) error {
	select {
	case <-c:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func or[T int | time.Duration](v, otherwise T) T {
	if v == 0 {
		return otherwise
	}
	return v
}
