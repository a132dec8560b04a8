package web

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/runnel-dev/runnel/change"
	"github.com/runnel-dev/runnel/internal/tablesync"
)

type apiDocument struct {
	OpenAPI string
	Paths   map[string]map[string]struct {
		OperationID string
		Parameters  []struct{ Name, In string }
		Security    *[]any
		Responses   map[string]any
	}
	Components struct{ Schemas map[string]apiSchema }
}

type apiSchema struct {
	Type       string
	Enum       []string
	Properties map[string]json.RawMessage
	Required   []string
}

func readDocument(t *testing.T) apiDocument {
	t.Helper()
	var d apiDocument
	wantOK(t, call(newTestServer(t, Config{}), "GET", "/api/v1/openapi.json", ""), &d)
	return d
}

func TestDocumentDescribesExactlyTheRoutes(t *testing.T) {
	d := readDocument(t)
	if d.OpenAPI != "3.1.0" {
		t.Errorf("version: got %s", d.OpenAPI)
	}
	var want []string
	open := map[string]bool{}
	for _, rt := range newTestServer(t, Config{}).routes() {
		key := strings.ToLower(rt.method) + " " + rt.path
		want = append(want, key)
		open[key] = rt.open
	}
	var got []string
	ids := map[string]bool{}
	for path, ops := range d.Paths {
		for method, op := range ops {
			key := method + " " + path
			got = append(got, key)
			if op.OperationID == "" || ids[op.OperationID] {
				t.Errorf("%s: operation id %q is empty or taken", key, op.OperationID)
			}
			ids[op.OperationID] = true
			if op.Responses["default"] == nil || op.Responses["200"] == nil {
				t.Errorf("%s: responses %v lack 200 or default", key, op.Responses)
			}
			if (op.Security != nil) != open[key] {
				t.Errorf("%s: the document and the route do not agree on the token", key)
			}
			for _, p := range op.Parameters {
				if p.In == "path" && !strings.Contains(path, "{"+p.Name+"}") {
					t.Errorf("%s: no {%s} in the path", key, p.Name)
				}
			}
		}
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("got %v\nwant %v", got, want)
	}
	var params []string
	for _, p := range d.Paths["/api/v1/tasks"]["get"].Parameters {
		params = append(params, p.Name)
	}
	slices.Sort(params)
	if !slices.Equal(params, taskParams) {
		t.Errorf("parameters of the task list: got %v, want %v", params, taskParams)
	}
}

func TestDocumentDescribesExactlyTheTypes(t *testing.T) {
	d := readDocument(t)
	types := map[string]reflect.Type{
		"TableID": reflect.TypeFor[change.TableID](), "Finding": reflect.TypeFor[change.Problem](),
		"TLS": reflect.TypeFor[tablesync.TLSSpec](), "TableSelection": reflect.TypeFor[tablesync.TableSpec](),
		"Route": reflect.TypeFor[tablesync.RouteSpec](), "ServerSpec": reflect.TypeFor[tablesync.ServerSpec](),
		"PipelineSpec": reflect.TypeFor[tablesync.PipelineSpec](), "SourceView": reflect.TypeFor[tablesync.SourceView](),
		"TargetView": reflect.TypeFor[tablesync.TargetView](), "PipelineView": reflect.TypeFor[tablesync.PipelineView](),
		"TaskView": reflect.TypeFor[tablesync.TaskView](), "TaskPage": reflect.TypeFor[tablesync.TaskPage](),
		"Counters": reflect.TypeFor[tablesync.Counters](), "Difference": reflect.TypeFor[tablesync.Difference](),
		"DefinitionSet": reflect.TypeFor[DefinitionSet](), "ApplyRequest": reflect.TypeFor[ApplyRequest](),
		"ApplyResult": reflect.TypeFor[ApplyResult](), "CheckRequest": reflect.TypeFor[CheckRequest](),
		"CheckResult": reflect.TypeFor[CheckResult](), "CommandResult": reflect.TypeFor[CommandResult](),
		"Version": reflect.TypeFor[Version](), "Problem": reflect.TypeFor[Problem](),
		"SourceList": reflect.TypeFor[SourceList](), "TargetList": reflect.TypeFor[TargetList](), "PipelineList": reflect.TypeFor[PipelineList](),
	}
	for name, typ := range types {
		schema, ok := d.Components.Schemas[name]
		if !ok {
			t.Errorf("schema %s is missing", name)
			continue
		}
		want := map[string]bool{} // name → always there
		jsonFields(typ, want)
		for f, always := range want {
			if schema.Properties[f] == nil {
				t.Errorf("schema %s lacks %q", name, f)
			}
			if slices.Contains(schema.Required, f) && !always {
				t.Errorf("schema %s requires %q, which may be absent", name, f)
			}
		}
		for f := range schema.Properties {
			if _, ok := want[f]; !ok {
				t.Errorf("schema %s has %q, which is never sent", name, f)
			}
		}
	}
	for name := range d.Components.Schemas {
		if _, ok := types[name]; !ok && name != "State" && name != "Status" {
			t.Errorf("schema %s belongs to no type", name)
		}
	}
}

func TestDocumentNamesTheStatesAndVerbs(t *testing.T) {
	d := readDocument(t)
	var want []string
	for _, s := range tablesync.States {
		want = append(want, string(s))
	}
	if got := d.Components.Schemas["State"].Enum; !slices.Equal(got, want) {
		t.Errorf("states: got %v, want %v", got, want)
	}
	for _, v := range Verbs {
		if !strings.Contains(string(d.Components.Schemas["CommandResult"].Properties["verb"]), `"`+v+`"`) {
			t.Errorf("verb %s is missing", v)
		}
	}
}

// TestDocumentReferencesResolve follows every $ref.
func TestDocumentReferencesResolve(t *testing.T) {
	var root any
	if err := json.Unmarshal(openAPI, &root); err != nil {
		t.Fatal(err)
	}
	var walk func(v any)
	walk = func(v any) {
		switch x := v.(type) {
		case map[string]any:
			if ref, ok := x["$ref"].(string); ok && lookup(root, ref) == nil {
				t.Errorf("%s leads nowhere", ref)
			}
			for _, c := range x {
				walk(c)
			}
		case []any:
			for _, c := range x {
				walk(c)
			}
		}
	}
	walk(root)
}

func lookup(v any, ref string) any {
	for _, part := range strings.Split(strings.TrimPrefix(ref, "#/"), "/") {
		m, ok := v.(map[string]any)
		if !ok {
			return nil
		}
		v = m[part]
	}
	return v
}

// jsonFields collects the names a type is encoded with, and which are always there.
func jsonFields(t reflect.Type, into map[string]bool) {
	for i := range t.NumField() {
		f := t.Field(i)
		if f.Anonymous && f.Tag.Get("json") == "" {
			jsonFields(f.Type, into)
			continue
		}
		name, opts, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name != "" && name != "-" {
			into[name] = !strings.Contains(opts, "omitempty") && !strings.Contains(opts, "omitzero")
		}
	}
}
