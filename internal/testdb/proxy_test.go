package testdb

import (
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"time"
)

// echo answers every connection with what it receives.
func echo(t *testing.T) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	t.Cleanup(func() { ln.Close() })
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				io.Copy(c, c)
			}()
		}
	}()
	return ln.Addr().String()
}

func dialProxy(t *testing.T, p *Proxy) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", p.Addr())
	must(t, err)
	t.Cleanup(func() { c.Close() })
	must(t, c.SetDeadline(time.Now().Add(20*time.Second)))
	return c
}

// talk sends a word and reads it back.
func talk(c net.Conn, word string) (string, error) {
	if _, err := io.WriteString(c, word); err != nil {
		return "", err
	}
	buf := make([]byte, len(word))
	n, err := io.ReadFull(c, buf)
	return string(buf[:n]), err
}

func mustTalk(t *testing.T, c net.Conn, word string) {
	t.Helper()
	got, err := talk(c, word)
	must(t, err)
	mustEqual(t, "echo", got, word)
}

// mustRefuse wants a new connection to fail at the latest when it is used: a
// reset may be as early as the end of the dial.
func mustRefuse(t *testing.T, p *Proxy) {
	t.Helper()
	c, err := net.Dial("tcp", p.Addr())
	if err != nil {
		return
	}
	defer c.Close()
	must(t, c.SetDeadline(time.Now().Add(20*time.Second)))
	if got, err := talk(c, "word"); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("talk on a refused connection: got %q and %v, want it closed", got, err)
	}
}

func TestProxyCutAndRefuse(t *testing.T) {
	t.Parallel()
	p := ProxyFor(t, echo(t))
	first := dialProxy(t, p)
	mustTalk(t, first, "one")
	p.Cut()
	if got, err := talk(first, "two"); err == nil {
		t.Errorf("talk after Cut: got %q, want an error", got)
	}
	second := dialProxy(t, p)
	mustTalk(t, second, "three")
	p.Refuse(true)
	mustTalk(t, second, "four")
	mustRefuse(t, p)
	p.Refuse(false)
	mustTalk(t, dialProxy(t, p), "six")
	mustEqual(t, "connections forwarded", p.Accepted(), 3)
}

func TestProxyStallHoldsBytesBack(t *testing.T) {
	t.Parallel()
	p := ProxyFor(t, echo(t))
	c := dialProxy(t, p)
	mustTalk(t, c, "one")
	p.Stall(true)
	p.Stall(true)
	_, err := io.WriteString(c, "two")
	must(t, err)
	must(t, c.SetReadDeadline(time.Now().Add(100*time.Millisecond)))
	buf := make([]byte, 3)
	if n, err := c.Read(buf); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("read while stalled: got %d bytes and %v, want a timeout", n, err)
	}
	p.Stall(false)
	must(t, c.SetReadDeadline(time.Now().Add(20*time.Second)))
	_, err = io.ReadFull(c, buf)
	must(t, err)
	mustEqual(t, "bytes held back", string(buf), "two")
}

func TestProxyPassesOrderlyEnd(t *testing.T) {
	t.Parallel()
	p := ProxyFor(t, echo(t))
	c := dialProxy(t, p).(*net.TCPConn)
	_, err := io.WriteString(c, "last words")
	must(t, err)
	must(t, c.CloseWrite())
	got, err := io.ReadAll(c)
	must(t, err)
	mustEqual(t, "echo", string(got), "last words")
}

func TestProxyCloseWhileStalled(t *testing.T) {
	t.Parallel()
	p := ProxyFor(t, echo(t))
	c := dialProxy(t, p)
	mustTalk(t, c, "one")
	p.Stall(true)
	_, err := io.WriteString(c, "two")
	must(t, err)
	must(t, p.Close())
	if n, err := c.Read(make([]byte, 3)); err == nil && n == 3 {
		t.Error("read after Close: got bytes, want an end")
	}
	if _, err := net.Dial("tcp", p.Addr()); err == nil {
		t.Error("dial after Close: got nil, want an error")
	}
}

func TestProxyWithoutTarget(t *testing.T) {
	t.Parallel()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	addr := ln.Addr().String()
	must(t, ln.Close())
	p := ProxyFor(t, addr)
	mustRefuse(t, p)
}
