package mysql

import (
	"testing"

	"github.com/runnel-dev/runnel/internal/testdb"
)

// TestEndOfAnIdleLogIsReached: whoever waits for Now gets there, also when the log
// ends with events that belong to no group.
func TestEndOfAnIdleLogIsReached(t *testing.T) {
	m := testdb.MariaDBFor(t, testdb.MariaDBOptions{})
	s := testSource(t, m, SourceOptions{})
	from := now(t, s)
	execSQL(t, m, "CREATE DATABASE d", "FLUSH BINARY LOGS", "FLUSH BINARY LOGS")
	end := now(t, s)
	st, err := s.Open(testContext(t), from, wantSchema("d"))
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	for {
		g, err := st.Next(testContext(t))
		if err != nil {
			t.Fatalf("the end %s was not reached: %v", end.Token, err)
		}
		if end.AtOrBefore(g.End) {
			break
		}
	}
}
