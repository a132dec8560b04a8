// Package actortest helps to test actors without sleeping and without luck.
//
// # What
//
//   - [New] makes a System that the end of the test shuts down.
//   - [Probe] is an actor whose messages the test receives, expects, and fishes for;
//     [Events] is the same for an event stream.
//   - [Stepper] is a dispatcher that runs turns only when the test says so, in the
//     order that it says: interleavings become input.
//   - [Faults] makes handlers fail, panic, block or lose a message.
//   - [Advance] moves the time inside a testing/synctest bubble, in which all timers,
//     backoffs and deadlines of a System run by fake time.
//
// # Usage
//
//	synctest.Test(t, func(t *testing.T) {
//		sys := actortest.New(t, actor.Config{})
//		p := actortest.NewProbe[string](t, sys)
//		greeter, _ := actor.Spawn(sys, "greeter", newGreeter(p.Ref()))
//		_ = greeter.Tell("world")
//		p.Expect("hello world")
//		p.ExpectNone(time.Minute) // fake, hence at once
//	})
//
// # Concurrency
//
// A Probe belongs to the goroutine of the test. A Stepper runs turns on the
// goroutine that calls Step. Faults may be used from any goroutine.
//
// # Ordering
//
// A Probe gives messages in the order in which its actor handled them. A Stepper
// runs turns in the order in which they became runnable, unless told otherwise.
//
// # Failure
//
// What does not come within [Probe].Within fails the test, naming what came
// instead. Errors of New's Config do too.
//
// # Testing
//
// This package's own tests show one use of each part.
package actortest
