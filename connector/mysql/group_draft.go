package mysql

import "github.com/runnel-dev/runnel/change"

// draft is a group that has not ended.
type draft struct {
	groupStart
	start      change.Position
	begun      bool // ends with a commit; else its first statement is all of it
	generation uint64
	events     []change.Event
	skipped    []change.TableID
	missed     []change.TableID // names of unwanted tables that statements made
	redefined  []change.TableID // named by DDL statements
	traces     []trace          // of foreign keys that may have changed rows
	opened     []openedTable    // by the present statement
	hits       []hit            // of the present statement
	own        bool
	saves      []savepoint
	incomplete map[change.TableID]bool // tables told to have partial images

	blocks []rowBlock // room for blocks
	room   []byte     // room for bodies
	used   int        // bytes that were taken of it
	guess  extent     // of the group before
	size   int        // memory that events keep alive
	spill  *spillFile
}

// extent is how large a group is: the next one is likely alike.
type extent struct{ bytes, events int }

type savepoint struct {
	name   string
	events int
}

// add appends an event that keeps size bytes alive.
func (d *draft) add(e change.Event, size int) {
	if d.events == nil {
		d.events = make([]change.Event, 0, min(max(2, d.guess.events), 1<<12))
	}
	d.events = append(d.events, e)
	d.size += size + eventBytes
}

const eventBytes = 64

// skip notes a table whose rows are left out.
func (d *draft) skip(t change.TableID) {
	for i := len(d.skipped) - 1; i >= 0 && i >= len(d.skipped)-4; i-- {
		if d.skipped[i] == t {
			return
		}
	}
	d.skipped = append(d.skipped, t)
}

// partial tells once that a table's images are not whole: who needs full rows has
// lost them.
func (d *draft) partial(t change.TableID) {
	if d.incomplete[t] {
		return
	}
	if d.incomplete == nil {
		d.incomplete = map[change.TableID]bool{}
	}
	d.incomplete[t] = true
	d.add(change.Event{Statement: &change.Statement{Kind: change.LostRows, Tables: []change.TableID{t},
		SQL: "/* row image is not FULL: set binlog_row_image=FULL */"}}, 0)
}

// copyRows takes a row event into the group's memory, or its file once the group
// is large.
func (d *draft) copyRows(m *tableMap, kind byte, body []byte, o *SourceOptions) error {
	if d.spill == nil && d.size+len(body) > o.SpillBytes {
		if err := d.toDisk(o.SpillDir); err != nil {
			return err
		}
	}
	if len(d.blocks) == cap(d.blocks) {
		d.blocks = make([]rowBlock, 0, min(max(2, d.guess.events-len(d.events), 2*cap(d.blocks)), 512))
	}
	d.blocks = d.blocks[:len(d.blocks)+1]
	b := &d.blocks[len(d.blocks)-1]
	b.tables, b.kind, b.length = m, kind, len(body)
	if d.spill != nil {
		at, err := d.spill.append(body)
		if err != nil {
			return err
		}
		b.spill, b.spillAt = d.spill, at
	} else {
		b.body = d.keep(body)
	}
	d.add(change.Event{Table: m.table, Rows: b}, b.SizeBytes())
	return nil
}

// keep copies b into the group's memory. What is large gets memory of its own, which
// the runtime need not clear first.
func (d *draft) keep(b []byte) []byte {
	const least, most, large = 1 << 10, 1 << 20, 16 << 10
	if len(b) >= large {
		own := append([]byte(nil), b...)
		return own[:len(own):len(own)]
	}
	d.used += len(b)
	if len(d.room)+len(b) > cap(d.room) {
		want := max(len(b), min(max(least, d.used, d.guess.bytes-d.used+len(b)+d.guess.bytes/8), most))
		d.room = make([]byte, 0, want)
	}
	at := len(d.room)
	d.room = append(d.room, b...)
	return d.room[at:len(d.room):len(d.room)]
}

// toDisk moves the bodies out of memory; what follows goes to the file too.
func (d *draft) toDisk(dir string) error {
	if d.spill == nil {
		s, err := newSpillFile(dir)
		if err != nil {
			return err
		}
		d.spill = s
	}
	for _, e := range d.events {
		b, ok := e.Rows.(*rowBlock)
		if !ok || b.spill != nil {
			continue
		}
		at, err := d.spill.append(b.body)
		if err != nil {
			return err
		}
		d.size -= len(b.body)
		b.spill, b.spillAt, b.body = d.spill, at, nil
	}
	d.room = nil
	return nil
}

// save marks a savepoint; a later one of the same name replaces it.
func (d *draft) save(name string) {
	for i, s := range d.saves {
		if s.name == name {
			d.saves = append(d.saves[:i], d.saves[i+1:]...)
			break
		}
	}
	d.saves = append(d.saves, savepoint{name, len(d.events)})
}

// rollbackTo cuts off what came after the savepoint. false when there is none.
func (d *draft) rollbackTo(name string) bool {
	for i, s := range d.saves {
		if s.name != name {
			continue
		}
		d.saves = d.saves[:i+1]
		clear(d.events[s.events:])
		d.events = d.events[:s.events]
		d.recount()
		return true
	}
	return false
}

// recount sums up after a cut. Tables whose partial images were cut off may be
// told again.
func (d *draft) recount() {
	d.size, d.incomplete = 0, nil
	for _, e := range d.events {
		d.size += eventBytes
		switch {
		case e.Rows != nil:
			d.size += e.Rows.SizeBytes()
		case e.Statement != nil:
			d.size += len(e.Statement.SQL)
		}
	}
}
