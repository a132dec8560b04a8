package mysql

import (
	"encoding/binary"
	"fmt"

	"github.com/runnel-dev/runnel/change"
)

// value decodes one value whose bytes, length prefix included, are b.
func (s *step) value(v *change.Value, b []byte, a *change.Arena) error {
	switch s.verb {
	case verbInt:
		v.Kind, v.Num = change.Int, uint64(signedLE(b))
	case verbUint:
		v.Kind, v.Num = change.Uint, unsignedLE(b)
	case verbText:
		v.Kind, v.Data = change.Text, b[s.prefix:]
	case verbBytes:
		v.Kind, v.Data = change.Bytes, b[s.prefix:]
	case verbDecimal:
		return s.decimal(v, b, a)
	case verbDatetime2, verbTimestamp2, verbTime2, verbDate, verbYear:
		s.temporal(v, b, a)
	case verbFloat32:
		v.Kind, v.Num = change.Float32, unsignedLE(b)
	case verbFloat64:
		v.Kind, v.Num = change.Float64, unsignedLE(b)
	case verbBit:
		v.Kind, v.Data = change.Bytes, b
	case verbEnum, verbSet:
		return s.label(v, unsignedLE(b), a)
	case verbPadded, verbUUID, verbINET4, verbINET6:
		return s.fixed(v, b[s.prefix:], a)
	case verbCompressedText, verbCompressedBytes:
		return s.compressed(v, b[s.prefix:], a)
	default:
		s.oldTemporal(v, b, a)
	}
	return nil
}

func unsignedLE(b []byte) uint64 {
	switch len(b) {
	case 1:
		return uint64(b[0])
	case 2:
		return uint64(binary.LittleEndian.Uint16(b))
	case 4:
		return uint64(binary.LittleEndian.Uint32(b))
	case 8:
		return binary.LittleEndian.Uint64(b)
	}
	var v uint64
	for i := len(b) - 1; i >= 0; i-- {
		v = v<<8 | uint64(b[i])
	}
	return v
}

func signedLE(b []byte) int64 {
	shift := 64 - 8*len(b)
	return int64(unsignedLE(b)<<shift) >> shift
}

func unsignedBE(b []byte) uint64 {
	var v uint64
	for _, c := range b {
		v = v<<8 | uint64(c)
	}
	return v
}

// label turns the number of an ENUM or SET into text.
func (s *step) label(v *change.Value, n uint64, a *change.Arena) error {
	v.Kind = change.Text
	if s.verb == verbEnum {
		switch {
		case n == 0: // what the server stores for an invalid value
			v.Data = []byte{}
		case n <= uint64(len(s.labels)):
			v.Data = s.labels[n-1]
		default:
			return fmt.Errorf("ENUM number %d of %d labels: %w", n, len(s.labels), change.ErrLayout)
		}
		return nil
	}
	if len(s.labels) < 64 && n>>len(s.labels) != 0 {
		return fmt.Errorf("SET number %#x of %d labels: %w", n, len(s.labels), change.ErrLayout)
	}
	size := 0
	for i, l := range s.labels {
		if n&(1<<i) != 0 {
			size += len(l) + 4
		}
	}
	buf := a.Buffer(size)
	comma := s.comma()
	for i, l := range s.labels {
		if n&(1<<i) == 0 {
			continue
		}
		if len(buf) > 0 {
			buf = append(buf, comma...)
		}
		buf = append(buf, l...)
	}
	v.Data = a.Keep(buf)
	return nil
}

// comma is the separator of SET in the column's character set.
func (s *step) comma() []byte {
	switch s.unit {
	case 2:
		return []byte{0, ','}
	case 4:
		return []byte{0, 0, 0, ','}
	case -2:
		return []byte{',', 0}
	}
	return []byte{','}
}

// fixed decodes the types whose trailing zero bytes the log leaves out.
func (s *step) fixed(v *change.Value, b []byte, a *change.Arena) error {
	if s.verb == verbPadded {
		v.Kind = change.Bytes
		if len(b) == s.padTo {
			v.Data = b
			return nil
		}
		if len(b) > s.padTo {
			return fmt.Errorf("BINARY(%d) of %d bytes: %w", s.padTo, len(b), errDamaged)
		}
		buf := append(a.Buffer(s.padTo), b...)
		for len(buf) < s.padTo {
			buf = append(buf, 0)
		}
		v.Data = a.Keep(buf)
		return nil
	}
	var raw [16]byte
	if len(b) > len(raw) || s.verb == verbINET4 && len(b) > 4 {
		return fmt.Errorf("fixed value of %d bytes: %w", len(b), errDamaged)
	}
	copy(raw[:], b)
	v.Kind = change.Literal
	buf := a.Buffer(48)
	switch s.verb {
	case verbUUID:
		buf = appendUUID(buf, &raw)
	case verbINET4:
		buf = appendINET4(buf, raw[:4])
	default:
		buf = appendINET6(buf, &raw)
	}
	v.Data = a.Keep(buf)
	return nil
}

// compressed decodes MariaDB's COMPRESSED columns: an empty value is empty; else
// a byte that holds the algorithm (0: stored as is, 8: zlib), whether the stream
// lacks its head, and the width of the length that follows.
func (s *step) compressed(v *change.Value, b []byte, a *change.Arena) error {
	v.Kind = change.Text
	if s.verb == verbCompressedBytes {
		v.Kind = change.Bytes
	}
	if len(b) == 0 {
		v.Data = b
		return nil
	}
	head, rest := b[0], b[1:]
	switch head >> 4 {
	case 0:
		v.Data = rest
		return nil
	case 8:
	default:
		return fmt.Errorf("compressed value by algorithm %d: %w", head>>4, errDamaged)
	}
	width := int(head & 7)
	if width == 0 || width > 4 || len(rest) < width {
		return fmt.Errorf("compressed value with head %#x: %w", head, errDamaged)
	}
	n := 0
	for _, c := range rest[:width] {
		n = n<<8 | int(c)
	}
	if n > maxUncompressed {
		return fmt.Errorf("compressed value of %d bytes: %w", n, errDamaged)
	}
	rest = rest[width:]
	unpack := inflate
	if head&8 != 0 {
		unpack = inflateRaw
	}
	buf, err := unpack(a.Buffer(min(n, 16*len(rest)+1024)), rest, n)
	if err != nil {
		return err
	}
	v.Data = a.Keep(buf)
	return nil
}

const hexDigits = "0123456789abcdef"

// appendUUID prints what the server stores. Versions below 6 of the usual variant
// are stored with their parts in reverse order, so that they sort by time; others
// as they are read.
func appendUUID(dst []byte, raw *[16]byte) []byte {
	b := *raw
	if uuidReversed(raw) {
		copy(b[0:4], raw[12:16])
		copy(b[4:6], raw[10:12])
		copy(b[6:8], raw[8:10])
		copy(b[8:10], raw[6:8])
		copy(b[10:16], raw[0:6])
	}
	for i, c := range b {
		if i == 4 || i == 6 || i == 8 || i == 10 {
			dst = append(dst, '-')
		}
		dst = append(dst, hexDigits[c>>4], hexDigits[c&15])
	}
	return dst
}

// uuidReversed tells the two apart. Reversed, the variant (8 and above) is in byte
// 6 and the version (below 6, its byte not zero) in byte 8. As they are read, a
// version of 8 and above, which would look the same in byte 6, has zero or a
// variant of 8 and above in byte 8: the server takes no others.
func uuidReversed(raw *[16]byte) bool { return raw[6]&0x80 != 0 && raw[8] != 0 && raw[8] < 0x60 }

func appendINET4(dst, b []byte) []byte {
	for i, c := range b {
		if i > 0 {
			dst = append(dst, '.')
		}
		dst = appendInt(dst, int64(c))
	}
	return dst
}

// appendINET6 prints like the server: the longest run of zero words becomes "::",
// addresses with an IPv4 part show it in dots.
func appendINET6(dst []byte, raw *[16]byte) []byte {
	var words [8]uint16
	for i := range words {
		words[i] = binary.BigEndian.Uint16(raw[2*i:])
	}
	at, length := -1, 0
	for i := 0; i < 8; {
		j := i
		for j < 8 && words[j] == 0 {
			j++
		}
		if j-i > length {
			at, length = i, j-i
		}
		i = max(j, i+1)
	}
	for i := 0; i < 8; i++ {
		if i == at {
			if i == 0 {
				dst = append(dst, ':')
			}
			dst = append(dst, ':')
			i += length - 1
			continue
		}
		if i == 6 && at == 0 && (length == 6 || length == 5 && words[5] == 0xffff) {
			return appendINET4(dst, raw[12:])
		}
		dst = appendHexWord(dst, words[i])
		if i < 7 {
			dst = append(dst, ':')
		}
	}
	return dst
}

func appendHexWord(dst []byte, w uint16) []byte {
	started := false
	for shift := 12; shift >= 0; shift -= 4 {
		d := w >> shift & 15
		if d != 0 || started || shift == 0 {
			dst, started = append(dst, hexDigits[d]), true
		}
	}
	return dst
}
