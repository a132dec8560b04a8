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
// The core is [New], [Spawn], [Ref], [Tell], [Ask], [PipeToSelf], [Behavior] and
// [Context]. Around it:
//   - life: [Setup], [Signal], [Supervision], [Props]; Watch, Passivate and the
//     timers are methods of Context;
//   - where turns run: [Dispatcher] and its [Kind], [Executor];
//   - what waits: [Mailbox] with [Overflow] and [Order], Context.Stash;
//   - who is there: [Lookup], [Select], System.Tree;
//   - what happens: [Subscribe], [DeadLetter], [ActorFailed], [WorkerHeld],
//     [DispatcherStats], System.Hottest;
//   - the whole: [Config], [Extension], System.OnShutdown and Shutdown.
//
// # Usage
//
//	sys, err := actor.New(actor.Config{Dispatchers: map[string]actor.Dispatcher{
//		"control": {Workers: 2}, "io": {Kind: actor.Elastic, Workers: 64},
//	}})
//	counter := func(actor.Context[msg]) (actor.Behavior[msg], error) { return &counterState{}, nil }
//	ref, err := actor.Spawn(sys, "orders", counter, actor.Props{Dispatcher: "control"})
//	err = ref.Tell(add{1})
//	n, err := actor.Ask(ctx, ref, func(to actor.Reply[int]) msg { return get{to} })
//	err = sys.Shutdown(ctx)
//
// Work that waits does not belong in a handler: start it with [PipeToSelf], and
// its result comes back as a message. A handler that does block holds what its
// turn runs on and nothing else: give such actors an elastic dispatcher of their
// own. A watchdog names those that hold a worker too long.
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
// the one actor that a handler put at the head of its own worker's queue. When all
// workers are held, it waits; the others' dispatchers do not notice.
//
// A dispatcher keeps up while the sum over its actors of arrival rate × service
// time is below its workers, and an actor while its own is below 1:
// [DispatcherStats].Utilisation and System.Hottest show both.
//
// # Ordering
//
// Messages from one sender (goroutine or actor) to one actor are handled in the
// order sent, unless its mailbox says otherwise ([ByPriority], [ControlFirst]) or
// it stashes them; stashed ones come back in order, before all others. Messages of
// different senders have no order among each other. Terminated comes after all
// messages that the terminated actor sent to its watcher. Stop, restart and the
// end of children overtake messages. Timers and piped results join the mailbox at
// its end when they are due.
//
// # Failure
//
// A message that was taken is handled at most once. It is not handled, and
// becomes a [DeadLetter], counted and published, if
//   - the actor stops before its turn comes, or with it in its stash,
//   - a full mailbox drops it (see [Overflow]), or has had no room for too long,
//   - it is nil, or [Config].Before drops it,
//   - it is a piped result of an earlier generation, or a reply that nobody waits for.
//
// A message whose handler fails is not handled again. An Ask whose message is
// lost in any of these ways, but for Before, returns at once with the reason. A
// failed handler (an error or a panic) never harms the process: [Supervision]
// resumes, restarts or stops the actor, or escalates to its parent, alone or with
// its siblings. A restart keeps the mailbox, puts the stash back into it, and drops
// timers, piped results, children and state. Watches of the actor outlast its
// restarts. Pending timers of an actor that stops are cancelled silently. What
// must survive the process belongs into a journal.
//
// Nothing queues without bound unless its mailbox says [Unbounded]: mailboxes,
// stashes, the blocking pool and subscriptions have limits, and what they refuse
// is an error or a counted loss. Timers and piped results pass the mailbox bound,
// since the actor itself bounds how many it starts. A full mailbox that blocks
// suspends a sending actor after its handler, and never holds its worker.
//
// # Testing
//
// A System has no hidden clock: inside testing/synctest its timers, backoffs
// and deadlines run in fake time. Await and Subscribe replace sleeping. Package
// actortest has probes, a dispatcher that is stepped by hand, and faults. While a
// handler blocks, the watchdog's timer keeps a synctest bubble from being found
// deadlocked; a test that would hang runs into the test binary's time limit
// instead.
package actor
