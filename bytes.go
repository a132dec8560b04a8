package runnel

import (
	"fmt"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Bytes is a size in bytes. In YAML it is a whole number, alone or with one of
// the units KiB, MiB and GiB: "64MiB".
type Bytes int64

var byteUnits = []struct {
	name string
	size Bytes
}{{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}}

// ParseBytes reads what String writes.
func ParseBytes(s string) (Bytes, error) {
	text, unit := strings.TrimSpace(s), Bytes(1)
	for _, u := range byteUnits {
		if rest, ok := strings.CutSuffix(text, u.name); ok {
			text, unit = strings.TrimSpace(rest), u.size
			break
		}
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 0 || n > (1<<62)/int64(unit) {
		return 0, fmt.Errorf("size %q: want a whole number, alone or with KiB, MiB or GiB, such as 64MiB", s)
	}
	return Bytes(n) * unit, nil
}

// String uses the largest unit that loses nothing.
func (b Bytes) String() string {
	for _, u := range byteUnits {
		if b != 0 && b%u.size == 0 {
			return strconv.FormatInt(int64(b/u.size), 10) + u.name
		}
	}
	return strconv.FormatInt(int64(b), 10)
}

// MarshalYAML implements yaml.Marshaler.
func (b Bytes) MarshalYAML() (any, error) { return b.String(), nil }

// UnmarshalYAML implements yaml.Unmarshaler.
func (b *Bytes) UnmarshalYAML(n *yaml.Node) error {
	v, err := ParseBytes(n.Value)
	if err != nil || n.Kind != yaml.ScalarNode {
		return &yaml.TypeError{Errors: []string{fmt.Sprintf("line %d: size %q: want a whole number, alone or with KiB, MiB or GiB, such as 64MiB", n.Line, n.Value)}}
	}
	*b = v
	return nil
}
