package mysql

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/runnel-dev/runnel/change"
	"github.com/runnel-dev/runnel/retry"
)

var (
	_ change.Sink      = (*Sink)(nil)
	_ change.TableSink = (*Sink)(nil)
)

var errSinkClosed = errors.New("the sink is closed")

// SinkOptions tunes a Sink. The zero value is usable.
type SinkOptions struct {
	// Schema is the database at the target that holds our own tables; "" is
	// "runnel".
	Schema string
	// Connections is the number of Apply transactions at once; 0 is 2.
	Connections int
	// CopyConnections is the number of LoadChunk transactions at once; 0 is 2.
	CopyConnections int
	// AnswerTimeout is the longest wait for the server's answer to statements
	// other than DDL; 0 is 2 minutes. After it the connection counts as lost.
	AnswerTimeout time.Duration
}

func (o *SinkOptions) fill() {
	if o.Schema == "" {
		o.Schema = "runnel"
	}
	if o.Connections <= 0 {
		o.Connections = 2
	}
	if o.CopyConnections <= 0 {
		o.CopyConnections = 2
	}
	if o.AnswerTimeout <= 0 {
		o.AnswerTimeout = 2 * time.Minute
	}
}

// Sink writes to one MySQL or MariaDB server. Rows and checkpoints commit in one
// transaction, which reads the owner's fence with a shared lock. It is safe for
// concurrent use and holds no goroutine; connections are opened when needed.
type Sink struct {
	cfg    Config
	opts   SinkOptions
	tables sinkTables

	apply   chan struct{} // a token for each Apply transaction
	load    chan struct{} // a token for each LoadChunk transaction
	control chan struct{} // a token for everything else that keeps to the pool
	ddl     chan struct{} // a token for two connections under one fence
	fresh   chan struct{} // a token for a new connection that is used once

	noBulk atomic.Bool // the server does not allow LOAD DATA LOCAL

	pool struct {
		sync.Mutex
		idle   []*sinkConn
		closed bool
	}
}

// controlConnections bounds the connections for each use other than rows.
const controlConnections = 4

// take waits for a token; release gives it back.
func take(ctx context.Context, tokens chan struct{}) (release func(), err error) {
	select {
	case tokens <- struct{}{}:
		return func() { <-tokens }, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("wait for a connection: %w", context.Cause(ctx))
	}
}

// NewSink makes a sink. It connects to nothing: an unreachable target shows in
// Check and in the first call that needs it.
func NewSink(cfg Config, opts SinkOptions) (*Sink, error) {
	opts.fill()
	if cfg.Addr == "" {
		return nil, errors.New("make mysql sink: the address of the target is missing")
	}
	if len(opts.Schema) > 64 {
		return nil, fmt.Errorf("make mysql sink: the schema name %q is longer than 64 bytes", opts.Schema)
	}
	return &Sink{
		cfg: cfg, opts: opts, tables: newSinkTables(opts.Schema),
		apply:   make(chan struct{}, opts.Connections),
		load:    make(chan struct{}, opts.CopyConnections),
		control: make(chan struct{}, controlConnections),
		ddl:     make(chan struct{}, controlConnections),
		fresh:   make(chan struct{}, controlConnections),
	}, nil
}

// Features implements change.Sink.
func (s *Sink) Features() change.SinkFeatures {
	return change.SinkFeatures{Transactional: true, DDL: true, Connections: s.opts.Connections}
}

// Close closes idle connections; those in use close when their call ends. Later
// calls fail.
func (s *Sink) Close() error {
	s.pool.Lock()
	defer s.pool.Unlock()
	s.pool.closed = true
	for _, c := range s.pool.idle {
		c.close()
	}
	s.pool.idle = nil
	return nil
}

// attempts bounds how often one call does its transaction anew after a deadlock,
// a lock timeout or a lost connection; what still fails is Transient.
const attempts = 4

var backoff = retry.Policy{Initial: 20 * time.Millisecond, Max: 500 * time.Millisecond, Multiplier: 3, Jitter: 0.5}

// pause waits before attempt+1. It returns ctx's error when that ends first.
func pause(ctx context.Context, attempt int, rnd float64) error {
	t := time.NewTimer(backoff.Delay(attempt, rnd))
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
