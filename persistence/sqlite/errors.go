package sqlite

import (
	"errors"
	"fmt"

	"modernc.org/sqlite"
	lib "modernc.org/sqlite/lib"

	"github.com/runnel-dev/runnel/persistence"
)

// classify adds the sentinel that callers branch on to an error of the driver.
func (s *Store) classify(err error) error {
	var se *sqlite.Error
	if !errors.As(err, &se) {
		return err
	}
	with := func(sentinel error, remedy string) error {
		return fmt.Errorf("%w in %s: %w; %s", sentinel, s.dir, err, remedy)
	}
	switch se.Code() & 0xff {
	case lib.SQLITE_FULL:
		return with(persistence.ErrFull, "free space; writing goes on by itself")
	case lib.SQLITE_READONLY, lib.SQLITE_CANTOPEN, lib.SQLITE_PERM:
		return with(persistence.ErrReadOnly, "make the directory and its files writable for this user")
	case lib.SQLITE_BUSY, lib.SQLITE_LOCKED:
		return with(persistence.ErrBusy, "another program has the database open; close it")
	case lib.SQLITE_CORRUPT, lib.SQLITE_NOTADB:
		return with(persistence.ErrCorrupt, "restore the directory from a backup")
	case lib.SQLITE_IOERR:
		return fmt.Errorf("%w in %s: %w; look at the disk, then start again", persistence.ErrUnknownOutcome, s.dir, err)
	}
	return err
}

// fatal reports whether the writer must stop: what is on disk is not known.
func fatal(err error) bool {
	return errors.Is(err, persistence.ErrCorrupt) || errors.Is(err, persistence.ErrUnknownOutcome)
}
