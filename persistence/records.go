package persistence

import (
	"encoding/json"
	"fmt"
	"time"
)

// The kinds of records. Stored words: never renamed.
const (
	KindFrontier   = "frontier"
	KindLane       = "lane"
	KindDefinition = "definition"
	KindProgress   = "progress"
)

// RecordKey names one record.
type RecordKey struct {
	// Kind is one of the Kind constants, or a word of the caller's own.
	Kind string
	// Scope groups records that are read together: a capture, a kind of definition.
	Scope string
	// Name is the record within its scope; it may be empty.
	Name string
}

// Record is one small stored value.
type Record struct {
	RecordKey
	// Data is JSON, at most 1 MiB.
	Data []byte
	// Version counts the puts of this key from 1; the store sets it.
	Version uint64
	// Updated is when the last put was taken; the store sets it.
	Updated time.Time
}

// PutRequest is one atomic change of records, fenced by one shard.
type PutRequest struct {
	Shard   uint32
	Epoch   uint64
	Records []Record
	// Background lets appends and other puts go first. For display values that
	// the next second renews anyway, never for what a release waits for.
	Background bool
}

// DeleteRequest is one atomic removal of records, fenced by one shard.
type DeleteRequest struct {
	Shard uint32
	Epoch uint64
	Keys  []RecordKey
}

// Frontier is the record J of a capture.
type Frontier struct {
	// Capture is the record's scope: `source:lane group`.
	Capture string `json:"-"`
	// Position is the frontier, From where a reader must start to see every group
	// that is not in the target; both in the stored form of a position.
	Position string `json:"position"`
	From     string `json:"from"`
}

// Record is the stored form.
func (f Frontier) Record() (Record, error) {
	return encodeRecord(RecordKey{Kind: KindFrontier, Scope: f.Capture}, f)
}

// ParseFrontier reads a record of KindFrontier.
func ParseFrontier(r Record) (Frontier, error) {
	f := Frontier{Capture: r.Scope}
	return f, decodeRecord(r, KindFrontier, &f)
}

// The stored states of a lane.
const (
	LaneAttached = "attached"
	LaneDetached = "detached"
)

// Lane is the durable state of one lane.
type Lane struct {
	// Capture is the record's scope, Incarnation its name.
	Capture     string `json:"-"`
	Incarnation string `json:"-"`
	// State is LaneAttached or LaneDetached, moved by the capture only.
	State string `json:"state"`
	// Why is the reason of a detach; "" while attached.
	Why string `json:"why,omitempty"`
	// Bound is a position at or below every checkpoint of the lane.
	Bound string `json:"bound"`
}

// Record is the stored form.
func (l Lane) Record() (Record, error) {
	if l.Incarnation == "" {
		return Record{}, fmt.Errorf("encode lane of capture %q: the incarnation is empty", l.Capture)
	}
	if l.State != LaneAttached && l.State != LaneDetached {
		return Record{}, fmt.Errorf("encode lane %s: the state is %q, want %s or %s", l.Incarnation, l.State, LaneAttached, LaneDetached)
	}
	return encodeRecord(RecordKey{KindLane, l.Capture, l.Incarnation}, l)
}

// ParseLane reads a record of KindLane.
func ParseLane(r Record) (Lane, error) {
	l := Lane{Capture: r.Scope, Incarnation: r.Name}
	return l, decodeRecord(r, KindLane, &l)
}

// DefinitionRecord is what a user declared: a source, target or pipeline as given,
// without secrets.
type DefinitionRecord struct {
	// Kind is the record's scope ("source"), Name its name.
	Kind, Name string
	// JSON is the declaration.
	JSON json.RawMessage
	// Version and Updated are the record's; ignored by Record.
	Version uint64
	Updated time.Time
}

// Record is the stored form.
func (d DefinitionRecord) Record() (Record, error) {
	if !json.Valid(d.JSON) {
		return Record{}, fmt.Errorf("encode definition %s %s: it is not JSON", d.Kind, d.Name)
	}
	return Record{RecordKey: RecordKey{KindDefinition, d.Kind, d.Name}, Data: d.JSON}, nil
}

// ParseDefinition reads a record of KindDefinition.
func ParseDefinition(r Record) (DefinitionRecord, error) {
	if r.Kind != KindDefinition {
		return DefinitionRecord{}, fmt.Errorf("parse record %s/%s/%s: its kind is not %s", r.Kind, r.Scope, r.Name, KindDefinition)
	}
	return DefinitionRecord{Kind: r.Scope, Name: r.Name, JSON: r.Data, Version: r.Version, Updated: r.Updated}, nil
}

func encodeRecord(k RecordKey, v any) (Record, error) {
	b, err := json.Marshal(v)
	if err != nil {
		return Record{}, fmt.Errorf("encode %s %s/%s: %w", k.Kind, k.Scope, k.Name, err)
	}
	return Record{RecordKey: k, Data: b}, nil
}

func decodeRecord(r Record, kind string, v any) error {
	if r.Kind != kind {
		return fmt.Errorf("parse record %s/%s/%s: its kind is not %s", r.Kind, r.Scope, r.Name, kind)
	}
	if err := json.Unmarshal(r.Data, v); err != nil {
		return fmt.Errorf("parse %s %s/%s: %w", r.Kind, r.Scope, r.Name, err)
	}
	return nil
}
