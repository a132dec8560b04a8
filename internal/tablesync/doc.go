// Package tablesync runs sync tasks: one table's copy, catch-up and streaming,
// its failures and its controls.
//
// # What
//
// Engine holds the sources, targets, pipelines and tasks of one process. A task
// is an event-sourced entity (task.go, the one place where a state changes); the
// engine performs what the entity decides. Rows go through lanes: apply.go turns
// a lane's groups into target transactions, copy.go places chunks between them.
//
// # Usage
//
// The root package builds an Engine with connectors and a store; the API and the
// command line speak to Engine's methods.
//
// # Concurrency
//
// Engine is safe for concurrent use. A task with nothing to do has no goroutine.
//
// # Ordering
//
// One table's changes are applied in log order; tables are independent.
//
// # Failure
//
// A failing task is detached and holds nobody back: see docs/architecture.md.
//
// # Testing
//
// model_test.go runs the real procedures of this package and of capture against
// a simulated source, target and store with crashes between any two steps.
package tablesync
