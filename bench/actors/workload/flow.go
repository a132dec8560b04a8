package workload

import (
	"fmt"
	"strconv"
	"sync"
)

// spawnN spawns n actors that are called prefix0, prefix1, …
func (r *runner[R]) spawnN(prefix string, n int) ([]R, error) {
	refs := make([]R, n)
	for i := range refs {
		var err error
		if refs[i], err = r.peer.Spawn(prefix + strconv.Itoa(i)); err != nil {
			return nil, fmt.Errorf("spawn %s%d: %w", prefix, i, err)
		}
	}
	return refs, nil
}

// deal sends passes messages to each of refs from each sender and waits for all.
// Every sender goes round the actors, beginning elsewhere than the others.
func (r *runner[R]) deal(refs []R, senders, passes int) error {
	kind := fan
	if senders == 1 {
		kind = count
	} else if senders > maxSenders || passes >= 1<<16 {
		return fmt.Errorf("%d messages from each of %d senders are more than State can count", passes, senders)
	}
	g := newGate(len(refs)*senders, int64(passes))
	var wg sync.WaitGroup
	for s := range senders {
		var ring [seqMask + 1]*Message[R] // read by many, written by none
		for i := range ring {
			ring[i] = &Message[R]{kind: kind, sender: uint8(s), seq: uint8(i), gate: g}
		}
		first := s * len(refs) / senders
		wg.Go(func() {
			for p := range passes {
				m := ring[p&seqMask]
				for i := range refs {
					if i += first; i >= len(refs) {
						i -= len(refs)
					}
					if err := r.peer.Tell(refs[i], m); err != nil {
						g.fail(err)
						return
					}
				}
			}
		})
	}
	err := g.wait(r.ctx)
	if err == nil {
		wg.Wait()
	}
	return err
}

// oneToOne is one goroutine that sends to one actor.
func (r *runner[R]) oneToOne() ([]Sample, error) {
	n := r.scaled(10_000_000, 1000)
	refs, err := r.spawnN("a", 2)
	if err != nil {
		return nil, err
	}
	if err := r.deal(refs[:1], 1, max(1, n/10)); err != nil {
		return nil, err
	}
	return rate(n, "message", func() error { return r.deal(refs[1:], 1, n) })
}

// fourToMany is four goroutines that send to 10,000 actors.
func (r *runner[R]) fourToMany() ([]Sample, error) {
	actors := r.crowd(10_000)
	passes := max(2, r.scaled(8_000_000, 1)/actors/maxSenders)
	warm, err := r.spawnN("w", actors)
	if err != nil {
		return nil, err
	}
	if err := r.deal(warm, maxSenders, max(1, passes/10)); err != nil {
		return nil, err
	}
	refs, err := r.spawnN("a", actors)
	if err != nil {
		return nil, err
	}
	return rate(actors*maxSenders*passes, "message", func() error { return r.deal(refs, maxSenders, passes) })
}

// pingPong is two actors and one message that goes to and fro.
func (r *runner[R]) pingPong() ([]Sample, error) {
	n := r.scaled(5_000_000, 1000)
	refs, err := r.spawnN("a", 4)
	if err != nil {
		return nil, err
	}
	if err := r.play(refs[:2], n/5); err != nil {
		return nil, err
	}
	return rate(n, "message", func() error { return r.play(refs[2:], n) })
}

// play lets a message go n times from one actor to the other.
func (r *runner[R]) play(refs []R, n int) error {
	g := newGate(1, 0)
	b := &bounce[R]{refs: [2]R(refs), left: n}
	if err := r.peer.Tell(refs[0], &Message[R]{kind: ping, gate: g, bounce: b}); err != nil {
		return err
	}
	if err := g.wait(r.ctx); err != nil {
		return err
	}
	if got, want := b.hops, [2]int64{int64(n - n/2), int64(n / 2)}; got != want {
		return fmt.Errorf("actors counted %d bounces, want %d", got, want)
	}
	return nil
}
