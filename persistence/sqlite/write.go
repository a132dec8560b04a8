package sqlite

import (
	"context"
	"errors"
	"fmt"

	"github.com/runnel-dev/runnel/persistence"
)

// maxRequestBytes bounds one request: all of it is written in one transaction.
const maxRequestBytes = 8 << 20

// perOp is charged to the queue for an operation beside its data.
const perOp = 256

// do hands run to the writer and waits for its commit. A caller that leaves
// before the writer has taken the operation withdraws it.
func (s *Store) do(ctx context.Context, background bool, size int, run func(*batch) (uint64, error)) (uint64, error) {
	type answer struct {
		n   uint64
		err error
	}
	answered := make(chan answer, 1)
	o := &op{run: run, size: size + perOp, done: func(n uint64, err error) { answered <- answer{n, err} }}
	if err := s.queue.pushWait(ctx, o, background); err != nil {
		return 0, err
	}
	select {
	case a := <-answered:
		return a.n, a.err
	case <-ctx.Done():
		if o.state.CompareAndSwap(opQueued, opWithdrawn) {
			return 0, fmt.Errorf("wait for the writer: %w", context.Cause(ctx))
		}
		return 0, fmt.Errorf("wait for the commit: %w: %w", persistence.ErrUnknownOutcome, context.Cause(ctx))
	}
}

// AcquireShard is persistence.Journal's.
func (s *Store) AcquireShard(ctx context.Context, shard uint32) (uint64, error) {
	if shard >= s.shards {
		return 0, fmt.Errorf("acquire shard %d: the store has shards 0 to %d", shard, s.shards-1)
	}
	e, err := s.do(ctx, false, 0, func(b *batch) (uint64, error) { return b.acquire(shard) })
	if err != nil {
		return 0, fmt.Errorf("acquire shard %d: %w", shard, err)
	}
	return e, nil
}

// Append is persistence.Journal's.
func (s *Store) Append(ctx context.Context, req persistence.AppendRequest) (uint64, error) {
	size, err := s.checkAppend(&req)
	if err != nil {
		return 0, err
	}
	return s.do(ctx, false, size, func(b *batch) (uint64, error) { return b.append(&req) })
}

// AppendAsync is persistence.Journal's.
func (s *Store) AppendAsync(req persistence.AppendRequest, done func(uint64, error)) {
	size, err := s.checkAppend(&req)
	if err == nil {
		o := &op{run: func(b *batch) (uint64, error) { return b.append(&req) }, done: done, size: size + perOp}
		_, err = s.queue.push(o, false)
	}
	if err != nil {
		done(0, err)
	}
}

func (s *Store) checkAppend(req *persistence.AppendRequest) (size int, err error) {
	fault := func(format string, args ...any) (int, error) {
		return 0, fmt.Errorf("append to %s: "+format, append([]any{req.Entity}, args...)...)
	}
	if req.Entity.IsZero() {
		return 0, fmt.Errorf("append events: %w: the id is empty", persistence.ErrEntityID)
	}
	if want := req.Entity.Shard(s.shards); req.Shard != want {
		return fault("the request names shard %d, the entity is in shard %d of %d", req.Shard, want, s.shards)
	}
	if len(req.Events) == 0 {
		return fault("the request has no events")
	}
	for i := range req.Events {
		ev := &req.Events[i]
		if ev.Type == "" || ev.Version == 0 {
			return fault("event %d has type %q and version %d, want a name and at least 1", i, ev.Type, ev.Version)
		}
		if len(ev.Data) > persistence.MaxEventBytes {
			return fault("event %s has %d bytes, at most %d: %w", ev.Type, len(ev.Data), persistence.MaxEventBytes, persistence.ErrTooLarge)
		}
		size += len(ev.Data) + len(ev.Type) + perOp
	}
	if size > maxRequestBytes {
		return fault("%d events have %d bytes, at most %d: %w", len(req.Events), size, maxRequestBytes, persistence.ErrTooLarge)
	}
	return size, nil
}

const saveSnapshot = `INSERT OR REPLACE INTO snapshot(entity, seq, at, version, data) VALUES(?,?,?,?,?)`

// SaveSnapshot is persistence.Snapshots'.
func (s *Store) SaveSnapshot(ctx context.Context, epoch uint64, sn persistence.Snapshot) error {
	if len(sn.Data) > maxRequestBytes {
		return fmt.Errorf("save snapshot of %s: %d bytes, at most %d: %w", sn.Entity, len(sn.Data), maxRequestBytes, persistence.ErrTooLarge)
	}
	_, err := s.do(ctx, true, len(sn.Data), func(b *batch) (uint64, error) {
		if err := b.fence(sn.Entity.Shard(s.shards), epoch); err != nil {
			return 0, err
		}
		if p := b.place(sn.Entity); sn.Seq == 0 || sn.Seq > p.seq {
			return 0, fmt.Errorf("it holds seq %d, the journal %d", sn.Seq, p.seq)
		}
		b.add(saveSnapshot, sn.Entity.String(), int64(sn.Seq), b.at, int64(sn.Version), sn.Data)
		return sn.Seq, nil
	})
	if err != nil {
		return fmt.Errorf("save snapshot of %s: %w", sn.Entity, err)
	}
	return nil
}

const putRecord = `INSERT INTO record(kind, scope, name, version, updated, data) VALUES(?,?,?,1,?,?)
ON CONFLICT(kind, scope, name) DO UPDATE SET version = version + 1, updated = excluded.updated, data = excluded.data`

// Put is persistence.Records'.
func (s *Store) Put(ctx context.Context, req persistence.PutRequest) error {
	size := 0
	for i := range req.Records {
		r := &req.Records[i]
		if r.Kind == "" {
			return errors.New("put record: its kind is empty")
		}
		if len(r.Data) > persistence.MaxEventBytes {
			return fmt.Errorf("put %s %s/%s: %d bytes, at most %d: %w", r.Kind, r.Scope, r.Name, len(r.Data), persistence.MaxEventBytes, persistence.ErrTooLarge)
		}
		size += len(r.Data) + perOp
	}
	if size > maxRequestBytes {
		return fmt.Errorf("put %d records: %d bytes, at most %d: %w", len(req.Records), size, maxRequestBytes, persistence.ErrTooLarge)
	}
	_, err := s.do(ctx, req.Background, size, func(b *batch) (uint64, error) {
		if err := b.fence(req.Shard, req.Epoch); err != nil {
			return 0, err
		}
		for i := range req.Records {
			r := &req.Records[i]
			b.add(putRecord, r.Kind, r.Scope, r.Name, b.at, blob(r.Data))
		}
		return 0, nil
	})
	if err != nil {
		return fmt.Errorf("put %d records: %w", len(req.Records), err)
	}
	return nil
}

// blob keeps an empty value from becoming NULL.
func blob(b []byte) []byte {
	if b == nil {
		return []byte{}
	}
	return b
}

// Delete is persistence.Records'.
func (s *Store) Delete(ctx context.Context, req persistence.DeleteRequest) error {
	_, err := s.do(ctx, false, len(req.Keys)*perOp, func(b *batch) (uint64, error) {
		if err := b.fence(req.Shard, req.Epoch); err != nil {
			return 0, err
		}
		for _, k := range req.Keys {
			b.add(`DELETE FROM record WHERE kind = ? AND scope = ? AND name = ?`, k.Kind, k.Scope, k.Name)
		}
		return 0, nil
	})
	if err != nil {
		return fmt.Errorf("delete %d records: %w", len(req.Keys), err)
	}
	return nil
}
