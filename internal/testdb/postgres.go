package testdb

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/jackc/pgx/v5"
)

const postgresRemedy = "install it with `apt-get install -y postgresql`, or point RUNNEL_PG_BIN at the directory " +
	"that holds initdb and postgres"

// PostgresOptions says how a private PostgreSQL server runs. The zero value is a
// server ready for logical replication in a directory that goes away with it.
type PostgresOptions struct {
	Dir       string   // directory to keep data in, made when absent and started again when it holds data; "" is a new one removed by Stop
	ExtraArgs []string // more arguments for postgres, which win over ours, as in "-c", "max_connections=20"
	Port      int      // TCP port on 127.0.0.1; 0 is a free one
}

// Postgres is a running private server. Its methods may be called from any
// goroutine; Stop must be called in the end.
//
// All servers made from one cached data directory report the same system
// identifier.
type Postgres struct{ *server }

// StartPostgres starts a server and returns when it answers. The context bounds
// the start only; the server runs until Stop, Kill or the end of this process.
func StartPostgres(ctx context.Context, o PostgresOptions) (*Postgres, error) {
	program, err := findPostgres("postgres")
	if err != nil {
		return nil, err
	}
	if err := reapOrphans(); err != nil {
		return nil, err
	}
	acct, err := serverAccount("postgres")
	if err != nil {
		return nil, fmt.Errorf("start postgres, which refuses to run as root: %w", err)
	}
	dir, temp, err := openDir(o.Dir, "postgres", acct)
	if err != nil {
		return nil, err
	}
	p := &Postgres{server: &server{
		program: program, dir: dir, temp: temp, acct: acct,
		stopSig: syscall.SIGINT, diedSig: syscall.SIGQUIT, children: procChildren,
	}}
	p.args = func(port int) []string { return p.commandLine(port, o.ExtraArgs) }
	p.probe = p.answers
	err = p.prepare(ctx)
	if err == nil {
		err = p.start(ctx, o.Port)
	}
	if err != nil {
		return nil, errors.Join(err, p.Stop())
	}
	return p, nil
}

// findPostgres looks for a program of the newest installed version.
func findPostgres(name string) (string, error) {
	if dir := os.Getenv("RUNNEL_PG_BIN"); dir != "" {
		path := filepath.Join(dir, name)
		if _, err := os.Stat(path); err != nil {
			return "", fmt.Errorf("find %s in RUNNEL_PG_BIN: %w: %w", name, ErrNotInstalled, err)
		}
		return filepath.Abs(path)
	}
	var dirs []string
	for _, pattern := range []string{"/usr/lib/postgresql/*/bin", "/usr/pgsql-*/bin", "/opt/homebrew/opt/postgresql*/bin", "/usr/local/pgsql/bin"} {
		found, err := filepath.Glob(pattern)
		if err != nil {
			return "", fmt.Errorf("look for PostgreSQL: %w", err)
		}
		slices.SortFunc(found, func(a, b string) int { return versionIn(b) - versionIn(a) })
		dirs = append(dirs, found...)
	}
	for _, dir := range dirs {
		if path := filepath.Join(dir, name); fileSize(path) > 0 {
			return path, nil
		}
	}
	return findProgram("", []string{name}, nil, postgresRemedy)
}

// versionIn is the number in a directory such as /usr/lib/postgresql/15/bin.
func versionIn(dir string) int {
	n := 0
	for _, r := range dir {
		if r >= '0' && r <= '9' {
			n = n*10 + int(r-'0')
		}
	}
	return n
}

// prepare makes the data directory unless there is one.
func (p *Postgres) prepare(ctx context.Context) error {
	if !p.acct.reaches(p.dir) {
		return fmt.Errorf("start postgres in %s: user %s may not enter it or a directory above it: choose another one, or none", p.dir, p.acct.name)
	}
	if isDir(p.DataDir()) {
		return nil
	}
	version, err := programVersion(ctx, p.program)
	if err != nil {
		return err
	}
	tmpl, err := template(ctx, "postgres-"+version, p.acct, func(ctx context.Context, dataDir string) error {
		initdb, err := findPostgres("initdb")
		if err != nil {
			return err
		}
		return runTool(ctx, p.acct, filepath.Dir(dataDir), initdb, "--pgdata="+dataDir, "--username=postgres",
			"--auth=trust", "--encoding=UTF8", "--locale=C", "--no-sync", "--no-instructions")
	})
	if err != nil {
		return err
	}
	return fillFrom(tmpl, p.DataDir(), p.acct)
}

// commandLine returns the server's arguments. Commits wait for the operating
// system to have the log, not for the disk: that survives the kill of a process.
func (p *Postgres) commandLine(port int, extra []string) []string {
	args := []string{"-D", p.DataDir(), "-p", strconv.Itoa(port)}
	for _, set := range []string{
		"listen_addresses=127.0.0.1", "unix_socket_directories=", "wal_level=logical",
		"max_wal_senders=20", "max_replication_slots=20", "fsync=off", "full_page_writes=off",
		"shared_buffers=32MB", "timezone=UTC", "log_timezone=UTC", "lc_messages=C",
	} {
		args = append(args, "-c", set)
	}
	return append(args, extra...)
}

// DSN names the server's postgres database for a user. The server trusts every
// local connection; the password is not looked at.
func (p *Postgres) DSN(user, pass string) string { return p.DatabaseDSN(user, pass, "postgres") }

// DatabaseDSN names one database of the server for a user.
func (p *Postgres) DatabaseDSN(user, pass, database string) string {
	u := url.URL{Scheme: "postgres", User: url.UserPassword(user, pass), Host: p.Addr(), Path: "/" + database, RawQuery: "sslmode=disable"}
	return u.String()
}

// Exec runs statements as the superuser in the database postgres, one after
// another in one session, and stops at the first error.
func (p *Postgres) Exec(ctx context.Context, sql ...string) error {
	return p.session(ctx, func(c *pgx.Conn) error {
		for _, s := range sql {
			if _, err := runText(ctx, c, s); err != nil {
				return err
			}
		}
		return nil
	})
}

// Query runs one statement as the superuser in the database postgres and returns
// its rows as the server prints them, NULL as "NULL".
func (p *Postgres) Query(ctx context.Context, sql string) ([][]string, error) {
	var rows [][]string
	err := p.session(ctx, func(c *pgx.Conn) (err error) {
		rows, err = runText(ctx, c, sql)
		return err
	})
	return rows, err
}

// CreateDatabase makes an empty database; reach it with DatabaseDSN.
func (p *Postgres) CreateDatabase(ctx context.Context, name string) error {
	return p.Exec(ctx, "CREATE DATABASE "+pgx.Identifier{name}.Sanitize())
}

// CreateUser makes a user that may log in, with attributes such as "REPLICATION"
// and memberships such as "pg_monitor" given as grants.
func (p *Postgres) CreateUser(ctx context.Context, name, password string, grants ...string) error {
	who := pgx.Identifier{name}.Sanitize()
	sql := []string{"CREATE USER " + who + " PASSWORD '" + strings.ReplaceAll(password, "'", "''") + "'"}
	for _, g := range grants {
		switch strings.ToUpper(g) {
		case "REPLICATION", "SUPERUSER", "CREATEDB", "CREATEROLE", "BYPASSRLS":
			sql = append(sql, "ALTER USER "+who+" "+g)
		default:
			sql = append(sql, "GRANT "+g+" TO "+who)
		}
	}
	return p.Exec(ctx, sql...)
}

// answers is nil when the server at our port is the one we started.
func (p *Postgres) answers(ctx context.Context) error {
	return p.session(ctx, func(c *pgx.Conn) error {
		rows, err := runText(ctx, c, "SHOW data_directory")
		if err != nil {
			return err
		}
		if len(rows) != 1 || filepath.Clean(rows[0][0]) != p.DataDir() {
			return fmt.Errorf("%s is the port of another server, with data in %q", p.Addr(), rows)
		}
		return nil
	})
}

func (p *Postgres) session(ctx context.Context, fn func(*pgx.Conn) error) error {
	c, err := pgx.Connect(ctx, p.DSN("postgres", ""))
	if err != nil {
		return fmt.Errorf("connect to %s as postgres: %w", p.Addr(), err)
	}
	return errors.Join(fn(c), c.Close(ctx))
}

// runText runs one statement by the simple protocol, in which the server sends
// every value as text.
func runText(ctx context.Context, c *pgx.Conn, sql string) ([][]string, error) {
	results, err := c.PgConn().Exec(ctx, sql).ReadAll()
	if err != nil {
		return nil, fmt.Errorf("run %s: %w", shorten(sql), err)
	}
	var rows [][]string
	for _, r := range results {
		for _, raw := range r.Rows {
			row := make([]string, len(raw))
			for i, v := range raw {
				row[i] = string(v)
				if v == nil {
					row[i] = "NULL"
				}
			}
			rows = append(rows, row)
		}
	}
	return rows, nil
}
