// Package fault names the places where a process may die or an operation may
// fail, so that tests can make exactly that happen.
//
// # What
//
// A fault point is one line in product code between two steps that must survive
// a crash in between:
//
//	var commitBefore = fault.Register("sink.commit.before")
//	…
//	if err := fault.Point(commitBefore); err != nil {
//		return err
//	}
//
// Unless something is armed, Point is one atomic load.
//
// # Usage
//
// A test in the same process arms a point with [Set]. A test that kills starts a
// child with RUNNEL_FAULT=name or name:n in its environment; the child ends with
// SIGKILL on its n-th pass (the first without n). [Names] lists every registered
// point, so that a suite can visit each and notice one that was never hit.
//
// # Concurrency
//
// Everything may be called from any goroutine. Passes of one point are counted
// process-wide; a function given to Set may run on several goroutines at once.
//
// # Failure
//
// A RUNNEL_FAULT that cannot be read, or that names a point nobody registered
// by the time one is passed, is returned by every Point: a mistyped kill test
// fails instead of passing.
//
// # Testing
//
// The tests re-execute themselves to see a child die.
package fault
