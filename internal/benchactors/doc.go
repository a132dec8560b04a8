// Package benchactors shows what the actor runtime promises by two experiments.
//
// What: [Sharing] lets 10,000 actors handle 40,000 ordered messages on two
// workers and counts the goroutines that ran handlers, overlaps and order errors.
// [Starving] blocks both workers of a dispatcher and shows that a third actor of
// that dispatcher waits, while actors of another one, and of an elastic one with
// as many blocked handlers, answer.
//
// Usage: Run does both and returns what `runnel bench actors` prints.
//
// Concurrency: each experiment has a System of its own; they may run side by side.
//
// Ordering: order is checked for one sender to each actor, as promised; nothing
// is concluded about several senders.
//
// Failure: an experiment that shows something else than promised is a result, see
// Result.Faults; an error means that it could not be done.
//
// Testing: the tests run both inside testing/synctest, so that the time in which
// the third actor is watched passes at once.
package benchactors
