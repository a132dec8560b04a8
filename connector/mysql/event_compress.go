package mysql

import (
	"bytes"
	"compress/flate"
	"compress/zlib"
	"fmt"
	"io"
	"sync"
)

// maxUncompressed bounds what a compressed piece may grow to: the server's
// largest packet, with room.
const maxUncompressed = 1<<30 + 1<<20

type inflater struct {
	src bytes.Reader
	z   io.ReadCloser
}

var inflaters = sync.Pool{New: func() any { return new(inflater) }}

// uncompress appends to dst what MariaDB packed: a byte that holds a mark, the
// algorithm and the width of the length, the length (big endian), a zlib stream.
func uncompress(dst, b []byte) ([]byte, error) {
	n, rest, err := uncompressedSize(b)
	if err != nil {
		return nil, err
	}
	return inflate(dst, rest, n)
}

// uncompressedSize reads the head of a packed piece.
func uncompressedSize(b []byte) (n int, rest []byte, err error) {
	if len(b) < 2 {
		return 0, nil, fmt.Errorf("read compressed data: %w", errDamaged)
	}
	width := int(b[0] & 7)
	if b[0]&0xf0 != 0x80 || width == 0 || width > 4 || len(b) < 1+width {
		return 0, nil, fmt.Errorf("read compressed data: head byte %#x: %w", b[0], errDamaged)
	}
	for _, c := range b[1 : 1+width] {
		n = n<<8 | int(c)
	}
	if n > maxUncompressed {
		return 0, nil, fmt.Errorf("read compressed data of %d bytes: %w", n, errDamaged)
	}
	return n, b[1+width:], nil
}

// inflate appends exactly n bytes out of a zlib stream.
func inflate(dst, b []byte, n int) ([]byte, error) {
	f := inflaters.Get().(*inflater)
	defer inflaters.Put(f)
	f.src.Reset(b)
	if f.z == nil {
		z, err := zlib.NewReader(&f.src)
		if err != nil {
			return nil, fmt.Errorf("read compressed data: %w (%v)", errDamaged, err)
		}
		f.z = z
	} else if err := f.z.(zlib.Resetter).Reset(&f.src, nil); err != nil {
		return nil, fmt.Errorf("read compressed data: %w (%v)", errDamaged, err)
	}
	return readExactly(dst, f.z, n)
}

// readExactly grows with what arrives, so that a false length costs no memory.
func readExactly(dst []byte, r io.Reader, n int) ([]byte, error) {
	const step = 1 << 20
	for n > 0 {
		at, k := len(dst), min(n, step)
		if cap(dst) < at+k {
			grown := make([]byte, at, max(at+k, 2*cap(dst)))
			copy(grown, dst)
			dst = grown
		}
		dst = dst[:at+k]
		if _, err := io.ReadFull(r, dst[at:]); err != nil {
			return nil, fmt.Errorf("read compressed data: %w (%v)", errDamaged, err)
		}
		n -= k
	}
	var one [1]byte
	if k, err := r.Read(one[:]); k != 0 || err != nil && err != io.EOF {
		return nil, fmt.Errorf("read compressed data: it goes on past its length: %w", errDamaged)
	}
	return dst, nil
}

var rawInflaters = sync.Pool{New: func() any { return flate.NewReader(nil) }}

// inflateRaw is inflate for a stream without zlib's head and checksum.
func inflateRaw(dst, b []byte, n int) ([]byte, error) {
	z := rawInflaters.Get().(io.ReadCloser)
	defer rawInflaters.Put(z)
	if err := z.(flate.Resetter).Reset(bytes.NewReader(b), nil); err != nil {
		return nil, fmt.Errorf("read compressed data: %w (%v)", errDamaged, err)
	}
	return readExactly(dst, z, n)
}
