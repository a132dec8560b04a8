package mysql

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/go-mysql-org/go-mysql/mysql"

	"github.com/runnel-dev/runnel/change"
)

// leastRetention is how long the log must be kept at least, so that a stop of
// Runnel over a lunch break does not lose it.
const leastRetention = time.Hour

func logOffProblem(subject string) *change.Problem {
	return &change.Problem{Code: "log-off", Subject: subject,
		Cause:  "the server writes no binary log (log_bin is OFF)",
		Remedy: "put log_bin=binlog, binlog_format=ROW and a server_id of its own under [mysqld] in my.cnf and restart the server"}
}

func privilegeProblem(subject, privilege, detail string) *change.Problem {
	return &change.Problem{Code: "privilege", Subject: subject,
		Cause:  "the account lacks " + privilege + " (" + detail + ")",
		Remedy: "run GRANT " + privilege + " ON *.* TO the account"}
}

// settings are the server's variables that capturing depends on.
type settings struct {
	user      string
	format    string
	rowImage  string
	updates   bool // log_slave_updates
	retention time.Duration
}

// Check implements change.Source.
func (s *Source) Check(ctx context.Context) ([]*change.Problem, error) {
	subject := s.cfg.subject()
	c, err := s.connect(ctx)
	if err == nil {
		defer c.close()
		var found []*change.Problem
		if found, err = c.check(ctx, subject); err == nil {
			return found, nil
		}
	}
	var p *change.Problem
	switch {
	case ctx.Err() != nil:
		return nil, fmt.Errorf("check %s: %w", subject, ctx.Err())
	case errors.As(err, &p):
		return []*change.Problem{p}, nil
	}
	return []*change.Problem{{Code: "unreachable", Subject: subject, Cause: err.Error(), Remedy: "check that the server runs and answers queries"}}, nil
}

func (s *session) check(ctx context.Context, subject string) ([]*change.Problem, error) {
	info, err := s.identify(ctx, subject)
	if err != nil {
		return nil, err
	}
	var found []*change.Problem
	add := func(p *change.Problem) {
		if p != nil {
			found = append(found, p)
		}
	}
	add(versionProblem(&info))
	set, err := s.settings(ctx, &info)
	if err != nil {
		return nil, err
	}
	found = append(found, set.problems(subject)...)
	if !set.updates {
		replica, err := s.isReplica(ctx)
		if err != nil {
			return nil, err
		}
		if replica {
			add(&change.Problem{Code: "replica-without-log", Subject: subject,
				Cause:  "the server is a replica and does not log what it replicates (log_slave_updates is OFF)",
				Remedy: "put log_slave_updates=ON under [mysqld] in my.cnf and restart the server, or use its primary"})
		}
	}
	filter, err := s.logFilter(ctx, &info)
	if err != nil {
		return nil, err
	}
	add(filter)
	privileges, err := s.privileges(ctx, &info, set.user)
	if err != nil {
		return nil, err
	}
	return append(found, privileges...), nil
}

func versionProblem(info *serverInfo) *change.Problem {
	if !info.mariaDB {
		var p *change.Problem
		if errors.As(notMariaDB(info), &p) {
			return p
		}
	}
	if versionAtLeast(info.version, 10, 4) {
		return nil
	}
	return &change.Problem{Code: "server-version", Subject: info.subject,
		Cause: "the server is MariaDB " + info.version, Remedy: "use MariaDB 10.4 or newer"}
}

// settings reads the variables; those that a version lacks read as their default.
func (s *session) settings(ctx context.Context, info *serverInfo) (settings, error) {
	out := settings{updates: true}
	err := s.each(ctx, "SHOW GLOBAL VARIABLES WHERE Variable_name IN ('binlog_format','binlog_row_image','log_slave_updates',"+
		"'log_replica_updates','expire_logs_days','binlog_expire_logs_seconds')", func(r [][]byte) error {
		value := string(r[1])
		switch strings.ToLower(string(r[0])) {
		case "binlog_format":
			out.format = strings.ToUpper(value)
		case "binlog_row_image":
			out.rowImage = strings.ToUpper(value)
		case "log_slave_updates", "log_replica_updates":
			out.updates = strings.EqualFold(value, "ON")
		case "expire_logs_days":
			if days, err := strconv.ParseFloat(value, 64); err == nil && days > 0 && out.retention == 0 {
				out.retention = time.Duration(days * float64(24*time.Hour))
			}
		case "binlog_expire_logs_seconds":
			if n := number(r[1]); n > 0 {
				out.retention = time.Duration(n) * time.Second
			}
		}
		return nil
	})
	if err != nil {
		return out, fmt.Errorf("read variables of %s: %w", info.subject, err)
	}
	rows, err := s.text(ctx, "SELECT CURRENT_USER()")
	if err != nil {
		return out, fmt.Errorf("read account at %s: %w", info.subject, err)
	}
	user, host, _ := strings.Cut(rows[0][0], "@")
	out.user = textLiteral(user) + "@" + textLiteral(host)
	return out, nil
}

func (o *settings) problems(subject string) []*change.Problem {
	var found []*change.Problem
	if o.format != "ROW" {
		found = append(found, &change.Problem{Code: "binlog-format", Subject: subject,
			Cause: fmt.Sprintf("binlog_format is %s: changes may be logged as statements, whose rows are unknowable", o.format),
			Remedy: "run SET GLOBAL binlog_format='ROW', put binlog_format=ROW under [mysqld] in my.cnf, " +
				"and let applications reconnect: open sessions keep the old setting"})
	}
	if o.rowImage != "FULL" {
		found = append(found, &change.Problem{Code: "binlog-row-image", Subject: subject,
			Cause: fmt.Sprintf("binlog_row_image is %s: rows are logged without some of their columns", o.rowImage),
			Remedy: "run SET GLOBAL binlog_row_image='FULL', put binlog_row_image=FULL under [mysqld] in my.cnf, " +
				"and let applications reconnect"})
	}
	if o.retention > 0 && o.retention < leastRetention {
		found = append(found, &change.Problem{Code: "log-retention", Subject: subject,
			Cause:  fmt.Sprintf("the server deletes its log after %v", o.retention),
			Remedy: "run SET GLOBAL binlog_expire_logs_seconds=604800 and put binlog_expire_logs_seconds=604800 under [mysqld] in my.cnf"})
	}
	return found
}

// isReplica reports whether the server replicates from another.
func (s *session) isReplica(ctx context.Context) (bool, error) {
	rows, err := s.text(ctx, "SHOW ALL SLAVES STATUS")
	if err == nil {
		return len(rows) > 0, nil
	}
	if serverCode(err) == 0 {
		return false, fmt.Errorf("read replication state: %w", err)
	}
	// Not allowed to see it: the counter of running ones is open to all.
	rows, err = s.text(ctx, "SHOW GLOBAL STATUS LIKE 'Slaves_running'")
	if err != nil {
		return false, fmt.Errorf("read replication state: %w", err)
	}
	return len(rows) > 0 && rows[0][1] != "0", nil
}

// privileges tries what capturing does. The dump comes last: it uses up the
// session.
func (s *session) privileges(ctx context.Context, info *serverInfo, user string) ([]*change.Problem, error) {
	var found []*change.Problem
	lacks := func(privilege string, err error) {
		p := privilegeProblem(info.subject, privilege, shortError(err).Error())
		p.Remedy = "run GRANT " + privilege + " ON *.* TO " + user
		found = append(found, p)
	}
	may, err := s.maySelect(ctx)
	if err != nil {
		return nil, err
	}
	if !may {
		lacks("SELECT", errors.New("no grant of the account allows to read tables"))
	}
	file, offset, err := s.logEnd(ctx, info)
	switch {
	case serverCode(err) == 1227:
		lacks("BINLOG MONITOR", err)
	case err != nil:
		return nil, err
	}
	if file == "" { // no place to dump from is known: an error about it comes after the one about the privilege
		file, offset = info.logBase+".000001", 4
	}
	err = s.tryDump(ctx, file, offset)
	switch serverCode(err) {
	case 1227, 1045:
		lacks("REPLICATION SLAVE", err)
	case 0:
		if err != nil {
			return nil, err
		}
	}
	return found, nil
}

// maySelect reports whether any grant allows to read tables.
func (s *session) maySelect(ctx context.Context) (bool, error) {
	rows, err := s.text(ctx, "SHOW GRANTS")
	if err != nil {
		return false, fmt.Errorf("read grants: %w", err)
	}
	for _, r := range rows {
		grants, _, _ := strings.Cut(strings.ToUpper(r[0]), " ON ")
		if strings.Contains(grants, "SELECT") || strings.Contains(grants, "ALL PRIVILEGES") {
			return true, nil
		}
	}
	return false, nil
}

// tryDump asks for the log at its end without waiting for more and takes the first
// answer.
func (s *session) tryDump(ctx context.Context, file string, offset uint64) error {
	const doNotWait = 1
	id, err := replicaID()
	if err != nil {
		return err
	}
	body := binary.LittleEndian.AppendUint32(nil, uint32(offset))
	body = binary.LittleEndian.AppendUint16(body, doNotWait)
	body = binary.LittleEndian.AppendUint32(body, id)
	return guarded(ctx, s.c, func() error {
		if err := s.command(mysql.COM_BINLOG_DUMP, string(body), file); err != nil {
			return err
		}
		_, err := s.payload()
		return err
	})
}
