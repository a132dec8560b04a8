package persistence

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"sync"
)

// MaxEventBytes bounds one event's JSON.
const MaxEventBytes = 1 << 20

// Upcast turns an event's JSON of one version into that of the next.
type Upcast func(old json.RawMessage) (json.RawMessage, error)

// Registry maps event types to stored names and versions. Register everything
// before the first Encode or Decode; afterwards it is safe for concurrent use.
type Registry struct {
	mu struct {
		sync.RWMutex
		byName map[string]*codec
		byType map[reflect.Type]*codec
	}
}

type codec struct {
	name    string
	version uint32
	upcasts []Upcast // upcasts[i] makes version i+2 of version i+1
	decode  func([]byte) (any, error)
}

// NewRegistry returns an empty registry.
func NewRegistry() *Registry {
	r := &Registry{}
	r.mu.byName = map[string]*codec{}
	r.mu.byType = map[reflect.Type]*codec{}
	return r
}

// RegisterEvent stores values of type E (a struct, by value) under name. The
// current version is one more than the number of upcasts: upcasts[0] makes
// version 2 of version 1, and so on. The name is stored: never rename it, and
// add an upcast with every change of E's JSON that older data does not fit.
func RegisterEvent[E any](r *Registry, name string, upcasts ...Upcast) error {
	t := reflect.TypeFor[E]()
	if t.Kind() == reflect.Pointer || t.Kind() == reflect.Interface {
		return fmt.Errorf("register event %q: %v is not a value type", name, t)
	}
	if name == "" {
		return fmt.Errorf("register event %v: the name is empty", t)
	}
	c := &codec{name: name, version: uint32(len(upcasts)) + 1, upcasts: upcasts, decode: decodeStrict[E]}
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, ok := r.mu.byName[name]; ok {
		return fmt.Errorf("register event %q: the name is taken", name)
	}
	if old, ok := r.mu.byType[t]; ok {
		return fmt.Errorf("register event %q: %v is registered as %q", name, t, old.name)
	}
	r.mu.byName[name], r.mu.byType[t] = c, c
	return nil
}

// decodeStrict refuses fields that E does not have, since dropping them would
// lose what was once decided.
func decodeStrict[E any](b []byte) (any, error) {
	var e E
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err := d.Decode(&e); err != nil {
		return nil, err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("more than one JSON value")
	}
	return e, nil
}

// Encode returns the stored form of an event of a registered type.
func (r *Registry) Encode(event any) (EncodedEvent, error) {
	r.mu.RLock()
	c := r.mu.byType[reflect.TypeOf(event)]
	r.mu.RUnlock()
	if c == nil {
		return EncodedEvent{}, fmt.Errorf("encode event %T: %w: register the type", event, ErrUnknownEvent)
	}
	b, err := json.Marshal(event)
	if err != nil {
		return EncodedEvent{}, fmt.Errorf("encode event %s: %w", c.name, err)
	}
	if len(b) > MaxEventBytes {
		return EncodedEvent{}, fmt.Errorf("encode event %s: %d bytes, at most %d: %w", c.name, len(b), MaxEventBytes, ErrTooLarge)
	}
	return EncodedEvent{Type: c.name, Version: c.version, Data: b}, nil
}

// Decode returns the event as a value of its registered type, upcast to the
// current version. An unregistered type or a newer version is ErrUnknownEvent.
func (r *Registry) Decode(e EncodedEvent) (any, error) {
	r.mu.RLock()
	c := r.mu.byName[e.Type]
	r.mu.RUnlock()
	if c == nil {
		return nil, fmt.Errorf("decode event %s version %d: %w: no such type is registered; run the version of Runnel that wrote it, or a later one", e.Type, e.Version, ErrUnknownEvent)
	}
	if e.Version > c.version || e.Version == 0 {
		return nil, fmt.Errorf("decode event %s version %d: %w: this Runnel knows versions 1 to %d; run a later one", e.Type, e.Version, ErrUnknownEvent, c.version)
	}
	data := json.RawMessage(e.Data)
	for v := e.Version; v < c.version; v++ {
		var err error
		if data, err = c.upcasts[v-1](data); err != nil {
			return nil, fmt.Errorf("upcast event %s from version %d: %w", e.Type, v, err)
		}
	}
	ev, err := c.decode(data)
	if err != nil {
		return nil, fmt.Errorf("decode event %s version %d: %w", e.Type, e.Version, err)
	}
	return ev, nil
}
