package actor

import (
	"errors"
	"fmt"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode"
	"unicode/utf8"
)

// life is where an actor stands between Spawn and its end. The turn that owns
// the cell writes it, under cell.mu.
type life uint8

const (
	starting   life = iota // Setup has not succeeded since Spawn or the last restart
	running                // takes messages
	suspended              // as running, but handles none until receivers have room
	restarting             // failed; waits for its children to stop and the backoff to pass
	stopping               // waits for its children to stop
	ending                 // receives Stopped
	stopped                // about to be buried, or buried
)

// Bits of cell.urgent: system messages. They carry nothing and asking twice is
// asking once, so a set of bits is their whole queue.
const (
	sysStop     uint32 = 1 << iota // stop
	sysKidsGone                    // the last child of a stopping or restarting actor was buried
	sysRestart                     // the restart backoff has passed
	sysResume                      // no receiver stands in the way of a suspended actor
	sysPatience                    // a suspension has lasted as long as it may
	sysFate                        // something is in links.fate
)

// Bits of cell.asked: what a handler asked for, done when it returns.
const (
	askedStop uint8 = 1 << iota
	askedPassivate
	askedSuspend
)

// cell is an actor's untyped core: mailbox, dispatch state, place in the
// hierarchy. An idle one has no other memory than this, its name, its behavior
// and its entry at its parent; the rest hangs on ext and links when needed.
//
// Locks: no other lock is taken while a cell's mu is held, another cell's included.
type cell struct {
	mu      sync.Mutex // guards this block, and life and core for readers outside the turn
	q       queue
	links   *links
	waiting int32 // messages in q that capacity counts
	phase   phase

	life   life  // written in the turn, under mu
	asked  uint8 // asked… bits; turn only
	urgent atomic.Uint32
	home   uint32 // which worker runs it when scheduled from outside; immutable
	next   *cell  // run queue link; the worker queue's mutex guards it
	parent *cell  // immutable; nil for /
	name   string // immutable
	spec   *spec  // immutable
	core   receiver
	ext    *ext // turn only
}

// links is the part of a cell that others reach; cell.mu guards it.
type links struct {
	kids    map[string]*cell
	watcher watcher // the first one; most actors have one at most
	more    map[watcher]struct{}
	box     *ordered // what is not in cell.q
	line    []inLine // senders that wait for room, first come first
	fate    []fate   // failures of others that befall this actor
}

// ext is the part of a cell that only its turns reach, allocated when first needed.
type ext struct {
	gen      uint32 // see Context.Generation
	bare     bool   // it stops without a behavior to tell
	timers   *timer // pending and fired but unhandled ones
	scope    *scope
	watching map[recipient]struct{} // whose Terminated is to come
	restart  restart
	cause    error // why it stops; nil if asked to

	stash     queue
	stashed   int
	idle      *idleTimer
	suspended *suspension
}

// restart counts a series of restarts.
type restart struct {
	attempt int
	first   time.Time // failure that began the series
	up      time.Time // when Setup last succeeded
	due     bool      // the backoff has passed
	backoff *timer    // the last one armed
}

func (c *cell) x() *ext {
	if c.ext == nil {
		c.ext = &ext{}
	}
	return c.ext
}

func (c *cell) generation() uint32 {
	if c.ext == nil {
		return 0
	}
	return c.ext.gen
}

// linksLocked returns links, made if absent.
func (c *cell) linksLocked() *links {
	if c.links == nil {
		c.links = &links{}
	}
	return c.links
}

func (c *cell) path() string {
	if c.parent == nil {
		return "/"
	}
	if c.parent.parent == nil {
		return "/" + c.name
	}
	return c.parent.path() + "/" + c.name
}

func (c *cell) child(name string) *cell {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.links == nil {
		return nil
	}
	return c.links.kids[name]
}

// spawn makes a child of c and schedules its first turn.
func (c *cell) spawn(w *worker, name string, core receiver, p Props) (*cell, error) {
	sys := c.spec.sys
	if p.Dispatcher == "" && c.spec.disp.name == SystemDispatcher && c != sys.user {
		p.Dispatcher = SystemDispatcher
	}
	sp, err := sys.resolve(p)
	if err != nil {
		return nil, err
	}
	n := sys.spawned.Add(1)
	if name == "" {
		name = "$" + strconv.FormatUint(n, 36)
	} else if err := checkName(name); err != nil {
		return nil, err
	}
	kid := &cell{parent: c, name: name, spec: sp, core: core, home: uint32(n), phase: scheduled}
	if sp.disp.kind == Pinned {
		if err := sp.disp.side.pin(sp.disp, kid); err != nil {
			return nil, fmt.Errorf("dispatcher %s: %w", sp.disp.name, err)
		}
	}
	if err := c.adopt(kid); err != nil {
		if sp.disp.kind == Pinned {
			sp.disp.side.unpin(kid)
		}
		return nil, err
	}
	sp.disp.schedule(kid, w)
	return kid, nil
}

// adopt enters kid among c's children.
func (c *cell) adopt(kid *cell) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.life > suspended || c.spec.sys.dead.Load() {
		return ErrStopped
	}
	l := c.linksLocked()
	if _, taken := l.kids[kid.name]; taken {
		return ErrNameTaken
	}
	if l.kids == nil {
		l.kids = map[string]*cell{}
	}
	l.kids[kid.name] = kid
	c.spec.sys.actors.Add(1)
	return nil
}

func checkName(name string) error {
	bad := len(name) > 255 || name[0] == '$' || !utf8.ValidString(name) ||
		strings.ContainsFunc(name, func(r rune) bool { return r == '/' || r == '*' || unicode.IsControl(r) })
	if bad {
		return fmt.Errorf("%w: %.300q: use 1 to 255 bytes of UTF-8 without '/', '*', control characters or a leading '$'", ErrBadName, name)
	}
	return nil
}

// tell puts an envelope into the mailbox; from is the worker of the calling
// turn, if any.
func (c *cell) tell(from *worker, e any) error {
	if e == nil {
		return c.refuse(e, ReasonInvalid, ErrNilMessage)
	}
	own := isOwn(e)
	var evicted any
	sp := c.spec
	c.mu.Lock()
	if c.life >= stopping || sp.sys.dead.Load() {
		c.mu.Unlock()
		c.deadLetter(e, ReasonStopped)
		return ErrStopped
	}
	if !own {
		if limit := sp.mb.Capacity; limit != Unbounded && int(c.waiting) >= limit {
			switch sp.mb.Overflow {
			case DropOldest:
				if old, ok := c.evictLocked(); ok {
					evicted = old
					c.waiting--
				}
			case Block:
				c.mu.Unlock()
				return c.tellBlocked(nil, from, e)
			default:
				c.mu.Unlock()
				return c.overflow(e)
			}
		}
		c.waiting++
	}
	if sp.mb.Order == FIFO {
		c.q.push(e)
	} else {
		c.pushLocked(e)
	}
	wake := c.life == running && c.phase.schedule() // see acceptLocked
	c.mu.Unlock()
	if wake {
		sp.disp.schedule(c, from)
	}
	if evicted != nil {
		c.deadLetter(evicted, ReasonOverflow)
	}
	return nil
}

// acceptLocked puts e into the mailbox and reports whether the caller must
// schedule c. A starting, suspended or restarting actor takes messages but has no
// turn for them yet.
func (c *cell) acceptLocked(e any) (wake bool) {
	c.pushLocked(e)
	return c.life == running && c.phase.schedule()
}

// refuse disposes of an envelope that is not taken.
func (c *cell) refuse(e any, why Reason, err error) error {
	c.deadLetter(e, why)
	return err
}

// overflow disposes of a new message that a full mailbox does not take.
func (c *cell) overflow(e any) error {
	c.deadLetter(e, ReasonOverflow)
	if c.spec.mb.Overflow == DropNewest {
		return nil
	}
	return ErrMailboxFull
}

// post sets a system message.
func (c *cell) post(bit uint32) {
	c.mu.Lock()
	wake := c.postLocked(bit)
	c.mu.Unlock()
	if wake {
		c.spec.disp.schedule(c, nil)
	}
}

// postLocked reports whether the caller must schedule c.
func (c *cell) postLocked(bit uint32) bool {
	if c.phase == closed {
		return false
	}
	c.urgent.Or(bit)
	return c.phase.schedule()
}

func (c *cell) stop() {
	c.post(sysStop)
}

// handle runs the behavior on one envelope.
func (c *cell) handle(w *worker, e any) {
	var f *Failure
	if c.ext != nil && c.ext.idle != nil {
		c.ext.idle.touch(e)
	}
	switch e := e.(type) {
	case *future:
		f = c.answer(w, e)
	case *timer:
		if !c.takeTimer(e) {
			return
		}
		f = c.call(w, e.msg, nil)
	case *kept:
		if e.gen != c.generation() {
			c.deadLetter(e, ReasonStale)
			return
		}
		f = c.call(w, e.msg, nil)
	case *piped:
		if !c.current(e) {
			c.deadLetter(e, ReasonStale)
			return
		}
		f = c.callPiped(w, e)
	case *termination:
		if !c.takeWatch(e.Addr.to) {
			return
		}
		f = c.call(w, nil, e.Terminated)
	default:
		f = c.call(w, e, nil)
	}
	c.settle(w, f)
}

// settle acts on what a call into the behavior has led to.
func (c *cell) settle(w *worker, f *Failure) {
	if f != nil {
		c.fail(w, f)
	}
	if c.asked != 0 {
		c.doAsked(w)
	}
}

// doAsked does what the handler asked for.
func (c *cell) doAsked(w *worker) {
	asked := c.asked
	c.asked = 0
	if asked&askedStop != 0 {
		c.beginStop(nil)
		c.endIfChildless(w)
		return
	}
	if asked&askedPassivate != 0 {
		c.passivate(w)
	}
	if asked&askedSuspend != 0 {
		c.suspend()
	}
}

// call runs Receive, or Signal if sig is not nil. Anything that goes wrong in it,
// panics included, comes back as a Failure.
func (c *cell) call(w *worker, msg any, sig Signal) (f *Failure) {
	defer c.caught(&f)
	var err error
	if c.spec.before != nil {
		if dropped, err := c.hook(msg, sig); dropped || err != nil {
			return c.failure(err)
		}
	}
	if sig != nil {
		err = c.core.signal(c, w, sig)
	} else {
		err = c.core.receive(c, w, msg)
	}
	return c.failure(err)
}

// callSetup is call for Setup.
func (c *cell) callSetup(w *worker) (f *Failure) {
	defer c.caught(&f)
	if c.spec.before != nil {
		if _, err := c.hook(nil, nil); err != nil {
			return c.failure(err)
		}
	}
	return c.failure(c.core.setup(c, w))
}

// hook puts a call to Config.Before, and reports whether its message is lost by it.
func (c *cell) hook(msg any, sig Signal) (dropped bool, err error) {
	m := msg
	if sig != nil {
		m = sig
	}
	err = c.spec.before(Addr{c}, m)
	if msg != nil && errors.Is(err, ErrDropped) {
		c.spec.sys.deadLetter(c.path(), msg, ReasonDropped)
		return true, nil
	}
	return false, err
}

func (c *cell) failure(err error) *Failure {
	if err == nil {
		return nil
	}
	return &Failure{Path: c.path(), Err: err}
}

// caught, deferred, turns a panic into a Failure.
func (c *cell) caught(f **Failure) {
	if p := recover(); p != nil {
		*f = &Failure{Path: c.path(), Err: panicError(p), Panic: p, Stack: debug.Stack()}
	}
}

// panicError is the panic p as an error; an error stays in the chain.
func panicError(p any) error {
	if err, ok := p.(error); ok {
		return fmt.Errorf("panic: %w", err)
	}
	return fmt.Errorf("panic: %v", p)
}
