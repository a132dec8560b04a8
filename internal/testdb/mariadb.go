package testdb

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"syscall"
)

const mariaDBRemedy = "install it with `apt-get install -y mariadb-server`, or point RUNNEL_MARIADBD, " +
	"RUNNEL_MARIADB_INSTALL_DB and RUNNEL_MARIADB_DUMP at the programs"

// MariaDBOptions says how a private MariaDB server runs. The zero value is a
// server with a row-format binary log in a directory that goes away with it.
type MariaDBOptions struct {
	Dir         string   // directory to keep data in, made when absent and started again when it holds data; "" is a new one removed by Stop
	RowMetadata string   // binlog_row_metadata: "NO_LOG", "MINIMAL" or "FULL"; "" is NO_LOG
	ServerID    uint32   // replication server id; 0 is a random one
	ExtraArgs   []string // more arguments for mariadbd, which win over ours
	ReadOnly    bool     // refuse writes of users without the privilege to pass; root has it
	NoBinlog    bool     // write no binary log
	Port        int      // TCP port on 127.0.0.1; 0 is a free one
}

// MariaDB is a running private server. Its methods may be called from any
// goroutine; Stop must be called in the end.
type MariaDB struct {
	*server
	socket string
	dump   string // path of mariadb-dump, "" when there is none
}

// StartMariaDB starts a server and returns when it answers. The context bounds
// the start only; the server runs until Stop, Kill or the end of this process.
func StartMariaDB(ctx context.Context, o MariaDBOptions) (*MariaDB, error) {
	program, err := findProgram("RUNNEL_MARIADBD", []string{"mariadbd", "mysqld"},
		[]string{"/usr/sbin", "/usr/libexec", "/usr/local/sbin", "/usr/local/bin", "/opt/homebrew/bin"}, mariaDBRemedy)
	if err != nil {
		return nil, err
	}
	if err := reapOrphans(); err != nil {
		return nil, err
	}
	acct, err := mariaDBAccount(o.Dir)
	if err != nil {
		return nil, err
	}
	dir, temp, err := openDir(o.Dir, "mariadb", acct)
	if err != nil {
		return nil, err
	}
	m := &MariaDB{server: &server{
		program: program, dir: dir, temp: temp, acct: acct,
		stopSig: syscall.SIGTERM, diedSig: syscall.SIGKILL,
	}}
	if err := m.launch(ctx, o); err != nil {
		return nil, errors.Join(err, m.Stop())
	}
	return m, nil
}

// mariaDBAccount is the user the server runs as. Root may run a MariaDB server
// itself, which is what happens where there is no mysql user, or it cannot reach
// the directory.
func mariaDBAccount(dir string) (account, error) {
	acct, err := serverAccount("mysql")
	if err != nil {
		return ownAccount(), nil // the server then runs as root
	}
	if dir == "" {
		return acct, nil
	}
	abs, err := filepath.Abs(dir)
	if err != nil {
		return account{}, fmt.Errorf("name server directory: %w", err)
	}
	if err := os.MkdirAll(abs, 0o755); err != nil {
		return account{}, fmt.Errorf("make server directory: %w", err)
	}
	if !acct.reaches(abs) {
		return ownAccount(), nil
	}
	return acct, nil
}

// launch prepares the directory and starts the server.
func (m *MariaDB) launch(ctx context.Context, o MariaDBOptions) error {
	if err := m.prepare(ctx); err != nil {
		return err
	}
	args, err := m.commandLine(o)
	if err != nil {
		return err
	}
	m.args = func(port int) []string { return args(port) }
	m.probe = m.answers
	return m.start(ctx, o.Port)
}

// prepare makes the directories and, where there is no data yet, the data.
func (m *MariaDB) prepare(ctx context.Context) error {
	for _, name := range []string{"run", "tmp"} {
		if _, err := subDir(m.dir, name, m.acct); err != nil {
			return err
		}
	}
	m.socket = filepath.Join(m.dir, "run", "mariadb.sock")
	const socketLimit = 100 // the kernel takes 107 bytes
	if len(m.socket) > socketLimit {
		short, err := m.acct.tempDir("s")
		if err != nil {
			return err
		}
		m.extraDir, m.socket = short, filepath.Join(short, "mariadb.sock")
		if len(m.socket) > socketLimit {
			return fmt.Errorf("socket path %s is longer than %d bytes: set TMPDIR to a shorter directory", m.socket, socketLimit)
		}
	}
	if isDir(m.DataDir()) {
		return nil
	}
	version, err := programVersion(ctx, m.program)
	if err != nil {
		return err
	}
	tmpl, err := template(ctx, "mariadb-"+version, m.acct, m.install)
	if err != nil {
		return err
	}
	return fillFrom(tmpl, m.DataDir(), m.acct)
}

// install makes a pristine data directory with the distribution's own tool.
func (m *MariaDB) install(ctx context.Context, dataDir string) error {
	program, err := findProgram("RUNNEL_MARIADB_INSTALL_DB", []string{"mariadb-install-db", "mysql_install_db"},
		[]string{"/usr/local/bin", "/opt/homebrew/bin", filepath.Join(filepath.Dir(m.program), "..", "scripts")}, mariaDBRemedy)
	if err != nil {
		return err
	}
	args := append([]string{"--no-defaults"}, m.baseArgs()...)
	args = append(args, "--datadir="+dataDir, "--auth-root-authentication-method=normal",
		"--skip-test-db", "--skip-name-resolve", redoLogSize)
	return runTool(ctx, m.acct, filepath.Dir(dataDir), program, args...)
}

const redoLogSize = "--innodb-log-file-size=32M"

// baseArgs are the arguments that concern the installation and the user.
func (m *MariaDB) baseArgs() []string {
	var args []string
	if os.Getenv("RUNNEL_MARIADBD") != "" {
		// An unpacked archive does not know where it lies.
		base := filepath.Dir(filepath.Dir(m.program))
		if isDir(filepath.Join(base, "share")) {
			args = append(args, "--basedir="+base)
		}
	}
	if os.Getuid() == 0 && !m.acct.switched {
		args = append(args, "--user=root")
	}
	return args
}

// commandLine returns the server's arguments as a function of the port.
func (m *MariaDB) commandLine(o MariaDBOptions) (func(port int) []string, error) {
	id := o.ServerID
	if id == 0 {
		var b [4]byte
		if _, err := rand.Read(b[:]); err != nil {
			return nil, fmt.Errorf("choose server id: %w", err)
		}
		id = binary.BigEndian.Uint32(b[:]) | 1<<30 // far from the small numbers people choose
	}
	metadata := o.RowMetadata
	if metadata == "" {
		metadata = "NO_LOG"
	}
	binlog := []string{"--log-bin=" + filepath.Join(m.DataDir(), "binlog"), "--binlog-format=ROW", "--binlog-row-metadata=" + metadata}
	if o.NoBinlog {
		binlog = []string{"--skip-log-bin"}
	}
	if o.ReadOnly {
		binlog = append(binlog, "--read-only=1")
	}
	return func(port int) []string {
		args := append([]string{"--no-defaults"}, m.baseArgs()...)
		args = append(args,
			"--datadir="+m.DataDir(), "--tmpdir="+filepath.Join(m.dir, "tmp"),
			"--socket="+m.socket, "--pid-file="+filepath.Join(m.dir, "run", "mariadb.pid"),
			fmt.Sprintf("--port=%d", port), fmt.Sprintf("--server-id=%d", id),
			"--bind-address=127.0.0.1", "--skip-name-resolve", "--skip-slave-start",
			"--default-time-zone=+00:00", "--character-set-server=utf8mb4", "--collation-server=utf8mb4_general_ci",
			"--performance-schema=0", "--innodb-buffer-pool-size=64M", redoLogSize,
			"--innodb-flush-log-at-trx-commit=2", "--sync-binlog=0",
			"--innodb-buffer-pool-load-at-startup=0", "--innodb-buffer-pool-dump-at-shutdown=0",
			"--key-buffer-size=4M", "--aria-pagecache-buffer-size=8M", "--max-allowed-packet=256M")
		return append(append(args, binlog...), o.ExtraArgs...)
	}, nil
}

// Socket is the path of the server's Unix socket.
func (m *MariaDB) Socket() string { return m.socket }

// DSN names the server for a user, as "mysql://user:pass@127.0.0.1:port/".
func (m *MariaDB) DSN(user, pass string) string {
	u := url.URL{Scheme: "mysql", User: url.UserPassword(user, pass), Host: m.Addr(), Path: "/"}
	return u.String()
}
