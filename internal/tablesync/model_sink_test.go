package tablesync

import (
	"context"
	"errors"

	"github.com/runnel-dev/runnel/change"
)

// modelSink is the target: transactions with a fence, as frontier.md has them.
type modelSink struct{ w *world }

func (s modelSink) Features() change.SinkFeatures {
	return change.SinkFeatures{Transactional: true, Connections: 2}
}
func (s modelSink) Check(context.Context) ([]*change.Problem, error) { return nil, nil }
func (s modelSink) Close() error                                     { return nil }

// Claim waits for open transactions of older owners by letting them end.
func (s modelSink) Claim(_ context.Context, f change.Fence) error {
	w := s.w
	if err := w.yield(); err != nil {
		return err
	}
	if w.bug != bugI4NoWait {
		for len(w.txns) > 0 {
			w.zombie()
			if err := w.yield(); err != nil {
				return err
			}
		}
	}
	w.fence = f.Epoch
	return w.yield()
}

func (s modelSink) Load(_ context.Context, f change.Fence) ([]change.Checkpoint, error) {
	w := s.w
	if err := w.yield(); err != nil {
		return nil, err
	}
	var out []change.Checkpoint
	for _, t := range w.tasks {
		if t != nil {
			if at, ok := w.ckpt[t.incarnation]; ok {
				out = append(out, change.Checkpoint{CheckpointKey: change.CheckpointKey{Incarnation: t.incarnation}, Position: modelPos(at)})
			}
		}
	}
	w.loaded = f.Epoch
	return out, w.yield()
}

var errRolledBack = change.WithClass(change.Transient, errors.New("deadlock"))

// transact runs one target transaction: begin, effect at commit, answer.
func (s modelSink) transact(f change.Fence, effect func() error) error {
	w := s.w
	if err := w.yield(); err != nil {
		return err
	}
	if w.fence != f.Epoch {
		return change.ErrDeposed
	}
	if w.chance(12) {
		return errRolledBack
	}
	var failed error
	t := &openTxn{epoch: f.Epoch}
	t.commit = func() {
		if f.Epoch < w.loaded {
			w.violate("I4: epoch %d commits after epoch %d has read the checkpoints", f.Epoch, w.loaded)
		}
		failed = effect()
		w.dirty = true
	}
	w.txns = append(w.txns, t)
	if w.bug == bugI1Frontier {
		return w.yield() // said to be done, still open
	}
	if err := w.yield(); err != nil {
		return err // open: a zombie
	}
	if w.chance(12) { // the answer is lost, and the transaction ends later
		w.hits["lost outcome"]++
		return change.ErrUnknownOutcome
	}
	t.done = true
	t.commit()
	w.reap()
	if err := w.yield(); err != nil {
		return err
	}
	if failed == nil && w.chance(12) {
		w.hits["lost answer"]++
		return change.ErrUnknownOutcome
	}
	return failed
}

func (s modelSink) Apply(_ context.Context, f change.Fence, batches []change.Batch) []change.BatchResult {
	results := make([]change.BatchResult, len(batches))
	write := func(b *change.Batch) {
		rows := s.w.rows[b.Key.Incarnation]
		for _, c := range b.Changes {
			if c.Before != nil {
				rows[c.Before[0].Num] = 0
			}
			if c.After != nil {
				rows[c.After[0].Num] = int(c.After[1].Num)
			}
		}
	}
	// What a transaction writes is fixed when it is sent: decoded memory is reused.
	for i := range batches {
		batches[i].Changes = cloneChanges(batches[i].Changes)
	}
	if s.w.bug == bugI3TwoCommit {
		if err := s.transact(f, func() error {
			for i := range batches {
				write(&batches[i])
			}
			return nil
		}); err != nil {
			return failAll(results, err)
		}
	}
	err := s.transact(f, func() error {
		for i := range batches {
			if at, ok := s.w.ckpt[batches[i].Key.Incarnation]; !ok || at != modelNum(batches[i].Expected) {
				return change.ErrCheckpointMoved
			}
		}
		for i := range batches {
			write(&batches[i])
			s.w.ckpt[batches[i].Key.Incarnation] = modelNum(batches[i].New)
		}
		return nil
	})
	if err != nil {
		return failAll(results, err)
	}
	return results
}

func failAll(results []change.BatchResult, err error) []change.BatchResult {
	for i := range results {
		results[i].Err = err
	}
	return results
}

func cloneChanges(in []change.Change) []change.Change {
	out := make([]change.Change, len(in))
	for i, c := range in {
		out[i] = change.Change{Op: c.Op, Before: append([]change.Value(nil), c.Before...), After: append([]change.Value(nil), c.After...)}
	}
	return out
}

// Resolve reads with a lock: it waits for transactions that are still open.
func (s modelSink) Resolve(_ context.Context, f change.Fence, keys []change.CheckpointKey) ([]change.Checkpoint, error) {
	w := s.w
	if err := w.yield(); err != nil {
		return nil, err
	}
	if w.fence != f.Epoch {
		return nil, change.ErrDeposed
	}
	for len(w.txns) > 0 {
		w.zombie()
		if err := w.yield(); err != nil {
			return nil, err
		}
	}
	var out []change.Checkpoint
	for _, k := range keys {
		if at, ok := w.ckpt[k.Incarnation]; ok {
			out = append(out, change.Checkpoint{CheckpointKey: k, Position: modelPos(at)})
		}
	}
	return out, w.yield()
}

func (s modelSink) Prepare(_ context.Context, f change.Fence, t change.TaskTarget) error {
	at := modelNum(t.At)
	return s.retryUnknown(f, func() error {
		s.w.rows[t.Incarnation] = new([modelKeys]int)
		s.w.ckpt[t.Incarnation] = at
		delete(s.w.chunks, t.Incarnation)
		for _, task := range s.w.tasks {
			if task != nil && task.incarnation == t.Incarnation {
				task.from = at
			}
		}
		return nil
	})
}

// retryUnknown repeats an idempotent transaction whose outcome was lost, once
// nothing is open any more.
func (s modelSink) retryUnknown(f change.Fence, effect func() error) error {
	for {
		err := s.transact(f, effect)
		if err == nil || !errors.Is(err, change.ErrUnknownOutcome) && !errors.Is(err, errRolledBack) {
			return err
		}
		if _, err := s.Resolve(context.Background(), f, nil); err != nil {
			return err
		}
	}
}

func (s modelSink) LoadLayout(context.Context, change.Fence, string) (*change.Layout, error) {
	return modelLayout, s.w.yield()
}

func (s modelSink) LoadChunk(_ context.Context, f change.Fence, c change.ChunkLoad) error {
	w := s.w
	rows := make([][2]int, len(c.Rows))
	for i, r := range c.Rows {
		rows[i] = [2]int{int(r[0].Num), int(r[1].Num)}
	}
	return s.retryUnknown(f, func() error {
		p := w.chunks[c.Incarnation]
		if p.Chunks > c.Index {
			return nil
		}
		for _, r := range rows {
			w.rows[c.Incarnation][r[0]] = r[1]
		}
		w.chunks[c.Incarnation] = change.CopyProgress{Chunks: c.Index + 1, Bound: c.Bound, Done: c.Done}
		w.hits["chunk"]++
		return nil
	})
}

func (s modelSink) Progress(_ context.Context, _ change.Fence, incarnation string) (change.CopyProgress, error) {
	if err := s.w.yield(); err != nil {
		return change.CopyProgress{}, err
	}
	return s.w.chunks[incarnation], nil
}

func (s modelSink) ApplyDDL(context.Context, change.Fence, change.DDL) (*change.Layout, error) {
	return nil, errors.New("the model has no DDL")
}

func (s modelSink) Forget(_ context.Context, f change.Fence, incarnation string) error {
	return s.retryUnknown(f, func() error {
		delete(s.w.ckpt, incarnation)
		delete(s.w.chunks, incarnation)
		delete(s.w.rows, incarnation)
		return nil
	})
}
