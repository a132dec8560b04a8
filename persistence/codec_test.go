package persistence

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
)

type renamed struct {
	Table string
	Why   string
}

func registryOf(t *testing.T, upcasts ...Upcast) *Registry {
	t.Helper()
	r := NewRegistry()
	if err := RegisterEvent[renamed](r, "renamed", upcasts...); err != nil {
		t.Fatal(err)
	}
	return r
}

// Version 1 had "t", version 2 "table" in lower case, version 3 has a reason.
func upcasts() []Upcast {
	return []Upcast{
		func(old json.RawMessage) (json.RawMessage, error) {
			var v struct{ T string }
			if err := json.Unmarshal(old, &v); err != nil {
				return nil, err
			}
			return json.Marshal(map[string]string{"table": v.T})
		},
		func(old json.RawMessage) (json.RawMessage, error) {
			var v struct{ Table string }
			if err := json.Unmarshal(old, &v); err != nil {
				return nil, err
			}
			return json.Marshal(renamed{v.Table, "unknown"})
		},
	}
}

func TestDecode(t *testing.T) {
	r := registryOf(t, upcasts()...)
	tests := []struct {
		name string
		in   EncodedEvent
		want renamed
		err  string // in the error; "" wants none
		is   error
	}{
		{"version 1", EncodedEvent{"renamed", 1, []byte(`{"t":"a"}`)}, renamed{"a", "unknown"}, "", nil},
		{"version 2", EncodedEvent{"renamed", 2, []byte(`{"table":"b"}`)}, renamed{"b", "unknown"}, "", nil},
		{"version 3", EncodedEvent{"renamed", 3, []byte(`{"Table":"c","Why":"d"}`)}, renamed{"c", "d"}, "", nil},
		{"newer version", EncodedEvent{"renamed", 4, []byte(`{}`)}, renamed{}, "renamed version 4", ErrUnknownEvent},
		{"version 0", EncodedEvent{"renamed", 0, []byte(`{}`)}, renamed{}, "renamed version 0", ErrUnknownEvent},
		{"unknown type", EncodedEvent{"moved", 2, []byte(`{}`)}, renamed{}, "moved version 2", ErrUnknownEvent},
		{"field that would be lost", EncodedEvent{"renamed", 3, []byte(`{"Table":"c","Who":"e"}`)}, renamed{}, "Who", nil},
		{"two values", EncodedEvent{"renamed", 3, []byte(`{} {}`)}, renamed{}, "more than one", nil},
		{"no JSON", EncodedEvent{"renamed", 3, []byte(`x`)}, renamed{}, "renamed version 3", nil},
		{"failing upcast", EncodedEvent{"renamed", 1, []byte(`x`)}, renamed{}, "upcast event renamed from version 1", nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := r.Decode(tt.in)
			if tt.err == "" {
				if err != nil || got != tt.want {
					t.Errorf("got %+v, %v, want %+v", got, err, tt.want)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), tt.err) || tt.is != nil && !errors.Is(err, tt.is) {
				t.Errorf("got %v, want an error with %q that is %v", err, tt.err, tt.is)
			}
		})
	}
}

func TestEncode(t *testing.T) {
	r := registryOf(t, upcasts()...)
	e, err := r.Encode(renamed{"a", "b"})
	if err != nil || e.Type != "renamed" || e.Version != 3 || string(e.Data) != `{"Table":"a","Why":"b"}` {
		t.Errorf("got %s version %d %s, %v", e.Type, e.Version, e.Data, err)
	}
	for name, v := range map[string]any{"pointer": &renamed{}, "other type": struct{}{}, "nil": nil} {
		if _, err := r.Encode(v); !errors.Is(err, ErrUnknownEvent) {
			t.Errorf("%s: got %v, want %v", name, err, ErrUnknownEvent)
		}
	}
	if _, err := r.Encode(renamed{Table: strings.Repeat("x", MaxEventBytes)}); !errors.Is(err, ErrTooLarge) {
		t.Errorf("got %v, want %v", err, ErrTooLarge)
	}
}

func TestRegisterRefuses(t *testing.T) {
	r := registryOf(t)
	type other struct{}
	for name, err := range map[string]error{
		"name taken": RegisterEvent[other](r, "renamed"),
		"type twice": RegisterEvent[renamed](r, "again"),
		"no name":    RegisterEvent[other](r, ""),
		"pointer":    RegisterEvent[*other](r, "pointer"),
		"interface":  RegisterEvent[error](r, "interface"),
	} {
		if err == nil {
			t.Errorf("%s: got nil, want an error", name)
		}
	}
}

func TestRecordForms(t *testing.T) {
	if _, err := (Lane{Capture: "a", Incarnation: "b", State: "half"}).Record(); err == nil || !strings.Contains(err.Error(), "half") {
		t.Errorf("got %v, want a refusal of the state", err)
	}
	if _, err := (Lane{Capture: "a", State: LaneAttached}).Record(); err == nil {
		t.Error("got nil, want a refusal of the empty incarnation")
	}
	if _, err := (DefinitionRecord{Kind: "source", Name: "a", JSON: []byte("x")}).Record(); err == nil {
		t.Error("got nil, want a refusal of what is not JSON")
	}
	r, err := Frontier{Capture: "shop:0", Position: "p", From: "f"}.Record()
	if want := `{"position":"p","from":"f"}`; err != nil || string(r.Data) != want {
		t.Errorf("got %s, %v, want %s", r.Data, err, want)
	}
	if _, err := ParseLane(r); err == nil || !strings.Contains(err.Error(), "lane") {
		t.Errorf("got %v, want a refusal of the kind", err)
	}
	r, err = DefinitionRecord{Kind: "source", Name: "a", JSON: []byte(`{"x":1}`)}.Record()
	if err != nil {
		t.Fatal(err)
	}
	r.Version = 4
	d, err := ParseDefinition(r)
	if err != nil || d.Kind != "source" || d.Name != "a" || string(d.JSON) != `{"x":1}` || d.Version != 4 {
		t.Errorf("got %+v, %v", d, err)
	}
}
