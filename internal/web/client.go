package web

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/runnel-dev/runnel/change"
	"github.com/runnel-dev/runnel/internal/tablesync"
)

// ErrUnreachable says that no server answered at the address.
var ErrUnreachable = errors.New("no Runnel server answers")

// maxAnswerBytes bounds what the client reads of one answer.
const maxAnswerBytes = 64 << 20

// Client speaks to the API of one server. Errors of the API are *Problem.
type Client struct {
	base  *url.URL
	token string
	http  *http.Client
}

// NewClient makes a client for host:port, or for a URL. The token may be empty.
func NewClient(server, token string) (*Client, error) {
	if !strings.Contains(server, "://") {
		server = "http://" + server
	}
	u, err := url.Parse(server)
	if err != nil || u.Host == "" || (u.Scheme != "http" && u.Scheme != "https") {
		return nil, fmt.Errorf("server address %q: want host:port or http://host:port", hidePasswords(server))
	}
	if u.User != nil {
		return nil, errors.New("server address: leave user and password out; name the file with the access token with --token-file")
	}
	u.Path, u.RawQuery, u.Fragment = strings.TrimRight(u.Path, "/"), "", ""
	transport := &http.Transport{
		Proxy:                 http.ProxyFromEnvironment,
		DialContext:           (&net.Dialer{Timeout: 5 * time.Second}).DialContext,
		ResponseHeaderTimeout: 5 * time.Minute,
		MaxIdleConnsPerHost:   4,
		IdleConnTimeout:       30 * time.Second,
	}
	return &Client{base: u, token: token, http: &http.Client{Transport: transport}}, nil
}

// URL is where the server is, without a slash at its end.
func (c *Client) URL() string { return c.base.String() }

// Close drops idle connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Version tells what runs at the server.
func (c *Client) Version(ctx context.Context) (v Version, err error) {
	return v, c.get(ctx, "/api/v1/version", nil, &v)
}

// Counters returns the totals since the process started.
func (c *Client) Counters(ctx context.Context) (v tablesync.Counters, err error) {
	return v, c.get(ctx, "/api/v1/counters", nil, &v)
}

// Sources lists all sources by name.
func (c *Client) Sources(ctx context.Context) ([]tablesync.SourceView, error) {
	var v SourceList
	err := c.get(ctx, "/api/v1/sources", nil, &v)
	return v.Sources, err
}

// Source returns one source.
func (c *Client) Source(ctx context.Context, name string) (v tablesync.SourceView, err error) {
	return v, c.get(ctx, "/api/v1/sources/"+url.PathEscape(name), nil, &v)
}

// Targets lists all targets by name.
func (c *Client) Targets(ctx context.Context) ([]tablesync.TargetView, error) {
	var v TargetList
	err := c.get(ctx, "/api/v1/targets", nil, &v)
	return v.Targets, err
}

// Target returns one target.
func (c *Client) Target(ctx context.Context, name string) (v tablesync.TargetView, err error) {
	return v, c.get(ctx, "/api/v1/targets/"+url.PathEscape(name), nil, &v)
}

// Pipelines lists all pipelines by name.
func (c *Client) Pipelines(ctx context.Context) ([]tablesync.PipelineView, error) {
	var v PipelineList
	err := c.get(ctx, "/api/v1/pipelines", nil, &v)
	return v.Pipelines, err
}

// Pipeline returns one pipeline.
func (c *Client) Pipeline(ctx context.Context, name string) (v tablesync.PipelineView, err error) {
	return v, c.get(ctx, "/api/v1/pipelines/"+url.PathEscape(name), nil, &v)
}

// Tasks returns one page.
func (c *Client) Tasks(ctx context.Context, q tablesync.TaskQuery) (v tablesync.TaskPage, err error) {
	p := url.Values{}
	for k, s := range map[string]string{
		"state": string(q.State), "pipeline": q.Pipeline, "source": q.Source, "table": q.Table, "after": q.After,
	} {
		if s != "" {
			p.Set(k, s)
		}
	}
	if q.Limit > 0 {
		p.Set("limit", strconv.Itoa(q.Limit))
	}
	return v, c.get(ctx, "/api/v1/tasks", p, &v)
}

// Task returns one task.
func (c *Client) Task(ctx context.Context, id string) (v tablesync.TaskView, err error) {
	return v, c.get(ctx, "/api/v1/tasks/"+url.PathEscape(id), nil, &v)
}

// Command gives a task one of Verbs and returns where it stands then.
func (c *Client) Command(ctx context.Context, id, verb string) (v CommandResult, err error) {
	return v, c.post(ctx, "/api/v1/tasks/"+url.PathEscape(id)+"/"+url.PathEscape(verb), nil, &v)
}

// Apply makes definitions true, or tells what it would change.
func (c *Client) Apply(ctx context.Context, d tablesync.Definitions, o tablesync.ApplyOptions) ([]tablesync.Difference, error) {
	var v ApplyResult
	err := c.post(ctx, "/api/v1/apply", ApplyRequest{Definitions: DefinitionSet(d), DryRun: o.DryRun, Prune: o.Prune}, &v)
	return v.Differences, err
}

// Check lets the server connect to everything that is named.
func (c *Client) Check(ctx context.Context, d tablesync.Definitions) ([]*change.Problem, error) {
	var v CheckResult
	err := c.post(ctx, "/api/v1/check", CheckRequest{Definitions: DefinitionSet(d)}, &v)
	return v.Problems, err
}

// Ready returns nil when the server is ready to work.
func (c *Client) Ready(ctx context.Context) error { return c.get(ctx, "/readyz", nil, &struct{}{}) }

func (c *Client) get(ctx context.Context, path string, params url.Values, into any) error {
	if len(params) > 0 {
		path += "?" + params.Encode()
	}
	return c.do(ctx, http.MethodGet, path, nil, into)
}

func (c *Client) post(ctx context.Context, path string, body, into any) error {
	b := []byte("{}")
	if body != nil {
		var err error
		if b, err = json.Marshal(body); err != nil {
			return fmt.Errorf("encode request: %w", err)
		}
	}
	return c.do(ctx, http.MethodPost, path, b, into)
}

func (c *Client) do(ctx context.Context, method, path string, body []byte, into any) error {
	req, err := http.NewRequestWithContext(ctx, method, c.base.String()+path, bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("make request: %w", err)
	}
	req.Header.Set("Accept", "application/json, application/problem+json")
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if c.token != "" {
		req.Header.Set("Authorization", "Bearer "+c.token)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return c.unreachable(ctx, err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswerBytes+1))
	switch {
	case err != nil:
		return fmt.Errorf("read answer of %s %s: %w", method, path, err)
	case len(b) > maxAnswerBytes:
		return fmt.Errorf("read answer of %s %s: larger than %d bytes", method, path, maxAnswerBytes)
	case resp.StatusCode >= 300:
		return problemFrom(resp, b, c.base)
	}
	if err := json.Unmarshal(b, into); err != nil {
		return fmt.Errorf("read answer of %s %s: %w", method, path, err)
	}
	return nil
}

func (c *Client) unreachable(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	var op *net.OpError
	if errors.As(err, &op) && op.Op == "dial" {
		return fmt.Errorf("%w at %s (%w); start it with: runnel server, or name another with --server", ErrUnreachable, c.base, op.Err)
	}
	return fmt.Errorf("%w at %s: %w", ErrUnreachable, c.base, err)
}

// problemFrom reads a problem document. Whatever else answers is not ours.
func problemFrom(resp *http.Response, b []byte, base *url.URL) error {
	p := new(Problem)
	kind := resp.Header.Get("Content-Type")
	if !strings.HasPrefix(kind, "application/problem+json") || json.Unmarshal(b, p) != nil || p.Code == "" {
		return fmt.Errorf("%s answers %s with %q, which is not Runnel's API", base, resp.Status, kind)
	}
	return p
}
