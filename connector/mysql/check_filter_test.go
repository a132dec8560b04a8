package mysql

import (
	"strings"
	"testing"

	"github.com/runnel-dev/runnel/internal/testdb"
)

// TestLogFilterIsNamed: schemas that the server leaves out of its log would be
// missed without a sign.
func TestLogFilterIsNamed(t *testing.T) {
	for _, setting := range []string{"binlog_do_db", "binlog_ignore_db"} {
		m := testdb.MariaDBFor(t, testdb.MariaDBOptions{ExtraArgs: []string{"--" + strings.ReplaceAll(setting, "_", "-") + "=shop"}})
		found, err := testSource(t, m, SourceOptions{}).Check(testContext(t))
		if err != nil {
			t.Fatal(err)
		}
		if len(found) != 1 || found[0].Code != "log-filtered" || !strings.Contains(found[0].Cause, setting+"=shop") || found[0].Remedy == "" {
			t.Errorf("%s: got %v, want the problem log-filtered with the setting and a remedy", setting, found)
		}
	}
}
