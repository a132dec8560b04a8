package mysql

import (
	"github.com/runnel-dev/runnel/change"
)

func logOffProblem(subject string) *change.Problem {
	return &change.Problem{Code: "log-off", Subject: subject,
		Cause:  "the server writes no binary log (log_bin is OFF)",
		Remedy: "put log_bin=binlog, binlog_format=ROW and server_id=1 under [mysqld] in my.cnf and restart the server"}
}

func privilegeProblem(subject, privilege, detail string) *change.Problem {
	return &change.Problem{Code: "privilege", Subject: subject,
		Cause:  "the account lacks " + privilege + " (" + detail + ")",
		Remedy: "run GRANT " + privilege + " ON *.* TO the account"}
}
