package demo

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
)

// keyKinds are the ways a row's number becomes its key.
var keyKinds = [][]column{
	{{"id", "INT", number}},
	{{"id", "BIGINT UNSIGNED", func(_ *rand.Rand, n int64) string {
		if n%2 == 0 {
			return strconv.FormatUint(1<<63+uint64(n), 10) // above what a signed number holds
		}
		return strconv.FormatInt(n, 10)
	}}},
	{{"name", "VARCHAR(30)", func(_ *rand.Rand, n int64) string { return fmt.Sprintf("'kéy-%06x'", n) }}},
	{{"tenant", "SMALLINT UNSIGNED", func(_ *rand.Rand, n int64) string { return strconv.FormatInt(n%7, 10) }},
		{"doc", "VARCHAR(20) CHARACTER SET latin1", func(_ *rand.Rand, n int64) string { return fmt.Sprintf("'d%d'", n/7) }}},
	{{"id", "UUID", func(_ *rand.Rand, n int64) string {
		h := hash(n)
		return fmt.Sprintf("'%x-%x-40%02x-a0%02x-%x'", h[0:4], h[4:6], h[6], h[8], h[10:16])
	}}},
	{{"id", "BINARY(16)", func(_ *rand.Rand, n int64) string {
		h := hash(n)
		if n%4 == 0 {
			h[14], h[15] = 0, 0 // what the server pads with
		}
		return "x'" + hex.EncodeToString(h[:16]) + "'"
	}}},
	{{"day", "DATE", func(_ *rand.Rand, n int64) string { return fmt.Sprintf("'20%02d-%02d-%02d'", n%50, 1+n%12, 1+n%28) }},
		{"seq", "MEDIUMINT UNSIGNED", number}},
}

func number(_ *rand.Rand, n int64) string { return strconv.FormatInt(n, 10) }

func hash(n int64) []byte {
	var b [8]byte
	binary.BigEndian.PutUint64(b[:], uint64(n))
	h := sha256.Sum256(b[:])
	binary.BigEndian.PutUint32(h[10:14], uint32(n)) // so that two numbers never give the same key
	return h[:]
}

// columnSets are groups of columns that tables are put together from.
var columnSets = [][]column{
	{{"tiny", "TINYINT NULL", ints(-128, 127)}, {"small", "SMALLINT UNSIGNED NULL", ints(0, 65535)}, {"medium", "MEDIUMINT NULL", ints(-8388608, 8388607)}},
	{{"whole", "INT UNSIGNED NULL", ints(0, 4294967295)}, {"big", "BIGINT NULL", ints(-1<<63, 1<<63-1)}, {"huge", "BIGINT UNSIGNED NULL", unsigned}},
	{{"price", "DECIMAL(10,2) NULL", decimals(8, 2)}, {"exact", "DECIMAL(30,10) NULL", decimals(20, 10)}, {"ratio", "DOUBLE NULL", doubles}, {"part", "FLOAT NULL", quarters}},
	{{"title", "VARCHAR(60) NULL", text(60, wide)}, {"body", "TEXT NULL", text(600, wide)}},
	{{"old", "VARCHAR(40) CHARACTER SET latin1 NULL", text(40, western)}, {"fixed", "CHAR(10) NULL", text(10, wide)}},
	{{"data", "BLOB NULL", bytesOf(900)}, {"hash", "BINARY(16) NULL", bytesOf(16)}, {"token", "VARBINARY(30) NULL", bytesOf(30)}},
	{{"state", "ENUM('new','paid','sent','lost''n found') NULL", oneOf("'new'", "'paid'", "'sent'", "'lost''n found'")},
		{"flags", "SET('a','b','c','d','e') NULL", oneOf("''", "'a'", "'b,d'", "'a,b,c,d,e'", "'e'")}},
	{{"born", "DATE NULL", dates}, {"made", "DATETIME(6) NULL", datetimes}, {"seen", "TIMESTAMP(3) NULL DEFAULT NULL", timestamps}},
	{{"took", "TIME(2) NULL", times}, {"vintage", "YEAR NULL", ints(1901, 2155)}, {"bits", "BIT(12) NULL", bits}},
	{{"doc", "JSON NULL", documents}},
	{{"ref", "UUID NULL", uuids}, {"addr", "INET6 NULL", addresses}},
}

// nullable makes about a tenth of the values NULL.
func nullable(f func(r *rand.Rand) string) func(*rand.Rand, int64) string {
	return func(r *rand.Rand, _ int64) string {
		if r.IntN(10) == 0 {
			return "NULL"
		}
		return f(r)
	}
}

// ints gives numbers of a range, its ends more often than chance would.
func ints(low, high int64) func(*rand.Rand, int64) string {
	return nullable(func(r *rand.Rand) string {
		switch r.IntN(12) {
		case 0:
			return strconv.FormatInt(low, 10)
		case 1:
			return strconv.FormatInt(high, 10)
		}
		span := uint64(high) - uint64(low)
		if span == 1<<64-1 {
			return strconv.FormatInt(int64(r.Uint64()), 10)
		}
		return strconv.FormatInt(low+int64(r.Uint64N(span+1)), 10)
	})
}

var unsigned = nullable(func(r *rand.Rand) string {
	if r.IntN(12) == 0 {
		return "18446744073709551615"
	}
	return strconv.FormatUint(r.Uint64(), 10)
})

func decimals(whole, fraction int) func(*rand.Rand, int64) string {
	return nullable(func(r *rand.Rand) string {
		var b strings.Builder
		if r.IntN(2) == 0 {
			b.WriteByte('-')
		}
		for range 1 + r.IntN(whole) {
			b.WriteByte(byte('0' + r.IntN(10)))
		}
		b.WriteByte('.')
		for range 1 + r.IntN(fraction) {
			b.WriteByte(byte('0' + r.IntN(10)))
		}
		return b.String()
	})
}

var (
	doubles = nullable(func(r *rand.Rand) string {
		return strconv.FormatFloat((r.Float64()-0.5)*float64(uint64(1)<<r.IntN(60)), 'g', -1, 64)
	})
	// quarters are exact in binary and short enough for the six digits that the
	// server prints of a FLOAT.
	quarters = nullable(func(r *rand.Rand) string {
		return strconv.FormatFloat(float64(r.IntN(20000)-10000)/4, 'f', 2, 64)
	})
	bits = nullable(func(r *rand.Rand) string { return fmt.Sprintf("b'%012b'", r.IntN(1<<12)) })
)

// wide and western are what texts are made of.
var (
	wide    = []string{"order", "Größe", "naïve", "日本語", "Привет", "🚚", "it''s", `back\\slash`, "tab\tline\n", "   ", "", "%_", "ﬁn"}
	western = []string{"order", "Größe", "naïve", "façade", "Ñandú", "it''s", `\\`, " ", "±½"}
)

// text gives texts of at most a number of characters.
func text(limit int, words []string) func(*rand.Rand, int64) string {
	return nullable(func(r *rand.Rand) string {
		var b strings.Builder
		n := 0
		for range r.IntN(8) {
			w := words[r.IntN(len(words))]
			if n += len([]rune(w)) + 1; n > limit {
				break
			}
			b.WriteString(w + " ")
		}
		return "'" + b.String() + "'"
	})
}

func bytesOf(limit int) func(*rand.Rand, int64) string {
	return nullable(func(r *rand.Rand) string {
		b := make([]byte, r.IntN(limit+1))
		for i := range b {
			b[i] = byte(r.Uint32())
		}
		if len(b) > 2 && r.IntN(4) == 0 {
			b[len(b)-1] = 0
		}
		return "x'" + hex.EncodeToString(b) + "'"
	})
}

func oneOf(values ...string) func(*rand.Rand, int64) string {
	return nullable(func(r *rand.Rand) string { return values[r.IntN(len(values))] })
}

var (
	dates = nullable(func(r *rand.Rand) string {
		switch r.IntN(15) {
		case 0:
			return "'1000-01-01'"
		case 1:
			return "'9999-12-31'"
		case 2:
			return "'0000-00-00'"
		}
		return fmt.Sprintf("'%04d-%02d-%02d'", 1900+r.IntN(200), 1+r.IntN(12), 1+r.IntN(28))
	})
	datetimes = nullable(func(r *rand.Rand) string {
		return fmt.Sprintf("'%04d-%02d-%02d %02d:%02d:%02d.%06d'", 1000+r.IntN(9000), 1+r.IntN(12), 1+r.IntN(28), r.IntN(24), r.IntN(60), r.IntN(60), r.IntN(1e6))
	})
	timestamps = nullable(func(r *rand.Rand) string {
		return fmt.Sprintf("'%04d-%02d-%02d %02d:%02d:%02d.%03d'", 1971+r.IntN(66), 1+r.IntN(12), 1+r.IntN(28), r.IntN(24), r.IntN(60), r.IntN(60), r.IntN(1000))
	})
	times = nullable(func(r *rand.Rand) string {
		sign := ""
		if r.IntN(2) == 0 {
			sign = "-"
		}
		return fmt.Sprintf("'%s%d:%02d:%02d.%02d'", sign, r.IntN(838), r.IntN(60), r.IntN(60), r.IntN(100))
	})
	uuids = nullable(func(r *rand.Rand) string {
		return fmt.Sprintf("'%08x-%04x-%x%03x-%x%03x-%012x'", r.Uint32(), r.IntN(1<<16), 1+r.IntN(7), r.IntN(1<<12), 8+r.IntN(4), r.IntN(1<<12), r.Uint64N(1<<48))
	})
	addresses = nullable(func(r *rand.Rand) string {
		switch r.IntN(6) {
		case 0:
			return "'::'"
		case 1:
			return fmt.Sprintf("'::ffff:10.0.%d.%d'", r.IntN(256), r.IntN(256))
		}
		return fmt.Sprintf("'2001:db8::%x:%x'", r.IntN(1<<16), r.IntN(1<<16))
	})
	documents = nullable(func(r *rand.Rand) string {
		return fmt.Sprintf(`'{"n": %d, "tags": ["ä", null, %d.5], "deep": {"ok": %t, "text": "%s"}}'`,
			r.IntN(1e6), r.IntN(100), r.IntN(2) == 0, strings.Repeat("x", r.IntN(40)))
	})
)
