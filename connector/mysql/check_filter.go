package mysql

import (
	"context"
	"fmt"

	"github.com/runnel-dev/runnel/change"
)

// codeNoPrivilege: the account may not ask; the check of privileges says so.
const codeNoPrivilege = 1227

// logFilter reports settings that keep schemas out of the log: their changes
// would be missed without a sign.
func (s *session) logFilter(ctx context.Context, info *serverInfo) (*change.Problem, error) {
	q := "SHOW MASTER STATUS"
	if !info.mariaDB && versionAtLeast(info.version, 8, 4) {
		q = "SHOW BINARY LOG STATUS"
	}
	rows, err := s.text(ctx, q)
	if serverCode(err) == codeNoPrivilege {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read log filters of %s: %w", info.subject, err)
	}
	if len(rows) != 1 || len(rows[0]) < 4 || rows[0][2] == "" && rows[0][3] == "" {
		return nil, nil
	}
	setting, value := "binlog_do_db", rows[0][2]
	if value == "" {
		setting, value = "binlog_ignore_db", rows[0][3]
	}
	return &change.Problem{Code: "log-filtered", Subject: info.subject,
		Cause:  fmt.Sprintf("the server leaves schemas out of its log (%s=%s)", setting, value),
		Remedy: "remove " + setting + " from my.cnf and restart the server: changes that are not in the log cannot be followed"}, nil
}
