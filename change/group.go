package change

import "time"

// Group is the changes that were logged together: a transaction, or one DDL
// statement. It is delivered only when its end is in the log: a rolled-back
// change is never in a group. It may have no events (nobody captures its tables):
// it still moves the frontier.
type Group struct {
	// Start is a position from which a reader sees the whole group.
	Start Position
	// End is the position of the event that ended the group. Checkpoints are ends.
	End Position
	// OpenFrom is the lowest Start of the groups that are still open at End (XA
	// prepared, not yet committed or rolled back); zero when there is none. The
	// log must be kept from there.
	OpenFrom Position
	// CommitTime is when the source committed, in the source's clock. Its
	// resolution is the connector's (a second on MySQL and MariaDB).
	CommitTime time.Time
	// ReadTime is when this process got the group's end.
	ReadTime time.Time
	// Events are in log order and concern only captured tables.
	Events []Event
	// SizeBytes is the memory that Events keep alive.
	SizeBytes int
	// Own is true when a Runnel sink wrote the group (it touches a checkpoint
	// table). Its events are left out unless the stream was asked to relay them.
	Own bool
}

// Event is either rows of one table or a statement.
type Event struct {
	// Table is the table of Rows; zero for a Statement.
	Table     TableID
	Rows      RowBlock   // nil for a statement
	Statement *Statement // nil for rows
}

// RowBlock is one log event's rows of one table, still encoded. Blocks are
// immutable; different blocks may be decoded concurrently.
type RowBlock interface {
	// SizeBytes is the memory the block keeps alive.
	SizeBytes() int
	// Decode calls emit for each change in log order. The Change and its images
	// come from the arena or from the block: valid until both are gone. A layout
	// that does not fit the block gives ErrLayout; damaged bytes give an error of
	// class PermanentTask. emit's error ends the decoding and is returned.
	Decode(l *Layout, a *Arena, emit func(Change) error) error
}

// StatementKind classes a logged statement.
type StatementKind string

// The statement kinds.
const (
	CreateTable   StatementKind = "create-table"
	AlterTable    StatementKind = "alter-table" // also CREATE/DROP INDEX
	DropTable     StatementKind = "drop-table"
	RenameTable   StatementKind = "rename-table"
	TruncateTable StatementKind = "truncate-table"
	DropSchema    StatementKind = "drop-schema"
	// RowsByStatement is a data change logged as text: its rows are unknowable.
	RowsByStatement StatementKind = "rows-by-statement"
	// LostRows says that rows changed without row events (partition exchange or
	// truncate, an incident marker, a partial row image).
	LostRows StatementKind = "lost-rows"
	// NotUnderstood names captured tables as tokens but could not be read.
	NotUnderstood StatementKind = "not-understood"
)

// Statement is a logged statement that concerns captured tables.
type Statement struct {
	Kind StatementKind
	// DefaultSchema is the session's database when the statement ran.
	DefaultSchema string
	SQL           string
	// Tables are the captured tables concerned, names resolved. Empty with
	// LostRows means every table of the source. DropSchema names the schema, with
	// an empty Name: a source does not know which tables of it are captured.
	Tables []TableID
	// Renames holds old and new names of RENAME and ALTER … RENAME, in order.
	Renames []Rename
	// SQLMode is the session's sql_mode as the server's text, "" when unknown.
	SQLMode string
	// Timestamp is when the statement began at the source, in seconds since 1970
	// with a fraction: what its current time was. "" when unknown.
	Timestamp string
	// TimeZone is the session's time zone where the statement depends on it, as an
	// offset or a name; "" otherwise.
	TimeZone string
	// Volatile: the statement computes values that differ each time it runs (a
	// random number, a UUID, the user's name).
	Volatile bool
}

// Rename is one table's old and new name.
type Rename struct{ From, To TableID }
