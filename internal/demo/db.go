package demo

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-mysql-org/go-mysql/client"
	"github.com/go-mysql-org/go-mysql/mysql"

	"github.com/runnel-dev/runnel/internal/testdb"
)

// statementLimit bounds one statement.
const statementLimit = 60 * time.Second

// conn is a session of root at one of our servers. One goroutine uses it.
type conn struct {
	c    *client.Conn
	stop func() bool
}

// connect opens a session that ctx ends.
func connect(ctx context.Context, db *testdb.MariaDB) (*conn, error) {
	c, err := client.ConnectWithContext(ctx, db.Addr(), "root", "", "", 10*time.Second, func(c *client.Conn) error {
		return c.SetCollation("utf8mb4_general_ci")
	})
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", db.Addr(), err)
	}
	raw := c.Conn.Conn // Close of the library writes fields that a statement may be using
	return &conn{c, context.AfterFunc(ctx, func() { raw.Close() })}, nil
}

func (c *conn) close() {
	if c.stop() {
		c.c.Close()
	}
}

// exec runs one statement.
func (c *conn) exec(ctx context.Context, sql string) error {
	_, err := c.query(ctx, sql)
	return err
}

// query runs one statement and returns its rows as text.
func (c *conn) query(ctx context.Context, sql string) ([][]string, error) {
	if err := c.c.SetDeadline(time.Now().Add(statementLimit)); err != nil {
		return nil, fmt.Errorf("set deadline: %w", err)
	}
	r, err := c.c.Execute(sql)
	if err != nil {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		return nil, fmt.Errorf("run %s: %w", short(sql), err)
	}
	defer r.Close()
	if r.Resultset == nil {
		return nil, nil
	}
	rows := make([][]string, r.RowNumber())
	for i := range rows {
		rows[i] = make([]string, r.ColumnNumber())
		for k := range rows[i] {
			if rows[i][k], err = r.GetString(i, k); err != nil {
				return nil, fmt.Errorf("read answer of %s: %w", short(sql), err)
			}
		}
	}
	return rows, nil
}

// serverCode is the server's error number, 0 when there is none.
func serverCode(err error) uint16 {
	var me *mysql.MyError
	if errors.As(err, &me) {
		return me.Code
	}
	return 0
}

// Server errors that a load under concurrency meets.
const (
	codeDuplicate = 1062
	codeLockWait  = 1205
	codeDeadlock  = 1213
)

func short(s string) string {
	const limit = 160
	if len(s) <= limit {
		return s
	}
	return s[:limit] + "…"
}
