package main

import (
	"context"
	"fmt"

	"github.com/runnel-dev/runnel/change"
	"github.com/runnel-dev/runnel/connector/mysql"
	"github.com/runnel-dev/runnel/internal/testdb"
)

const table = `CREATE TABLE bench.%s (
	id BIGINT NOT NULL PRIMARY KEY,
	customer INT UNSIGNED NOT NULL,
	state TINYINT NOT NULL,
	total DECIMAL(12,2) NOT NULL,
	tax DECIMAL(8,4) NULL,
	title VARCHAR(80) CHARACTER SET latin1 NOT NULL,
	note TEXT CHARACTER SET latin1 NULL,
	city CHAR(30) CHARACTER SET utf8mb4 NOT NULL,
	created DATETIME(6) NOT NULL,
	changed TIMESTAMP(3) NOT NULL,
	weight DOUBLE NOT NULL,
	parent BIGINT UNSIGNED NULL
)`

// values are one row's columns as functions of n.
const values = `n, n %% 100000, n %% 5, n / 7, IF(n %% 3 = 0, NULL, n / 11111), CONCAT('order number ', n),
	IF(n %% 4 = 0, NULL, REPEAT('note ', n %% 20)), 'Sankt Pölten', '2024-03-01 12:00:00.123456' + INTERVAL n SECOND,
	'2024-03-01 12:00:00.5', n / 3, IF(n %% 2 = 0, NULL, 18446744073709551615 - n)`

// write makes both backlogs, half inserts, half updates of the same rows, and reads
// each once through the recorder.
func write(ctx context.Context, db *testdb.MariaDB, src *mysql.Source, rec *recorderProcess, rows int) ([]backlog, error) {
	half := rows / 2 / 10 * 10
	if half == 0 {
		return nil, fmt.Errorf("%d rows are too few, want at least 20", rows)
	}
	if err := db.Exec(ctx, "CREATE DATABASE bench CHARACTER SET utf8mb4", fmt.Sprintf(table, "single"), fmt.Sprintf(table, "packed")); err != nil {
		return nil, err
	}
	single := []string{"USE bench", "SET NAMES utf8mb4", fmt.Sprintf(`CREATE PROCEDURE fill() BEGIN
		DECLARE n BIGINT DEFAULT 0;
		WHILE n < %d DO
			IF n %% 10 = 0 THEN START TRANSACTION; END IF;
			INSERT INTO single SELECT %s FROM (SELECT n) x;
			SET n = n + 1;
			IF n %% 10 = 0 THEN COMMIT; END IF;
		END WHILE;
		SET n = 0;
		WHILE n < %d DO
			IF n %% 10 = 0 THEN START TRANSACTION; END IF;
			UPDATE single SET total = total + 1, changed = '2024-04-01 00:00:00.25' WHERE id = n;
			SET n = n + 1;
			IF n %% 10 = 0 THEN COMMIT; END IF;
		END WHILE;
	END`, half, fmt.Sprintf(values), half), "CALL fill()"}
	packed := []string{"USE bench", "SET NAMES utf8mb4"}
	const step = 1000
	for n := 0; n < half; n += step {
		to := min(n+step, half) - 1
		packed = append(packed, fmt.Sprintf("INSERT INTO packed SELECT "+values+" FROM (SELECT seq n FROM seq_%d_to_%d) s", n, to),
			fmt.Sprintf("UPDATE packed SET total = total + 1, changed = '2024-04-01 00:00:00.25' WHERE id BETWEEN %d AND %d", n, to))
	}
	out := make([]backlog, 0, 2)
	for _, b := range []struct {
		name string
		sql  []string
	}{{"single", single}, {"packed", packed}} {
		l := backlog{name: b.name, rows: uint64(2 * half), sum: uint64(half) * uint64(half-1)}
		var err error
		if l.layout, _, err = src.Pin(ctx, change.TableID{Schema: "bench", Name: b.name}); err != nil {
			return nil, err
		}
		// In a file of its own: checking a position costs the server the file before it.
		if err := db.Exec(ctx, "FLUSH BINARY LOGS"); err != nil {
			return nil, err
		}
		if l.from, err = src.Now(ctx); err != nil {
			return nil, err
		}
		if err := db.Exec(ctx, b.sql...); err != nil {
			return nil, err
		}
		if l.to, err = src.Now(ctx); err != nil {
			return nil, err
		}
		if err := rec.record(ctx, src, l.from); err != nil {
			return nil, fmt.Errorf("record %s: %w", l.name, err)
		}
		out = append(out, l)
	}
	return out, nil
}
