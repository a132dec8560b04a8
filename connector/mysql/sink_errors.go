package mysql

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/go-mysql-org/go-mysql/mysql"

	"github.com/runnel-dev/runnel/change"
)

// Server error numbers that the sink branches on.
const (
	codeDuplicateKey   = 1062
	codeNoDatabase     = 1049
	codeDatabaseExists = 1007
	codeNoTable        = 1146
	codeTableExists    = 1050
	codeLockTimeout    = 1205
	codeDeadlock       = 1213
	codeBadVariable    = 1231
	codeVersioned      = 4137 // MariaDB: no TRUNCATE of a table with system versioning
)

// codeClass says what each server error means for the sink. Errors that are not
// listed are Transient: tried again with backoff, and shown.
var codeClass = map[uint16]change.Class{
	// One row does not fit.
	1048: change.PermanentRow, // NULL in a NOT NULL column
	1062: change.PermanentRow, // duplicate key
	1118: change.PermanentRow, // row too large
	1169: change.PermanentRow, // unique constraint
	1216: change.PermanentRow, // foreign key, child
	1217: change.PermanentRow, // foreign key, parent
	1264: change.PermanentRow, // out of range
	1265: change.PermanentRow, // data truncated
	1292: change.PermanentRow, // incorrect value
	1300: change.PermanentRow, // invalid character string
	1366: change.PermanentRow, // incorrect value, character set
	1367: change.PermanentRow, // illegal value found during parsing
	1406: change.PermanentRow, // too long
	1416: change.PermanentRow, // not a geometry
	1451: change.PermanentRow, // foreign key, parent
	1452: change.PermanentRow, // foreign key, child
	1525: change.PermanentRow, // incorrect value of a type
	1526: change.PermanentRow, // no partition for value
	1644: change.PermanentRow, // a trigger refused the row
	1690: change.PermanentRow, // value out of range
	3140: change.PermanentRow, // invalid JSON
	3819: change.PermanentRow, // CHECK constraint, MySQL
	4025: change.PermanentRow, // CHECK constraint, MariaDB

	// The table, its columns or our rights to it are not what the task needs.
	1036: change.PermanentTask, // table is read only
	1044: change.PermanentTask, // no access to the database
	1049: change.PermanentTask, // unknown database
	1050: change.PermanentTask, // something else has the table's name
	1051: change.PermanentTask, // unknown table
	1054: change.PermanentTask, // unknown column
	1064: change.PermanentTask, // syntax
	1091: change.PermanentTask, // no such column or key to drop
	1114: change.TargetWide,    // table full: the tablespace has no room
	1136: change.PermanentTask, // column count
	1142: change.PermanentTask, // no privilege on the table
	1143: change.PermanentTask, // no privilege on the column
	1146: change.PermanentTask, // no such table
	1197: change.PermanentTask, // transaction larger than the binlog cache
	1227: change.PermanentTask, // a privilege is missing
	1288: change.PermanentTask, // not updatable (a view)
	1347: change.PermanentTask, // not a base table
	1348: change.PermanentTask, // column not updatable
	1364: change.PermanentTask, // a column that the source lacks has no default
	1370: change.PermanentTask, // no privilege on a routine
	1442: change.PermanentTask, // a trigger touches its own table
	1906: change.PermanentTask, // generated column, MariaDB
	3105: change.PermanentTask, // generated column, MySQL

	// The server as a whole.
	1021: change.TargetWide, // disk full
	1026: change.TargetWide, // error writing file
	1030: change.TargetWide, // storage engine error
	1040: change.TargetWide, // too many connections
	1041: change.TargetWide, // out of memory
	1045: change.TargetWide, // access denied
	1047: change.TargetWide, // cluster node not ready
	1129: change.TargetWide, // host blocked
	1130: change.TargetWide, // host not allowed
	1203: change.TargetWide, // too many connections of the user
	1226: change.TargetWide, // resource limit of the user
	1290: change.TargetWide, // read_only and the like
	1698: change.TargetWide, // access denied
	1792: change.TargetWide, // read-only transaction
	1836: change.TargetWide, // read-only mode
	3170: change.TargetWide, // memory limit
}

// classed gives err the class that the engine needs. An error that has one keeps
// it, a Problem is PermanentTask, and whatever ended because ctx did stays
// Transient.
func classed(err error) error {
	if err == nil {
		return nil
	}
	var ce *change.ClassError
	if errors.As(err, &ce) {
		return err
	}
	var p *change.Problem
	if errors.As(err, &p) {
		return change.WithClass(change.PermanentTask, err)
	}
	if class, ok := codeClass[serverCode(err)]; ok {
		return change.WithClass(class, err)
	}
	return change.WithClass(change.Transient, err)
}

// classed is the function of this name, and knows the errors that say that one of
// our own tables is gone.
func (s *Sink) classed(err error) error {
	var me *mysql.MyError
	if !errors.As(err, &me) || me.Code != codeNoTable || errors.Is(err, change.ErrStateGone) {
		return classed(err)
	}
	text := strings.ToLower(me.Message) // Table 'runnel.fence' doesn't exist
	for _, name := range []string{"fence", "checkpoint", "chunk", "layout", "owner"} {
		if strings.Contains(text, strings.ToLower("'"+s.opts.Schema+"."+name+"'")) {
			return change.WithClass(change.PermanentTask, fmt.Errorf("%w: %w", change.ErrStateGone, err))
		}
	}
	return classed(err)
}

// repeatable reports an error that the same transaction, done anew, may not meet:
// the transaction is gone and nothing of it was committed.
func repeatable(err error) bool {
	switch serverCode(err) {
	case codeDeadlock, 1020, 1158, 1159, 1160, 1161, 1317, 1412, 1615, 1927, 1180, 4031:
		return true
	case 1053: // the server shuts down
		return true
	case 0: // no answer of the server: the connection broke
		var p *change.Problem
		class := change.Transient
		if ce := (*change.ClassError)(nil); errors.As(err, &ce) {
			class = ce.Class
		}
		return !errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded) &&
			!errors.As(err, &p) && !ended(err) && class != change.PermanentRow && class != change.PermanentTask
	}
	return false
}

// ended reports the errors that no repetition changes: the caller decides.
func ended(err error) bool {
	for _, e := range []error{
		change.ErrDeposed, change.ErrOwnedElsewhere, change.ErrUnknownOutcome, change.ErrCheckpointMoved,
		errSinkClosed, errAbsent, errBadValue, errNoCharset,
	} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// RowError tells which of the given rows or changes an error is about.
type RowError struct {
	Index int // of ChunkLoad.Rows or Batch.Changes, from 0
	Err   error
}

func (e *RowError) Error() string { return fmt.Sprintf("row %d: %v", e.Index, e.Err) }
func (e *RowError) Unwrap() error { return e.Err }

// rowError makes an error of class PermanentRow about one row.
func rowError(index int, err error) error {
	return change.WithClass(change.PermanentRow, &RowError{index, err})
}

// rowIndex is the index in a RowError, -1 when err holds none.
func rowIndex(err error) int {
	var re *RowError
	if errors.As(err, &re) {
		return re.Index
	}
	return -1
}

// problemError is a Problem that the engine also finds with errors.Is.
type problemError struct {
	*change.Problem
	is error
}

func (e *problemError) Unwrap() []error { return []error{e.Problem, e.is} }
