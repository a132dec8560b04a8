// Package lint holds the rules of the house as code: which package may import
// which, and the habits a reviewer should not have to repeat.
//
// # What
//
// [Load] parses every Go file of the module, whatever its build tags, and [Check]
// returns what breaks a rule. The layers are the table in layers.go; a new
// package is a new row there.
//
// # Usage
//
// The test of this package runs the rules over the repository, so `go test ./...`
// is all it takes. It parses files itself instead of running another tool: the
// test cache then sees the files it depends on and cannot keep an old verdict.
//
// A rule with exceptions asks for the reason in the code: `// invariant: …` at a
// panic, `// detached: …` at a context that outlives its caller (each on the same
// line or the one above), and a comment at the end of the line for a discarded
// result.
//
// # Concurrency
//
// The functions share nothing and start nothing.
//
// # Failure
//
// A file that does not parse is an error of Load, not a finding.
//
// # Testing
//
// Each rule has sources that break it and sources that must pass.
package lint
