package mysql

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/runnel-dev/runnel/change"
)

const checkpointColumns = "SELECT incarnation, part, position, intent FROM "

// Load implements change.Sink.
func (s *Sink) Load(ctx context.Context, f change.Fence) ([]change.Checkpoint, error) {
	var out []change.Checkpoint
	err := s.with(ctx, func(c *sinkConn) error {
		if err := s.begin(ctx, c, f); err != nil {
			return err
		}
		defer c.rollback(ctx)
		query := checkpointColumns + s.tables.checkpoint + " WHERE owner=" + quoteString(f.Owner)
		err := c.each(ctx, query, func(row [][]byte) error {
			cp, err := readCheckpoint(row)
			out = append(out, cp)
			return err
		})
		if err != nil && serverCode(err) == 0 {
			c.lost = true
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("load checkpoints of %s from %s: %w", f.Owner, s.cfg.subject(), s.classed(err))
	}
	return out, nil
}

// readCheckpoint reads a row of checkpointColumns.
func readCheckpoint(row [][]byte) (change.Checkpoint, error) {
	var cp change.Checkpoint
	part, err := strconv.ParseUint(string(row[1]), 10, 16)
	if err != nil {
		return cp, fmt.Errorf("read part of checkpoint: %w", err)
	}
	cp.CheckpointKey = change.CheckpointKey{Incarnation: string(row[0]), Part: uint16(part)}
	if cp.Position, err = change.ParsePosition(string(row[2])); err != nil {
		return cp, fmt.Errorf("read checkpoint of %s: %w", cp.Incarnation, err)
	}
	if row[3] == nil {
		return cp, nil
	}
	cp.Intent = new(change.Intent)
	if err := json.Unmarshal(row[3], cp.Intent); err != nil {
		return cp, fmt.Errorf("read intent of %s: %w", cp.Incarnation, err)
	}
	return cp, nil
}

// resolveKeys bounds the keys of one locking read.
const resolveKeys = 500

// Resolve implements change.Sink. It waits, until ctx ends, for sessions that
// still hold the rows.
func (s *Sink) Resolve(ctx context.Context, f change.Fence, keys []change.CheckpointKey) ([]change.Checkpoint, error) {
	var out []change.Checkpoint
	err := s.patiently(ctx, func(c *sinkConn) error {
		out = out[:0]
		if err := s.begin(ctx, c, f); err != nil {
			return err
		}
		defer c.rollback(ctx)
		for rest := keys; len(rest) > 0; {
			n := min(len(rest), resolveKeys)
			found, err := s.lockCheckpoints(ctx, c, rest[:n])
			if err != nil {
				return err
			}
			out, rest = append(out, found...), rest[n:]
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("resolve checkpoints of %s at %s: %w", f.Owner, s.cfg.subject(), s.classed(err))
	}
	return out, nil
}

// lockCheckpoints reads rows as they will be once every open transaction that
// writes them has ended.
func (s *Sink) lockCheckpoints(ctx context.Context, c *sinkConn, keys []change.CheckpointKey) ([]change.Checkpoint, error) {
	conditions := make([]string, len(keys))
	for i, k := range keys {
		conditions[i] = "(incarnation=" + quoteString(k.Incarnation) + " AND part=" + strconv.Itoa(int(k.Part)) + ")"
	}
	a, err := c.queryAll(ctx, checkpointColumns+s.tables.checkpoint+" WHERE "+strings.Join(conditions, " OR ")+" FOR UPDATE")
	if err != nil {
		return nil, err
	}
	out := make([]change.Checkpoint, len(a.rows))
	for i, row := range a.rows {
		if out[i], err = readCheckpoint(row); err != nil {
			return nil, err
		}
	}
	return out, nil
}
