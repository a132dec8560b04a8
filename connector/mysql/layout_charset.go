package mysql

import (
	"fmt"
	"strings"
	"unicode/utf16"
	"unicode/utf8"

	"golang.org/x/text/encoding"
	"golang.org/x/text/encoding/charmap"
	"golang.org/x/text/encoding/japanese"
	"golang.org/x/text/encoding/korean"
	"golang.org/x/text/encoding/simplifiedchinese"
	"golang.org/x/text/encoding/traditionalchinese"

	"github.com/runnel-dev/runnel/change"
)

// encodings are the server's character sets whose ASCII half is ASCII.
var encodings = map[string]encoding.Encoding{
	"latin1": charmap.Windows1252, "latin2": charmap.ISO8859_2, "latin5": charmap.ISO8859_9, "latin7": charmap.ISO8859_13,
	"cp1250": charmap.Windows1250, "cp1251": charmap.Windows1251, "cp1256": charmap.Windows1256, "cp1257": charmap.Windows1257,
	"cp850": charmap.CodePage850, "cp852": charmap.CodePage852, "cp866": charmap.CodePage866,
	"koi8r": charmap.KOI8R, "koi8u": charmap.KOI8U, "greek": charmap.ISO8859_7, "hebrew": charmap.ISO8859_8,
	"tis620": charmap.Windows874, "macroman": charmap.Macintosh,
	"gbk": simplifiedchinese.GBK, "gb2312": simplifiedchinese.GBK, "gb18030": simplifiedchinese.GB18030, "big5": traditionalchinese.Big5,
	"sjis": japanese.ShiftJIS, "cp932": japanese.ShiftJIS, "ujis": japanese.EUCJP, "eucjpms": japanese.EUCJP,
	"euckr": korean.EUCKR,
}

// ambiguous are the character sets that the server writes differently from the
// encodings above in some places: good enough to read the text of a statement, not
// to write what a table holds.
var ambiguous = map[string]bool{
	"big5": true, "sjis": true, "cp932": true, "ujis": true, "eucjpms": true, "gb2312": true, "gb18030": true,
}

// codeUnit is the width in bytes of a character set's units, negative for little
// endian ones.
func codeUnit(charset string) int {
	switch charset {
	case "ucs2", "utf16":
		return 2
	case "utf16le":
		return -2
	case "utf32":
		return 4
	}
	return 1
}

// encodeText writes UTF-8 text in a character set of the server. ok is false when
// the set is not known here or cannot hold the text.
func encodeText(charset, text string) (b []byte, ok bool) {
	if !utf8.ValidString(text) {
		return []byte(text), charset == "binary"
	}
	switch charset {
	case "utf8", "utf8mb3", "utf8mb4", "binary":
		return []byte(text), true
	case "ucs2", "utf16", "utf16le":
		for _, u := range utf16.Encode([]rune(text)) {
			if charset == "utf16le" {
				b = append(b, byte(u), byte(u>>8))
			} else {
				b = append(b, byte(u>>8), byte(u))
			}
		}
		return b, true
	case "utf32":
		for _, r := range text {
			b = append(b, byte(r>>24), byte(r>>16), byte(r>>8), byte(r))
		}
		return b, true
	}
	if isASCII(text) && charset != "swe7" && (charset != "sjis" || !strings.Contains(text, `\`)) {
		return []byte(text), true
	}
	e, known := encodings[charset]
	if !known || ambiguous[charset] {
		return nil, false
	}
	b, err := e.NewEncoder().Bytes([]byte(text))
	return b, err == nil
}

// decodeText reads text in a character set of the server as UTF-8.
func decodeText(charset string, b []byte) (string, bool) {
	if isASCII(string(b)) || charset == "utf8" || charset == "utf8mb3" || charset == "utf8mb4" {
		return string(b), true
	}
	e, known := encodings[charset]
	if !known {
		return string(b), false
	}
	out, err := e.NewDecoder().Bytes(b)
	return string(out), err == nil
}

func isASCII(s string) bool {
	for i := range len(s) {
		if s[i] >= utf8.RuneSelf {
			return false
		}
	}
	return true
}

// encodeLabels gives the labels of ENUM and SET as the server stores their text.
func encodeLabels(c *change.Column) ([][]byte, error) {
	out := make([][]byte, len(c.Labels))
	for i, l := range c.Labels {
		b, ok := encodeText(c.Charset, l)
		if !ok {
			return nil, fmt.Errorf("column %s: label %q cannot be written in %s: %w", c.Name, l, c.Charset, change.ErrLayout)
		}
		out[i] = b
	}
	return out, nil
}
