package actor

import (
	"context"
	"runtime"
	"strconv"
	"sync"
	"testing"
)

func benchSystem(b *testing.B) *System {
	return newSystem(b, Config{Mailbox: Mailbox{Capacity: Unbounded}})
}

// BenchmarkIdleActor reports the memory that one idle named actor keeps, as
// heap and stack bytes, with a behavior of two words.
func BenchmarkIdleActor(b *testing.B) {
	s := benchSystem(b)
	setup := Setup[int](func(Context[int]) (Behavior[int], error) { return &counting{}, nil })
	before := inUse()
	b.ResetTimer()
	for i := range b.N {
		mustSpawn(b, s, "actor-"+strconv.Itoa(i), setup)
	}
	settle(b, s, "actor-"+strconv.Itoa(b.N-1))
	b.StopTimer()
	b.ReportMetric(float64(inUse()-before)/float64(b.N), "heapB/actor")
}

// settle waits until the actor has handled what it was told.
func settle(b *testing.B, s *System, name string) {
	ref, err := Lookup[int](s, "/user/"+name)
	if err != nil {
		b.Fatal(err)
	}
	if _, err := Ask(b.Context(), ref, func(to Reply[int]) int { to.Send(1); return 0 }); err != nil {
		b.Fatal(err)
	}
}

func inUse() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc + m.StackInuse)
}

type counting struct {
	n    int
	last int
}

func (c *counting) Receive(_ Context[int], m int) error {
	c.n++
	c.last = m
	return nil
}

// BenchmarkTellOneToOne is one outside sender and one receiver.
func BenchmarkTellOneToOne(b *testing.B) {
	b.ReportAllocs()
	s := benchSystem(b)
	done := make(chan struct{})
	n := 0
	ref := mustSpawn(b, s, "sink", Stateless(func(Context[*int], *int) error {
		if n++; n == b.N {
			close(done)
		}
		return nil
	}))
	msg := new(int)
	b.ResetTimer()
	for range b.N {
		_ = ref.Tell(msg)
	}
	<-done
}

// BenchmarkPingPong is a ball between two actors; an op is one message.
func BenchmarkPingPong(b *testing.B) {
	b.ReportAllocs()
	s := benchSystem(b)
	done := make(chan struct{})
	left := b.N
	var refs [2]Ref[*int]
	player := func(other int) Setup[*int] {
		return Stateless(func(x Context[*int], ball *int) error {
			if left--; left <= 0 {
				close(done)
				return nil
			}
			return Tell(x, refs[other], ball)
		})
	}
	refs[0], refs[1] = mustSpawn(b, s, "a", player(1)), mustSpawn(b, s, "b", player(0))
	b.ResetTimer()
	_ = refs[0].Tell(new(int))
	<-done
}

// BenchmarkFanOut is many actors that each pass a message on, several in flight.
func BenchmarkFanOut(b *testing.B) {
	b.ReportAllocs()
	const actors, flying = 1000, 64
	s := benchSystem(b)
	var refs [actors]Ref[int]
	var wg sync.WaitGroup
	wg.Add(flying)
	setup := Stateless(func(x Context[int], left int) error {
		if left == 0 {
			wg.Done()
			return nil
		}
		return Tell(x, refs[(left*31)%actors], left-1)
	})
	for i := range refs {
		refs[i] = mustSpawn(b, s, "", setup)
	}
	b.ResetTimer()
	for i := range flying {
		_ = refs[i].Tell(b.N / flying)
	}
	wg.Wait()
}

// BenchmarkAsk is one outside asker and one answering actor.
func BenchmarkAsk(b *testing.B) {
	b.ReportAllocs()
	s := benchSystem(b)
	ref := mustSpawn(b, s, "echo", Stateless(func(_ Context[Reply[int]], to Reply[int]) error {
		to.Send(1)
		return nil
	}))
	ctx, cancel := context.WithCancel(b.Context())
	defer cancel()
	b.ResetTimer()
	for range b.N {
		if _, err := Ask(ctx, ref, func(to Reply[int]) Reply[int] { return to }); err != nil {
			b.Fatal(err)
		}
	}
}
