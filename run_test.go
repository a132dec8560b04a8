package runnel

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/runnel-dev/runnel/change"
	"github.com/runnel-dev/runnel/internal/tablesync"
	"github.com/runnel-dev/runnel/internal/testdb"
	"github.com/runnel-dev/runnel/internal/web"
)

// running is a Run that a test can speak to and end.
type running struct {
	client *web.Client
	stop   context.CancelFunc
	ended  chan error
}

func start(t *testing.T, cfg Config, token string) *running {
	t.Helper()
	cfg.Listen = "127.0.0.1:0"
	cfg.Fill()
	ctx, stop := context.WithCancel(t.Context())
	r := &running{stop: stop, ended: make(chan error, 1)}
	address := make(chan string, 1)
	log := slog.New(slog.NewTextHandler(testLog{t}, nil))
	go func() {
		r.ended <- Run(ctx, cfg, RunOptions{Log: log, Version: BuildVersion(), Listening: func(a string) { address <- a }})
	}()
	t.Cleanup(stop)
	select {
	case a := <-address:
		var err error
		if r.client, err = web.NewClient(a, token); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(r.client.Close)
	case err := <-r.ended:
		t.Fatalf("run ended at once: %v", err)
	}
	r.until(t, "ready", func(ctx context.Context) bool { return r.client.Ready(ctx) == nil })
	return r
}

// end stops the run and waits for it.
func (r *running) end(t *testing.T) {
	t.Helper()
	r.stop()
	if err := <-r.ended; err != nil {
		t.Fatalf("run: %v", err)
	}
}

// until asks again and again until the answer is yes or the test's time is over.
func (r *running) until(t *testing.T, what string, yes func(context.Context) bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !yes(ctx) {
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("wait until %s: %v", what, ctx.Err())
		}
	}
}

type testLog struct{ t *testing.T }

func (l testLog) Write(b []byte) (int, error) {
	if l.t.Context().Err() == nil {
		l.t.Log(strings.TrimSpace(string(b)))
	}
	return len(b), nil
}

func TestRunSyncsATableAndGoesOnAfterARestart(t *testing.T) {
	src := newServer(t, testdb.MariaDBOptions{}, "ALL PRIVILEGES")
	dst := newServer(t, testdb.MariaDBOptions{}, "ALL PRIVILEGES")
	ctx := t.Context()
	if err := src.Exec(ctx, "CREATE DATABASE shop", "CREATE TABLE shop.orders (id INT PRIMARY KEY, note VARCHAR(20))", "INSERT INTO shop.orders VALUES (1, 'one'), (2, 'two')"); err != nil {
		t.Fatal(err)
	}
	t.Setenv("TEST_PASSWORD", "hunter2")
	server := tablesync.ServerSpec{Name: "shop", Type: "mysql", Address: src.Addr(), User: account, PasswordEnv: "TEST_PASSWORD"}
	lake := server
	lake.Name, lake.Address = "lake", dst.Addr()
	d := Definitions{
		Sources: []tablesync.ServerSpec{server}, Targets: []tablesync.ServerSpec{lake},
		Pipelines: []tablesync.PipelineSpec{{Name: "all", Source: "shop", Target: "lake", Tables: tablesync.TableSpec{Include: []string{"shop.*"}}}},
	}
	equal := func(ctx context.Context) bool {
		got, err := dst.Dump(ctx, "shop")
		if err != nil {
			t.Fatal(err)
		}
		want, err := src.Dump(ctx, "shop")
		if err != nil {
			t.Fatal(err)
		}
		if len(got) != len(want) {
			return false
		}
		for k := range want {
			if got[k] != want[k] {
				return false
			}
		}
		return true
	}
	cfg := Config{DataDir: filepath.Join(t.TempDir(), "data")}
	r := start(t, cfg, "")
	if _, err := r.client.Apply(ctx, d, tablesync.ApplyOptions{}); err != nil {
		t.Fatalf("apply: %v", err)
	}
	r.until(t, "the copy is there", equal)
	if err := src.Exec(ctx, "INSERT INTO shop.orders VALUES (3, 'three')", "CREATE TABLE shop.later (id INT PRIMARY KEY)", "INSERT INTO shop.later VALUES (7)"); err != nil {
		t.Fatal(err)
	}
	r.until(t, "the changes are there", equal)
	r.end(t)
	if err := src.Exec(ctx, "UPDATE shop.orders SET note = 'uno' WHERE id = 1", "DELETE FROM shop.orders WHERE id = 2"); err != nil {
		t.Fatal(err)
	}
	r = start(t, cfg, "")
	r.until(t, "the changes made meanwhile are there", equal)
	diff, err := r.client.Apply(ctx, d, tablesync.ApplyOptions{DryRun: true})
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range diff {
		if x.Action != "unchanged" {
			t.Errorf("after the restart: got %+v, want unchanged", x)
		}
	}
	r.end(t)
}

func TestRunRefusesADataDirectoryInUse(t *testing.T) {
	cfg := Config{DataDir: t.TempDir()}
	r := start(t, cfg, "")
	cfg.Listen = "127.0.0.1:0"
	cfg.Fill()
	err := Run(t.Context(), cfg, RunOptions{})
	var p *change.Problem
	if !errors.As(err, &p) || p.Code != "data-dir-in-use" || !strings.Contains(p.Subject, cfg.DataDir) {
		t.Errorf("second run: got %v, want the problem data-dir-in-use", err)
	}
	r.end(t)
}

func TestRunRefusesAnAddressInUse(t *testing.T) {
	r := start(t, Config{DataDir: t.TempDir()}, "")
	v, err := r.client.Version(t.Context())
	if err != nil || v.PID != os.Getpid() {
		t.Errorf("version: got %+v, %v", v, err)
	}
	address := strings.TrimPrefix(r.client.URL(), "http://")
	cfg := Config{DataDir: t.TempDir(), Listen: address}
	cfg.Fill()
	var p *change.Problem
	if err := Run(t.Context(), cfg, RunOptions{}); !errors.As(err, &p) || p.Code != "listen" {
		t.Errorf("second run: got %v, want the problem listen", err)
	}
	r.end(t)
}

func TestRunAsksForATokenOfItsFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "tokens")
	const token = "a-token-of-some-length"
	if err := os.WriteFile(file, []byte(token), 0o600); err != nil {
		t.Fatal(err)
	}
	r := start(t, Config{DataDir: t.TempDir(), TokenFile: file}, token)
	if _, err := r.client.Version(t.Context()); err != nil {
		t.Errorf("with the token: got %v", err)
	}
	other, err := web.NewClient(r.client.URL(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	var p *web.Problem
	if _, err := other.Version(t.Context()); !errors.As(err, &p) || p.Code != "unauthorized" {
		t.Errorf("without a token: got %v", err)
	}
	r.end(t)
	cfg := Config{DataDir: t.TempDir(), TokenFile: file + "x"}
	cfg.Fill()
	if err := Run(t.Context(), cfg, RunOptions{}); err == nil || !strings.Contains(err.Error(), file+"x") {
		t.Errorf("missing token file: got %v", err)
	}
}
