package tablesync

import (
	"errors"
	"fmt"
	"net"
	"regexp"
	"strings"
	"time"

	"github.com/runnel-dev/runnel/change"
)

// Kinds of definitions.
const (
	KindSource   = "source"
	KindTarget   = "target"
	KindPipeline = "pipeline"
)

// ServerSpec declares a source or a target server. It names where the password
// is, never the password.
type ServerSpec struct {
	Name string `json:"name" yaml:"name"`
	// Type is the connector: "mysql" (MySQL and MariaDB).
	Type    string `json:"type" yaml:"type"`
	Address string `json:"address" yaml:"address"` // host:port
	User    string `json:"user" yaml:"user"`
	// PasswordFile or PasswordEnv says where the password is; both empty: none.
	PasswordFile string  `json:"passwordFile,omitempty" yaml:"passwordFile"`
	PasswordEnv  string  `json:"passwordEnv,omitempty" yaml:"passwordEnv"`
	TLS          TLSSpec `json:"tls,omitzero" yaml:"tls"`
	// Schema is where a target keeps fence and checkpoints; "runnel" when empty.
	Schema string `json:"schema,omitempty" yaml:"schema"`
	// Connections is a target's number of apply connections; 2 when zero.
	Connections int `json:"connections,omitempty" yaml:"connections"`
	// CopyReaders is how many tables of a source are copied at once; 2 when zero.
	CopyReaders int               `json:"copyReaders,omitempty" yaml:"copyReaders"`
	Labels      map[string]string `json:"labels,omitempty" yaml:"labels"`
}

// TLSSpec says how to encrypt: Mode "" or "disabled", "required" (no check of the
// certificate) or "verify".
type TLSSpec struct {
	Mode     string `json:"mode,omitempty" yaml:"mode"`
	CAFile   string `json:"caFile,omitempty" yaml:"caFile"`
	CertFile string `json:"certFile,omitempty" yaml:"certFile"`
	KeyFile  string `json:"keyFile,omitempty" yaml:"keyFile"`
}

// PipelineSpec declares the tasks of the tables that match.
type PipelineSpec struct {
	Name   string    `json:"name" yaml:"name"`
	Source string    `json:"source" yaml:"source"`
	Target string    `json:"target" yaml:"target"`
	Tables TableSpec `json:"tables" yaml:"tables"`
	Route  RouteSpec `json:"route,omitzero" yaml:"route"`
	// DDL is the policy for schema changes: "apply" (default) or "stop".
	DDL string `json:"ddl,omitempty" yaml:"ddl"`
	// Existing says what to do about target tables that hold rows before their task
	// begins: "" refuses them, "empty" removes the rows, "keep" leaves rows that the
	// source does not have.
	Existing string `json:"existing,omitempty" yaml:"existing"`
	// ChunkRows is the size of a copy chunk; 10,000 when zero.
	ChunkRows int               `json:"chunkRows,omitempty" yaml:"chunkRows"`
	Labels    map[string]string `json:"labels,omitempty" yaml:"labels"`
	// Created is when the pipeline was declared; the engine sets it.
	Created time.Time `json:"created,omitzero" yaml:"-"`
}

// TableSpec selects tables by "schema.table" patterns; * matches any run of
// characters, ? one. A table is selected when an include and no exclude matches.
type TableSpec struct {
	Include []string `json:"include" yaml:"include"`
	Exclude []string `json:"exclude,omitempty" yaml:"exclude"`
}

// RouteSpec names the target table; {schema} and {table} stand for the source's.
type RouteSpec struct {
	Schema string `json:"schema,omitempty" yaml:"schema"` // "{schema}" when empty
	Table  string `json:"table,omitempty" yaml:"table"`   // "{table}" when empty
}

var nameForm = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]{0,62}$`)

func checkName(kind, name string) error {
	if !nameForm.MatchString(name) {
		return fmt.Errorf("%s name %q: want 1 to 63 of a-z, 0-9, - and _, starting with a letter or digit", kind, name)
	}
	return nil
}

// Validate reports every fault of the specification at once.
func (s *ServerSpec) Validate(kind string) error {
	var errs []error
	bad := func(format string, a ...any) {
		errs = append(errs, fmt.Errorf("%s %s: "+format, append([]any{kind, s.Name}, a...)...))
	}
	if err := checkName(kind, s.Name); err != nil {
		errs = append(errs, err)
	}
	if s.Type != "mysql" {
		bad("type %q is not known; use mysql (for MySQL and MariaDB)", s.Type)
	}
	if strings.Contains(s.Address, "@") { // it may hold a password: not repeated
		bad("address holds a user or a password; want host:port, with user, and passwordEnv or passwordFile, beside it")
	} else if host, port, err := net.SplitHostPort(s.Address); err != nil || host == "" || port == "" {
		bad("address %q: want host:port", s.Address)
	}
	if s.User == "" {
		bad("user is missing")
	}
	if s.PasswordFile != "" && s.PasswordEnv != "" {
		bad("passwordFile and passwordEnv are both set; keep one")
	}
	switch s.TLS.Mode {
	case "", "disabled", "required", "verify":
	default:
		bad("tls.mode %q: want disabled, required or verify", s.TLS.Mode)
	}
	if s.Connections < 0 || s.Connections > 64 {
		bad("connections %d: want 1 to 64", s.Connections)
	}
	if s.CopyReaders < 0 || s.CopyReaders > 64 {
		bad("copyReaders %d: want 1 to 64", s.CopyReaders)
	}
	return errors.Join(errs...)
}

// Validate reports every fault of the specification at once.
func (p *PipelineSpec) Validate() error {
	var errs []error
	bad := func(format string, a ...any) {
		errs = append(errs, fmt.Errorf("pipeline %s: "+format, append([]any{p.Name}, a...)...))
	}
	if err := checkName(KindPipeline, p.Name); err != nil {
		errs = append(errs, err)
	}
	if p.Source == "" {
		bad("source is missing")
	}
	if p.Target == "" {
		bad("target is missing")
	}
	if len(p.Tables.Include) == 0 {
		bad("tables.include is empty; name at least one pattern such as shop.*")
	}
	for _, pat := range append(p.Tables.Include[:len(p.Tables.Include):len(p.Tables.Include)], p.Tables.Exclude...) {
		if !strings.Contains(pat, ".") {
			bad("pattern %q: want schema.table", pat)
		}
	}
	switch p.DDL {
	case "", "apply", "stop":
	default:
		bad("ddl %q: want apply or stop", p.DDL)
	}
	switch p.Existing {
	case "", "empty", "keep":
	default:
		bad("existing %q: want empty or keep, or leave it out to refuse tables with rows", p.Existing)
	}
	if p.ChunkRows < 0 || p.ChunkRows > 1_000_000 {
		bad("chunkRows %d: want 1 to 1000000", p.ChunkRows)
	}
	for _, r := range []string{p.Route.Schema, p.Route.Table} {
		if rest := strings.NewReplacer("{schema}", "", "{table}", "").Replace(r); strings.ContainsAny(rest, "{}") {
			bad("route %q: only {schema} and {table} may stand in braces", r)
		}
	}
	return errors.Join(errs...)
}

// existing is what Prepare does about a table that a new task finds.
func (p *PipelineSpec) existing() change.ExistingTable {
	switch p.Existing {
	case "empty":
		return change.EmptyTable
	case "keep":
		return change.KeepTable
	}
	return change.FreshTable
}

// TargetOf returns where the pipeline puts a source table.
func (p *PipelineSpec) TargetOf(t change.TableID) change.TableID {
	r := strings.NewReplacer("{schema}", t.Schema, "{table}", t.Name)
	out := t
	if p.Route.Schema != "" {
		out.Schema = r.Replace(p.Route.Schema)
	}
	if p.Route.Table != "" {
		out.Name = r.Replace(p.Route.Table)
	}
	return out
}

// Matches reports whether the pipeline selects the table.
func (p *PipelineSpec) Matches(t change.TableID) bool {
	in := false
	for _, pat := range p.Tables.Include {
		in = in || matchTable(pat, t)
	}
	if !in {
		return false
	}
	for _, pat := range p.Tables.Exclude {
		if matchTable(pat, t) {
			return false
		}
	}
	return true
}

// matchTable splits the pattern at its first dot: schema names with a dot are
// reached with ?.
func matchTable(pattern string, t change.TableID) bool {
	schema, name, _ := strings.Cut(pattern, ".")
	return matchGlob(schema, t.Schema) && matchGlob(name, t.Name)
}

// matchGlob matches * and ? over whole strings in linear time.
func matchGlob(p, s string) bool {
	star, mark := -1, 0
	i, j := 0, 0
	for j < len(s) {
		switch {
		case i < len(p) && p[i] == '*':
			star, mark = i, j
			i++
		case i < len(p) && (p[i] == '?' || p[i] == s[j]):
			i, j = i+1, j+1
		case star >= 0:
			mark++
			i, j = star+1, mark
		default:
			return false
		}
	}
	for i < len(p) && p[i] == '*' {
		i++
	}
	return i == len(p)
}

// Definitions are the documents of one apply.
type Definitions struct {
	Sources   []ServerSpec
	Targets   []ServerSpec
	Pipelines []PipelineSpec
}

// Validate checks each document and the references between them; known tells
// what exists beside them.
func (d *Definitions) Validate(known func(kind, name string) bool) error {
	var errs []error
	seen := map[string]bool{}
	once := func(kind, name string) {
		if seen[kind+"/"+name] {
			errs = append(errs, fmt.Errorf("%s %s: declared twice", kind, name))
		}
		seen[kind+"/"+name] = true
	}
	for i := range d.Sources {
		errs = append(errs, d.Sources[i].Validate(KindSource))
		once(KindSource, d.Sources[i].Name)
	}
	for i := range d.Targets {
		errs = append(errs, d.Targets[i].Validate(KindTarget))
		once(KindTarget, d.Targets[i].Name)
	}
	for i := range d.Pipelines {
		p := &d.Pipelines[i]
		errs = append(errs, p.Validate())
		once(KindPipeline, p.Name)
		for _, ref := range [][2]string{{KindSource, p.Source}, {KindTarget, p.Target}} {
			if ref[1] != "" && !seen[ref[0]+"/"+ref[1]] && !known(ref[0], ref[1]) {
				errs = append(errs, fmt.Errorf("pipeline %s: %s %q does not exist; declare it in the same folder or apply it first", p.Name, ref[0], ref[1]))
			}
		}
	}
	return errors.Join(errs...)
}
