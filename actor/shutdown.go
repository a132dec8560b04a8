package actor

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"sync"
	"time"
)

// Names of the phases that a System has unless Config.Phases says otherwise.
const (
	PhaseDrain = "drain" // take nothing new: close listeners, leave the cluster, finish what is under way
	PhaseStop  = "stop"  // the actors stop, /user before /system; every Config.Phases has it
	PhaseClose = "close" // no actor is left: close stores and connections, flush logs
)

// Phase is a step of Shutdown. The phases run one after the other; the tasks of
// one phase run at the same time.
type Phase struct {
	Name     string
	Deadline time.Duration // after which the next phase begins; 0 means 10 s, for PhaseStop no bound but Shutdown's context
}

// task is a function that a phase runs.
type task struct {
	name string
	run  func(context.Context) error
}

// shutdown is the state of a System's coordinated shutdown.
type shutdown struct {
	done chan struct{} // closed when the first Shutdown returns
	err  error
	mu   struct {
		sync.Mutex
		begun bool
		left  map[string][]*task // by phase; a phase that has begun is gone
	}
}

// OnShutdown makes Shutdown run a task in the named phase, even in one under way
// but not yet begun. The task should return when its context ends, which it does
// at the phase's deadline. remove takes the task back. Errors: ErrNotFound for a
// phase that Config.Phases does not have, ErrStopped if it has begun or is over.
func (s *System) OnShutdown(phase, name string, run func(context.Context) error) (remove func(), err error) {
	s.shutdown.mu.Lock()
	defer s.shutdown.mu.Unlock()
	if !slices.ContainsFunc(s.cfg.Phases, func(p Phase) bool { return p.Name == phase }) {
		return nil, fmt.Errorf("add shutdown task %s: phase %q: %w: add it to Config.Phases", name, phase, ErrNotFound)
	}
	tasks, open := s.shutdown.mu.left[phase]
	if !open {
		return nil, fmt.Errorf("add shutdown task %s: phase %s has begun: %w", name, phase, ErrStopped)
	}
	t := &task{name, run}
	s.shutdown.mu.left[phase] = append(tasks, t)
	return func() {
		s.shutdown.mu.Lock()
		defer s.shutdown.mu.Unlock()
		if left, open := s.shutdown.mu.left[phase]; open {
			s.shutdown.mu.left[phase] = slices.DeleteFunc(left, func(o *task) bool { return o == t })
		}
	}, nil
}

// Shutdown ends the System in phases, see Config.Phases: by default tasks of
// drain, then all actors, children before parents and /user before /system, then
// tasks of close; after them the blocking pool, timers, dispatchers and
// subscriptions. It returns when every goroutine of the System has ended. Spawn
// and Tell fail with ErrStopped from the moment that their actor's parent stops.
//
// A task that fails or overruns its phase's deadline does not keep the next phase
// from beginning; its error is part of Shutdown's. If actors are left when ctx,
// or the deadline of their phase, ends, Shutdown cancels the contexts of all
// running functions, lets the goroutines end as soon as their handlers return,
// and its error says how many actors remain. A second call waits for the first.
// Do not call it from a handler: it would wait for itself.
func (s *System) Shutdown(ctx context.Context) error {
	s.shutdown.mu.Lock()
	begun := s.shutdown.mu.begun
	s.shutdown.mu.begun = true
	s.shutdown.mu.Unlock()
	if begun {
		select {
		case <-s.shutdown.done:
			return s.shutdown.err
		case <-ctx.Done():
			return fmt.Errorf("await shutdown: %w", context.Cause(ctx))
		}
	}
	s.log.Info("actor system stops", keyActors, s.actors.Load())
	var errs []error
	stopped := true
	for _, p := range s.cfg.Phases {
		err := s.runPhase(ctx, p)
		if p.Name == PhaseStop {
			stopped = s.actors.Load() == 0
		}
		errs = append(errs, err)
	}
	errs = append(errs, s.end(ctx, stopped))
	s.shutdown.err = errors.Join(errs...)
	close(s.shutdown.done)
	return s.shutdown.err
}

// runPhase runs the tasks of a phase, and in PhaseStop stops the actors.
func (s *System) runPhase(ctx context.Context, p Phase) error {
	s.shutdown.mu.Lock()
	tasks := s.shutdown.mu.left[p.Name]
	delete(s.shutdown.mu.left, p.Name)
	s.shutdown.mu.Unlock()
	if p.Deadline > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, p.Deadline)
		defer cancel()
	}
	err := runTasks(ctx, p.Name, tasks)
	if p.Name == PhaseStop {
		err = errors.Join(err, s.stopActors(ctx))
		s.dead.Store(true)
		s.cancel(ErrStopped)
	}
	return err
}

// runTasks runs tasks side by side and waits for them until ctx ends.
func runTasks(ctx context.Context, phase string, tasks []*task) error {
	results := make(chan result, len(tasks)) // one that overruns may still send
	for _, t := range tasks {
		go t.do(ctx, phase, results)
	}
	var errs []error
	for left := slices.Clone(tasks); len(left) > 0; {
		select {
		case r := <-results:
			errs = append(errs, r.err)
			left = slices.DeleteFunc(left, func(t *task) bool { return t == r.t })
		case <-ctx.Done():
			for _, t := range left {
				errs = append(errs, fmt.Errorf("shutdown phase %s: task %s has not returned: %w", phase, t.name, context.Cause(ctx)))
			}
			left = nil
		}
	}
	return errors.Join(errs...)
}

type result struct {
	t   *task
	err error
}

// do runs one task; a panic is an error.
func (t *task) do(ctx context.Context, phase string, results chan<- result) {
	err := ErrGoexit // stands if run does not return
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%w\n%s", panicError(p), debug.Stack())
		}
		if err != nil {
			err = fmt.Errorf("shutdown phase %s: task %s: %w", phase, t.name, err)
		}
		results <- result{t, err}
	}()
	err = t.run(ctx)
}

// stopActors stops the guardians one after the other.
func (s *System) stopActors(ctx context.Context) error {
	for _, g := range []*cell{s.user, s.internal, s.root} {
		g.stop()
		if err := (Addr{g}).Await(ctx); err != nil {
			return fmt.Errorf("shut down with %d actors left, first %s: %w", s.actors.Load(), g.deepest().path(), err)
		}
	}
	return nil
}

// end ends everything but the actors; with wait it also waits for it.
func (s *System) end(ctx context.Context, wait bool) error {
	poolIdle := s.blocking.close()
	close(s.timers.quit)
	close(s.dog.quit)
	for _, d := range s.dispatchers {
		d.stop()
	}
	var err error
	if wait {
		err = s.awaitGoroutines(ctx, poolIdle)
	}
	s.events.close()
	return err
}

// awaitGoroutines waits for what was told to end.
func (s *System) awaitGoroutines(ctx context.Context, poolIdle <-chan struct{}) error {
	wait := func(what string, c <-chan struct{}) error {
		select {
		case <-c:
			return nil
		default:
		}
		select {
		case <-c:
			return nil
		case <-ctx.Done():
			return fmt.Errorf("shut down, %s still running: %w", what, context.Cause(ctx))
		}
	}
	errs := []error{
		wait("functions of the blocking pool", poolIdle), wait("timers", s.timers.ended), wait("watchdog", s.dog.ended),
	}
	for name, d := range s.dispatchers {
		errs = append(errs, wait("dispatcher "+name, d.ended))
	}
	return errors.Join(errs...)
}

// deepest follows first children down: an actor that the others wait for.
func (c *cell) deepest() *cell {
	for {
		kids := c.kids()
		if len(kids) == 0 {
			return c
		}
		c = kids[0]
	}
}
