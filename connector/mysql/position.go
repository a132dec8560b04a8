package mysql

import (
	"context"
	"fmt"
	"strings"

	"github.com/runnel-dev/runnel/change"
)

// Oldest implements change.Source: the beginning of the oldest log file.
func (s *Source) Oldest(ctx context.Context) (change.Position, error) {
	c, err := s.connect(ctx)
	if err != nil {
		return change.Position{}, err
	}
	defer c.close()
	info, err := c.identify(ctx, s.cfg.subject())
	if err != nil {
		return change.Position{}, err
	}
	rows, err := c.text(ctx, "SHOW BINARY LOGS")
	if err != nil {
		return change.Position{}, fmt.Errorf("list log files of %s: %w", info.subject, err)
	}
	if len(rows) == 0 || len(rows[0]) == 0 {
		return change.Position{}, change.WithClass(change.SourceWide, logOffProblem(info.subject))
	}
	return info.position(rows[0][0], firstOffset, "")
}

// firstOffset is behind a log file's magic number.
const firstOffset = 4

// openMark parts a token from that of the lowest start of the groups that are
// still open at its position (XA prepared), from where a dump must begin to see
// them: "binlog.000007:913:0-1-44;open=binlog.000007:310:0-1-41".
const openMark = ";open="

// dumpToken returns the token of the place where a dump must begin for a position.
func dumpToken(token string) string {
	own, open, _ := strings.Cut(token, openMark)
	if open == "" {
		return own
	}
	return open
}
