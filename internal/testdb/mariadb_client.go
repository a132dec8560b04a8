package testdb

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"time"

	"github.com/go-mysql-org/go-mysql/client"
	"github.com/go-mysql-org/go-mysql/mysql"
)

// Exec runs statements as root, one after another in one session, and stops at
// the first error.
func (m *MariaDB) Exec(ctx context.Context, sql ...string) error {
	return m.session(ctx, func(c *client.Conn) error {
		for _, s := range sql {
			r, err := c.Execute(s)
			if err != nil {
				return fmt.Errorf("run %s: %w", shorten(s), err)
			}
			r.Close()
		}
		return nil
	})
}

// Query runs one statement as root and returns its rows as the server prints
// them, NULL as "NULL".
func (m *MariaDB) Query(ctx context.Context, sql string) ([][]string, error) {
	var rows [][]string
	err := m.session(ctx, func(c *client.Conn) error {
		r, err := c.Execute(sql)
		if err != nil {
			return fmt.Errorf("run %s: %w", shorten(sql), err)
		}
		defer r.Close()
		rows, err = textRows(r)
		return err
	})
	return rows, err
}

// CreateUser makes a user that may connect from anywhere and grants it
// privileges on everything, each given as in "REPLICATION SLAVE" or in full as
// in "SELECT ON shop.*".
func (m *MariaDB) CreateUser(ctx context.Context, name, password string, grants ...string) error {
	who := mysqlString(name) + "@'%'"
	sql := []string{"CREATE USER " + who + " IDENTIFIED BY " + mysqlString(password)}
	for _, g := range grants {
		if !strings.Contains(strings.ToUpper(g), " ON ") {
			g += " ON *.*"
		}
		sql = append(sql, "GRANT "+g+" TO "+who)
	}
	return m.Exec(ctx, sql...)
}

// answers is nil when the server at our port is the one we started.
func (m *MariaDB) answers(ctx context.Context) error {
	return m.session(ctx, func(c *client.Conn) error {
		r, err := c.Execute("SELECT @@datadir")
		if err != nil {
			return fmt.Errorf("ask for the data directory: %w", err)
		}
		defer r.Close()
		rows, err := textRows(r)
		if err != nil {
			return err
		}
		if len(rows) != 1 || filepath.Clean(rows[0][0]) != m.DataDir() {
			return fmt.Errorf("%s is the port of another server, with data in %q", m.Addr(), rows)
		}
		return nil
	})
}

// session runs fn on a new connection as root and cuts it when ctx is done.
func (m *MariaDB) session(ctx context.Context, fn func(*client.Conn) error) error {
	const connectLimit = 30 * time.Second
	var cut func() bool // undoes the tie of the connection to ctx
	dial := func(dctx context.Context, network, address string) (net.Conn, error) {
		var d net.Dialer
		raw, err := d.DialContext(dctx, network, address)
		if err != nil {
			return nil, err
		}
		cut = context.AfterFunc(ctx, func() {
			_ = raw.Close() // the session's own call reports what it meets
		})
		return raw, raw.SetDeadline(time.Now().Add(connectLimit))
	}
	c, err := client.ConnectWithDialer(ctx, "tcp", m.Addr(), "root", "", "", dial, func(c *client.Conn) error {
		return c.SetCollation("utf8mb4_general_ci")
	})
	if cut != nil {
		defer cut()
	}
	if err != nil {
		return fmt.Errorf("connect to %s as root: %w", m.Addr(), err)
	}
	err = c.SetDeadline(time.Time{})
	if err == nil {
		err = fn(c)
	}
	if ctx.Err() != nil && err != nil {
		return errors.Join(ctx.Err(), err)
	}
	if qerr := c.Quit(); err == nil && ctx.Err() == nil {
		err = qerr
	}
	return err
}

// textRows renders a result from the bytes the server sent: the driver's own
// conversion would print numbers its way, and its strings share memory with a
// buffer that is used again.
func textRows(r *mysql.Result) ([][]string, error) {
	if r.Resultset == nil {
		return nil, nil
	}
	rows := make([][]string, 0, r.RowNumber())
	for _, raw := range r.RowDatas {
		row := make([]string, r.ColumnNumber())
		for i := range row {
			value, null, n, err := mysql.LengthEncodedString(raw)
			if err != nil {
				return nil, fmt.Errorf("read row %d column %d: %w", len(rows), i, err)
			}
			row[i] = string(value)
			if null {
				row[i] = "NULL"
			}
			raw = raw[n:]
		}
		rows = append(rows, row)
	}
	return rows, nil
}

// mysqlString quotes a string literal.
func mysqlString(s string) string {
	return "'" + strings.NewReplacer(`\`, `\\`, `'`, `''`).Replace(s) + "'"
}

// mysqlName quotes an identifier.
func mysqlName(s string) string { return "`" + strings.ReplaceAll(s, "`", "``") + "`" }

// shorten keeps a statement readable in an error.
func shorten(sql string) string {
	const limit = 200
	if len(sql) <= limit {
		return sql
	}
	return sql[:limit] + "…"
}
