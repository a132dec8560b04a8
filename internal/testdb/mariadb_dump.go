package testdb

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// Dump returns the content of every base table of the databases, keyed by
// "database.table", as the mariadb-dump program sees it: one INSERT statement
// per row with all column names, text and binary values as their stored bytes in
// hexadecimal, timestamps in UTC. Rows are sorted, so that two tables with
// the same rows have equal content whatever order they are stored in. An empty
// table has the content "".
//
// Nothing of this project takes part in reading the rows, which makes a dump fit
// to judge our own decoder. FLOAT columns are printed with six digits by the
// server and compare no finer than that.
func (m *MariaDB) Dump(ctx context.Context, databases ...string) (map[string]string, error) {
	program, err := findProgram("RUNNEL_MARIADB_DUMP", []string{"mariadb-dump", "mysqldump"},
		[]string{filepath.Dir(m.program), "/usr/local/bin", "/opt/homebrew/bin"}, mariaDBRemedy)
	if err != nil {
		return nil, err
	}
	content := make(map[string]string)
	for _, db := range databases {
		tables, err := m.Query(ctx, "SELECT table_name FROM information_schema.tables "+
			"WHERE table_type = 'BASE TABLE' AND table_schema = "+mysqlString(db))
		if err != nil {
			return nil, fmt.Errorf("list tables of %s: %w", db, err)
		}
		if len(tables) == 0 {
			continue
		}
		names := make([]string, len(tables))
		for i, t := range tables {
			names[i] = t[0]
		}
		if err := m.dumpTables(ctx, program, db, names, content); err != nil {
			return nil, err
		}
	}
	return content, nil
}

func (m *MariaDB) dumpTables(ctx context.Context, program, db string, tables []string, content map[string]string) error {
	args := []string{"--no-defaults", "--user=root", "--socket=" + m.socket, "--default-character-set=binary",
		"--single-transaction", "--quick", "--no-create-info", "--complete-insert", "--skip-extended-insert",
		"--order-by-primary", "--hex-blob", "--tz-utc", "--skip-comments", "--skip-dump-date",
		"--skip-add-locks", "--skip-disable-keys", "--skip-triggers", "--max-allowed-packet=1G", "--", db}
	cmd := exec.CommandContext(ctx, program, append(args, tables...)...)
	cmd.Env = serverEnv()
	var out, errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errOut
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("dump %s with %s: %w: %s", db, program, err, strings.TrimSpace(errOut.String()))
	}
	rows := make(map[string][]string)
	for line := range strings.Lines(out.String()) {
		line = strings.TrimSuffix(line, "\n")
		table, ok := insertTarget(line)
		switch {
		case ok:
			rows[table] = append(rows[table], line)
		case line == "" || strings.HasPrefix(line, "/*"): // session settings
		default:
			return fmt.Errorf("read dump of %s: line is no INSERT: %s", db, shorten(line))
		}
	}
	for _, t := range tables {
		slices.Sort(rows[t])
		content[db+"."+t] = strings.Join(rows[t], "\n")
		delete(rows, t)
	}
	for t := range rows {
		return fmt.Errorf("read dump of %s: rows of table %s, which was not asked for", db, t)
	}
	return nil
}

// insertTarget is the table an INSERT statement of a dump names.
func insertTarget(line string) (table string, ok bool) {
	rest, ok := strings.CutPrefix(line, "INSERT INTO `")
	if !ok {
		return "", false
	}
	var name strings.Builder
	for {
		i := strings.IndexByte(rest, '`')
		if i < 0 {
			return "", false
		}
		name.WriteString(rest[:i])
		rest = rest[i+1:]
		if !strings.HasPrefix(rest, "`") {
			return name.String(), true
		}
		name.WriteByte('`')
		rest = rest[1:]
	}
}
