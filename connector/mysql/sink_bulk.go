package mysql

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/go-mysql-org/go-mysql/mysql"

	"github.com/runnel-dev/runnel/change"
	"github.com/runnel-dev/runnel/internal/fault"
)

// Chunks go to the target with LOAD DATA LOCAL … REPLACE where the table allows
// it, which takes about half the server's time of an INSERT. The data is read as
// bytes (CHARACTER SET binary), so it is for tables whose text columns have the
// same character sets on both sides. Whatever the server does not take without a
// warning is done again with INSERT, which says what is wrong.

const (
	bulkRows  = 50        // chunks with fewer rows are not worth another round trip
	bulkPiece = 256 << 10 // bytes of a packet of data
	bulkPlans = 1000      // tables remembered
)

// errNotInBulk: the transaction was rolled back, INSERT is to be used.
var errNotInBulk = errors.New("rows are not taken in bulk")

// bulkFor returns the LOAD DATA statement for a chunk, "" when it goes by INSERT.
// The target's definition is read for each chunk: bytes that a changed character
// set gives another meaning must not slip through.
func (s *Sink) bulkFor(ctx context.Context, c *sinkConn, ch *change.ChunkLoad) (string, error) {
	if len(ch.Rows) < bulkRows || ch.Layout == nil || s.noBulk.Load() {
		return "", nil
	}
	have, err := c.table(ctx, ch.Target)
	if errors.Is(err, change.ErrNoTable) {
		return "", nil // INSERT says so in the server's words
	}
	if err != nil {
		return "", err
	}
	return bulkStatement(ch.Layout, have), nil
}

// bulkStatement loads rows of the layout as bytes; "" where that is not the same
// as to insert them.
func bulkStatement(l, have *change.Layout) string {
	var names []string
	for i := range l.Columns {
		c := &l.Columns[i]
		if c.Generated || c.Hidden {
			continue
		}
		at := ordinalFold(have, c.Name)
		if at < 0 || !loadsAsBytes(c, &have.Columns[at]) {
			return ""
		}
		names = append(names, quoteName(c.Name))
	}
	if len(names) == 0 || len(l.Key) == 0 {
		return ""
	}
	return "LOAD DATA LOCAL INFILE 'runnel' REPLACE INTO TABLE " + quoteTable(have.Table) + " CHARACTER SET binary" +
		` FIELDS TERMINATED BY '\t' ESCAPED BY '\\' LINES TERMINATED BY '\n' (` + strings.Join(names, ",") + ")"
}

// loadsAsBytes reports whether the bytes of a value, as appendField writes them,
// are read as this value.
func loadsAsBytes(c, have *change.Column) bool {
	if c.Base != have.Base {
		return false
	}
	switch c.Base {
	case "tinyint", "smallint", "mediumint", "int", "bigint", "bit", "decimal", "float", "double",
		"date", "time", "datetime", "timestamp", "year",
		"binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob":
		return true
	case "char", "varchar", "tinytext", "text", "mediumtext", "longtext", "enum", "set":
		return c.Charset != "" && sameCharset(c.Charset, have.Charset)
	}
	return false
}

func sameCharset(a, b string) bool {
	name := func(s string) string {
		if s == "utf8" {
			return "utf8mb3"
		}
		return s
	}
	return name(a) == name(b)
}

// loadBulk does the chunk's transaction. errNotInBulk says that it is to be done
// with INSERT.
func (g *group) loadBulk(ctx context.Context, ch *change.ChunkLoad, statement string) error {
	data, err := bulkData(g.sc.bulk[:0], ch)
	if err != nil {
		return errNotInBulk
	}
	if cap(data) <= 4*packetBytes {
		g.sc.bulk = data
	}
	if err := g.writeChunkRow(ch); err != nil {
		return err
	}
	if err := fault.Point(chunkRows); err != nil {
		return err
	}
	_, err = g.send(ctx, 1)
	if g.chunkIsThere(err) {
		g.c.rollback(ctx)
		return nil
	}
	clean := false
	if err == nil {
		clean, err = g.c.loadData(ctx, statement, data)
	}
	if err == nil && clean {
		return g.commitChunk(ctx)
	}
	g.c.rollback(ctx)
	switch code := serverCode(err); {
	case code == 1148, code == 3948, code == 4166: // not allowed by local_infile
		g.s.noBulk.Store(true)
	case err != nil && (code == 0 || repeatable(err) || code == codeLockTimeout || ended(err)):
		return err
	}
	return errNotInBulk
}

// bulkData appends the rows as fields with escapes.
func bulkData(dst []byte, ch *change.ChunkLoad) ([]byte, error) {
	for n, r := range ch.Rows {
		if len(r) != len(ch.Layout.Columns) {
			return dst, fmt.Errorf("row %d: %w", n, change.ErrLayout)
		}
		first := true
		for i := range r {
			c := &ch.Layout.Columns[i]
			if c.Generated || c.Hidden {
				continue
			}
			if !first {
				dst = append(dst, '\t')
			}
			first = false
			var err error
			if dst, err = appendField(dst, c, r[i]); err != nil {
				return dst, err
			}
		}
		dst = append(dst, '\n')
	}
	return dst, nil
}

// appendField writes a value as LOAD DATA reads it.
func appendField(dst []byte, c *change.Column, v change.Value) ([]byte, error) {
	switch v.Kind {
	case change.Null:
		return append(dst, '\\', 'N'), nil
	case change.Text, change.Bytes, change.Time, change.Decimal:
		if outsideEnum(c, v) {
			return dst, errBadValue
		}
		return appendEscaped(dst, v.Data), nil
	case change.Int:
		return strconv.AppendInt(dst, int64(v.Num), 10), nil
	case change.Uint:
		return strconv.AppendUint(dst, v.Num, 10), nil
	case change.Float32, change.Float64:
		return appendLiteral(dst, c, v)
	}
	return dst, errBadValue
}

func appendEscaped(dst, b []byte) []byte {
	from := 0
	for i, c := range b {
		switch c {
		case '\t', '\n', '\\':
		case 0:
			c = '0'
		default:
			continue
		}
		dst = append(dst, b[from:i]...)
		dst = append(dst, '\\', c)
		from = i + 1
	}
	return append(dst, b[from:]...)
}

// loadData runs LOAD DATA LOCAL and sends the data in the file's place. clean is
// false when the server had something to warn of.
func (c *sinkConn) loadData(ctx context.Context, sql string, data []byte) (clean bool, err error) {
	err = guarded(ctx, c.c, func() error {
		if err := c.command(mysql.COM_QUERY, sql); err != nil {
			return err
		}
		p, err := c.payload()
		if err != nil {
			return err
		}
		if p[0] != mysql.LocalInFile_HEADER {
			return fmt.Errorf("load data: %w", errMalformed)
		}
		c.c.Sequence = 2 // behind the command and the server's answer
		piece := make([]byte, 4, 4+bulkPiece)
		for len(data) > 0 {
			n := min(len(data), bulkPiece, c.info.maxPacket/2)
			if err := c.c.WritePacket(append(piece[:4], data[:n]...)); err != nil {
				return fmt.Errorf("load data: %w", err)
			}
			data = data[n:]
		}
		if err := c.c.WritePacket(piece[:4]); err != nil { // the end
			return fmt.Errorf("load data: %w", err)
		}
		if p, err = c.payload(); err != nil {
			return err
		}
		_, n := lengthEncoded(p[1:])
		_, m := lengthEncoded(p[1+n:])
		at := 1 + n + m // status, then the number of warnings
		if p[0] != mysql.OK_HEADER || n == 0 || m == 0 || len(p) < at+4 {
			return fmt.Errorf("load data: %w", errMalformed)
		}
		clean = p[at+2] == 0 && p[at+3] == 0
		return nil
	})
	if err != nil && (serverCode(err) == 0 || ctx.Err() != nil) {
		c.lost = true
	}
	return clean, err
}
