package web

import (
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/runnel-dev/runnel/change"
	"github.com/runnel-dev/runnel/internal/tablesync"
)

func TestOverviewShowsWhatThereIs(t *testing.T) {
	w := call(newTestServer(t, Config{}), "GET", "/", "")
	if w.Code != http.StatusOK {
		t.Fatalf("got %d: %s", w.Code, w.Body)
	}
	page := w.Body.String()
	for _, want := range []string{
		"1,234,567", "40 ms", "2.0 s", "binlog.000007:4711", "db1:3306", "shop.orders", "streaming 2", "failed 1",
		"value too long for column name", "widen the column", "table shop.log", "add a primary key", "1 need attention", "3 of 3",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	csp := w.Header().Get("Content-Security-Policy")
	nonce := regexp.MustCompile(`script-src 'nonce-([A-Z0-9]+)'`).FindStringSubmatch(csp)
	if nonce == nil || strings.Count(page, `nonce="`+nonce[1]+`"`) != 2 {
		t.Errorf("policy %q does not fit the page", csp)
	}
	for _, outside := range []string{"<link", "src=", "@import", "url("} {
		if strings.Contains(page, outside) {
			t.Errorf("the page loads something: %s", outside)
		}
	}
}

func TestOverviewEscapesNames(t *testing.T) {
	f := newFake()
	f.tasks[0].Table = change.TableID{Schema: "<script>alert(1)</script>", Name: `"><b>`}
	f.tasks[0].Reason = "<img onerror=x>"
	s := newTestServer(t, Config{Control: f})
	for _, path := range []string{"/", `/?table=%22%3E%3Cscript%3E.x`} {
		page := call(s, "GET", path, "").Body.String()
		for _, bad := range []string{"<script>alert", "<img onerror", `"><script>`} {
			if strings.Contains(page, bad) {
				t.Errorf("%s: the page holds %s", path, bad)
			}
		}
	}
}

func TestOverviewFiltersAndPages(t *testing.T) {
	f := newFake()
	one := f.tasks[0]
	f.tasks = nil
	for i := range pageTasks + 5 {
		one.ID = "task/shop:0/" + string(rune('A'+i/26)) + string(rune('A'+i%26))
		f.tasks = append(f.tasks, one)
	}
	s := newTestServer(t, Config{Control: f})
	page := call(s, "GET", "/?table=&state=&source=shop&pipeline=", "").Body.String()
	next := regexp.MustCompile(`href="([^"]+)">next page`).FindStringSubmatch(page)
	if next == nil {
		t.Fatal("there is no link to the next page")
	}
	page = call(s, "GET", strings.ReplaceAll(next[1], "&amp;", "&"), "").Body.String()
	if !strings.Contains(page, "5 of 55") || strings.Contains(page, "next page") || !strings.Contains(page, "first page") {
		t.Error("the second page is not the last five of 55")
	}
	page = call(s, "GET", "/?state=nonsense", "").Body.String()
	if !strings.Contains(page, "is not known") || !strings.Contains(page, "No table matches") {
		t.Error("an unknown state is not named on the page")
	}
}

func TestOverviewOfAnEmptyServer(t *testing.T) {
	page := call(newTestServer(t, Config{Control: &fakeControl{}}), "GET", "/", "").Body.String()
	if !strings.Contains(page, "runnel apply -f FOLDER") {
		t.Error("the page does not tell how to begin")
	}
}

func TestTexts(t *testing.T) {
	for _, tc := range []struct{ got, want string }{
		{number(0), "0"}, {number(999), "999"}, {number(int64(1000)), "1,000"}, {number(uint64(1234567)), "1,234,567"}, {number(-1234), "-1,234"},
		{byteSize(0), "0 B"}, {byteSize(1536), "1.5 KiB"}, {byteSize(64 << 20), "64.0 MiB"},
		{lagText(0.0), "0"}, {lagText(0.0001), "<1 ms"}, {lagText(0.25), "250 ms"}, {lagText(12.34), "12.3 s"}, {lagText(90 * time.Second), "1 min 30 s"},
		{agoText(25 * time.Hour), "1 d 1 h"}, {agoText(-time.Second), "0 s"},
		{percent(5, 10), "50%"}, {percent(20, 10), "99%"}, {percent(5, 0), ""},
		{stateKind(tablesync.Streaming), "good"}, {stateKind(tablesync.NeedsResync), "bad"}, {stateKind(tablesync.Copying), "busy"},
		{hidePasswords("dial mysql://u:p4ss@h:1/: refused"), "dial mysql://u:***@h:1/: refused"},
	} {
		if tc.got != tc.want {
			t.Errorf("got %q, want %q", tc.got, tc.want)
		}
	}
}

func TestMetrics(t *testing.T) {
	f := newFake()
	for range 500 {
		f.tasks = append(f.tasks, f.tasks[0])
	}
	s := newTestServer(t, Config{Control: f})
	call(s, "GET", "/api/v1/sources/none", "")
	body := call(s, "GET", "/metrics", "").Body.String()
	for _, want := range []string{
		`runnel_tasks{source="shop",state="failed"} 1`, `runnel_tasks{source="shop",state="streaming"} 2`, `runnel_tasks{source="shop",state="paused"} 0`,
		`runnel_source_state{source="shop",state="reading"} 1`, `runnel_source_lag_seconds{source="shop"} 0.25`, `runnel_target_up{target="lake"} 1`,
		`runnel_rows_copied_total 1.234567e+06`, `runnel_apply_lag_p99_seconds 2`, `runnel_idle 1`, `runnel_build_info{version="1.2.3"} 1`,
		`runnel_http_requests_total{code="404",route="GET /api/v1/sources/{name}"} 1`,
	} {
		if !strings.Contains(body, want) {
			t.Errorf("metrics lack %s", want)
		}
	}
	if strings.Contains(body, "orders") {
		t.Error("a metric names a table")
	}
}

func TestClientSpeaksToTheServer(t *testing.T) {
	f := newFake()
	tokens, err := ParseTokens(strings.NewReader(goodToken))
	if err != nil {
		t.Fatal(err)
	}
	hs := httptest.NewServer(newTestServer(t, Config{Control: f, Tokens: tokens}).Handler())
	defer hs.Close()
	c, err := NewClient(strings.TrimPrefix(hs.URL, "http://"), goodToken)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	ctx := t.Context()
	page, err := c.Tasks(ctx, tablesync.TaskQuery{State: tablesync.Failed, Table: "shop.*", Limit: 5})
	if err != nil || page.Total != 1 {
		t.Errorf("tasks: got %+v, %v", page, err)
	}
	if res, err := c.Command(ctx, f.tasks[0].ID, "pause"); err != nil || res.State != tablesync.Paused {
		t.Errorf("pause: got %+v, %v", res, err)
	}
	if v, err := c.Task(ctx, f.tasks[0].ID); err != nil || v.Table.Name != "orders" {
		t.Errorf("task: got %+v, %v", v, err)
	}
	if _, err := c.Source(ctx, "no/such"); err == nil || !strings.Contains(err.Error(), "runnel source list") {
		t.Errorf("unknown source: got %v", err)
	}
	if err := c.Ready(ctx); err != nil {
		t.Errorf("ready: got %v", err)
	}
	if v, err := c.Version(ctx); err != nil || v.Version != "1.2.3" {
		t.Errorf("version: got %+v, %v", v, err)
	}
}

func TestClientErrorsSayWhatToDo(t *testing.T) {
	hs := httptest.NewServer(http.NotFoundHandler())
	c, err := NewClient(hs.URL, "")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Version(t.Context()); err == nil || !strings.Contains(err.Error(), "not Runnel's API") {
		t.Errorf("another server: got %v", err)
	}
	hs.Close()
	if _, err := c.Version(t.Context()); err == nil || !strings.Contains(err.Error(), "start it with: runnel server") {
		t.Errorf("no server: got %v", err)
	}
	for _, bad := range []string{"", "ftp://x", "http://u:hunter2@h:1", "http://u:hunter2@h:1:2"} {
		if _, err := NewClient(bad, ""); err == nil || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%q: got %v", bad, err)
		}
	}
}
