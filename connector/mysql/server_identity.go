package mysql

import (
	"context"
	"fmt"
	"strings"

	"github.com/runnel-dev/runnel/change"
)

var (
	_ change.Identifier = (*Source)(nil)
	_ change.Identifier = (*Sink)(nil)
)

// identity puts together what no two servers have alike: their machine, their
// place on it and the ids that they gave themselves. All of it stays as it is
// while the server runs.
func (s *session) identity(ctx context.Context) (string, error) {
	out := "mysql"
	err := s.each(ctx, "SHOW GLOBAL VARIABLES WHERE Variable_name IN ('hostname','port','datadir','server_uid','server_uuid',"+
		"'pid_file','socket','basedir','version','log_bin_basename')", func(r [][]byte) error {
		out += " " + strings.ToLower(string(r[0])) + "=" + textLiteral(string(r[1]))
		return nil
	})
	return out, err
}

// Identity implements change.Identifier.
func (s *Source) Identity(ctx context.Context) (string, error) {
	c, err := s.connect(ctx)
	if err != nil {
		return "", err
	}
	defer c.close()
	id, err := c.identity(ctx)
	if err != nil {
		return "", fmt.Errorf("read identity of %s: %w", s.cfg.subject(), err)
	}
	return id, nil
}

// Identity implements change.Identifier.
func (s *Sink) Identity(ctx context.Context) (string, error) {
	var id string
	err := s.with(ctx, func(c *sinkConn) (err error) {
		id, err = c.identity(ctx)
		return err
	})
	if err != nil {
		return "", fmt.Errorf("read identity of %s: %w", s.cfg.subject(), classed(err))
	}
	return id, nil
}
