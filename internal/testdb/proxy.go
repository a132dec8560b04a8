package testdb

import (
	"errors"
	"fmt"
	"net"
	"sync"
	"time"
)

// Proxy forwards TCP connections from a loopback port of its own to an address,
// and misbehaves on demand. Its methods may be called from any goroutine.
type Proxy struct {
	target string
	ln     net.Listener
	tasks  sync.WaitGroup // the accept loop and everything it starts

	mu struct {
		sync.Mutex
		conns   map[net.Conn]struct{} // both ends of every forwarded connection
		refuse  bool
		closed  bool
		resumed chan struct{} // closed while bytes may pass; replaced at each stall
		count   int
	}
}

// NewProxy starts a proxy in front of target, "host:port". Nothing needs to
// listen there yet: each connection dials anew.
func NewProxy(target string) (*Proxy, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listen for proxy: %w", err)
	}
	p := &Proxy{target: target, ln: ln}
	p.mu.conns = make(map[net.Conn]struct{})
	p.mu.resumed = make(chan struct{})
	close(p.mu.resumed)
	p.tasks.Go(p.accept)
	return p, nil
}

// Addr is the address to connect to instead of the target.
func (p *Proxy) Addr() string { return p.ln.Addr().String() }

// Accepted counts the connections forwarded so far, refused ones not included.
func (p *Proxy) Accepted() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.mu.count
}

// Cut closes all present connections with a reset; new ones are accepted.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cutLocked()
}

// Refuse says whether new connections are closed at once. Present ones stay.
func (p *Proxy) Refuse(on bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.refuse = on
}

// Stall says whether forwarding pauses, both ways, with connections left open.
// Bytes that were on their way are held back, none are lost.
func (p *Proxy) Stall(on bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.mu.resumed:
		if on {
			p.mu.resumed = make(chan struct{})
		}
	default:
		if !on {
			close(p.mu.resumed)
		}
	}
}

// Close ends the proxy and all connections, and returns when nothing of it runs.
func (p *Proxy) Close() error {
	p.mu.Lock()
	if p.mu.closed {
		p.mu.Unlock()
		return nil
	}
	p.mu.closed = true
	p.cutLocked()
	select {
	case <-p.mu.resumed:
	default:
		close(p.mu.resumed)
	}
	p.mu.Unlock()
	err := p.ln.Close()
	p.tasks.Wait()
	return err
}

func (p *Proxy) cutLocked() {
	for c := range p.mu.conns {
		abort(c)
	}
	clear(p.mu.conns)
}

// abort closes a connection so that the peer sees a reset, as after a crash.
func abort(c net.Conn) {
	if tcp, ok := c.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0) // a connection that is closed already needs none
	}
	_ = c.Close() // the copier that uses it reports to nobody
}

func (p *Proxy) accept() {
	for {
		c, err := p.ln.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			continue // the peer gave up while it waited
		}
		if !p.admit(c) {
			abort(c)
			continue
		}
		p.tasks.Go(func() { p.forward(c) })
	}
}

// admit records a connection unless it is to be refused.
func (p *Proxy) admit(c net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mu.refuse || p.mu.closed {
		return false
	}
	p.mu.conns[c] = struct{}{}
	p.mu.count++
	return true
}

// attach records the target's end, unless the client's was cut meanwhile.
func (p *Proxy) attach(client, server net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, ok := p.mu.conns[client]; !ok {
		return false
	}
	p.mu.conns[server] = struct{}{}
	return true
}

func (p *Proxy) forward(client net.Conn) {
	const dialLimit = 10 * time.Second
	server, err := net.DialTimeout("tcp", p.target, dialLimit)
	if err != nil {
		p.drop(client)
		return
	}
	if !p.attach(client, server) {
		abort(server)
		return
	}
	var back sync.WaitGroup
	back.Go(func() { p.copy(client, server) })
	p.copy(server, client)
	back.Wait()
	p.drop(client)
	p.drop(server)
}

func (p *Proxy) drop(c net.Conn) {
	p.mu.Lock()
	delete(p.mu.conns, c)
	p.mu.Unlock()
	_ = c.Close() // nothing is left to be written
}

// copy moves bytes one way until either end fails, and passes an orderly end on.
func (p *Proxy) copy(dst, src net.Conn) {
	buf := make([]byte, 32<<10)
	for {
		n, err := src.Read(buf)
		<-p.pass()
		if n > 0 {
			if _, werr := dst.Write(buf[:n]); werr != nil {
				abort(src)
				return
			}
		}
		if err != nil {
			p.endHalf(dst, err)
			return
		}
	}
}

// endHalf ends the direction to dst: after an orderly end of the other side dst
// may still send, after anything else it is cut.
func (p *Proxy) endHalf(dst net.Conn, cause error) {
	var broken net.Error
	tcp, ok := dst.(*net.TCPConn)
	if !ok || errors.As(cause, &broken) || errors.Is(cause, net.ErrClosed) {
		abort(dst)
		return
	}
	_ = tcp.CloseWrite() // a peer that is gone already needs no end
}

// pass is the channel that is closed while bytes may pass.
func (p *Proxy) pass() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.mu.resumed
}
