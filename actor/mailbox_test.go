package actor

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

// The queue against a plain slice, under random operations.
func TestQueueModel(t *testing.T) {
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 2))
	var q queue
	var want []any
	next := 0
	for step := range 200_000 {
		switch r.IntN(8) {
		case 0, 1, 2:
			var e any = next
			if r.IntN(4) == 0 {
				e = &timer{msg: next}
			}
			next++
			q.push(e)
			want = append(want, e)
		case 3, 4, 5:
			if q.empty() != (len(want) == 0) {
				t.Fatalf("seed %d step %d: got empty %v, want %v", seed, step, q.empty(), len(want) == 0)
			}
			if len(want) > 0 {
				if got := q.pop(); got != want[0] {
					t.Fatalf("seed %d step %d: got %v, want %v", seed, step, got, want[0])
				}
				want = want[1:]
			}
		case 6:
			var back []any
			for range r.IntN(20) {
				back = append(back, next)
				next++
			}
			q.unpop(back)
			want = slices.Concat(back, want)
		case 7:
			i := slices.IndexFunc(want, func(e any) bool { return !isOwn(e) })
			got, ok := q.popOldestMessage()
			if ok != (i >= 0) || ok && got != want[i] {
				t.Fatalf("seed %d step %d: got %v %v, want index %d", seed, step, got, ok, i)
			}
			if ok {
				want = slices.Delete(want, i, i+1)
			}
		}
		if len(want) > 500 {
			for len(want) > 0 {
				if got := q.pop(); got != want[0] {
					t.Fatalf("seed %d step %d: got %v, want %v", seed, step, got, want[0])
				}
				want = want[1:]
			}
		}
	}
}

func TestOverflow(t *testing.T) {
	tests := []struct {
		overflow Overflow
		tell     error
		handled  []int
		lost     []any
	}{
		{Reject, ErrMailboxFull, []int{0, 1, 2, 3}, []any{4, 5}},
		{DropNewest, nil, []int{0, 1, 2, 3}, []any{4, 5}},
		{DropOldest, nil, []int{0, 3, 4, 5}, []any{1, 2}},
	}
	for _, tt := range tests {
		t.Run(tt.overflow.String(), func(t *testing.T) {
			s := newSystem(t, Config{})
			letters := Subscribe[DeadLetter](s, 8)
			entered, release, all := make(chan struct{}), make(chan struct{}), make(chan []int, 1)
			var handled []int
			ref := mustSpawn(t, s, "a", Stateless(func(_ Context[int], m int) error {
				if m == 0 {
					close(entered)
					recv(t, release)
				}
				if handled = append(handled, m); len(handled) == 4 {
					all <- handled
				}
				return nil
			}), Props{Mailbox: Mailbox{Capacity: 3, Overflow: tt.overflow}})
			if err := ref.Tell(0); err != nil {
				t.Fatal(err)
			}
			recv(t, entered)
			for m := 1; m <= 5; m++ {
				err, want := ref.Tell(m), tt.tell
				if m <= 3 {
					want = nil
				}
				if !errors.Is(err, want) {
					t.Errorf("tell %d: got %v, want %v", m, err, want)
				}
			}
			for _, want := range tt.lost {
				if got := recv(t, letters.C()); got.Message != want || got.Reason != ReasonOverflow || got.Path != "/user/a" {
					t.Errorf("got %+v, want %v lost by overflow of /user/a", got, want)
				}
			}
			close(release)
			if got := recv(t, all); fmt.Sprint(got) != fmt.Sprint(tt.handled) {
				t.Errorf("got %v handled, want %v", got, tt.handled)
			}
			c := ref.to.(*cell)
			c.mu.Lock()
			if c.waiting != 0 {
				t.Errorf("got %d messages counted as waiting in an empty mailbox", c.waiting)
			}
			c.mu.Unlock()
			if got := s.Stats().DeadLetters[ReasonOverflow]; got != 2 {
				t.Errorf("got %d counted, want 2", got)
			}
		})
	}
}

// What the actor asked for itself is not subject to the bound, and is not dropped
// to make room.
func TestOwnMessagesPassTheBound(t *testing.T) {
	s := newSystem(t, Config{})
	entered, release, got := make(chan struct{}), make(chan struct{}), make(chan int, 8)
	ref := mustSpawn(t, s, "a", Stateless(func(x Context[int], m int) error {
		if m != 0 {
			got <- m
			return nil
		}
		for i := range 3 {
			x.After(0, 100+i)
		}
		close(entered)
		recv(t, release)
		return nil
	}), Props{Mailbox: Mailbox{Capacity: 1, Overflow: DropOldest}})
	_ = ref.Tell(0)
	recv(t, entered)
	waitFor(t, func() bool { return s.Stats().Timers == 0 })
	for m := 1; m <= 3; m++ {
		if err := ref.Tell(m); err != nil {
			t.Fatal(err)
		}
	}
	close(release)
	seen := map[int]bool{}
	for range 4 {
		seen[recv(t, got)] = true
	}
	if want := map[int]bool{100: true, 101: true, 102: true, 3: true}; fmt.Sprint(seen) != fmt.Sprint(want) {
		t.Errorf("got %v, want %v", seen, want)
	}
}

func TestAskOfFullMailboxReturnsAtOnce(t *testing.T) {
	for _, o := range []Overflow{Reject, DropNewest, DropOldest} {
		t.Run(o.String(), func(t *testing.T) {
			s := newSystem(t, Config{})
			entered, release := make(chan struct{}, 1), make(chan struct{})
			ref := mustSpawn(t, s, "a", Stateless(func(_ Context[Reply[int]], to Reply[int]) error {
				entered <- struct{}{}
				<-release
				to.Send(1)
				return nil
			}), Props{Mailbox: Mailbox{Capacity: 1, Overflow: o}})
			defer close(release)
			_ = ref.Tell(Reply[int]{})
			recv(t, entered)
			if o == DropOldest { // the ask waits, then loses to a later message
				lost := make(chan error, 1)
				go func() {
					_, err := Ask(t.Context(), ref, func(to Reply[int]) Reply[int] { return to })
					lost <- err
				}()
				waitFor(t, func() bool {
					_ = ref.Tell(Reply[int]{})
					return len(lost) == 1
				})
				if err := recv(t, lost); !errors.Is(err, ErrMailboxFull) {
					t.Errorf("got %v, want %v", err, ErrMailboxFull)
				}
				return
			}
			_ = ref.Tell(Reply[int]{})
			_, err := Ask(testContext(t), ref, func(to Reply[int]) Reply[int] { return to })
			if !errors.Is(err, ErrMailboxFull) {
				t.Errorf("got %v, want %v", err, ErrMailboxFull)
			}
		})
	}
}
