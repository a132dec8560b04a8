package actor

import (
	"bytes"
	"runtime"
	"strconv"
)

// Which worker the calling goroutine is running a turn for is asked only when a
// Tell without a Context meets a full mailbox that blocks: a handler must not
// wait there, since it would hold its worker. The runtime tells a goroutine's
// number only in its stack's first line, so each worker's goroutine reads that
// once, when it starts.

// enter registers the calling goroutine as w's and returns what it was before.
func (s *System) enter(w *worker) (before registration) {
	before.id = goroutineID()
	if old, ok := s.onGoroutine.Swap(before.id, w); ok {
		before.w, _ = old.(*worker)
	}
	return before
}

// registration is what a goroutine is to a System.
type registration struct {
	id uint64
	w  *worker // nil if none
}

// reenter undoes enter.
func (s *System) reenter(r registration) {
	if r.w == nil {
		s.onGoroutine.Delete(r.id)
		return
	}
	s.onGoroutine.Store(r.id, r.w)
}

func (s *System) exit(*worker) { s.onGoroutine.Delete(goroutineID()) }

// here returns the worker whose turn the calling goroutine runs, or nil.
func (s *System) here() *worker {
	v, _ := s.onGoroutine.Load(goroutineID())
	w, _ := v.(*worker)
	if w == nil || w.cur == nil {
		return nil
	}
	return w
}

func goroutineID() uint64 {
	var buf [64]byte
	text := bytes.TrimPrefix(buf[:runtime.Stack(buf[:], false)], []byte("goroutine "))
	digits, _, _ := bytes.Cut(text, []byte(" "))
	id, err := strconv.ParseUint(string(digits), 10, 64)
	if err != nil {
		return 0 // no goroutine has this number: the caller counts as one outside
	}
	return id
}
