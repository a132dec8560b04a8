package tablesync

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// replaceServers takes in new sources and targets and gives existing ones their
// new definitions: what runs with the old one is stopped first, and goes on from
// its checkpoints.
func (e *Engine) replaceServers(ctx context.Context, d Definitions) error {
	var errs []error
	var restart []*sourceRun
	stopped := map[*sourceRun]bool{}
	stop := func(s *sourceRun) {
		if !stopped[s] {
			stopped[s] = true
			restart = append(restart, s)
			errs = append(errs, s.halt(ctx))
		}
	}
	for _, spec := range d.Targets {
		e.mu.Lock()
		t := e.mu.targets[spec.Name]
		e.mu.Unlock()
		if t != nil {
			for _, s := range e.sourcesOf(t) {
				stop(s)
			}
			errs = append(errs, t.halt(ctx))
		}
		e.mu.Lock()
		e.addTargetLocked(spec)
		if now := e.mu.targets[spec.Name]; t != nil {
			// Tasks hold the old value: it takes over what the new one has.
			t.spec, t.sink, t.pool = now.spec, now.sink, now.pool
			e.mu.targets[spec.Name] = t
		}
		e.startTargetLocked(e.mu.targets[spec.Name])
		e.mu.Unlock()
	}
	for _, spec := range d.Sources {
		e.mu.Lock()
		s := e.mu.sources[spec.Name]
		e.mu.Unlock()
		if s != nil {
			stop(s)
			errs = append(errs, s.conn.Close())
		}
		e.mu.Lock()
		e.addSourceLocked(spec)
		if now := e.mu.sources[spec.Name]; s != nil {
			s.spec, s.conn, s.copies = now.spec, now.conn, now.copies
			e.mu.sources[spec.Name] = s
		} else {
			restart = append(restart, now)
		}
		e.mu.Unlock()
	}
	e.mu.Lock()
	e.refilterLocked()
	for _, s := range restart {
		e.startSourceLocked(s)
	}
	e.mu.Unlock()
	return errors.Join(errs...)
}

// halt stops a source and waits until nothing of it runs.
func (s *sourceRun) halt(ctx context.Context) error {
	s.mu.Lock()
	stop, ended := s.mu.stop, s.mu.ended
	s.mu.Unlock()
	if stop == nil {
		return nil
	}
	stop()
	select {
	case <-ended:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("stop source %s: %w", s.spec.Name, context.Cause(ctx))
	}
}

// halt stops a target's workers; the sources that write there are stopped before.
func (t *targetRun) halt(ctx context.Context) error {
	t.mu.Lock()
	stop, workers := t.mu.stop, t.mu.workers
	t.mu.err, t.mu.waiting = nil, map[*tableLane]struct{}{}
	t.mu.Unlock()
	if stop == nil {
		return nil
	}
	stop()
	ended := make(chan struct{})
	go func() {
		workers.Wait()
		close(ended)
	}()
	select {
	case <-ended:
		return t.sink.Close()
	case <-ctx.Done():
		return fmt.Errorf("stop target %s: %w", t.spec.Name, context.Cause(ctx))
	}
}

// pruneWait is how long a pruned source may take to remove its tasks; after that
// it runs on until the process ends.
const pruneWait = 30 * time.Second

// dropServers stops pruned sources and targets once their tasks are gone.
func (e *Engine) dropServers(ctx context.Context, removed []Difference) error {
	ctx, cancel := context.WithTimeout(ctx, pruneWait)
	defer cancel()
	var errs []error
	for _, r := range removed {
		e.mu.Lock()
		s, t := e.mu.sources[r.Name], e.mu.targets[r.Name]
		e.mu.Unlock()
		switch {
		case r.Kind == KindSource && s != nil:
			for len(s.tasksNow()) > 0 && sleep(ctx, 20*time.Millisecond) {
			}
			if len(s.tasksNow()) > 0 {
				errs = append(errs, fmt.Errorf("source %s: %d tasks are still being removed; it goes away at the next start", r.Name, len(s.tasksNow())))
				continue
			}
			errs = append(errs, s.halt(ctx), s.conn.Close())
			e.mu.Lock()
			delete(e.mu.sources, r.Name)
			e.mu.Unlock()
		case r.Kind == KindTarget && t != nil:
			errs = append(errs, t.halt(ctx))
			e.mu.Lock()
			delete(e.mu.targets, r.Name)
			e.mu.Unlock()
		}
	}
	return errors.Join(errs...)
}
