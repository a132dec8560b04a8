package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"modernc.org/sqlite"

	"github.com/runnel-dev/runnel/persistence"
)

// FileName is the database within the data directory.
const FileName = "runnel.db"

// minVersion is the first SQLite whose WAL reset cannot lose committed data when
// two connections write and checkpoint.
const minVersion = "3.51.3"

const readers = 4 // connections of the read pool

// Options of a store. The zero value is right for most.
type Options struct {
	// Shards is used when the store is made; 0 is persistence.DefaultShards. An
	// existing store with another number is refused, unless it is 0.
	Shards uint32
	// Folders make the data of entity rows, by entity type. A type without one has
	// rows without data.
	Folders map[string]persistence.Folder
	// FoldEvery is how long entity rows may lie behind the journal; 0 is 3 s.
	FoldEvery time.Duration
	// CacheBytes of the writer's page cache; 0 is 64 MiB. Readers take an eighth each.
	CacheBytes int64
	// CheckpointEvery is the pause between checkpoints; 0 is 250 ms.
	CheckpointEvery time.Duration
	// LogBytes is how long the write-ahead log may grow before the writer waits for
	// a checkpoint; 0 is 128 MiB.
	LogBytes int64
	// Log receives what no caller is told; nil is slog.Default.
	Log *slog.Logger
}

func (o Options) withDefaults() Options {
	if o.FoldEvery <= 0 {
		o.FoldEvery = 3 * time.Second
	}
	if o.CacheBytes <= 0 {
		o.CacheBytes = 64 << 20
	}
	if o.CheckpointEvery <= 0 {
		o.CheckpointEvery = 250 * time.Millisecond
	}
	if o.LogBytes <= 0 {
		o.LogBytes = 128 << 20
	}
	if o.Log == nil {
		o.Log = slog.Default()
	}
	return o
}

// Store is a persistence.Store in one data directory. Open makes it.
type Store struct {
	dir    string
	opt    Options
	id     string
	shards uint32
	table  *entityTable
	queue  *queue
	writer *writer
	fold   *folder
	check  *checkpointer

	mark   uint64                 // fold mark at open
	behind []persistence.EntityID // entities whose row a Folder can take further, at open

	lock *os.File
	wdb  *sql.DB // writer's connection
	cdb  *sql.DB // checkpointer's
	// moving is held while the log is moved into the database: by the checkpointer,
	// or by the writer when the log has outgrown it.
	moving sync.Mutex
	rdb    *sql.DB // readers'

	stop      context.CancelFunc // of folder and checkpointer
	helpers   sync.WaitGroup     // folder, checkpointer
	writing   sync.WaitGroup     // writer
	closeOnce sync.Once
	closeErr  error

	mu struct {
		sync.Mutex
		failed error // why nothing is written any more
	}
}

var _ persistence.Store = (*Store)(nil)

// Open opens the store in dir and makes both if they are absent. It returns after
// reading what is needed of every entity into memory; ctx bounds only that. The
// directory stays locked until Close or the end of the process.
func Open(ctx context.Context, dir string, opt Options) (_ *Store, err error) {
	dir, err = filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("open store %s: %w", dir, err)
	}
	s := &Store{dir: dir, opt: opt.withDefaults(), table: newEntityTable(), queue: newQueue()}
	if err := s.open(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("open store %s: %w", dir, s.classify(err)), s.release())
	}
	s.start(context.WithoutCancel(ctx))
	return s, nil
}

func (s *Store) open(ctx context.Context) (err error) {
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return fmt.Errorf("make the data directory: %w", err)
	}
	if s.lock, err = lockDir(s.dir); err != nil {
		return err
	}
	if err := s.makeFile(); err != nil {
		return err
	}
	if err := s.connect(ctx); err != nil {
		return err
	}
	if err := s.migrate(ctx); err != nil {
		return err
	}
	return s.load(ctx)
}

// makeFile makes the database readable by its owner alone; SQLite gives the
// log and the shared memory the same mode.
func (s *Store) makeFile() error {
	path := filepath.Join(s.dir, FileName)
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return fmt.Errorf("make the database: %w", err)
	}
	if err := errors.Join(f.Chmod(0o600), f.Close(), syncDir(s.dir)); err != nil {
		return fmt.Errorf("make the database: %w", err)
	}
	return nil
}

// pool opens a pool of n connections that all have the same settings.
func (s *Store) pool(n int, cacheBytes int64, pragmas ...string) (*sql.DB, error) {
	q := url.Values{}
	for _, p := range append([]string{
		"busy_timeout(5000)", "journal_mode(WAL)", "synchronous(FULL)", "wal_autocheckpoint(0)", "temp_store(MEMORY)",
		fmt.Sprintf("cache_size(%d)", -cacheBytes/1024),
	}, pragmas...) {
		q.Add("_pragma", p)
	}
	dsn := "file:" + (&url.URL{Path: filepath.Join(s.dir, FileName)}).EscapedPath() + "?" + q.Encode()
	c, err := sqlite.NewConnector(dsn)
	if err != nil {
		return nil, err
	}
	db := sql.OpenDB(c)
	db.SetMaxOpenConns(n)
	db.SetMaxIdleConns(n)
	return db, nil
}

func (s *Store) connect(ctx context.Context) (err error) {
	// A log that starts again is cut back to the limit, so that its length tells how
	// much is to be moved.
	if s.wdb, err = s.pool(1, s.opt.CacheBytes, fmt.Sprintf("journal_size_limit(%d)", s.opt.LogBytes)); err != nil {
		return err
	}
	if s.cdb, err = s.pool(1, 1<<20); err != nil {
		return err
	}
	if s.rdb, err = s.pool(readers, s.opt.CacheBytes/8, "query_only(1)"); err != nil {
		return err
	}
	conn, err := s.wdb.Conn(ctx)
	if err != nil {
		return err
	}
	s.writer = &writer{s: s, conn: conn, stmts: map[string]*sql.Stmt{}, epochs: map[uint32]uint64{}}
	var version, mode string
	var sync int
	if err := errors.Join(
		conn.QueryRowContext(ctx, "SELECT sqlite_version()").Scan(&version),
		conn.QueryRowContext(ctx, "PRAGMA journal_mode").Scan(&mode),
		conn.QueryRowContext(ctx, "PRAGMA synchronous").Scan(&sync),
	); err != nil {
		return err
	}
	return checkSettings(version, mode, sync)
}

// checkSettings refuses a library or settings under which an acknowledged write
// could be lost.
func checkSettings(version, mode string, sync int) error {
	if !versionAtLeast(version, minVersion) {
		return fmt.Errorf("the SQLite library is %s, want %s or later: earlier ones can lose committed data; build with a newer modernc.org/sqlite", version, minVersion)
	}
	if mode != "wal" {
		return fmt.Errorf("journal_mode reads back as %q, want wal: use a local file system that can share memory", mode)
	}
	if sync != 2 {
		return fmt.Errorf("synchronous reads back as %d, want 2 (FULL)", sync)
	}
	return nil
}

func versionAtLeast(got, want string) bool {
	g, w := strings.Split(got, "."), strings.Split(want, ".")
	for i := range w {
		if i >= len(g) {
			return false
		}
		a, aerr := strconv.Atoi(g[i])
		b, berr := strconv.Atoi(w[i])
		if aerr != nil || berr != nil || a < b {
			return false
		}
		if a > b {
			return true
		}
	}
	return true
}

func (s *Store) start(ctx context.Context) {
	helping, stop := context.WithCancel(ctx)
	s.stop = stop
	s.fold = newFolder(s, s.mark, s.behind)
	s.behind = nil
	s.check = &checkpointer{s: s}
	s.writing.Go(func() { s.writer.run(ctx) })
	s.helpers.Go(func() { s.fold.run(helping) })
	s.helpers.Go(func() { s.check.run(helping) })
}

// StoreID is persistence.Store's.
func (s *Store) StoreID() string { return s.id }

// Shards is persistence.Store's.
func (s *Store) Shards() uint32 { return s.shards }

// Dir is the data directory, absolute.
func (s *Store) Dir() string { return s.dir }

// failure is why nothing is written any more; nil while all is well.
func (s *Store) failure() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.failed
}

func (s *Store) fail(cause error) {
	err := fmt.Errorf("%w: %w", persistence.ErrFailed, cause)
	s.mu.Lock()
	s.mu.failed = err
	s.mu.Unlock()
	s.queue.close(err)
	s.opt.Log.Error("store stopped writing", "dir", s.dir, "error", cause)
}

// Close is persistence.Store's. Only the first call does anything; all return the
// same error.
func (s *Store) Close() error {
	s.closeOnce.Do(func() {
		s.fold.last()
		s.stop()
		s.helpers.Wait()
		s.queue.close(persistence.ErrClosed)
		s.writing.Wait()
		s.closeErr = s.release()
		if s.closeErr != nil {
			s.closeErr = fmt.Errorf("close store %s: %w", s.dir, s.closeErr)
		}
	})
	return s.closeErr
}

// release closes what open has opened; the lock goes last.
func (s *Store) release() error {
	var errs []error
	if s.writer != nil {
		errs = append(errs, s.writer.close())
	}
	for _, db := range []*sql.DB{s.rdb, s.cdb, s.wdb} {
		if db != nil {
			errs = append(errs, db.Close())
		}
	}
	if s.lock != nil {
		errs = append(errs, s.lock.Close())
	}
	return errors.Join(errs...)
}
