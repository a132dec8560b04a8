package actor

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/runnel-dev/runnel/retry"
)

// op is one step of a random program: what a sender tells an actor.
type op struct {
	sender, n int
	do        string // plain, stash (put this aside), unstash, fail, stop
}

func (o op) String() string { return fmt.Sprintf("%d.%d %s", o.sender, o.n, o.do) }

// reference is the single-threaded meaning of an actor that handles ops: what it
// handles, in order, and what is lost, in order.
type reference struct {
	mailbox, stash []op
	handled, lost  []string
	stopped        bool
}

const modelStash = 3

func (r *reference) tell(o op) {
	if r.stopped {
		r.lost = append(r.lost, o.String())
		return
	}
	r.mailbox = append(r.mailbox, o)
}

// step handles one message, if there is one.
func (r *reference) step() bool {
	if r.stopped || len(r.mailbox) == 0 {
		return false
	}
	o := r.mailbox[0]
	r.mailbox = r.mailbox[1:]
	if o.do == "stash" && len(r.stash) < modelStash {
		o.do = "was stashed"
		r.stash = append(r.stash, o)
		return true
	}
	r.handled = append(r.handled, o.String())
	switch o.do {
	case "unstash", "fail": // a restart gives the stash back too
		r.mailbox = slices.Concat(r.stash, r.mailbox)
		r.stash = nil
	case "stop":
		r.stopped = true
		for _, o := range slices.Concat(r.stash, r.mailbox) {
			r.lost = append(r.lost, o.String())
		}
		r.stash, r.mailbox = nil, nil
	}
	return true
}

// modelActor does the same by the runtime.
func modelActor(handled *[]string) Setup[*op] {
	return func(Context[*op]) (Behavior[*op], error) {
		return Func[*op](func(x Context[*op], o *op) error {
			if o.do == "stash" && x.Stash() == nil {
				o.do = "was stashed"
				return nil
			}
			*handled = append(*handled, o.String())
			switch o.do {
			case "unstash":
				x.Unstash()
			case "fail":
				return errBoom
			case "stop":
				x.Stop()
			}
			return nil
		}), nil
	}
}

func randomOp(r *rand.Rand, sender, n int) op {
	words := strings.Fields("plain plain plain plain stash stash unstash unstash fail stop")
	do := words[r.IntN(len(words))]
	if do == "stop" && r.IntN(4) > 0 {
		do = "plain"
	}
	return op{sender, n, do}
}

// Random programs, one sender: exactly what the reference handles and loses, in
// its order, whatever the throughput, the dispatcher and the interleaving of
// turns and sends.
func TestModel(t *testing.T) {
	seed := rand.Uint64()
	for round := range 300 {
		r := rand.New(rand.NewPCG(seed, uint64(round)))
		var turns []Turn
		s, err := New(Config{
			Dispatchers: map[string]Dispatcher{"hand": {
				Executor: execute(func(tn Turn) { turns = append(turns, tn) }), Throughput: 1 + r.IntN(6),
			}},
			Supervision: Supervision{Backoff: retry.Policy{Multiplier: 1}},
		})
		if err != nil {
			t.Fatal(err)
		}
		letters := Subscribe[DeadLetter](s, 1000)
		var handled []string
		ref := mustSpawn(t, s, "a", modelActor(&handled), Props{Dispatcher: "hand", Stash: modelStash})
		run := func() bool {
			if len(turns) == 0 {
				return false
			}
			tn := turns[0]
			turns = turns[1:]
			tn.Run()
			return true
		}
		var ref1 reference
		for n := range 60 {
			o := randomOp(r, 0, n)
			// The reference sees a message as the actor does, when its turn comes; what
			// differs is only how much is in the mailbox when the actor stops.
			if r.IntN(3) == 0 {
				for run() {
				}
				for ref1.step() {
				}
			}
			ref1.tell(o)
			err := ref.Tell(&o)
			if ref1.stopped != isErr(err, ErrStopped) {
				t.Fatalf("seed %d round %d: got %v of %v, want stopped %v", seed, round, err, o, ref1.stopped)
			}
		}
		for run() {
		}
		for ref1.step() {
		}
		var lost []string
		for range len(letters.C()) {
			o, _ := (<-letters.C()).Message.(*op)
			lost = append(lost, o.String())
		}
		if !slices.Equal(handled, ref1.handled) || !slices.Equal(lost, ref1.lost) {
			t.Fatalf("seed %d round %d:\ngot handled %v\nwant        %v\ngot lost %v\nwant     %v", seed, round, handled, ref1.handled, lost, ref1.lost)
		}
		ref.Stop()
		ended := make(chan error, 1)
		for run() {
		}
		go func() { ended <- s.Shutdown(testContext(t)) }()
		if err := recv(t, ended); err != nil {
			t.Fatalf("seed %d round %d: %v", seed, round, err)
		}
	}
}

// Random programs, many senders on real dispatchers: of each sender's messages,
// those that are not stashed come in the order sent, and so do those that are;
// everything is handled or lost, once.
func TestModelOfManySenders(t *testing.T) {
	const senders, each = 4, 200
	seed := rand.Uint64()
	for round := range 20 {
		s, err := New(Config{
			Dispatchers: map[string]Dispatcher{DefaultDispatcher: {Workers: 1 + round%3, Throughput: 1 + round%7}},
			Supervision: Supervision{Backoff: retry.Policy{Multiplier: 1}},
			Mailbox:     Mailbox{Capacity: Unbounded},
		})
		if err != nil {
			t.Fatal(err)
		}
		letters := Subscribe[DeadLetter](s, senders*each)
		var handled []string
		var ops [senders][]*op
		ref := mustSpawn(t, s, "a", modelActor(&handled), Props{Stash: modelStash})
		ended := make(chan struct{}, senders)
		for k := range senders {
			r := rand.New(rand.NewPCG(seed, uint64(round*senders+k)))
			for n := range each {
				o := randomOp(r, k, n)
				if o.do == "stop" && n < each/2 {
					o.do = "plain"
				}
				ops[k] = append(ops[k], &o)
			}
			go func() {
				for _, o := range ops[k] {
					_ = ref.Tell(o)
				}
				ended <- struct{}{}
			}()
		}
		for range senders {
			recv(t, ended)
		}
		if err := s.Shutdown(testContext(t)); err != nil {
			t.Fatal(err)
		}
		checkSenders(t, fmt.Sprintf("seed %d round %d", seed, round), handled, len(letters.C()), senders*each)
	}
}

func checkSenders(t *testing.T, at string, handled []string, lost, want int) {
	t.Helper()
	last := map[string]int{}
	seen := map[string]bool{}
	for _, h := range handled {
		var sender, n int
		if _, err := fmt.Sscanf(h, "%d.%d", &sender, &n); err != nil {
			t.Fatal(err)
		}
		id := fmt.Sprint(sender, ".", n)
		if seen[id] {
			t.Fatalf("%s: got %s twice", at, id)
		}
		seen[id] = true
		lane := fmt.Sprint(sender, strings.HasSuffix(h, "was stashed"))
		if prev, ok := last[lane]; ok && prev > n {
			t.Fatalf("%s: got %s after message %d of its sender", at, h, prev)
		}
		last[lane] = n
	}
	if got := len(handled) + lost; got != want {
		t.Fatalf("%s: got %d handled and %d lost, want %d in all", at, len(handled), lost, want)
	}
}
