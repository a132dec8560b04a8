package connectortest

import (
	"net"
	"sync"
	"testing"
)

// commitProxy forwards TCP connections and, once armed, does something to the
// first piece of a client's traffic that is a commit.
type commitProxy struct {
	target   string
	isCommit func(b []byte) bool
	ln       net.Listener
	tasks    sync.WaitGroup

	mu    sync.Mutex
	fate  commitFate
	next  *armed
	conns map[net.Conn]struct{}
}

// armed is the fate of one commit.
type armed struct {
	seen    chan struct{} // closed when the commit met its fate
	gone    chan struct{} // closed when the server is done with the connection
	held    chan struct{} // closed to let a held commit go to the server
	release func()        // closes held
}

type commitFate int

const (
	commitPasses     commitFate = iota
	commitLost                  // it never reaches the server, which sees the connection close
	commitAnswerLost            // the server does it, the client never hears of it
	commitHeld                  // the client sees the connection close, the server gets it later
)

func newCommitProxy(t *testing.T, target string, isCommit func([]byte) bool) *commitProxy {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &commitProxy{target: target, isCommit: isCommit, ln: ln, conns: map[net.Conn]struct{}{}}
	p.tasks.Go(p.accept)
	t.Cleanup(p.close)
	return p
}

func (p *commitProxy) addr() string { return p.ln.Addr().String() }

// arm decides about the next commit.
func (p *commitProxy) arm(f commitFate) *armed {
	a := &armed{seen: make(chan struct{}), gone: make(chan struct{}), held: make(chan struct{})}
	a.release = sync.OnceFunc(func() { close(a.held) })
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fate, p.next = f, a
	return a
}

func (p *commitProxy) close() {
	p.ln.Close()
	p.mu.Lock()
	for c := range p.conns {
		c.Close()
	}
	if p.next != nil {
		p.next.release()
	}
	p.mu.Unlock()
	p.tasks.Wait()
}

func (p *commitProxy) accept() {
	for {
		client, err := p.ln.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", p.target)
		if err != nil {
			client.Close()
			continue
		}
		p.mu.Lock()
		p.conns[client], p.conns[server] = struct{}{}, struct{}{}
		p.mu.Unlock()
		p.tasks.Go(func() { p.forward(client, server) })
	}
}

// forward runs one connection; the two directions end together, except that the
// server's may outlive the client's while a commit is held.
func (p *commitProxy) forward(client, server net.Conn) {
	var back sync.WaitGroup
	back.Go(func() {
		buf := make([]byte, 32<<10)
		for {
			n, err := server.Read(buf)
			if n > 0 {
				if _, werr := client.Write(buf[:n]); werr != nil && err == nil {
					continue // the client is gone; the server may still have to say something
				}
			}
			if err != nil {
				client.Close()
				return
			}
		}
	})
	p.upstream(client, server)
	server.Close()
	back.Wait()
}

func (p *commitProxy) upstream(client, server net.Conn) {
	buf := make([]byte, 32<<10)
	for {
		n, err := client.Read(buf)
		if n > 0 {
			if fate, a := p.judge(buf[:n]); fate != commitPasses {
				p.meet(fate, a, buf[:n], client, server)
				return
			}
			if _, werr := server.Write(buf[:n]); werr != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// judge is the fate of a piece of traffic. A fate is used up by the commit it met.
func (p *commitProxy) judge(b []byte) (commitFate, *armed) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.fate == commitPasses || !p.isCommit(b) {
		return commitPasses, nil
	}
	f := p.fate
	p.fate = commitPasses
	return f, p.next
}

func (p *commitProxy) meet(f commitFate, a *armed, b []byte, client, server net.Conn) {
	defer close(a.gone)
	client.Close() // whatever comes back has nowhere to go
	switch f {
	case commitHeld:
		close(a.seen)
		<-a.held
		p.pass(b, server)
		return
	case commitAnswerLost:
		p.pass(b, server)
	}
	close(a.seen)
}

// pass hands the commit to the server. Closing the write side lets the server
// finish it before it sees the end.
func (p *commitProxy) pass(b []byte, server net.Conn) {
	if _, err := server.Write(b); err != nil {
		return
	}
	if tcp, ok := server.(*net.TCPConn); ok {
		if err := tcp.CloseWrite(); err != nil {
			return
		}
		// The other direction reads until the server, done, closes.
		one := make([]byte, 1)
		for {
			if _, err := tcp.Read(one); err != nil {
				return
			}
		}
	}
}
