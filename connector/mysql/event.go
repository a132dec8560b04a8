package mysql

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"

	"github.com/runnel-dev/runnel/change"
)

// Event types of the binary log, MySQL's and MariaDB's (from 160).
const (
	evUnknown            = 0
	evStartV3            = 1
	evQuery              = 2
	evStop               = 3
	evRotate             = 4
	evIntvar             = 5
	evSlave              = 7
	evAppendBlock        = 9
	evDeleteFile         = 11
	evRand               = 13
	evUserVar            = 14
	evFormatDescription  = 15
	evXID                = 16
	evBeginLoadQuery     = 17
	evExecuteLoadQuery   = 18
	evTableMap           = 19
	evWriteRowsV1        = 23
	evUpdateRowsV1       = 24
	evDeleteRowsV1       = 25
	evIncident           = 26
	evHeartbeat          = 27
	evIgnorable          = 28
	evRowsQuery          = 29
	evWriteRowsV2        = 30
	evUpdateRowsV2       = 31
	evDeleteRowsV2       = 32
	evGTID               = 33
	evAnonymousGTID      = 34
	evPreviousGTIDs      = 35
	evTransactionContext = 36
	evViewChange         = 37
	evXAPrepare          = 38
	evPartialUpdateRows  = 39
	evTransactionPayload = 40
	evHeartbeatV2        = 41
	evGTIDTagged         = 42

	evAnnotateRows       = 160
	evBinlogCheckpoint   = 161
	evMariaGTID          = 162
	evMariaGTIDList      = 163
	evStartEncryption    = 164
	evQueryCompressed    = 165
	evWriteCompressedV1  = 166
	evUpdateCompressedV1 = 167
	evDeleteCompressedV1 = 168
	evWriteCompressedV2  = 169
	evUpdateCompressedV2 = 170
	evDeleteCompressedV2 = 171
)

const (
	eventHeaderBytes = 19
	checksumBytes    = 4

	flagArtificial = 0x20
	flagIgnorable  = 0x80
)

// errDamaged says that bytes of the log are not what their type promises.
var errDamaged = errors.New("damaged log event")

// event is one event with its header read. body has no checksum.
type event struct {
	timestamp uint32
	kind      byte
	serverID  uint32
	size      uint32 // as it lies in the log, checksum included
	logPos    uint32 // of the event's end, 0 when the server does not say
	flags     uint16
	body      []byte
}

// parseHeader reads the header; body is everything behind it.
func parseHeader(b []byte) (event, error) {
	if len(b) < eventHeaderBytes {
		return event{}, fmt.Errorf("read event header of %d bytes: %w", len(b), errDamaged)
	}
	e := event{
		timestamp: binary.LittleEndian.Uint32(b),
		kind:      b[4],
		serverID:  binary.LittleEndian.Uint32(b[5:]),
		size:      binary.LittleEndian.Uint32(b[9:]),
		logPos:    binary.LittleEndian.Uint32(b[13:]),
		flags:     binary.LittleEndian.Uint16(b[17:]),
		body:      b[eventHeaderBytes:],
	}
	if int64(e.size) != int64(len(b)) {
		return event{}, fmt.Errorf("read event of type %d: it says %d bytes and has %d: %w", e.kind, e.size, len(b), errDamaged)
	}
	return e, nil
}

// artificial reports whether the server made the event for this connection: it is
// not in the log and moves no position.
func (e *event) artificial() bool {
	return e.flags&flagArtificial != 0 || e.kind == evHeartbeat || e.kind == evHeartbeatV2 ||
		e.logPos == 0 && (e.kind == evRotate && e.timestamp == 0 || e.kind == evFormatDescription)
}

// trimChecksum verifies and removes the checksum of a whole event b.
func trimChecksum(b []byte) ([]byte, error) {
	at := len(b) - checksumBytes
	if at < eventHeaderBytes {
		return nil, fmt.Errorf("read checksum of event of %d bytes: %w", len(b), errDamaged)
	}
	got, want := crc32.ChecksumIEEE(b[:at]), binary.LittleEndian.Uint32(b[at:])
	if got != want {
		return nil, fmt.Errorf("event of type %d has checksum %08x, the log says %08x: %w", b[4], got, want, errDamaged)
	}
	return b[:at], nil
}

// formatDescription is the first event of each log file.
type formatDescription struct {
	serverVersion string
	checksum      bool // events end with a CRC32
}

// parseFormatDescription reads the event's body, which still has its checksum:
// the event itself says whether there is one.
func parseFormatDescription(b []byte) (formatDescription, error) {
	const fixed = 2 + 50 + 4 + 1
	if len(b) < fixed+1+checksumBytes {
		return formatDescription{}, fmt.Errorf("read format description of %d bytes: %w", len(b), errDamaged)
	}
	if v := binary.LittleEndian.Uint16(b); v != 4 {
		return formatDescription{}, fmt.Errorf("read format description: log format version %d, want 4", v)
	}
	if b[56] != eventHeaderBytes {
		return formatDescription{}, fmt.Errorf("read format description: event headers of %d bytes, want %d", b[56], eventHeaderBytes)
	}
	d := formatDescription{serverVersion: cString(b[2:52])}
	switch alg := b[len(b)-checksumBytes-1]; alg {
	case 0:
	case 1:
		d.checksum = true
	default:
		return formatDescription{}, fmt.Errorf("read format description: checksum algorithm %d of server %s is unknown", alg, d.serverVersion)
	}
	if lengths := b[fixed : len(b)-checksumBytes-1]; len(lengths) >= evTableMap && lengths[evTableMap-1] != 8 {
		return formatDescription{}, fmt.Errorf("read format description: server %s logs row events in a format before MySQL 5.1.16", d.serverVersion)
	}
	return d, nil
}

func cString(b []byte) string {
	for i, c := range b {
		if c == 0 {
			return string(b[:i])
		}
	}
	return string(b)
}

// rotation names the file that goes on.
type rotation struct {
	file string
	pos  uint64
}

func parseRotation(b []byte) (rotation, error) {
	if len(b) < 9 {
		return rotation{}, fmt.Errorf("read rotate event: %w", errDamaged)
	}
	return rotation{file: string(b[8:]), pos: binary.LittleEndian.Uint64(b)}, nil
}

// MariaDB's GTID event flags.
const (
	gtidStandalone    = 1
	gtidGroupCommit   = 2
	gtidPreparedXA    = 64
	gtidCompletedXA   = 128
	gtidMultiEngine   = 1 // from here in the extra byte
	gtidStartAlter    = 2
	gtidCommitAlter   = 4
	gtidRollbackAlter = 8
)

// groupStart is what a GTID event says about the group that begins with it.
type groupStart struct {
	gtid       gtid
	standalone bool // one statement without an end of its own
	prepared   bool // ends with XA PREPARE
	startAlter bool // announces an ALTER that is counted at its commit
	undoAlter  bool // takes back what startAlter announced
}

// gtid is MariaDB's domain-server-sequence or, with uuid set, MySQL's.
type gtid struct {
	domain, server uint32
	seq            uint64
	uuid           [16]byte
	isUUID         bool
}

func parseMariaGTID(e *event) (groupStart, error) {
	b := e.body
	if len(b) < 13 {
		return groupStart{}, fmt.Errorf("read GTID event: %w", errDamaged)
	}
	flags := b[12]
	g := groupStart{
		gtid:       gtid{domain: binary.LittleEndian.Uint32(b[8:]), server: e.serverID, seq: binary.LittleEndian.Uint64(b)},
		standalone: flags&gtidStandalone != 0,
		prepared:   flags&gtidPreparedXA != 0,
	}
	at := 13
	if flags&gtidGroupCommit != 0 {
		at += 8
	}
	if flags&(gtidPreparedXA|gtidCompletedXA) != 0 {
		if len(b) < at+6 {
			return groupStart{}, fmt.Errorf("read GTID event: %w", errDamaged)
		}
		at += 6 + int(b[at+4]) + int(b[at+5])
	}
	if len(b) > at {
		extra := b[at]
		g.startAlter = extra&gtidStartAlter != 0
		g.undoAlter = extra&gtidRollbackAlter != 0
	}
	return g, nil
}

// parseMySQLGTID reads events 33 and 34.
func parseMySQLGTID(b []byte) (groupStart, error) {
	if len(b) < 25 {
		return groupStart{}, fmt.Errorf("read GTID event: %w", errDamaged)
	}
	g := groupStart{gtid: gtid{isUUID: true, seq: binary.LittleEndian.Uint64(b[17:])}}
	copy(g.gtid.uuid[:], b[1:17])
	return g, nil
}

// Names of sql_mode bits, in bit order.
var sqlModeNames = [...]string{
	"REAL_AS_FLOAT", "PIPES_AS_CONCAT", "ANSI_QUOTES", "IGNORE_SPACE", "IGNORE_BAD_TABLE_OPTIONS",
	"ONLY_FULL_GROUP_BY", "NO_UNSIGNED_SUBTRACTION", "NO_DIR_IN_CREATE", "POSTGRESQL", "ORACLE", "MSSQL",
	"DB2", "MAXDB", "NO_KEY_OPTIONS", "NO_TABLE_OPTIONS", "NO_FIELD_OPTIONS", "MYSQL323", "MYSQL40", "ANSI",
	"NO_AUTO_VALUE_ON_ZERO", "NO_BACKSLASH_ESCAPES", "STRICT_TRANS_TABLES", "STRICT_ALL_TABLES",
	"NO_ZERO_IN_DATE", "NO_ZERO_DATE", "ALLOW_INVALID_DATES", "ERROR_FOR_DIVISION_BY_ZERO", "TRADITIONAL",
	"NO_AUTO_CREATE_USER", "HIGH_NOT_PRECEDENCE", "NO_ENGINE_SUBSTITUTION", "PAD_CHAR_TO_FULL_LENGTH",
	"EMPTY_STRING_IS_NULL", "SIMULTANEOUS_ASSIGNMENT", "TIME_ROUND_FRACTIONAL",
}

const (
	modeAnsiQuotes         = 1 << 2
	modeNoBackslashEscapes = 1 << 20
)

// query is a logged statement.
type query struct {
	schema    string
	text      []byte // in the client's character set
	errorCode uint16
	sqlMode   uint64
	micros    uint32 // fraction of the second at which the statement began
	timeZone  string // set where the statement depends on it
	hasMode   bool
	charset   uint16 // collation id of the client's character set, 0 when unknown
}

// parseQuery reads QUERY and EXECUTE_LOAD_QUERY (whose fixed part is longer).
func parseQuery(kind byte, b []byte) (query, error) {
	fixed := 13
	if kind == evExecuteLoadQuery {
		fixed += 13
	}
	if len(b) < fixed {
		return query{}, fmt.Errorf("read query event: %w", errDamaged)
	}
	schemaLen, varsLen := int(b[8]), int(binary.LittleEndian.Uint16(b[11:]))
	if len(b) < fixed+varsLen+schemaLen+1 {
		return query{}, fmt.Errorf("read query event: %w", errDamaged)
	}
	q := query{errorCode: binary.LittleEndian.Uint16(b[9:])}
	q.readVariables(b[fixed : fixed+varsLen])
	b = b[fixed+varsLen:]
	q.schema, q.text = string(b[:schemaLen]), b[schemaLen+1:]
	if kind == evQueryCompressed {
		text, err := uncompress(nil, q.text)
		if err != nil {
			return query{}, fmt.Errorf("read query event: %w", err)
		}
		q.text = text
	}
	return q, nil
}

// readVariables reads the status variables of interest: sql_mode, character set,
// time zone, fraction of the second. The first unknown one ends the search.
func (q *query) readVariables(v []byte) {
	for len(v) > 0 {
		code := v[0]
		v = v[1:]
		n := 0
		switch code {
		case 0, 3:
			n = 4
		case 1:
			if n = 8; len(v) >= n {
				q.sqlMode, q.hasMode = binary.LittleEndian.Uint64(v), true
			}
		case 4:
			if n = 6; len(v) >= n {
				q.charset = binary.LittleEndian.Uint16(v)
			}
		case 6:
			if len(v) > 0 {
				n = 1 + int(v[0])
			}
		case 5:
			if len(v) > 0 && len(v) > int(v[0]) {
				n = 1 + int(v[0])
				q.timeZone = string(v[1:n])
			}
		case 7, 8: // names of days, character set of the database
			n = 2
		case 9: // tables of a multi-table update
			n = 8
		case 11: // invoker: user and host
			if len(v) > 0 && len(v) > 1+int(v[0]) {
				n = 2 + int(v[0]) + int(v[1+int(v[0])])
			}
		case 13, 128: // MySQL's and MariaDB's microseconds
			if n = 3; len(v) >= n {
				q.micros = uint32(v[0]) | uint32(v[1])<<8 | uint32(v[2])<<16
			}
		default:
			return
		}
		if n == 0 || len(v) < n {
			return
		}
		v = v[n:]
	}
}

// modeText gives the names of the bits, as the server prints them.
func (q *query) modeText() string {
	if !q.hasMode {
		return ""
	}
	var out []byte
	for i, name := range sqlModeNames {
		if q.sqlMode&(1<<i) != 0 {
			if len(out) > 0 {
				out = append(out, ',')
			}
			out = append(out, name...)
		}
	}
	return string(out)
}

// xaPrepare is the end of a prepared group.
type xaPrepare struct {
	xid      string
	onePhase bool // committed at once
}

func parseXAPrepare(b []byte) (xaPrepare, error) {
	if len(b) < 13 {
		return xaPrepare{}, fmt.Errorf("read XA PREPARE event: %w", errDamaged)
	}
	format := int32(binary.LittleEndian.Uint32(b[1:]))
	g, q := binary.LittleEndian.Uint32(b[5:]), binary.LittleEndian.Uint32(b[9:])
	if uint64(len(b)) < 13+uint64(g)+uint64(q) {
		return xaPrepare{}, fmt.Errorf("read XA PREPARE event: %w", errDamaged)
	}
	data := b[13:]
	return xaPrepare{xid: xidName(data[:g], data[g:g+q], int64(format)), onePhase: b[0] != 0}, nil
}

// xidName is the form in which xids are compared.
func xidName(global, branch []byte, format int64) string {
	return fmt.Sprintf("%x,%x,%d", global, branch, format)
}

// knownKind reports whether an event type is one that holds no rows and no
// statements: it may be passed over.
func knownKind(kind byte) bool {
	switch kind {
	case evStop, evIntvar, evAppendBlock, evDeleteFile, evRand, evUserVar, evBeginLoadQuery, evHeartbeat,
		evIgnorable, evRowsQuery, evPreviousGTIDs, evTransactionContext, evViewChange, evHeartbeatV2,
		evAnnotateRows, evBinlogCheckpoint, evMariaGTIDList:
		return true
	}
	return false
}

// unreadable is the error for an event that cannot be passed over.
func unreadable(cfgSubject string, kind byte, at string) error {
	p := &change.Problem{Code: "log-event-unknown", Subject: cfgSubject,
		Cause:  fmt.Sprintf("the log has an event of type %d at %s, which this version cannot read and may not skip", kind, at),
		Remedy: "use a version of Runnel that knows this server's log format, or set the server's binary log options to their defaults"}
	switch kind {
	case evStartEncryption:
		p.Code = "log-encrypted"
		p.Cause = fmt.Sprintf("the log at %s is sent encrypted", at)
		p.Remedy = "set encrypt_binlog=OFF, or use a server that decrypts its log for readers"
	case evTransactionPayload:
		p.Code = "log-transaction-compressed"
		p.Cause = fmt.Sprintf("the log has compressed transactions at %s, which this version does not read", at)
		p.Remedy = "run SET GLOBAL binlog_transaction_compression=OFF, and resync the tables written meanwhile"
	case evPartialUpdateRows:
		p.Code = "log-partial-json"
		p.Cause = fmt.Sprintf("the log has partial JSON updates at %s, which this version does not read", at)
		p.Remedy = "run SET GLOBAL binlog_row_value_options='', and resync the tables written meanwhile"
	}
	return change.WithClass(change.SourceWide, p)
}
