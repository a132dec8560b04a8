package mysql

import (
	"testing"

	"github.com/runnel-dev/runnel/internal/testdb"
)

// TestL09PlainGroups covers the common path, V-10 (YEAR in front of an unsigned
// column), V-24 (generated columns), V-26 (hidden hash column) and L-09 (partial
// images).
func TestL09PlainGroups(t *testing.T) {
	for _, metadata := range []string{"NO_LOG", "FULL"} {
		t.Run(metadata, func(t *testing.T) {
			m := testdb.MariaDBFor(t, testdb.MariaDBOptions{RowMetadata: metadata})
			s := testSource(t, m, SourceOptions{})
			execSQL(t, m, "CREATE DATABASE d", "CREATE DATABASE other", "CREATE TABLE other.o (id INT PRIMARY KEY)")
			from := now(t, s)
			execSQL(t, m, "USE d",
				"CREATE TABLE v (id INT PRIMARY KEY, a INT, gs INT AS (a+1) STORED, gv INT AS (a+2) VIRTUAL, y YEAR, u INT UNSIGNED, tt TEXT, UNIQUE(tt))",
				"INSERT INTO v(id,a,y,u,tt) VALUES (1,2,2155,4000000000,'x'),(2,3,0,1,NULL)",
				"UPDATE v SET a=a+1",
				"INSERT INTO other.o VALUES (1)",
				"DELETE FROM v WHERE id=2",
				"SET SESSION binlog_row_image=MINIMAL", "UPDATE v SET a=9 WHERE id=1",
				"SET SESSION binlog_row_image=FULL",
				"BEGIN", "INSERT INTO v(id,a) VALUES (20,20)", "INSERT INTO other.o VALUES (7)", "COMMIT",
			)
			groups := readTo(t, s, from, wantSchema("d"))
			if got, want := len(groups), 7; got != want {
				t.Errorf("got %d groups, want %d, those without captured rows included", got, want)
			}
			want := `create-table [d.v]
end
insert v (1,2,3,4,7:2155,4000000000,"x")
insert v (2,3,4,5,7:0000,1,NULL)
end
update v (1,2,3,4,7:2155,4000000000,"x") (1,3,4,5,7:2155,4000000000,"x")
update v (2,3,4,5,7:0000,1,NULL) (2,4,5,6,7:0000,1,NULL)
end
delete v (2,4,5,6,7:0000,1,NULL)
end
update v (1,-,-,-,-,-,-) (-,9,10,-,-,-,-)
lost-rows [d.v]
end
insert v (20,20,21,22,NULL,NULL,NULL)
end
`
			if got := show(t, s, groups); got != want {
				t.Errorf("got\n%s\nwant\n%s", got, want)
			}
		})
	}
}
