// Package actor is a local actor runtime: many long-lived actors on few
// goroutines.
//
// # What
//
// An actor is a mailbox, a behavior and a place in a hierarchy. It has no
// goroutine of its own: when a message arrives, the actor is scheduled on a
// worker of its dispatcher, runs a turn of a few messages, and is idle again. An
// idle actor costs about 220 bytes, its name and a small behavior included, and
// nothing else.
//
// # Usage
//
//	sys, err := actor.New(actor.Config{Dispatchers: map[string]actor.Dispatcher{"control": {Workers: 2}}})
//	counter := func(actor.Context[msg]) (actor.Behavior[msg], error) { return &counterState{}, nil }
//	ref, err := actor.Spawn(sys, "orders", counter, actor.Props{Dispatcher: "control"})
//	err = ref.Tell(add{1})
//	n, err := actor.Ask(ctx, ref, func(to actor.Reply[int]) msg { return get{to} })
//	err = sys.Shutdown(ctx)
//
// Work that waits does not belong in a handler: start it with [PipeToSelf], and
// its result comes back as a message. A handler that does block holds one worker
// of its dispatcher and nothing else; name a dispatcher for each kind of waiting.
//
// # Concurrency
//
// Refs, Replies, Systems and Subscriptions may be used from any goroutine. A
// [Context] and a [Timer] belong to the handlers of their actor.
//
// What never overlaps: Setup, Receive, Signal and the wrap functions of
// PipeToSelf of one actor. Each sees all memory effects of the one before.
// What may overlap: handlers of different actors, and functions given to
// PipeToSelf with everything, also with the handlers of the actor that started
// them.
//
// A scheduled actor never waits behind another's handler while a worker of its
// dispatcher is parked: the worker is woken at once, or within a millisecond for
// the one actor that a handler put at the head of its own worker's queue.
//
// # Ordering
//
// Messages from one sender (goroutine or actor) to one actor are handled in the
// order sent. Messages of different senders have no order among each other.
// Terminated comes after all messages that the terminated actor sent to its
// watcher. Stop, restart and the end of children overtake messages. Timers and
// piped results join the mailbox at its end when they are due.
//
// # Failure
//
// A message that was taken is handled at most once. It is not handled, and
// becomes a [DeadLetter], counted and published, if
//   - the actor stops before its turn comes,
//   - a full mailbox drops it (see [Overflow]),
//   - it is a piped result of an earlier generation, or a reply that nobody waits for.
//
// A message whose handler fails is not handled again. An Ask whose message is
// lost in any of these ways returns at once with the reason. A failed handler (an error or
// a panic) never harms the process: [Supervision] resumes, restarts or stops the
// actor. A restart keeps the mailbox, and drops timers, piped results, children
// and state. Pending timers of an actor that stops are cancelled silently. What must
// survive the process belongs into a journal.
//
// Nothing queues without bound unless its mailbox says [Unbounded]: mailboxes,
// the blocking pool and subscriptions have limits, and what they refuse is an
// error or a counted loss. Timers and piped results pass the mailbox bound, since
// the actor itself bounds how many it starts.
//
// # Testing
//
// A System has no hidden clock: inside testing/synctest its timers, backoffs
// and deadlines run in fake time. Await and Subscribe replace sleeping.
package actor
