package mysql

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/runnel-dev/runnel/change"
	"github.com/runnel-dev/runnel/internal/testdb"
)

// open opens a stream and closes it with the test.
func open(t *testing.T, s *Source, from change.Position, f change.Filter) change.Stream {
	t.Helper()
	st, err := s.Open(testContext(t), from, f)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { st.Close() })
	return st
}

func next(t *testing.T, st change.Stream) *change.Group {
	t.Helper()
	g, err := st.Next(testContext(t))
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// TestL12OpenFrom: a prepared group holds the restart position, and a reader that
// starts there sees its rows at the commit, also after a restart of the server.
func TestL12OpenFrom(t *testing.T) {
	m := testdb.MariaDBFor(t, testdb.MariaDBOptions{})
	s := testSource(t, m, SourceOptions{})
	execSQL(t, m, "CREATE DATABASE d", "CREATE TABLE d.t (id INT PRIMARY KEY)")
	from := now(t, s)
	execSQL(t, m, "USE d", "INSERT INTO t VALUES (1)", "XA START 'x'", "INSERT INTO t VALUES (2)", "XA END 'x'", "XA PREPARE 'x'")
	execSQL(t, m, "USE d", "INSERT INTO t VALUES (3)", "FLUSH BINARY LOGS", "INSERT INTO t VALUES (4)")
	groups := readTo(t, s, from, wantSchema("d"))
	if got, want := show(t, s, groups), "insert t (1)\nend\ninsert t (3)\nend\ninsert t (4)\nend\n"; got != want {
		t.Errorf("before the commit: got %s, want %s", got, want)
	}
	last := groups[len(groups)-1]
	if got, want := last.OpenFrom, groups[0].End; got != want {
		t.Errorf("got OpenFrom %v, want %v, the start of the prepared group", got, want)
	}
	if !groups[0].OpenFrom.IsZero() {
		t.Errorf("got OpenFrom %v before the prepare, want none", groups[0].OpenFrom)
	}
	if err := m.Restart(testContext(t)); err != nil {
		t.Fatal(err)
	}
	execSQL(t, m, "XA COMMIT 'x'", "INSERT INTO d.t VALUES (5)")
	if got, want := show(t, s, readTo(t, s, last.OpenFrom, wantSchema("d"))), "insert t (3)\nend\ninsert t (4)\nend\ninsert t (2)\nend\ninsert t (5)\nend\n"; got != want {
		t.Errorf("from OpenFrom: got %s, want %s", got, want)
	}
	// The end of a group behind the prepare names it: the rows come, once.
	if got, want := show(t, s, readTo(t, s, last.End, wantSchema("d"))), "insert t (2)\nend\ninsert t (5)\nend\n"; got != want {
		t.Errorf("from behind the prepare: got %s, want %s", got, want)
	}
	// A reader that begins behind a prepare it knows nothing of cannot have the rows,
	// and says so.
	execSQL(t, m, "USE d", "XA START 'z'", "INSERT INTO t VALUES (6)", "XA END 'z'", "XA PREPARE 'z'")
	behind := now(t, s)
	execSQL(t, m, "XA COMMIT 'z'", "INSERT INTO d.t VALUES (7)")
	if got, want := show(t, s, readTo(t, s, behind, wantSchema("d"))), "lost-rows []\nend\ninsert t (7)\nend\n"; got != want {
		t.Errorf("from a place that knows nothing of the prepare: got %s, want %s", got, want)
	}
}

// TestL01EveryEndIsAPlaceToStart opens the log at the end of each group.
func TestL01EveryEndIsAPlaceToStart(t *testing.T) {
	m := testdb.MariaDBFor(t, testdb.MariaDBOptions{})
	s := testSource(t, m, SourceOptions{})
	execSQL(t, m, "CREATE DATABASE d", "CREATE TABLE d.t (id INT PRIMARY KEY)")
	from := now(t, s)
	execSQL(t, m, "USE d", "INSERT INTO t VALUES (1)", "FLUSH BINARY LOGS", "SET SESSION gtid_domain_id=7", "BEGIN", "INSERT INTO t VALUES (2)", "INSERT INTO t VALUES (3)", "COMMIT",
		"CREATE TABLE u (id INT PRIMARY KEY)", "FLUSH BINARY LOGS", "SET SESSION gtid_domain_id=0", "INSERT INTO u VALUES (1)", "SET SESSION gtid_domain_id=7", "DELETE FROM t")
	groups := readTo(t, s, from, wantSchema("d"))
	if len(groups) != 5 {
		t.Fatalf("got %d groups, want 5", len(groups))
	}
	for i, g := range groups {
		for _, at := range []change.Position{g.Start, g.End} {
			want := groups[i:]
			if at == g.End {
				want = groups[i+1:]
			}
			p, err := change.ParsePosition(at.String())
			if err != nil {
				t.Fatal(err)
			}
			got := readTo(t, s, p, wantSchema("d"))
			if show(t, s, got) != show(t, s, want) {
				t.Errorf("from %v: got %s, want %s", at, show(t, s, got), show(t, s, want))
			}
			for j := range want {
				if got[j].End != want[j].End || got[j].Start.Order != want[j].Start.Order {
					t.Errorf("from %v: got a group from %v to %v, want %v to %v", at, got[j].Start, got[j].End, want[j].Start, want[j].End)
				}
			}
		}
	}
}

func TestL19L21PositionsThatAreNotInTheLog(t *testing.T) {
	m := testdb.MariaDBFor(t, testdb.MariaDBOptions{ServerID: 77})
	s := testSource(t, m, SourceOptions{})
	execSQL(t, m, "CREATE DATABASE d", "CREATE TABLE d.t (id INT PRIMARY KEY)")
	first := now(t, s)
	execSQL(t, m, "INSERT INTO d.t VALUES (1)", "FLUSH BINARY LOGS", "INSERT INTO d.t VALUES (2)")
	second := now(t, s)
	fails := func(name string, at change.Position, want error) {
		t.Helper()
		st, err := s.Open(testContext(t), at, wantSchema("d"))
		if err == nil {
			st.Close()
		}
		if !errors.Is(err, want) || change.ClassOf(err) != change.SourceWide {
			t.Errorf("%s: got error %v, want %v of class source-wide", name, err, want)
		}
	}
	inside := second
	inside.Token = strings.Replace(inside.Token, ":0-", "9:0-", 1)
	fails("an offset behind the end", inside, change.ErrHistory)
	at, err := parseToken(second.Token)
	if err != nil {
		t.Fatal(err)
	}
	inside.Token = fmt.Sprintf("%s:%d:%s", at.file, at.offset-3, at.gtid)
	fails("an offset inside an event", inside, change.ErrHistory)
	other := second
	other.History = "mariadb:78:binlog"
	fails("another server id", other, change.ErrHistory)
	purge(t, m, at.file)
	fails("a purged file", first, change.ErrLogGone)

	// The log is reset and grows past the old position: the GTIDs tell.
	execSQL(t, m, "RESET MASTER", "FLUSH BINARY LOGS")
	for range 20 {
		execSQL(t, m, "SET SESSION gtid_seq_no=100", "DELETE FROM d.t", "INSERT INTO d.t VALUES (1)")
	}
	fails("a reset log", second, change.ErrHistory)
	fresh := testdb.MariaDBFor(t, testdb.MariaDBOptions{ServerID: 77})
	s = testSource(t, fresh, SourceOptions{})
	execSQL(t, fresh, "FLUSH BINARY LOGS", "CREATE DATABASE d", "CREATE TABLE d.t (id INT PRIMARY KEY)", "INSERT INTO d.t VALUES (1)")
	fails("another server with the same id", second, change.ErrHistory)
}

// purge removes log files up to one; the server keeps those that its engines may
// still need for a moment.
func purge(t *testing.T, m *testdb.MariaDB, to string) {
	t.Helper()
	for range 1000 {
		execSQL(t, m, "PURGE BINARY LOGS TO '"+to+"'")
		rows, err := m.Query(testContext(t), "SHOW BINARY LOGS")
		if err != nil {
			t.Fatal(err)
		}
		if rows[0][0] == to {
			return
		}
		execSQL(t, m, "FLUSH BINARY LOGS")
	}
	t.Fatalf("the log files before %s stay", to)
}

// TestL26SpilledGroup: the rows of a large group lie in a file and decode the
// same, also after the stream is closed.
func TestL26SpilledGroup(t *testing.T) {
	m := testdb.MariaDBFor(t, testdb.MariaDBOptions{})
	dir := t.TempDir()
	s := testSource(t, m, SourceOptions{SpillBytes: 64 << 10, SpillDir: dir})
	execSQL(t, m, "CREATE DATABASE d", "CREATE TABLE d.t (id INT PRIMARY KEY, v VARCHAR(200))")
	from := now(t, s)
	execSQL(t, m, "USE d", "BEGIN", "INSERT INTO t SELECT seq, REPEAT('x',100) FROM seq_1_to_10000", "DELETE FROM t WHERE id>9990", "COMMIT")
	groups := readTo(t, s, from, wantSchema("d"))
	if len(groups) != 1 {
		t.Fatalf("got %d groups, want 1", len(groups))
	}
	if got, limit := groups[0].SizeBytes, 128<<10; got > limit {
		t.Errorf("the group keeps %d bytes in memory, want at most %d", got, limit)
	}
	if left, err := filepath.Glob(filepath.Join(dir, "*")); err != nil || len(left) != 0 {
		t.Errorf("got files %v and error %v, want none that a crash would leave behind", left, err)
	}
	l := layouts(t, s, change.TableID{Schema: "d", Name: "t"})[change.TableID{Schema: "d", Name: "t"}]
	inserts, deletes := 0, 0
	for _, e := range groups[0].Events {
		err := e.Rows.Decode(l, new(change.Arena), func(c change.Change) error {
			if c.Op == change.Delete {
				deletes++
				return nil
			}
			inserts++
			if got := int(c.After[0].Num); got != inserts || len(c.After[1].Data) != 100 {
				return fmt.Errorf("got row %d with %d bytes, want row %d with 100", got, len(c.After[1].Data), inserts)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if inserts != 10000 || deletes != 10 {
		t.Errorf("got %d inserts and %d deletes, want 10000 and 10", inserts, deletes)
	}
}

// TestL26SpillDirIsGone: an unusable directory is an error that names it.
func TestL26SpillDirIsGone(t *testing.T) {
	m := testdb.MariaDBFor(t, testdb.MariaDBOptions{})
	dir := filepath.Join(t.TempDir(), "missing")
	s := testSource(t, m, SourceOptions{SpillBytes: 1 << 10, SpillDir: dir})
	execSQL(t, m, "CREATE DATABASE d", "CREATE TABLE d.t (id INT PRIMARY KEY, v VARCHAR(200))")
	from := now(t, s)
	execSQL(t, m, "USE d", "INSERT INTO t SELECT seq, REPEAT('x',100) FROM seq_1_to_100")
	_, err := open(t, s, from, wantSchema("d")).Next(testContext(t))
	if !errors.Is(err, os.ErrNotExist) || !strings.Contains(err.Error(), dir) || change.ClassOf(err) != change.SourceWide {
		t.Errorf("got error %v of class %s, want one about %s of class source-wide", err, change.ClassOf(err), dir)
	}
}

// TestL27LargeRow: one row event spans several packets.
func TestL27LargeRow(t *testing.T) {
	m := testdb.MariaDBFor(t, testdb.MariaDBOptions{})
	s := testSource(t, m, SourceOptions{})
	execSQL(t, m, "CREATE DATABASE d", "CREATE TABLE d.t (id INT PRIMARY KEY, b LONGBLOB)")
	from := now(t, s)
	execSQL(t, m, "INSERT INTO d.t VALUES (1, REPEAT('a', 40*1024*1024)), (2, 'small')", "UPDATE d.t SET id=3 WHERE id=1",
		"INSERT INTO d.t VALUES (4, REPEAT('b', 16777215-100))")
	l := layouts(t, s, change.TableID{Schema: "d", Name: "t"})[change.TableID{Schema: "d", Name: "t"}]
	var got []string
	for _, g := range readTo(t, s, from, wantSchema("d")) {
		for _, e := range g.Events {
			err := e.Rows.Decode(l, new(change.Arena), func(c change.Change) error {
				b := c.After[1].Data
				got = append(got, fmt.Sprintf("%d:%d:%c%c", c.After[0].Num, len(b), b[0], b[len(b)-1]))
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	if want := "[1:41943040:aa 2:5:sl 3:41943040:aa 4:16777115:bb]"; fmt.Sprint(got) != want {
		t.Errorf("got %v, want %v", got, want)
	}
	// The copy path reads the same rows; wide rows end a chunk early.
	if rows := readChunks(t, s, l, 100); len(rows) != 3 || len(rows[1][1].Data) != 40<<20 {
		t.Errorf("got %d rows by chunks, want 3", len(rows))
	}
}

// TestL02KilledDump: the server ends the dump; a new stream at the last end goes
// on without gap.
func TestL02KilledDump(t *testing.T) {
	m := testdb.MariaDBFor(t, testdb.MariaDBOptions{})
	s := testSource(t, m, SourceOptions{})
	execSQL(t, m, "CREATE DATABASE d", "CREATE TABLE d.t (id INT PRIMARY KEY)")
	st := open(t, s, now(t, s), wantSchema("d"))
	execSQL(t, m, "INSERT INTO d.t VALUES (1)")
	g := next(t, st)
	rows, err := m.Query(testContext(t), "SELECT ID FROM information_schema.PROCESSLIST WHERE COMMAND='Binlog Dump'")
	if err != nil || len(rows) != 1 {
		t.Fatalf("got dump threads %v and error %v, want one", rows, err)
	}
	execSQL(t, m, "KILL "+rows[0][0])
	if g, err := st.Next(testContext(t)); err == nil {
		t.Fatalf("got group %v from a killed dump, want an error", g)
	} else if change.ClassOf(err) != change.Transient {
		t.Errorf("got error %v of class %s, want transient", err, change.ClassOf(err))
	}
	execSQL(t, m, "INSERT INTO d.t VALUES (2)")
	if got, want := show(t, s, readTo(t, s, g.End, wantSchema("d"))), "insert t (2)\nend\n"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// TestL28DeadLink: a link that gives nothing is an error after some heartbeats.
func TestL28DeadLink(t *testing.T) {
	m := testdb.MariaDBFor(t, testdb.MariaDBOptions{})
	p := testdb.ProxyFor(t, m.Addr())
	s, err := NewSource(Config{Addr: p.Addr(), User: "root"}, SourceOptions{Heartbeat: 100 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	st := open(t, s, now(t, s), wantSchema("d"))
	execSQL(t, m, "CREATE DATABASE d")
	next(t, st)
	p.Stall(true)
	defer p.Stall(false)
	_, err = st.Next(testContext(t))
	if !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("got %v, want an error that says the link is silent", err)
	}
}

func TestStreamEndsWithContextAndClose(t *testing.T) {
	m := testdb.MariaDBFor(t, testdb.MariaDBOptions{})
	s := testSource(t, m, SourceOptions{})
	at := now(t, s)
	ctx, cancel := context.WithCancel(t.Context())
	st, err := s.Open(ctx, at, wantSchema("d"))
	if err != nil {
		t.Fatal(err)
	}
	short, cancelShort := context.WithCancel(t.Context())
	cancelShort()
	if _, err := st.Next(short); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v from Next with an ended context, want its error", err)
	}
	cancel()
	if _, err := st.Next(testContext(t)); !errors.Is(err, errStreamClosed) {
		t.Errorf("got %v after the stream's context ended, want errStreamClosed", err)
	}
	if err := st.Close(); err != nil {
		t.Error(err)
	}
	if err := st.Close(); err != nil {
		t.Error(err)
	}
	if _, err := st.Next(testContext(t)); !errors.Is(err, errStreamClosed) {
		t.Errorf("got %v after Close, want errStreamClosed", err)
	}
}

// TestFilterChangeLosesNothing: rows that were read ahead before a table was
// wanted come when it is, also those of a group that was prepared before.
func TestFilterChangeLosesNothing(t *testing.T) {
	m := testdb.MariaDBFor(t, testdb.MariaDBOptions{})
	s := testSource(t, m, SourceOptions{})
	execSQL(t, m, "CREATE DATABASE d", "CREATE TABLE d.a (id INT PRIMARY KEY)", "CREATE TABLE d.b (id INT PRIMARY KEY)")
	from := now(t, s)
	execSQL(t, m, "USE d", "INSERT INTO a VALUES (1)", "XA START 'x'", "INSERT INTO b VALUES (10)", "XA END 'x'", "XA PREPARE 'x'")
	execSQL(t, m, "USE d", "INSERT INTO a VALUES (2)", "XA COMMIT 'x'", "INSERT INTO b VALUES (11)", "INSERT INTO a VALUES (3)")
	f := &testFilter{}
	wanted := map[string]bool{"a": true}
	f.wants = func(t change.TableID) bool { return wanted[t.Name] }
	st := open(t, s, from, f)
	groups := []*change.Group{next(t, st), next(t, st), next(t, st)} // 1, prepare, 2
	r := st.(*stream).mu.reader
	for r.queue.length() < 3 { // the rest is read ahead
		<-r.queue.ready
	}
	r.stop() // the filter's map is not made for two goroutines
	wanted["b"] = true
	f.generation.Add(1)
	for range 3 {
		groups = append(groups, next(t, st))
	}
	want := "insert a (1)\nend\ninsert a (2)\nend\ninsert b (10)\nend\ninsert b (11)\nend\ninsert a (3)\nend\n"
	if got := show(t, s, groups); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func (q *queue) length() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.mu.items) - q.mu.head
}

// TestRowsBehindCreate: rows that follow the CREATE or RENAME of a table that a
// pattern matches are delivered before the filter wants the table.
func TestRowsBehindCreate(t *testing.T) {
	m := testdb.MariaDBFor(t, testdb.MariaDBOptions{})
	s := testSource(t, m, SourceOptions{})
	execSQL(t, m, "CREATE DATABASE d", "CREATE TABLE d.x (id INT PRIMARY KEY)")
	from := now(t, s)
	execSQL(t, m, "USE d", "INSERT INTO x VALUES (0)", "CREATE TABLE new1 (id INT PRIMARY KEY)", "INSERT INTO new1 VALUES (1)",
		"CREATE TABLE old (id INT PRIMARY KEY)", "INSERT INTO old VALUES (7)", "RENAME TABLE x TO new2", "INSERT INTO new2 VALUES (2)")
	f := &testFilter{
		wants:    func(change.TableID) bool { return false },
		wantsNew: func(t change.TableID) bool { return strings.HasPrefix(t.Name, "new") },
	}
	want := "create-table [d.new1]\nend\ninsert new1 (1)\nend\nrename-table [d.new2] d.x>d.new2\nend\ninsert new2 (2)\nend\n"
	if got := show(t, s, readTo(t, s, from, f)); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// TestL23TwoReaders: readers of one server do not end each other.
func TestL23TwoReaders(t *testing.T) {
	m := testdb.MariaDBFor(t, testdb.MariaDBOptions{})
	s, other := testSource(t, m, SourceOptions{}), testSource(t, m, SourceOptions{})
	from := now(t, s)
	streams := []change.Stream{open(t, s, from, wantSchema("d")), open(t, s, from, wantSchema("d")), open(t, other, from, wantSchema("d"))}
	for i := range 3 {
		execSQL(t, m, fmt.Sprintf("CREATE DATABASE d%d", i))
		for _, st := range streams {
			next(t, st)
		}
	}
}

// TestD01RenamedColumn: with names in the log, a layout from before a rename does
// not fit.
func TestD01RenamedColumn(t *testing.T) {
	m := testdb.MariaDBFor(t, testdb.MariaDBOptions{RowMetadata: "FULL"})
	s := testSource(t, m, SourceOptions{})
	execSQL(t, m, "CREATE DATABASE d", "CREATE TABLE d.t (id INT PRIMARY KEY, a INT, b INT)")
	id := change.TableID{Schema: "d", Name: "t"}
	before, from := layouts(t, s, id)[id], now(t, s)
	execSQL(t, m, "INSERT INTO d.t VALUES (1,2,3)", "ALTER TABLE d.t RENAME COLUMN a TO c", "INSERT INTO d.t VALUES (4,5,6)")
	after := layouts(t, s, id)[id]
	groups := readTo(t, s, from, wantSchema("d"))
	for i, c := range []struct {
		group int
		l     *change.Layout
		want  error
	}{{0, before, nil}, {0, after, change.ErrLayout}, {2, before, change.ErrLayout}, {2, after, nil}} {
		err := groups[c.group].Events[0].Rows.Decode(c.l, new(change.Arena), func(change.Change) error { return nil })
		if !errors.Is(err, c.want) {
			t.Errorf("case %d: got %v, want %v", i, err, c.want)
		}
	}
}

// TestPrefetchIsBounded: a reader that is not asked for groups stops reading.
func TestPrefetchIsBounded(t *testing.T) {
	m := testdb.MariaDBFor(t, testdb.MariaDBOptions{})
	s := testSource(t, m, SourceOptions{PrefetchBytes: 10 << 10})
	execSQL(t, m, "CREATE DATABASE d", "CREATE TABLE d.t (id INT PRIMARY KEY, v VARCHAR(2000))")
	from := now(t, s)
	var sql []string
	for i := range 200 {
		sql = append(sql, fmt.Sprintf("INSERT INTO d.t VALUES (%d, REPEAT('x',1000))", i))
	}
	execSQL(t, m, sql...)
	st := open(t, s, from, wantSchema("d"))
	for i := range 200 {
		next(t, st)
		if got := st.(*stream).mu.reader.queue.length(); got > 12 {
			t.Fatalf("after %d groups %d are read ahead, want at most 12", i+1, got)
		}
	}
}
