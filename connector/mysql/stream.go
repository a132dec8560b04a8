package mysql

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/runnel-dev/runnel/change"
)

// Open implements change.Source. ctx bounds the opening and the life of the
// stream: when it ends, so does the stream. The group at from itself is not
// delivered again, and a group's rows are complete for every table that the
// filter wants at the moment Next returns it.
func (s *Source) Open(ctx context.Context, from change.Position, f change.Filter) (change.Stream, error) {
	st := &stream{source: s, filter: f, last: from}
	if err := st.start(ctx, from); err != nil {
		return nil, fmt.Errorf("open log of %s: %w", s.cfg.subject(), err)
	}
	st.unhook = context.AfterFunc(ctx, st.cut)
	return st, nil
}

// stream hands out groups that a goroutine reads ahead.
type stream struct {
	source *Source
	filter change.Filter
	unhook func() bool

	// Of the one user:
	last change.Position // End of the last delivered group; its token names open ones

	mu struct {
		sync.Mutex
		reader *reader
		ended  bool
	}
}

// start begins to read at from; groups that end at or before the last delivered
// one are dropped.
func (s *stream) start(ctx context.Context, from change.Position) error {
	d, asm, err := s.source.dump(ctx, from, s.filter)
	if err != nil {
		return err
	}
	r := newReader(s.source, d, asm, s.last)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.ended {
		d.close()
		return errStreamClosed
	}
	ctx, r.end = context.WithCancel(context.WithoutCancel(ctx)) // detached: the reader outlives this call, cancel and stop end it
	s.mu.reader = r
	go r.run(ctx)
	return nil
}

var errStreamClosed = errors.New("the stream is closed")

// Next implements change.Stream.
func (s *stream) Next(ctx context.Context) (*change.Group, error) {
	for {
		s.mu.Lock()
		r, ended := s.mu.reader, s.mu.ended
		s.mu.Unlock()
		if ended && r == nil {
			return nil, errStreamClosed
		}
		d, err := r.queue.pop(ctx)
		if err != nil {
			return nil, err
		}
		if s.stale(&d) {
			if err := s.rewind(ctx); err != nil {
				return nil, err
			}
			continue
		}
		s.last = d.group.End
		return d.group, nil
	}
}

// stale reports whether a group was read before the filter began to want a table
// whose rows or statements it left out.
func (s *stream) stale(d *delivery) bool {
	if len(d.skipped)+len(d.missed) == 0 || d.generation == s.filter.Generation() {
		return false
	}
	return slices.ContainsFunc(d.skipped, s.filter.Wants) || slices.ContainsFunc(d.missed, s.filter.Wants) ||
		slices.ContainsFunc(d.missed, s.filter.WantsNew)
}

// rewind reads again from behind the last delivered group: what was read ahead
// lacks rows.
func (s *stream) rewind(ctx context.Context) error {
	s.stop()
	if err := s.start(ctx, s.last); err != nil {
		return fmt.Errorf("read log of %s again for a new table: %w", s.source.cfg.subject(), err)
	}
	return nil
}

// stop ends the reader and waits for it.
func (s *stream) stop() {
	s.mu.Lock()
	r := s.mu.reader
	s.mu.reader = nil
	s.mu.Unlock()
	if r != nil {
		r.stop()
	}
}

// cut ends the stream when its context does.
func (s *stream) cut() {
	s.mu.Lock()
	s.mu.ended = true
	r := s.mu.reader
	s.mu.Unlock()
	if r != nil {
		r.cancel()
	}
}

// Close implements change.Stream. It returns when the reader has ended.
func (s *stream) Close() error {
	s.unhook()
	s.cut()
	s.stop()
	return nil
}

// reader is the goroutine that reads one dump connection to its end.
type reader struct {
	source   *Source
	end      context.CancelFunc // ends looks into the catalog
	cascades *cascades

	dump  *dump
	asm   *assembler
	after change.Position // groups up to here were delivered before
	queue *queue
	done  chan struct{}
	once  sync.Once
}

func newReader(s *Source, d *dump, asm *assembler, after change.Position) *reader {
	return &reader{source: s, cascades: newCascades(s, asm.server.foldNames), dump: d, asm: asm, after: after,
		queue: newQueue(s.options.PrefetchBytes), done: make(chan struct{})}
}

func (r *reader) run(ctx context.Context) {
	defer close(r.done)
	defer r.end()
	defer r.dump.close()
	r.queue.finish(r.read(ctx))
}

func (r *reader) read(ctx context.Context) error {
	for {
		raw, err := r.dump.next()
		switch {
		case err != nil && ctx.Err() != nil: // cancel closed the connection
			return errStreamClosed
		case err != nil:
			return err
		}
		d, err := r.asm.event(raw)
		if err != nil {
			return err
		}
		if d.group == nil || d.group.End.AtOrBefore(r.after) {
			continue
		}
		if err := r.addCascades(ctx, &d); err != nil {
			return err
		}
		if !r.queue.push(d) {
			return errStreamClosed
		}
	}
}

// cancel makes the goroutine end soon.
func (r *reader) cancel() {
	r.once.Do(func() {
		r.queue.abandon()
		r.end()
		r.dump.close()
	})
}

// stop ends the goroutine and waits for it.
func (r *reader) stop() {
	r.cancel()
	<-r.done
}

// queue hands deliveries from one producer to one consumer, bounded in bytes: a
// full queue takes one more group of any size, since groups are whole.
type queue struct {
	limit int
	ready chan struct{} // has a token when there may be something to pop
	space chan struct{} // has a token when there may be room
	gone  chan struct{} // closed when the consumer is
	mu    struct {
		sync.Mutex
		items []delivery
		head  int
		bytes int
		ended bool
		err   error // why the producer ended
	}
}

const deliveryBytes = 512 // what a group costs beside its events

func newQueue(limit int) *queue {
	return &queue{limit: limit, ready: make(chan struct{}, 1), space: make(chan struct{}, 1), gone: make(chan struct{})}
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// push waits for room; false when the consumer is gone.
func (q *queue) push(d delivery) bool {
	cost := d.group.SizeBytes + deliveryBytes
	for {
		q.mu.Lock()
		if q.mu.bytes < q.limit {
			q.mu.items = append(q.mu.items, d)
			q.mu.bytes += cost
			q.mu.Unlock()
			signal(q.ready)
			return true
		}
		q.mu.Unlock()
		select {
		case <-q.space:
		case <-q.gone:
			return false
		}
	}
}

// finish tells the consumer, behind all that was pushed, why there is no more.
func (q *queue) finish(err error) {
	q.mu.Lock()
	q.mu.ended, q.mu.err = true, err
	q.mu.Unlock()
	signal(q.ready)
}

func (q *queue) abandon() { close(q.gone) }

func (q *queue) pop(ctx context.Context) (delivery, error) {
	for {
		if err := ctx.Err(); err != nil {
			return delivery{}, err
		}
		q.mu.Lock()
		if q.mu.head < len(q.mu.items) {
			d := q.take()
			q.mu.Unlock()
			signal(q.space)
			return d, nil
		}
		ended, err := q.mu.ended, q.mu.err
		q.mu.Unlock()
		if ended {
			return delivery{}, err
		}
		select {
		case <-q.ready:
		case <-q.gone:
			return delivery{}, errStreamClosed
		case <-ctx.Done():
		}
	}
}

// take is called with the lock held.
func (q *queue) take() delivery {
	m := &q.mu
	d := m.items[m.head]
	m.items[m.head] = delivery{}
	m.head++
	m.bytes -= d.group.SizeBytes + deliveryBytes
	if m.head == len(m.items) {
		m.items, m.head = m.items[:0], 0
	} else if m.head >= 1024 && m.head*2 >= len(m.items) {
		n := copy(m.items, m.items[m.head:])
		clear(m.items[n:])
		m.items, m.head = m.items[:n], 0
	}
	return d
}
