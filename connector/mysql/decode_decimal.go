package mysql

import (
	"fmt"
	"strconv"

	"github.com/runnel-dev/runnel/change"
)

// Bytes that a group of 0 to 9 decimal digits takes.
var digitBytes = [...]int{0, 1, 1, 2, 2, 3, 3, 4, 4, 4}

// decimalBytes is the size of a DECIMAL: digits are packed nine to four bytes,
// from the point outward; what is left over on either side takes fewer.
func decimalBytes(digits, scale int) int {
	whole := digits - scale
	return whole/9*4 + digitBytes[whole%9] + scale/9*4 + digitBytes[scale%9]
}

// decimal prints the exact value with its full scale: "-0.50".
func (s *step) decimal(v *change.Value, b []byte, a *change.Arena) error {
	var raw [40]byte
	if len(b) > len(raw) || len(b) == 0 {
		return fmt.Errorf("DECIMAL of %d bytes: %w", len(b), errDamaged)
	}
	p := raw[:copy(raw[:], b)]
	negative := p[0]&0x80 == 0
	if negative { // all bits are turned, so that values sort as bytes
		for i := range p {
			p[i] = ^p[i]
		}
	}
	p[0] ^= 0x80
	buf := a.Buffer(int(s.digits) + 4)
	if negative {
		buf = append(buf, '-')
	}
	whole, scale := int(s.digits-s.scale), int(s.scale)
	start := len(buf)
	n := digitBytes[whole%9]
	buf, p = appendPadded(buf, unsignedBE(p[:n]), whole%9), p[n:]
	for range whole / 9 {
		buf, p = appendPadded(buf, unsignedBE(p[:4]), 9), p[4:]
	}
	zeros := start
	for zeros < len(buf)-1 && buf[zeros] == '0' {
		zeros++
	}
	if len(buf) == start {
		buf = append(buf, '0')
	} else if zeros > start {
		buf = append(buf[:start], buf[zeros:]...)
	}
	if scale > 0 {
		buf = append(buf, '.')
		for range scale / 9 {
			buf, p = appendPadded(buf, unsignedBE(p[:4]), 9), p[4:]
		}
		buf = appendPadded(buf, unsignedBE(p), scale%9)
	}
	v.Kind, v.Data = change.Decimal, a.Keep(buf)
	return nil
}

func appendInt(dst []byte, n int64) []byte { return strconv.AppendInt(dst, n, 10) }
