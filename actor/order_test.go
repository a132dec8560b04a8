package actor

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"testing"
)

// ranking is a message with a priority.
type ranking struct{ prio, n int }

func (r ranking) Priority() int { return r.prio }

// command is a message that overtakes others; plain ones are ints.
type urgentMsg int

func (urgentMsg) ControlMessage() {}

// heldActor is an actor whose first message waits for release; it reports all
// that it handles afterwards.
func heldActor[M any](t *testing.T, first M, n int, mb Mailbox) (ref Ref[M], release func() []M) {
	s := newSystem(t, Config{})
	entered, gate, all := make(chan struct{}), make(chan struct{}), make(chan []M, 1)
	var got []M
	begun := false
	ref = mustSpawn(t, s, "a", Stateless(func(_ Context[M], m M) error {
		if !begun {
			begun = true
			close(entered)
			<-gate
			return nil
		}
		if got = append(got, m); len(got) == n {
			all <- got
		}
		return nil
	}), Props{Mailbox: mb})
	_ = ref.Tell(first)
	recv(t, entered)
	return ref, func() []M { close(gate); return recv(t, all) }
}

func TestPriorityMailbox(t *testing.T) {
	ref, release := heldActor(t, ranking{}, 6, Mailbox{Order: ByPriority})
	for _, m := range []ranking{{0, 1}, {5, 2}, {-1, 3}, {5, 4}, {9, 5}, {0, 6}} {
		_ = ref.Tell(m)
	}
	want := []ranking{{9, 5}, {5, 2}, {5, 4}, {0, 1}, {0, 6}, {-1, 3}}
	if got := release(); !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// A message of high priority that comes in the middle of a turn is next, though
// the turn had not reached its throughput.
func TestPriorityWithinATurn(t *testing.T) {
	s := newSystem(t, Config{})
	all := make(chan []int, 1)
	var got []int
	ref := mustSpawn(t, s, "a", Stateless(func(x Context[ranking], m ranking) error {
		switch got = append(got, m.n); {
		case m.n == 0:
			for i := 1; i <= 3; i++ {
				_ = Tell(x, x.Self(), ranking{0, i})
			}
		case m.n == 1:
			return Tell(x, x.Self(), ranking{1, 10})
		case len(got) == 5:
			all <- got
		}
		return nil
	}), Props{Mailbox: Mailbox{Order: ByPriority}})
	_ = ref.Tell(ranking{})
	if got, want := recv(t, all), []int{0, 1, 10, 2, 3}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestControlFirstMailbox(t *testing.T) {
	ref, release := heldActor[any](t, 0, 5, Mailbox{Order: ControlFirst})
	for _, m := range []any{1, urgentMsg(2), 3, urgentMsg(4), 5} {
		_ = ref.Tell(m)
	}
	if got, want := fmt.Sprint(release()), "[2 4 1 3 5]"; got != want {
		t.Errorf("got %v, want %v", got, want)
	}
}

// A full ordered mailbox that drops the oldest spares what ranks high.
func TestOrderedEviction(t *testing.T) {
	ref, release := heldActor(t, ranking{}, 3, Mailbox{Order: ByPriority, Capacity: 3, Overflow: DropOldest})
	for _, m := range []ranking{{5, 1}, {0, 2}, {0, 3}, {7, 4}, {1, 5}} {
		_ = ref.Tell(m)
	}
	if got, want := release(), []ranking{{7, 4}, {5, 1}, {1, 5}}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	ref2, release2 := heldActor[any](t, 0, 2, Mailbox{Order: ControlFirst, Capacity: 2, Overflow: DropOldest})
	for _, m := range []any{urgentMsg(1), 2, 3, urgentMsg(4), urgentMsg(5)} {
		_ = ref2.Tell(m)
	}
	if got, want := fmt.Sprint(release2()), "[4 5]"; got != want {
		t.Errorf("got %v, want %v: control goes when there is nothing else", got, want)
	}
}

// The ordered mailboxes against a stable sort, under random operations.
func TestOrderedMailboxModel(t *testing.T) {
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 3))
	for _, order := range []Order{ByPriority, ControlFirst} {
		c := &cell{spec: &spec{mb: Mailbox{Order: order, Capacity: Unbounded}}}
		var want []any // in the order of their arrival; unpop is arrival at the front
		rank := func(e any) int {
			if order == ByPriority {
				return -rankOf(e)
			}
			if isControl(e) {
				return 0
			}
			return 1
		}
		next := func() int { // index of the first by rank
			best := 0
			for i, e := range want {
				if rank(e) < rank(want[best]) {
					best = i
				}
			}
			return best
		}
		for step := range 20_000 {
			switch r.IntN(7) {
			case 0, 1, 2:
				var e any = ranking{r.IntN(4), step}
				if order == ControlFirst && r.IntN(3) == 0 {
					e = urgentMsg(step)
				}
				c.pushLocked(e)
				want = append(want, e)
			case 3, 4, 6:
				if c.emptyLocked() != (len(want) == 0) {
					t.Fatalf("seed %d %v step %d: got empty %v, want %v", seed, order, step, c.emptyLocked(), len(want) == 0)
				}
				if len(want) > 0 {
					i := next()
					if got := c.popLocked(); got != want[i] {
						t.Fatalf("seed %d %v step %d: got %v, want %v", seed, order, step, got, want[i])
					}
					want = slices.Delete(want, i, i+1)
				}
			case 5: // take some and give them back
				var back []any
				for range r.IntN(5) {
					if len(want) > 0 {
						i := next()
						back = append(back, c.popLocked())
						want = slices.Delete(want, i, i+1)
					}
				}
				c.unpopLocked(back)
				want = slices.Concat(back, want)
			}
		}
		for len(want) > 0 {
			i := next()
			if got := c.popLocked(); got != want[i] {
				t.Fatalf("seed %d %v: got %v, want %v", seed, order, got, want[i])
			}
			want = slices.Delete(want, i, i+1)
		}
		if c.links.box != nil {
			t.Errorf("%v: got an ordered part of an empty mailbox", order)
		}
	}
}

// What a burst took is given back: after it the mailbox has no memory, and the
// heap is what it was.
func TestMailboxGivesMemoryBack(t *testing.T) {
	for _, order := range []Order{FIFO, ByPriority, ControlFirst} {
		t.Run(order.String(), func(t *testing.T) {
			const burst = 200_000
			s := newSystem(t, Config{})
			gate, entered := make(chan struct{}), make(chan struct{})
			var once sync.Once
			var wg sync.WaitGroup
			wg.Add(burst)
			ref := mustSpawn(t, s, "a", Stateless(func(Context[*ranking], *ranking) error {
				once.Do(func() { close(entered); <-gate })
				wg.Done()
				return nil
			}), Props{Mailbox: Mailbox{Capacity: Unbounded, Order: order}})
			m := &ranking{}
			before := inUse()
			for range burst {
				_ = ref.Tell(m)
			}
			recv(t, entered)
			during := inUse()
			close(gate)
			wg.Wait()
			c := ref.to.(*cell)
			waitFor(t, func() bool {
				c.mu.Lock()
				defer c.mu.Unlock()
				return c.phase == idle && c.emptyLocked()
			})
			after := inUse()
			if grown := during - before; grown < burst*16 || after-before > grown/20 {
				t.Errorf("got %d bytes in the burst and %d after it, want some and next to none", grown, after-before)
			}
			runtime.KeepAlive(ref)
		})
	}
}
