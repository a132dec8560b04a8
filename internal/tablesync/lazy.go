package tablesync

import (
	"context"
	"sync"

	"github.com/runnel-dev/runnel/change"
)

// lazy makes a connector when it is first needed and tries again at the next use
// when that fails: a missing password file is the state of one server, not the
// end of the process.
type lazy[C interface{ Close() error }] struct {
	class   change.Class
	connect func() (C, error)
	mu      struct {
		sync.Mutex
		made bool
		conn C
	}
}

func (l *lazy[C]) get() (C, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.mu.made {
		c, err := l.connect()
		if err != nil {
			return c, change.WithClass(l.class, err)
		}
		l.mu.conn, l.mu.made = c, true
	}
	return l.mu.conn, nil
}

func (l *lazy[C]) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.mu.made {
		return nil
	}
	l.mu.made = false
	return l.mu.conn.Close()
}

// reset drops the connector, so that the next use makes it again: with a password
// that was changed meanwhile, for one.
func (l *lazy[C]) reset() error { return l.Close() }

func call[C interface{ Close() error }, R any](l *lazy[C], f func(C) (R, error)) (R, error) {
	c, err := l.get()
	if err != nil {
		var none R
		return none, err
	}
	return f(c)
}

func do[C interface{ Close() error }](l *lazy[C], f func(C) error) error {
	c, err := l.get()
	if err != nil {
		return err
	}
	return f(c)
}

// lazySource implements Source.
type lazySource struct{ lazy[Source] }

func newLazySource(connect func() (Source, error)) *lazySource {
	return &lazySource{lazy[Source]{class: change.SourceWide, connect: connect}}
}

func (l *lazySource) Features() change.SourceFeatures {
	f, _ := call(&l.lazy, func(s Source) (change.SourceFeatures, error) { return s.Features(), nil }) // without a connector: none
	return f
}

func (l *lazySource) Check(ctx context.Context) ([]*change.Problem, error) {
	return call(&l.lazy, func(s Source) ([]*change.Problem, error) { return s.Check(ctx) })
}

func (l *lazySource) Now(ctx context.Context) (change.Position, error) {
	return call(&l.lazy, func(s Source) (change.Position, error) { return s.Now(ctx) })
}

func (l *lazySource) Oldest(ctx context.Context) (change.Position, error) {
	return call(&l.lazy, func(s Source) (change.Position, error) { return s.Oldest(ctx) })
}

// Open checks the server first: what was fit at the start may have been changed
// before a reconnect, to settings under which changes would be missed.
func (l *lazySource) Open(ctx context.Context, from change.Position, f change.Filter) (change.Stream, error) {
	problems, err := l.Check(ctx)
	if err == nil && len(problems) > 0 {
		err = change.WithClass(change.SourceWide, joinProblems(problems))
	}
	if err != nil {
		return nil, err
	}
	return call(&l.lazy, func(s Source) (change.Stream, error) { return s.Open(ctx, from, f) })
}

func (l *lazySource) Release(ctx context.Context, p change.Position) error {
	return do(&l.lazy, func(s Source) error { return s.Release(ctx, p) })
}

func (l *lazySource) Tables(ctx context.Context, match func(change.TableID) bool) ([]change.TableInfo, error) {
	return call(&l.lazy, func(s Source) ([]change.TableInfo, error) { return s.Tables(ctx, match) })
}

func (l *lazySource) Pin(ctx context.Context, t change.TableID) (*change.Layout, change.Mark, error) {
	s, err := l.get()
	if err != nil {
		return nil, nil, err
	}
	return s.Pin(ctx, t)
}

func (l *lazySource) Upper(ctx context.Context, layout *change.Layout) ([]byte, error) {
	return call(&l.lazy, func(s Source) ([]byte, error) { return s.Upper(ctx, layout) })
}

func (l *lazySource) ReadChunk(ctx context.Context, layout *change.Layout, lower, upper []byte, limit int) (*change.Chunk, error) {
	return call(&l.lazy, func(s Source) (*change.Chunk, error) { return s.ReadChunk(ctx, layout, lower, upper, limit) })
}

// lazySink implements Sink.
type lazySink struct{ lazy[Sink] }

func newLazySink(connect func() (Sink, error)) *lazySink {
	return &lazySink{lazy[Sink]{class: change.TargetWide, connect: connect}}
}

func (l *lazySink) Features() change.SinkFeatures {
	f, _ := call(&l.lazy, func(s Sink) (change.SinkFeatures, error) { return s.Features(), nil }) // without a connector: none
	return f
}

func (l *lazySink) Check(ctx context.Context) ([]*change.Problem, error) {
	return call(&l.lazy, func(s Sink) ([]*change.Problem, error) { return s.Check(ctx) })
}

func (l *lazySink) Claim(ctx context.Context, f change.Fence) error {
	return do(&l.lazy, func(s Sink) error { return s.Claim(ctx, f) })
}

func (l *lazySink) Load(ctx context.Context, f change.Fence) ([]change.Checkpoint, error) {
	return call(&l.lazy, func(s Sink) ([]change.Checkpoint, error) { return s.Load(ctx, f) })
}

func (l *lazySink) Apply(ctx context.Context, f change.Fence, batches []change.Batch) []change.BatchResult {
	s, err := l.get()
	if err == nil {
		return s.Apply(ctx, f, batches)
	}
	results := make([]change.BatchResult, len(batches))
	for i := range results {
		results[i] = change.BatchResult{Err: err, RowIndex: -1}
	}
	return results
}

func (l *lazySink) Resolve(ctx context.Context, f change.Fence, keys []change.CheckpointKey) ([]change.Checkpoint, error) {
	return call(&l.lazy, func(s Sink) ([]change.Checkpoint, error) { return s.Resolve(ctx, f, keys) })
}

func (l *lazySink) Prepare(ctx context.Context, f change.Fence, t change.TaskTarget) error {
	return do(&l.lazy, func(s Sink) error { return s.Prepare(ctx, f, t) })
}

func (l *lazySink) LoadLayout(ctx context.Context, f change.Fence, incarnation string) (*change.Layout, error) {
	return call(&l.lazy, func(s Sink) (*change.Layout, error) { return s.LoadLayout(ctx, f, incarnation) })
}

func (l *lazySink) LoadChunk(ctx context.Context, f change.Fence, c change.ChunkLoad) error {
	return do(&l.lazy, func(s Sink) error { return s.LoadChunk(ctx, f, c) })
}

func (l *lazySink) Progress(ctx context.Context, f change.Fence, incarnation string) (change.CopyProgress, error) {
	return call(&l.lazy, func(s Sink) (change.CopyProgress, error) { return s.Progress(ctx, f, incarnation) })
}

func (l *lazySink) ApplyDDL(ctx context.Context, f change.Fence, d change.DDL) (*change.Layout, error) {
	return call(&l.lazy, func(s Sink) (*change.Layout, error) { return s.ApplyDDL(ctx, f, d) })
}

func (l *lazySink) Forget(ctx context.Context, f change.Fence, incarnation string) error {
	return do(&l.lazy, func(s Sink) error { return s.Forget(ctx, f, incarnation) })
}

// Identity asks the connector who its server is; errNoIdentity when it cannot tell.
func (l *lazy[C]) Identity(ctx context.Context) (string, error) {
	return call(l, func(c C) (string, error) {
		if id, ok := any(c).(identifier); ok {
			return id.Identity(ctx)
		}
		return "", errNoIdentity
	})
}
