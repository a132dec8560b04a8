package runnel

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/runnel-dev/runnel/actor"
	"github.com/runnel-dev/runnel/change"
	"github.com/runnel-dev/runnel/cluster"
	"github.com/runnel-dev/runnel/connector/mysql"
	"github.com/runnel-dev/runnel/internal/tablesync"
	"github.com/runnel-dev/runnel/internal/web"
	"github.com/runnel-dev/runnel/persistence"
	"github.com/runnel-dev/runnel/persistence/sqlite"
)

// stopLimit bounds how long closing store and actors may take in the end.
const stopLimit = 20 * time.Second

// RunOptions are what a caller of Run may add.
type RunOptions struct {
	Log     *slog.Logger // nothing is logged when nil
	Version Version      // shown by the API
	// Listening is told the address once requests are accepted. It must not block.
	Listening func(address string)
}

var errStarting = errors.New("the state is being read")

// process is what one Run holds.
type process struct {
	cfg    Config
	o      RunOptions
	tokens web.Tokens
	store  *sqlite.Store
	system *actor.System
	engine *tablesync.Engine
	ready  atomic.Bool
}

// Run keeps tables in sync until ctx ends or the process may not go on. It returns
// when everything it started has ended. cfg must be filled and valid. A fault that
// a person can mend is a *change.Problem.
func Run(ctx context.Context, cfg Config, o RunOptions) (err error) {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if err := cfg.Validate(); err != nil {
		return err
	}
	p := &process{cfg: cfg, o: o}
	if cfg.TokenFile != "" {
		if p.tokens, err = web.LoadTokens(cfg.TokenFile); err != nil {
			return err
		}
	}
	defer func() { err = errors.Join(err, p.close(context.WithoutCancel(ctx))) }()
	if err := p.open(ctx); err != nil {
		return err
	}
	l, err := net.Listen("tcp", cfg.Listen)
	if err != nil {
		return listenProblem(cfg.Listen, err)
	}
	server, err := web.New(web.Config{
		Control: control{p.engine}, Tokens: p.tokens, Version: o.Version, Ready: p.isReady, Log: o.Log,
	})
	if err != nil {
		return errors.Join(err, l.Close())
	}
	o.Log.Info("listening", "address", "http://"+l.Addr().String(), "data", cfg.DataDir)
	if o.Listening != nil {
		o.Listening(l.Addr().String())
	}
	return p.serve(ctx, server, l)
}

// open opens the store and builds the engine on it. What it opened is closed by
// close, also when it fails half-way.
func (p *process) open(ctx context.Context) error {
	registry, folders, err := tablesync.Registry()
	if err != nil {
		return fmt.Errorf("make event registry: %w", err)
	}
	p.store, err = sqlite.Open(ctx, p.cfg.DataDir, sqlite.Options{Folders: folders, Log: p.o.Log})
	if err != nil {
		return storeProblem(p.cfg.DataDir, err)
	}
	spill, err := emptyDir(filepath.Join(p.cfg.DataDir, "spill"))
	if err != nil {
		return err
	}
	if p.system, err = actor.New(actor.Config{Logger: p.o.Log}); err != nil {
		return fmt.Errorf("make actor system: %w", err)
	}
	p.engine, err = tablesync.New(tablesync.Config{
		Store: p.store, Connect: connectors{spill}, Log: p.o.Log, BudgetBytes: int(p.cfg.Budgets.CaptureBytes),
	}, func(kinds []persistence.Kind) (*cluster.Region, error) {
		return cluster.NewRegion(cluster.RegionConfig{System: p.system, Store: p.store, Registry: registry, Kinds: kinds, Log: p.o.Log})
	})
	if err != nil {
		return fmt.Errorf("make engine: %w", err)
	}
	return nil
}

// serve runs engine and server. Requests end before the engine does, so that none
// is answered by half an engine.
func (p *process) serve(ctx context.Context, server *web.Server, l net.Listener) error {
	serving, stopServing := context.WithCancel(ctx)
	defer stopServing()
	working, stopWorking := context.WithCancel(context.WithoutCancel(ctx))
	defer stopWorking()
	engine := make(chan error, 1)
	go func() {
		defer stopServing()
		engine <- p.engine.Run(working, func() {
			p.ready.Store(true)
			p.o.Log.Info("ready")
		})
	}()
	err := server.Serve(serving, l)
	stopWorking()
	return errors.Join(err, <-engine)
}

func (p *process) isReady() error {
	if !p.ready.Load() {
		return errStarting
	}
	return nil
}

func (p *process) close(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, stopLimit)
	defer cancel()
	var errs []error
	if p.system != nil {
		errs = append(errs, p.system.Shutdown(ctx))
	}
	if p.store != nil {
		errs = append(errs, p.store.Close())
	}
	return errors.Join(errs...)
}

// emptyDir makes a directory for files that do not outlive a process.
func emptyDir(dir string) (string, error) {
	if err := os.RemoveAll(dir); err != nil {
		return "", fmt.Errorf("clear %s: %w", dir, err)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", fmt.Errorf("make %s: %w", dir, err)
	}
	return dir, nil
}

// connectors makes connectors for the engine. spill is where large groups lie.
type connectors struct{ spill string }

// Source implements tablesync.Connector.
func (c connectors) Source(s tablesync.ServerSpec) (tablesync.Source, error) {
	cfg, err := mysqlConfig(tablesync.KindSource, &s)
	if err != nil {
		return nil, err
	}
	own := []change.TableID{{Schema: "runnel"}}
	if s.Schema != "" {
		own = append(own, change.TableID{Schema: s.Schema})
	}
	return mysql.NewSource(cfg, mysql.SourceOptions{SpillDir: c.spill, Own: own})
}

// Sink implements tablesync.Connector.
func (connectors) Sink(s tablesync.ServerSpec) (tablesync.Sink, error) {
	cfg, err := mysqlConfig(tablesync.KindTarget, &s)
	if err != nil {
		return nil, err
	}
	return mysql.NewSink(cfg, mysql.SinkOptions{Schema: s.Schema, Connections: s.Connections})
}

// storeProblem names why the data directory cannot be used.
func storeProblem(dir string, err error) error {
	p := &change.Problem{Subject: "data directory " + dir}
	switch {
	case errors.Is(err, persistence.ErrLocked):
		p.Code, p.Cause = "data-dir-in-use", "another process uses it"
		p.Remedy = "stop that process, or name another directory with --data-dir"
	case errors.Is(err, os.ErrPermission), errors.Is(err, persistence.ErrReadOnly):
		p.Code, p.Cause = "data-dir-permission", "it cannot be written ("+err.Error()+")"
		p.Remedy = "give it to the user that runs Runnel, or name another directory with --data-dir"
	case errors.Is(err, persistence.ErrFull):
		p.Code, p.Cause, p.Remedy = "disk-full", "its disk is full", "free space on it"
	default:
		return err
	}
	return p
}

func listenProblem(address string, err error) error {
	return &change.Problem{
		Code: "listen", Subject: "address " + address, Cause: fmt.Sprintf("it cannot be listened on (%v)", err),
		Remedy: "stop the process that uses it, or name another with --listen",
	}
}
