// Package web serves the HTTP API, the metrics and the overview page, and has the
// client for them.
//
// # What
//
// Server answers /api/v1 (described in openapi.json, which it serves), /metrics,
// /healthz, /readyz and the overview at /. Client is the other end: the command
// line and the demo speak through it.
//
// # Usage
//
//	s, err := web.New(web.Config{Control: engine, Log: log})
//	err = s.Serve(ctx, listener)
//
// # Concurrency
//
// Server and Client are safe for concurrent use. Serve returns when ctx ended and
// every request it accepted has been answered or cut off.
//
// # Ordering
//
// Lists are in id or name order; task lists are paged by the last id seen, so a
// page never repeats or misses a task that exists throughout.
//
// # Failure
//
// Every error is a problem document (RFC 9457) with a stable code and, where a
// person can do something, a remedy. Bodies, headers, waiting times and the number
// of slow requests at once are limited.
//
// # Testing
//
// Tests drive the handlers with a fake Control and hold routes and types against
// openapi.json.
package web
