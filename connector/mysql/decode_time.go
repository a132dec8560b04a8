package mysql

import (
	"encoding/binary"

	"github.com/runnel-dev/runnel/change"
)

var powersOfTen = [...]uint64{1, 10, 100, 1000, 10000, 100000, 1000000}

// civil is a date and time as it is written, without any meaning: zero dates and
// the 31st of February pass through.
type civil struct {
	year, month, day, hour, minute, second uint64
	micro                                  uint64
}

// temporal decodes the formats since MySQL 5.6, and DATE and YEAR.
func (s *step) temporal(v *change.Value, b []byte, a *change.Arena) {
	v.Kind = change.Time
	buf := a.Buffer(32)
	switch s.verb {
	case verbDatetime2:
		const bias = 1 << 39
		n := unsignedBE(b[:5]) - bias
		ym, ymd, hms := n>>22, n>>17, n&(1<<17-1)
		buf = appendDatetime(buf, civil{
			year: ym / 13, month: ym % 13, day: ymd & 31,
			hour: hms >> 12, minute: hms >> 6 & 63, second: hms & 63,
			micro: s.fraction(b[5:]),
		}, s.digits)
	case verbTimestamp2:
		buf = appendTimestamp(buf, uint64(binary.BigEndian.Uint32(b)), s.fraction(b[4:]), s.digits)
	case verbTime2:
		buf = s.time2(buf, b)
	case verbDate:
		n := unsignedLE(b)
		buf = appendDate(buf, n>>9, n>>5&15, n&31)
	case verbYear:
		y := uint64(b[0])
		if y != 0 {
			y += 1900
		}
		buf = appendPadded(buf, y, 4)
	}
	v.Data = a.Keep(buf)
}

// fraction reads the big-endian fraction of 0 to 3 bytes as microseconds.
func (s *step) fraction(b []byte) uint64 {
	n := unsignedBE(b)
	switch len(b) {
	case 1:
		return n * 10000
	case 2:
		return n * 100
	}
	return n
}

// time2: integer part and fraction are one big-endian number with a bias, so that
// negative times sort; a negative fraction borrows from the integer part.
func (s *step) time2(buf, b []byte) []byte {
	bits := 8 * len(b)
	n := int64(unsignedBE(b)) - int64(1)<<(bits-1)
	if n < 0 {
		buf = append(buf, '-')
		n = -n
	}
	f := bits - 24
	hms := uint64(n) >> f
	var micro uint64
	switch part := uint64(n) & (1<<f - 1); f {
	case 8:
		micro = part * 10000
	case 16:
		micro = part * 100
	default:
		micro = part
	}
	return appendClock(buf, hms>>12&1023, hms>>6&63, hms&63, micro, s.digits)
}

// oldTemporal decodes the formats before MySQL 5.6 and MariaDB's with fractions.
func (s *step) oldTemporal(v *change.Value, b []byte, a *change.Arena) {
	v.Kind = change.Time
	buf := a.Buffer(32)
	switch s.verb {
	case verbTimestampOld:
		buf = appendTimestamp(buf, unsignedLE(b), 0, 0)
	case verbTimestampHires:
		buf = appendTimestamp(buf, unsignedBE(b[:4]), unsignedBE(b[4:])*powersOfTen[6-s.digits], s.digits)
	case verbDatetimeOld:
		n := unsignedLE(b)
		d, t := n/1000000, n%1000000
		buf = appendDatetime(buf, civil{year: d / 10000, month: d / 100 % 100, day: d % 100,
			hour: t / 10000, minute: t / 100 % 100, second: t % 100}, 0)
	case verbDatetimeHires:
		buf = appendDatetime(buf, unpackTime(unsignedBE(b)*powersOfTen[6-s.digits]), s.digits)
	case verbTimeOld:
		n := signedLE(b)
		if n < 0 {
			buf = append(buf, '-')
			n = -n
		}
		u := uint64(n)
		buf = appendClock(buf, u/10000, u/100%100, u%100, 0, 0)
	case verbTimeHires:
		const largest = 838*3600 + 59*60 + 59
		scale := powersOfTen[6-s.digits]
		n := (int64(unsignedBE(b)) - int64((largest+1)*1000000/scale)) * int64(scale)
		if n < 0 {
			buf = append(buf, '-')
			n = -n
		}
		u := uint64(n) // hours are not parted into days
		buf = appendClock(buf, u/3600000000, u/60000000%60, u/1000000%60, u%1000000, s.digits)
	}
	v.Data = a.Keep(buf)
}

// unpackTime undoes MariaDB's packing: each part in its own radix.
func unpackTime(n uint64) civil {
	var c civil
	take := func(radix uint64) uint64 {
		r := n % radix
		n /= radix
		return r
	}
	c.micro = take(1000000)
	c.second = take(60)
	c.minute = take(60)
	c.hour = take(24)
	c.day = take(32)
	c.month = take(13)
	c.year = n
	return c
}

// appendTimestamp prints seconds since 1970 in UTC. 0 is the zero timestamp.
func appendTimestamp(dst []byte, seconds, micro uint64, digits uint8) []byte {
	if seconds == 0 && micro == 0 {
		return appendDatetime(dst, civil{}, digits)
	}
	days, rest := seconds/86400, seconds%86400
	// Days to a date, counting years from March: Howard Hinnant's civil_from_days.
	z := days + 719468
	era := z / 146097
	doe := z - era*146097
	yoe := (doe - doe/1460 + doe/36524 - doe/146096) / 365
	doy := doe - (365*yoe + yoe/4 - yoe/100)
	mp := (5*doy + 2) / 153
	c := civil{year: yoe + era*400, day: doy - (153*mp+2)/5 + 1, month: mp + 3, micro: micro}
	if c.month > 12 {
		c.month -= 12
	}
	if c.month <= 2 {
		c.year++
	}
	c.hour, c.minute, c.second = rest/3600, rest/60%60, rest%60
	return appendDatetime(dst, c, digits)
}

func appendDatetime(dst []byte, c civil, digits uint8) []byte {
	dst = append(appendDate(dst, c.year, c.month, c.day), ' ')
	return appendClock(dst, c.hour, c.minute, c.second, c.micro, digits)
}

func appendDate(dst []byte, year, month, day uint64) []byte {
	dst = append(appendPadded(dst, year, 4), '-')
	dst = append(appendTwo(dst, month), '-')
	return appendTwo(dst, day)
}

func appendClock(dst []byte, hour, minute, second, micro uint64, digits uint8) []byte {
	if hour < 100 {
		dst = appendTwo(dst, hour)
	} else {
		dst = appendPadded(dst, hour, 3)
	}
	dst = appendTwo(append(dst, ':'), minute)
	dst = appendTwo(append(dst, ':'), second)
	if digits == 0 {
		return dst
	}
	return appendPadded(append(dst, '.'), micro/powersOfTen[6-digits], int(digits))
}

// pairs are the two-digit numbers: one look-up prints two digits.
const pairs = "00010203040506070809" + "10111213141516171819" + "20212223242526272829" + "30313233343536373839" +
	"40414243444546474849" + "50515253545556575859" + "60616263646566676869" + "70717273747576777879" +
	"80818283848586878889" + "90919293949596979899"

func appendTwo(dst []byte, n uint64) []byte {
	n = n % 100 * 2
	return append(dst, pairs[n], pairs[n+1])
}

// appendPadded prints n in exactly width digits, at most nine.
func appendPadded(dst []byte, n uint64, width int) []byte {
	const nine = "000000000"
	at := len(dst)
	dst = append(dst, nine[:width]...)
	digits := dst[at:]
	i, m := width, uint32(n)
	for ; i >= 2; i -= 2 {
		q := m / 100
		r := (m - q*100) * 2
		digits[i-1], digits[i-2] = pairs[r+1], pairs[r]
		m = q
	}
	if i == 1 {
		digits[0] = byte('0' + m%10)
	}
	return dst
}
