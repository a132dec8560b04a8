package change

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
)

// TableID names a table at its source or target. On PostgreSQL Schema is the
// schema; on MySQL and MariaDB it is the database.
type TableID struct {
	Schema string `json:"schema"`
	Name   string `json:"name"`
}

// String is for people: schema.name, unquoted.
func (t TableID) String() string { return t.Schema + "." + t.Name }

// Column is one column of a Layout, in table order.
type Column struct {
	Name string `json:"name"`
	// Type is the connector's full declared type, lower case, with its arguments
	// and attributes: "decimal(10,2) unsigned", "varchar(20)", "enum('a','b')".
	Type string `json:"type"`
	// Base is the type's first word: "decimal", "varchar", "enum", "uuid".
	Base string `json:"base"`
	// Charset is the character set of text columns, "" for all others.
	Charset string `json:"charset,omitempty"`
	// Collation is the collation of text columns, "" for all others.
	Collation string `json:"collation,omitempty"`
	Unsigned  bool   `json:"unsigned,omitempty"`
	Nullable  bool   `json:"nullable,omitempty"`
	// Generated columns are computed by each server: the log and the copy may
	// carry them, a sink never writes them.
	Generated bool `json:"generated,omitempty"`
	// Hidden columns travel in the log but are no part of the table for its users
	// (MariaDB's DB_ROW_HASH_n, row start and row end).
	Hidden bool `json:"hidden,omitempty"`
	// Compressed marks MariaDB's COMPRESSED attribute.
	Compressed bool `json:"compressed,omitempty"`
	// Labels are the members of ENUM and SET, in order, in UTF-8.
	Labels []string `json:"labels,omitempty"`
	// LengthBytes is the maximum length in bytes of character and binary columns,
	// 0 when it does not apply. BINARY(n) is padded with zero bytes to it.
	LengthBytes int `json:"length_bytes,omitempty"`
	// Scale is the number of fractional digits of decimal and temporal columns.
	Scale int `json:"scale,omitempty"`
}

// Index is a unique index other than the key.
type Index struct {
	Name    string `json:"name"`
	Columns []int  `json:"columns"` // ordinals into Layout.Columns
	// Prefix is true where only a prefix of a column is indexed.
	Prefix bool `json:"prefix,omitempty"`
}

// Layout is the definition of one table as it was at one position of its
// source's log. It is immutable once built; share it by pointer.
type Layout struct {
	Table   TableID  `json:"table"`
	Columns []Column `json:"columns"`
	// Key holds the ordinals of the primary key (or of the unique not-null key
	// that serves as one), in key order. Empty: the table has no usable key.
	Key []int `json:"key"`
	// Unique lists the other unique indexes. Their presence keeps row order.
	Unique []Index `json:"unique,omitempty"`
	// Engine is the storage engine as declared: "InnoDB".
	Engine string `json:"engine,omitempty"`
	// Definition is the statement that creates the table at the source.
	Definition string `json:"definition,omitempty"`
}

// Fingerprint identifies columns, key and unique indexes (not Table, Engine or
// Definition): equal fingerprints mean that rows decode and apply alike.
func (l *Layout) Fingerprint() string {
	b, err := json.Marshal(struct {
		C []Column
		K []int
		U []Index
	}{l.Columns, l.Key, l.Unique})
	if err != nil {
		return "invalid:" + err.Error() // unreachable: plain data always encodes
	}
	h := sha256.Sum256(b)
	return hex.EncodeToString(h[:16])
}

// Ordinal returns the index of the named column, or -1.
func (l *Layout) Ordinal(name string) int {
	for i := range l.Columns {
		if l.Columns[i].Name == name {
			return i
		}
	}
	return -1
}
