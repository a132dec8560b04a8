package runnel

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/runnel-dev/runnel/change"
	"github.com/runnel-dev/runnel/connector/mysql"
	"github.com/runnel-dev/runnel/internal/tablesync"
	"github.com/runnel-dev/runnel/internal/web"
)

// checkLimit bounds the check of one server or pipeline.
const checkLimit = 45 * time.Second

// Verdict is the outcome of checking one server or pipeline.
type Verdict struct {
	Subject string `json:"subject"`
	// Verified says what was looked at and found in order.
	Verified []string          `json:"verified"`
	Problems []*change.Problem `json:"problems"`
	// Notes are no problems, but people should know them.
	Notes []*change.Problem `json:"notes"`
}

// MarshalJSON implements json.Marshaler: lists without elements are [], not null.
func (v Verdict) MarshalJSON() ([]byte, error) {
	type plain Verdict
	p := plain(v)
	if p.Verified == nil {
		p.Verified = []string{}
	}
	if p.Problems == nil {
		p.Problems = []*change.Problem{}
	}
	if p.Notes == nil {
		p.Notes = []*change.Problem{}
	}
	return json.Marshal(p)
}

// fail adds an error as a problem.
func (v *Verdict) fail(err error) {
	var p *change.Problem
	if !errors.As(err, &p) {
		p = &change.Problem{Code: "check-failed", Subject: v.Subject, Cause: err.Error(), Remedy: "mend what the message names and check again"}
	}
	v.Problems = append(v.Problems, p)
}

// CheckAddress checks the server at mysql://user:password@host:port/ as a source or
// as a target. A password that the address leaves out is taken from the argument.
// The error is for an address that cannot be read; it never holds the password.
func CheckAddress(ctx context.Context, kind, address, password string) (Verdict, error) {
	cfg, err := parseAddress(address)
	if err != nil {
		return Verdict{}, err
	}
	if cfg.Password == "" {
		cfg.Password = password
	}
	cfg.Name = kind + " " + cfg.Addr
	if kind == tablesync.KindTarget {
		return checkTarget(ctx, cfg, mysql.SinkOptions{}), nil
	}
	return checkSource(ctx, cfg), nil
}

// CheckDefinitions connects to every server that is declared and looks for every
// table that is matched, at its source and at its target. References to servers
// that are declared elsewhere are problems, since nothing can be said about them.
// Nothing is written or stored.
func CheckDefinitions(ctx context.Context, d Definitions) []Verdict {
	var out []Verdict
	fit := servers{map[string]mysql.Config{}, map[string]target{}}
	for i := range d.Sources {
		s := &d.Sources[i]
		v := Verdict{Subject: tablesync.KindSource + " " + s.Name}
		if cfg, err := mysqlConfig(tablesync.KindSource, s); err != nil {
			v.fail(err)
		} else if v = checkSource(ctx, cfg); len(v.Problems) == 0 {
			fit.sources[s.Name] = cfg
		}
		out = append(out, v)
	}
	for i := range d.Targets {
		s := &d.Targets[i]
		v := Verdict{Subject: tablesync.KindTarget + " " + s.Name}
		if cfg, err := mysqlConfig(tablesync.KindTarget, s); err != nil {
			v.fail(err)
		} else if v = checkTarget(ctx, cfg, mysql.SinkOptions{Schema: s.Schema}); len(v.Problems) == 0 {
			fit.targets[s.Name] = target{cfg, mysql.SinkOptions{Schema: s.Schema}}
		}
		out = append(out, v)
	}
	taken := make(map[targetTable]string)
	declared := declaredNames(d)
	for i := range d.Pipelines {
		out = append(out, checkPipeline(ctx, &d.Pipelines[i], declared, fit, taken))
	}
	return out
}

func checkSource(ctx context.Context, cfg mysql.Config) Verdict {
	v := Verdict{Subject: cfg.Name}
	ctx, cancel := context.WithTimeout(ctx, checkLimit)
	defer cancel()
	src, err := mysql.NewSource(cfg, mysql.SourceOptions{})
	if err != nil {
		v.fail(err)
		return v
	}
	defer func() {
		if err := src.Close(); err != nil {
			v.fail(err)
		}
	}()
	if v.Problems, err = src.Check(ctx); err != nil {
		v.fail(err)
	}
	if len(v.Problems) > 0 {
		return v
	}
	at, err := src.Now(ctx)
	if err != nil {
		v.fail(err)
		return v
	}
	v.Verified = []string{
		fmt.Sprintf("%s accepts user %s", cfg.Addr, cfg.User),
		"the binary log is on, logs rows (binlog_format=ROW) and logs them in full (binlog_row_image=FULL)",
		"the account may read the log and the tables",
		"the log ends at " + at.Token,
	}
	return v
}

func checkTarget(ctx context.Context, cfg mysql.Config, o mysql.SinkOptions) Verdict {
	v := Verdict{Subject: cfg.Name}
	ctx, cancel := context.WithTimeout(ctx, checkLimit)
	defer cancel()
	sink, err := mysql.NewSink(cfg, o)
	if err != nil {
		v.fail(err)
		return v
	}
	defer func() {
		if err := sink.Close(); err != nil {
			v.fail(err)
		}
	}()
	if v.Problems, err = sink.Check(ctx); err != nil {
		v.fail(err)
	}
	if len(v.Problems) == 0 {
		v.Verified = []string{
			fmt.Sprintf("%s accepts user %s", cfg.Addr, cfg.User),
			"it is writable and has a transactional engine",
			"the account may create and write tables",
		}
	}
	return v
}

// IsConfigFile tells a configuration of the process from a file with definitions:
// its document has no kind.
func IsConfigFile(path string) bool {
	r, err := os.Open(path)
	if err != nil {
		return false
	}
	defer r.Close()
	docs := documents(&faults{file: path}, io.LimitReader(r, maxDefinitionBytes))
	if len(docs) != 1 || docs[0].Kind != yaml.MappingNode {
		return false
	}
	kind, _ := kindOf(docs[0])
	return kind == ""
}

// CheckConfig reads a configuration and tries what it names. The error is for a
// file that cannot be accepted.
func CheckConfig(path string) (Verdict, error) {
	v := Verdict{Subject: "configuration " + path}
	c, err := LoadConfig(path)
	if err != nil {
		return v, err
	}
	if c.TokenFile != "" {
		if _, err := web.LoadTokens(c.TokenFile); err != nil {
			v.Problems = append(v.Problems, &change.Problem{
				Code: "token-file", Subject: "tokenFile", Cause: err.Error(), Remedy: "write one access token per line to it, for example from: openssl rand -hex 24",
			})
		} else {
			v.Verified = append(v.Verified, "clients need an access token of "+c.TokenFile)
		}
	}
	v.Verified = append(v.Verified, "it listens on "+c.Listen, "its state is in "+c.DataDir)
	return v, nil
}
