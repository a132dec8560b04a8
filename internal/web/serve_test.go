package web

import (
	"context"
	"net"
	"net/http"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/runnel-dev/runnel/internal/tablesync"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestServeEndsWithItsContext(t *testing.T) {
	f := newFake()
	running, finish := make(chan struct{}), make(chan struct{})
	f.command = func(context.Context, *tablesync.TaskView, string) error {
		close(running)
		<-finish
		return nil
	}
	s := newTestServer(t, Config{Control: f, Limits: Limits{Grace: time.Minute}})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(ctx, l) }()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	status := make(chan int, 1)
	go func() {
		resp, err := client.Post("http://"+l.Addr().String()+"/api/v1/tasks/task/shop:0/0000/pause", "application/json", nil)
		if err != nil {
			t.Errorf("request: %v", err)
			status <- 0
			return
		}
		resp.Body.Close()
		status <- resp.StatusCode
	}()
	<-running
	stop()
	close(finish)
	if got := <-status; got != http.StatusOK {
		t.Errorf("request that ran at the end: got %d, want 200", got)
	}
	if err := <-ended; err != nil {
		t.Errorf("serve: got %v", err)
	}
}

func TestServeCutsOffWhatDoesNotEnd(t *testing.T) {
	f := newFake()
	running := make(chan struct{})
	f.command = func(ctx context.Context, _ *tablesync.TaskView, _ string) error {
		close(running)
		<-ctx.Done()
		return ctx.Err()
	}
	s := newTestServer(t, Config{Control: f, Limits: Limits{Grace: time.Millisecond}})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(ctx, l) }()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	answered := make(chan struct{})
	go func() {
		defer close(answered)
		if resp, err := client.Post("http://"+l.Addr().String()+"/api/v1/tasks/task/shop:0/0000/pause", "application/json", nil); err == nil {
			resp.Body.Close()
		}
	}()
	<-running
	stop()
	if err := <-ended; err != nil {
		t.Errorf("serve: got %v", err)
	}
	<-answered
}
