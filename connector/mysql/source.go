package mysql

import (
	"context"
	"encoding/binary"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/runnel-dev/runnel/change"
)

// SourceOptions tunes a Source. The zero value is right for most.
type SourceOptions struct {
	// Own are tables that Runnel's sinks keep their checkpoints in; a Name of ""
	// means the whole schema. A group with rows in one of them is marked Own and
	// delivered without events.
	Own []change.TableID
	// RelayOwn delivers the events of Own groups.
	RelayOwn bool
	// SpillBytes is the size from which a group's rows lie in a file; 0 is 64 MiB.
	SpillBytes int
	// SpillDir is where such files are made; "" is the system's directory for
	// temporary files.
	SpillDir string
	// PrefetchBytes bounds the groups that a stream reads ahead; 0 is 8 MiB.
	PrefetchBytes int
	// Heartbeat is how often the server speaks when nothing happens; a link that
	// is silent for ten of them is dead. 0 is one second.
	Heartbeat time.Duration
}

func (o SourceOptions) withDefaults() SourceOptions {
	if o.SpillBytes <= 0 {
		o.SpillBytes = 64 << 20
	}
	if o.PrefetchBytes <= 0 {
		o.PrefetchBytes = 8 << 20
	}
	if o.Heartbeat <= 0 {
		o.Heartbeat = time.Second
	}
	return o
}

// Source is one MySQL or MariaDB server's log, catalog and tables: a
// change.Source, change.Catalog and change.ChunkReader. Safe for concurrent use.
type Source struct {
	cfg     Config
	options SourceOptions

	mu struct {
		sync.Mutex
		idle   []*session // chunk sessions to use again
		closed bool
	}
}

// NewSource makes a source. It connects only when it is used.
func NewSource(cfg Config, opts SourceOptions) (*Source, error) {
	if cfg.Addr == "" {
		return nil, fmt.Errorf("make source %s: the address is missing", cfg.Name)
	}
	if _, err := cfg.TLS.build(cfg.Addr); err != nil {
		return nil, fmt.Errorf("make source %s: %w", cfg.Name, err)
	}
	return &Source{cfg: cfg, options: opts.withDefaults()}, nil
}

// Features implements change.Source: old positions open as long as the server
// keeps its log, and nothing needs to be released.
func (s *Source) Features() change.SourceFeatures { return change.SourceFeatures{Reopen: true} }

// Release implements change.Source. The server purges its log by its own rules.
func (s *Source) Release(context.Context, change.Position) error { return nil }

// Close closes idle connections. Open streams have a life of their own.
func (s *Source) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.closed = true
	for _, c := range s.mu.idle {
		c.close()
	}
	s.mu.idle = nil
	return nil
}

// connect opens a session for catalog queries.
func (s *Source) connect(ctx context.Context, setup ...string) (*session, error) {
	c, err := connect(ctx, s.cfg, change.SourceWide, append([]string{plainSession}, setup...)...)
	if err != nil {
		return nil, err
	}
	return newSession(c), nil
}

// serverInfo is what is known about a server before its log is read.
type serverInfo struct {
	subject   string
	version   string
	mariaDB   bool
	history   string
	logBase   string // name of log files without the number
	foldNames bool
	// systemZone is the name of the time zone that the session zone SYSTEM means.
	systemZone string
	charsets   map[uint16]string // collation id → character set
}

// identify asks the server who it is.
func (s *session) identify(ctx context.Context, subject string) (serverInfo, error) {
	info := serverInfo{subject: subject}
	rows, err := s.text(ctx, "SELECT VERSION(), @@server_id, @@lower_case_table_names, @@log_bin, IFNULL(@@log_bin_basename,'')")
	if err != nil {
		return info, fmt.Errorf("identify %s: %w", subject, err)
	}
	if len(rows) != 1 || len(rows[0]) != 5 {
		return info, fmt.Errorf("identify %s: %w", subject, errMalformed)
	}
	r := rows[0]
	info.version, info.foldNames = r[0], r[2] != "0"
	info.mariaDB = strings.Contains(r[0], "MariaDB")
	if r[3] != "1" && !strings.EqualFold(r[3], "ON") {
		return info, change.WithClass(change.SourceWide, logOffProblem(subject))
	}
	info.logBase = r[4][strings.LastIndexAny(r[4], `/\`)+1:]
	info.history = "mariadb:" + r[1] + ":" + strings.ReplaceAll(info.logBase, "|", "_")
	if !info.mariaDB {
		uuid, err := s.text(ctx, "SELECT @@server_uuid")
		if err != nil || len(uuid) != 1 {
			return info, fmt.Errorf("identify %s: read server_uuid: %w", subject, err)
		}
		info.history = "mysql:" + uuid[0][0]
	}
	return info, nil
}

// readCharsets fills the map from collation ids, which logged statements carry.
func (s *session) readCharsets(ctx context.Context, info *serverInfo) error {
	zone, err := s.text(ctx, "SELECT @@system_time_zone")
	if err != nil {
		return fmt.Errorf("read time zone of %s: %w", info.subject, err)
	}
	if len(zone) == 1 && len(zone[0]) == 1 {
		info.systemZone = zone[0][0]
	}
	info.charsets = map[uint16]string{}
	err = s.each(ctx, "SELECT ID, CHARACTER_SET_NAME FROM information_schema.COLLATIONS WHERE ID IS NOT NULL", func(r [][]byte) error {
		if n := number(r[0]); n > 0 && n < 1<<16 {
			info.charsets[uint16(n)] = string(r[1])
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("read collations of %s: %w", info.subject, err)
	}
	return nil
}

// logEnd asks where the log ends now.
func (s *session) logEnd(ctx context.Context, info *serverInfo) (file string, offset uint64, err error) {
	q := "SHOW MASTER STATUS"
	if !info.mariaDB && versionAtLeast(info.version, 8, 4) {
		q = "SHOW BINARY LOG STATUS"
	}
	rows, err := s.text(ctx, q)
	if err != nil {
		return "", 0, fmt.Errorf("read end of log of %s: %w", info.subject, err)
	}
	if len(rows) != 1 || len(rows[0]) < 2 {
		return "", 0, change.WithClass(change.SourceWide, logOffProblem(info.subject))
	}
	offset, err = strconv.ParseUint(rows[0][1], 10, 64)
	if err != nil {
		return "", 0, fmt.Errorf("read end of log of %s: %w", info.subject, err)
	}
	return rows[0][0], offset, nil
}

func versionAtLeast(version string, major, minor int) bool {
	a, rest, _ := strings.Cut(version, ".")
	b, _, _ := strings.Cut(rest, ".")
	x, _ := strconv.Atoi(a) // a version that is no number counts as old
	y, _ := strconv.Atoi(b)
	return x > major || x == major && y >= minor
}

// Now implements change.Source.
func (s *Source) Now(ctx context.Context) (change.Position, error) {
	c, err := s.connect(ctx)
	if err != nil {
		return change.Position{}, err
	}
	defer c.close()
	info, err := c.identify(ctx, s.cfg.subject())
	if err != nil {
		return change.Position{}, err
	}
	file, offset, gtids, err := c.now(ctx, &info)
	if err != nil {
		return change.Position{}, err
	}
	return info.position(file, offset, gtids)
}

// now reads the end of the log and the GTIDs in front of it. When writers are too
// busy for both to be read at one moment, the GTIDs are those of a moment before,
// marked with a plus: they are in the log, and maybe newer ones too.
func (s *session) now(ctx context.Context, info *serverInfo) (file string, offset uint64, gtids string, err error) {
	if !info.mariaDB {
		file, offset, err = s.logEnd(ctx, info)
		return file, offset, "", err
	}
	before, err := s.gtidEnd(ctx)
	for range 3 {
		if err != nil {
			return "", 0, "", err
		}
		if file, offset, err = s.logEnd(ctx, info); err != nil {
			return "", 0, "", err
		}
		var after string
		if after, err = s.gtidEnd(ctx); err == nil && after == before {
			return file, offset, before, nil
		}
		gtids, before = before, after
	}
	if err == nil && gtids != "" {
		gtids += "+"
	}
	return file, offset, gtids, err
}

func (s *session) gtidEnd(ctx context.Context) (string, error) {
	rows, err := s.text(ctx, "SELECT @@GLOBAL.gtid_binlog_pos")
	if err != nil {
		return "", fmt.Errorf("read gtid_binlog_pos: %w", err)
	}
	if len(rows) != 1 {
		return "", fmt.Errorf("read gtid_binlog_pos: %w", errMalformed)
	}
	return rows[0][0], nil
}

// position makes a position that the assembler would give for the same place.
func (i *serverInfo) position(file string, offset uint64, gtids string) (change.Position, error) {
	n, ok := fileNumber(file)
	if !ok {
		return change.Position{}, fmt.Errorf("read end of log of %s: log file name %q has no number", i.subject, file)
	}
	p := change.Position{History: i.history, Token: file + ":" + strconv.FormatUint(offset, 10) + ":" + gtids}
	binary.BigEndian.PutUint64(p.Order[:], n)
	binary.BigEndian.PutUint64(p.Order[8:], offset)
	return p, nil
}

// dumpStart is what a token says.
type dumpStart struct {
	file   string
	fileNo uint64
	offset uint64
	gtid   string
}

func parseToken(token string) (dumpStart, error) {
	parts := strings.SplitN(token, ":", 3)
	if len(parts) != 3 {
		return dumpStart{}, fmt.Errorf("read position %q: want file:offset:gtid", token)
	}
	d := dumpStart{file: parts[0], gtid: parts[2]}
	var ok bool
	if d.fileNo, ok = fileNumber(d.file); !ok {
		return dumpStart{}, fmt.Errorf("read position %q: the file name has no number", token)
	}
	var err error
	if d.offset, err = strconv.ParseUint(parts[1], 10, 32); err != nil || d.offset < 4 {
		return dumpStart{}, fmt.Errorf("read position %q: the offset is not one a dump can start from", token)
	}
	return d, nil
}
