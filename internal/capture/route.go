package capture

import "github.com/runnel-dev/runnel/change"

// route cuts a group into one item per lane. Statements concern the lanes of the
// tables they name, a whole schema (a table without a name), or every lane (no
// table). Callers hold the mutex. Cost: O(events of captured tables).
func (c *Core) route(g *change.Group) []Work {
	var work []Work
	add := func(l *Lane, ev change.Event, barrier bool) {
		if l.building == 0 {
			work = append(work, Work{Lane: l, Item: Item{End: g.End, CommitTime: g.CommitTime, ReadTime: g.ReadTime}})
			l.building = len(work)
		}
		it := &work[l.building-1].Item
		it.Events = append(it.Events, ev)
		it.Barrier = it.Barrier || barrier
		if ev.Rows != nil {
			it.Bytes += ev.Rows.SizeBytes()
		}
		it.Bytes += eventOverheadBytes
	}
	for _, ev := range g.Events {
		if ev.Statement == nil {
			for _, l := range c.byTable[ev.Table] {
				add(l, ev, false)
			}
			continue
		}
		for _, l := range c.concerned(ev.Statement) {
			add(l, ev, true)
		}
	}
	for i := range work {
		work[i].Lane.building = 0
	}
	return work
}

// eventOverheadBytes is what queueing one event costs beside its rows.
const eventOverheadBytes = 160

// concerned lists the lanes a statement is for. A schema or a whole source is
// named by rare statements only (DROP DATABASE, an incident).
func (c *Core) concerned(s *change.Statement) []*Lane {
	if len(s.Tables) == 0 && s.Kind == change.LostRows {
		return c.lanesWhere(func(*Lane) bool { return true })
	}
	var lanes []*Lane
	for _, t := range s.Tables {
		if t.Name == "" {
			lanes = append(lanes, c.lanesWhere(func(l *Lane) bool { return l.Table.Schema == t.Schema })...)
			continue
		}
		lanes = append(lanes, c.byTable[t]...)
	}
	return lanes
}

func (c *Core) lanesWhere(match func(*Lane) bool) []*Lane {
	var lanes []*Lane
	for _, ls := range c.byTable {
		for _, l := range ls {
			if match(l) {
				lanes = append(lanes, l)
			}
		}
	}
	return lanes
}

// endRouting stops routing rows to the live lanes whose table a statement of the
// group took away; what follows under that name is another table's. A lane that
// is not live meets the statement in its sweep.
func (c *Core) endRouting(work []Work) {
	for i := range work {
		l := work[i].Lane
		if l.mode == Detached || l.mode == Sweeping || !work[i].Item.Barrier {
			continue
		}
		for _, ev := range work[i].Item.Events {
			if ev.Statement != nil && TakesAway(ev.Statement, l.Table) {
				l.ended = true
				c.unroute(l)
				break
			}
		}
	}
}

// TakesAway reports whether after the statement t is no longer the table it was.
func TakesAway(s *change.Statement, t change.TableID) bool {
	switch s.Kind {
	case change.DropTable, change.DropSchema:
		return true
	case change.RenameTable, change.AlterTable:
		for _, r := range s.Renames {
			if r.From == t {
				return true
			}
		}
	}
	return false
}
