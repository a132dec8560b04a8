// Package cluster routes commands to entities: a [Region] starts an entity when
// a command for it comes and stops it when none has come for a while.
//
// # Usage
//
//	r, err := cluster.NewRegion(cluster.RegionConfig{System: sys, Store: st, Registry: reg, Kinds: kinds})
//	err = r.Start(ctx)
//	reply, err := r.Ask(ctx, id, command)
//	err = r.Stop(ctx)
//
// # Concurrency
//
// A Region is safe for concurrent use. Nobody holds a ref to an entity.
//
// # Ordering
//
// Commands of one goroutine to one entity are decided in the order they were
// given, also across a passivation.
//
// # Failure
//
// A command that Tell or Ask took is decided once, unless the process ends or
// the entity fails while handling it; an Ask is then answered with the reason. A
// shard with a newer owner refuses commands with persistence.ErrDeposed.
//
// # Testing
//
// A Region on a persistence/sqlite store in a temporary directory.
package cluster
