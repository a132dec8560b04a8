// Package testdb runs private MariaDB and PostgreSQL servers for tests and for
// the demo, and puts a faulty network in front of them.
//
// # What
//
// [StartMariaDB] and [StartPostgres] each start one server process of the
// programs installed on this machine, on a loopback port of its own, in a
// directory of its own, and return when the server answers a query. Nothing is
// shared with a server the machine may already run. The first start on a machine
// builds a pristine data directory and keeps it in the user's cache directory;
// later starts copy it, which takes a fraction of a second.
//
// # Usage
//
//	db := testdb.MariaDBFor(t, testdb.MariaDBOptions{RowMetadata: "FULL"})
//	err := db.Exec(t.Context(), "CREATE DATABASE shop", "CREATE TABLE shop.t (id INT PRIMARY KEY)")
//
// The superuser (root, or postgres) has an empty password from 127.0.0.1. The
// programs are looked for in PATH and in the places distributions put them;
// RUNNEL_MARIADBD, RUNNEL_MARIADB_INSTALL_DB, RUNNEL_MARIADB_DUMP and
// RUNNEL_PG_BIN (a directory) override that.
//
// # Concurrency
//
// Every function and method may be called from several goroutines, and many
// processes may start servers at the same time: ports are reserved across
// processes, the cached data directory is built once under a file lock and
// appears by rename.
//
// # Failure
//
// A missing program is [ErrNotInstalled], with the command that installs it. A
// server that does not come up is an error with the end of its log.
//
// A server never outlives the process that started it. On Linux the kernel kills
// it when that process dies; everywhere a record of each server is kept, and the
// next start in any process ends the servers of dead owners and removes their
// temporary directories. A record is trusted only as far as the process behind
// its number still carries the recorded data directory on its command line.
//
// Servers are tuned for speed and survive the kill of their process, not a
// crash of the machine.
//
// # Testing
//
// The tests run the real servers, including one whose owner is killed.
package testdb
