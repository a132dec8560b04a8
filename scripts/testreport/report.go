package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"maps"
	"slices"
	"strings"
)

// event is one line of `go test -json`.
type event struct {
	Action     string
	Package    string
	ImportPath string // of build events
	Test       string
	Output     string
}

// keepBytes is how much output of one test is kept until its result is known.
// Of more, the beginning and the end are shown.
const keepBytes = 256 << 10

// outcome is what is known of a test.
type outcome struct {
	result string // "pass", "fail", "skip", or "" while it runs
	parent bool   // has subtests
	out    output
}

// output is the text of a test or package, cut in the middle when it is long.
type output struct {
	head, tail []string
	headBytes  int
	tailBytes  int
	cut        int // lines left out
}

func (o *output) add(s string) {
	if o.headBytes < keepBytes/2 {
		o.head = append(o.head, s)
		o.headBytes += len(s)
		return
	}
	o.tail = append(o.tail, s)
	o.tailBytes += len(s)
	for o.tailBytes > keepBytes/2 && len(o.tail) > 1 {
		o.tailBytes -= len(o.tail[0])
		o.tail = o.tail[1:]
		o.cut++
	}
}

func (o *output) writeTo(w io.Writer) {
	for _, s := range o.head {
		fmt.Fprint(w, s)
	}
	if o.cut > 0 {
		fmt.Fprintf(w, "    … %d lines left out …\n", o.cut)
	}
	for _, s := range o.tail {
		fmt.Fprint(w, s)
	}
}

// pack is what is known of a package.
type pack struct {
	tests  map[string]*outcome
	out    output // what no test printed
	result string
}

// report gathers events and prints as soon as results are known.
type report struct {
	w                       io.Writer
	packs                   map[string]*pack
	passed, failed, skipped int
}

func newReport(w io.Writer) *report { return &report{w: w, packs: make(map[string]*pack)} }

// read takes events to the end of r. A line that is no event is shown as it is.
func (r *report) read(in io.Reader) error {
	br := bufio.NewReaderSize(in, 64<<10)
	for {
		line, err := br.ReadString('\n')
		if line != "" {
			var e event
			if json.Unmarshal([]byte(line), &e) == nil && e.Action != "" {
				r.take(e)
			} else {
				fmt.Fprint(r.w, line)
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read events of go test: %w", err)
		}
	}
}

func (r *report) take(e event) {
	switch {
	case e.Action == "build-output":
		fmt.Fprint(r.w, e.Output)
	case e.Package == "":
	case e.Test != "":
		r.takeTest(r.pack(e.Package), e)
	default:
		r.takePackage(r.pack(e.Package), e)
	}
}

func (r *report) pack(name string) *pack {
	p := r.packs[name]
	if p == nil {
		p = &pack{tests: make(map[string]*outcome)}
		r.packs[name] = p
	}
	return p
}

func (r *report) takeTest(p *pack, e event) {
	t := p.tests[e.Test]
	if t == nil || e.Action == "run" {
		t = p.start(e.Test, t)
	}
	switch e.Action {
	case "output":
		t.out.add(e.Output)
	case "pass", "fail", "skip":
		t.result = e.Action
		if e.Action == "fail" || e.Action == "skip" {
			t.out.writeTo(r.w)
		}
		t.out = output{}
	}
}

// start notes a test; one that runs again, as with -count, is counted again.
func (p *pack) start(name string, before *outcome) *outcome {
	if before != nil && before.result != "" {
		n := 1
		for p.tests[fmt.Sprintf("%s run %d", name, n)] != nil {
			n++
		}
		p.tests[fmt.Sprintf("%s run %d", name, n)] = before
	}
	t := &outcome{}
	p.tests[name] = t
	for up := range above(name) {
		if parent := p.tests[up]; parent != nil {
			parent.parent = true
		}
	}
	return t
}

// above yields what may be the names of the tests around a subtest, from the
// inside out: a subtest's own name may hold slashes too.
func above(name string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for i := strings.LastIndexByte(name, '/'); i > 0; i = strings.LastIndexByte(name[:i], '/') {
			if !yield(name[:i]) {
				return
			}
		}
	}
}

func (r *report) takePackage(p *pack, e event) {
	switch e.Action {
	case "output":
		p.out.add(e.Output)
	case "pass", "skip", "fail":
		p.result = e.Action
		if e.Action == "fail" {
			r.showUnfinished(p)
		}
		r.showPackage(p)
	}
}

// showPackage prints what the package itself said: all of it when it failed, its
// result line when it passed, nothing when it has no tests.
func (r *report) showPackage(p *pack) {
	if p.result == "fail" {
		p.out.writeTo(r.w)
	}
	for _, s := range append(p.out.head, p.out.tail...) {
		if p.result == "pass" && strings.HasPrefix(s, "ok ") {
			fmt.Fprint(r.w, s)
		}
	}
	p.out = output{}
}

// showUnfinished prints the output of tests the end of the process cut short.
func (r *report) showUnfinished(p *pack) {
	for _, name := range slices.Sorted(maps.Keys(p.tests)) {
		if t := p.tests[name]; t.result == "" {
			fmt.Fprintf(r.w, "--- did not finish: %s\n", name)
			t.out.writeTo(r.w)
			t.out = output{}
		}
	}
}

// finish counts. ok is what go test itself says of the whole run.
func (r *report) finish(ok bool) {
	for _, name := range slices.Sorted(maps.Keys(r.packs)) {
		p := r.packs[name]
		if p.result == "" {
			fmt.Fprintf(r.w, "did not finish: %s\n", name)
			r.showUnfinished(p)
			p.out.writeTo(r.w)
		}
		failedBefore := r.failed
		p.count(r)
		if p.result != "pass" && p.result != "skip" && r.failed == failedBefore {
			r.failed++
		}
	}
	if !ok && r.failed == 0 {
		r.failed++ // go test failed before there was a package to blame
	}
}

// count adds a package's tests. A failed parent counts only when none below it
// failed.
func (p *pack) count(r *report) {
	failed := make(map[string]bool) // tests with a failure below them
	names := slices.Sorted(maps.Keys(p.tests))
	for _, name := range slices.Backward(names) { // subtests before their parents
		t := p.tests[name]
		bad := t.result == "fail" || t.result == ""
		if bad {
			for up := range above(name) {
				failed[up] = true
			}
		}
		switch {
		case t.parent && (!bad || failed[name]):
		case bad:
			r.failed++
		case t.result == "pass":
			r.passed++
		case t.result == "skip":
			r.skipped++
		}
	}
}

func (r *report) counts() string {
	return fmt.Sprintf("%d passed, %d failed, %d skipped", r.passed, r.failed, r.skipped)
}
