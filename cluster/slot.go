package cluster

import (
	"container/list"
	"fmt"
	"time"

	"github.com/runnel-dev/runnel/persistence"
)

// slot is the region's knowledge of one resident entity. Region.mu guards it.
//
//	active ──passivateLocked──▶ passivating ──Stopped──▶ gone, or active again for what was buffered
//	   ▲                             │
//	   └────────── Kept ─────────────┘
//
// Invariants:
//  1. pending counts the commands that the entity was given and has not answered.
//  2. A passivating entity is given nothing; what comes is buffered.
//  3. pending plus buffered is at most MaxPending.
//  4. element is not nil exactly in active.
type slot struct {
	r       *Region
	id      persistence.EntityID
	shard   uint32
	ref     persistence.EntityRef
	pending int
	buffer  []*persistence.Command
	used    time.Time
	element *list.Element // in Region.mu.used
	forced  bool          // passivating with force
}

var _ persistence.Host = (*slot)(nil)

// give hands cmd to the entity, which it starts if it is not resident.
func (r *Region) give(id persistence.EntityID, cmd *persistence.Command) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.mu.state != running {
		return ErrNotRunning
	}
	kind, ok := r.kinds[id.Type()]
	if !ok {
		return fmt.Errorf("%w %q", ErrUnknownType, id.Type())
	}
	shard := id.Shard(r.cfg.Store.Shards())
	if err := r.mu.lost[shard]; err != nil {
		return err
	}
	s := r.mu.slots[id]
	if s == nil {
		var err error
		if s, err = r.startLocked(kind, id, shard); err != nil {
			return err
		}
	}
	if s.pending+len(s.buffer) >= r.cfg.MaxPending {
		return fmt.Errorf("%w: %d commands wait for it", ErrBusy, s.pending+len(s.buffer))
	}
	if s.element == nil {
		s.buffer = append(s.buffer, cmd)
		return nil
	}
	s.touchLocked()
	return s.tellLocked(cmd)
}

func (s *slot) tellLocked(cmd *persistence.Command) error {
	if err := s.ref.Tell(cmd); err != nil {
		return err
	}
	s.pending++
	return nil
}

// touchLocked makes s the entity used last.
func (s *slot) touchLocked() {
	s.used = time.Now()
	s.r.mu.used.MoveToBack(s.element)
}

// spareResident is how many entities beside a quarter of MaxResident may be on
// their way out or at work.
const spareResident = 16

// startLocked makes an entity resident, and room for it.
func (r *Region) startLocked(kind persistence.Kind, id persistence.EntityID, shard uint32) (*slot, error) {
	if n := len(r.mu.slots); n >= r.cfg.MaxResident+r.cfg.MaxResident/4+spareResident {
		return nil, fmt.Errorf("%w: %d entities are resident and at work, MaxResident is %d", ErrBusy, n, r.cfg.MaxResident)
	}
	r.evictLocked(r.mu.used.Len() - r.cfg.MaxResident + 1)
	s := &slot{r: r, id: id, shard: shard}
	if err := r.spawnLocked(kind, s); err != nil {
		return nil, err
	}
	r.mu.slots[id] = s
	return s, nil
}

// spawnLocked starts an incarnation of the entity for s.
func (r *Region) spawnLocked(kind persistence.Kind, s *slot) error {
	r.mu.spawned++
	ref, err := kind.Spawn(r.cfg.System, name(s.id, r.mu.spawned), persistence.EntityProps{
		ID: s.id, Store: r.cfg.Store, Registry: r.cfg.Registry, Epoch: r.mu.epochs[s.shard], Host: s,
		Dispatcher: r.cfg.Dispatcher, MaxPending: r.cfg.MaxPending, Log: r.cfg.Log,
	})
	if err != nil {
		return err
	}
	s.ref, s.forced, s.pending = ref, false, 0
	s.element = r.mu.used.PushBack(s)
	s.used = time.Now()
	return nil
}

// maxEvictLook bounds how many entities at work one eviction looks at.
const maxEvictLook = 64

// evictLocked stops the n longest unused entities, if it finds idle ones.
func (r *Region) evictLocked(n int) {
	for look := maxEvictLook; n > 0 && look > 0; look-- {
		e := r.mu.used.Front()
		if e == nil {
			return
		}
		s := e.Value.(*slot)
		if s.pending > 0 {
			r.mu.used.MoveToBack(e) // at work: not unused at all
			continue
		}
		r.passivateLocked(s, false)
		n--
	}
}

// passivateLocked asks an entity to stop; from now on its commands are buffered.
func (r *Region) passivateLocked(s *slot, force bool) {
	if s.element != nil {
		r.mu.used.Remove(s.element)
		s.element = nil
	} else if !force || s.forced {
		return
	}
	s.forced = force
	// The mailbox keeps room for this. An entity that has stopped, as all do when
	// the System shuts down, will never say so here.
	if s.ref.Passivate(force) != nil {
		r.removeLocked(s)
	}
}

// removeLocked forgets an entity. Nobody will answer what is buffered.
func (r *Region) removeLocked(s *slot) {
	if s.element != nil {
		r.mu.used.Remove(s.element)
		s.element = nil
	}
	delete(r.mu.slots, s.id)
	for _, c := range s.buffer {
		if c.Reply != nil {
			c.Reply(nil, fmt.Errorf("command to %s: %w", s.id, ErrNotRunning))
		}
	}
	s.buffer = nil
	r.endLocked()
}

// Done is persistence.Host's.
func (s *slot) Done() {
	s.r.mu.Lock()
	defer s.r.mu.Unlock()
	s.pending--
	if s.element != nil {
		s.touchLocked()
	}
}

// Kept is persistence.Host's: the entity goes on and gets what was buffered.
func (s *slot) Kept() {
	s.r.mu.Lock()
	defer s.r.mu.Unlock()
	if s.forced || s.element != nil {
		return // asked again meanwhile, with force
	}
	s.element = s.r.mu.used.PushBack(s)
	s.touchLocked()
	s.deliverLocked()
}

// deliverLocked gives the entity what was buffered, in order.
func (s *slot) deliverLocked() {
	buffer := s.buffer
	s.buffer = nil
	for i, c := range buffer {
		if s.tellLocked(c) != nil {
			s.buffer = buffer[i:]
			s.r.removeLocked(s)
			return
		}
	}
}

// Stopped is persistence.Host's: what was buffered goes to a new incarnation.
func (s *slot) Stopped() {
	r := s.r
	r.mu.Lock()
	defer r.mu.Unlock()
	if s.element != nil {
		r.mu.used.Remove(s.element)
		s.element = nil
	}
	if len(s.buffer) == 0 || r.mu.lost[s.shard] != nil || r.spawnLocked(r.kinds[s.id.Type()], s) != nil {
		r.removeLocked(s)
		return
	}
	s.deliverLocked()
	if r.mu.state != running {
		r.passivateLocked(s, true)
	}
}

// Deposed is persistence.Host's: the shard's entities stop and no more start.
func (s *slot) Deposed(err error) {
	r := s.r
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.mu.lost[s.shard] != nil {
		return
	}
	r.mu.lost[s.shard] = fmt.Errorf("shard %d: %w", s.shard, err)
	r.mu.epochs[s.shard] = 0
	r.cfg.Log.Warn("shard lost to a newer owner", "shard", s.shard, "error", err)
	for _, o := range r.mu.slots {
		if o.shard == s.shard {
			r.passivateLocked(o, true)
		}
	}
}

// sweep stops entities that nobody has used for IdleAfter, until quit.
func (r *Region) sweep() {
	t := time.NewTicker(max(r.cfg.IdleAfter/8, time.Millisecond))
	defer t.Stop()
	for {
		select {
		case <-r.quit:
			return
		case <-t.C:
			r.sweepOnce(time.Now().Add(-r.cfg.IdleAfter))
		}
	}
}

// sweepLook bounds how many entities one hold of the lock looks at.
const sweepLook = 256

func (r *Region) sweepOnce(unused time.Time) {
	for more := true; more; {
		more = r.sweepSome(unused)
	}
}

func (r *Region) sweepSome(unused time.Time) (more bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for range sweepLook {
		e := r.mu.used.Front()
		if e == nil || r.mu.state != running {
			return false
		}
		s := e.Value.(*slot)
		if s.used.After(unused) {
			return false
		}
		if s.pending > 0 {
			s.touchLocked()
			continue
		}
		r.passivateLocked(s, false)
	}
	return true
}
