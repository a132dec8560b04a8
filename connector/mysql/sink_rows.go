package mysql

import (
	"fmt"
	"unsafe"

	"github.com/runnel-dev/runnel/change"
)

// writeChanges appends the statements that bring changes to the table. Where
// several changes of a key may be merged they are, unless alone asks for every
// change in statements of its own (to find the one that the server refuses).
func (w *rowWriter) writeChanges(changes []change.Change) error {
	for i := range changes {
		if err := w.checkChange(&changes[i]); err != nil {
			return rowError(i, err)
		}
	}
	var err error
	if w.t.coalesces && !w.alone && len(changes) > 1 {
		err = w.writeCoalesced(changes)
	} else {
		err = w.writeOrdered(changes)
	}
	if err != nil {
		return err
	}
	return w.flush()
}

func (w *rowWriter) checkChange(c *change.Change) error {
	before, after := c.Before != nil, c.After != nil
	if before != (c.Op != change.Insert) || after != (c.Op != change.Delete) || c.Op < change.Insert || c.Op > change.Delete {
		return fmt.Errorf("operation %d does not have its images: %w", c.Op, errBadValue)
	}
	for _, row := range [2][]change.Value{c.Before, c.After} {
		if row == nil {
			continue
		}
		if err := w.t.check(row); err != nil {
			return err
		}
	}
	if c.Op == change.Insert && w.t.partial(c.After) {
		return fmt.Errorf("an insert must have all columns: %w", errAbsent)
	}
	return nil
}

// writeOrdered writes change by change. A changed key is a delete and an insert.
func (w *rowWriter) writeOrdered(changes []change.Change) error {
	var kb, ka []byte
	for i := range changes {
		c := &changes[i]
		var err error
		switch c.Op {
		case change.Insert:
			err = w.put(i, nil, c.After)
		case change.Delete:
			err = w.remove(i, c.Before)
		case change.Update:
			after := fill(c.After, c.Before)
			kb, ka = w.key(kb[:0], c.Before), w.key(ka[:0], after)
			if string(kb) != string(ka) && !w.t.partial(after) {
				if err = w.remove(i, c.Before); err != nil {
					return err
				}
			}
			err = w.put(i, c.Before, after)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (w *rowWriter) key(dst []byte, row []change.Value) []byte {
	return change.AppendKey(dst, w.t.layout, row)
}

// fill returns row with the columns that it lacks taken from older, which is not
// changed. Row itself is returned when it lacks none that older has.
func fill(row, older []change.Value) []change.Value {
	var out []change.Value
	for i := range row {
		if row[i].Kind != change.Absent || older == nil || older[i].Kind == change.Absent {
			continue
		}
		if out == nil {
			out = append([]change.Value(nil), row...)
		}
		out[i] = older[i]
	}
	if out == nil {
		return row
	}
	return out
}

// finalState is what remains of all changes of one key.
type finalState struct {
	index int            // the last change of the key
	row   []change.Value // the row then; the row before when it is gone
	gone  bool
}

// writeCoalesced writes the last state of each key: first what is gone, then what
// is there. Keys are independent here (see tableWriter.coalesces), so the order
// among them does not matter. A key that changed is gone under its old value.
func (w *rowWriter) writeCoalesced(changes []change.Change) error {
	states := make([]finalState, 0, len(changes))
	index := make(map[string]int, len(changes))
	keys := make([]byte, 0, 16*len(changes)) // what the map's strings are made of
	set := func(row []change.Value, st finalState) {
		from := len(keys)
		keys = w.key(keys, row)
		key := unsafe.String(unsafe.SliceData(keys[from:]), len(keys)-from) // never written again while it is in the map
		at, seen := index[key]
		if !seen {
			index[key] = len(states)
			states = append(states, st)
			return
		}
		keys = keys[:from]
		if old := &states[at]; !st.gone && !old.gone {
			st.row = fill(st.row, old.row)
		}
		states[at] = st
	}
	var kb, ka []byte
	for i := range changes {
		c := &changes[i]
		switch c.Op {
		case change.Insert:
			set(c.After, finalState{i, c.After, false})
		case change.Delete:
			set(c.Before, finalState{i, c.Before, true})
		case change.Update:
			after := fill(c.After, c.Before)
			kb, ka = w.key(kb[:0], c.Before), w.key(ka[:0], after)
			if string(kb) != string(ka) {
				if w.t.partial(after) { // an UPDATE that moves the row: no merging over it
					return w.writeOrdered(changes)
				}
				set(c.Before, finalState{i, c.Before, true})
			}
			set(after, finalState{i, after, false})
		}
	}
	return w.writeStates(states)
}

func (w *rowWriter) writeStates(states []finalState) error {
	for _, st := range states {
		if st.gone {
			if err := w.remove(st.index, st.row); err != nil {
				return err
			}
		}
	}
	for _, st := range states {
		if !st.gone {
			if err := w.put(st.index, nil, st.row); err != nil {
				return err
			}
		}
	}
	return nil
}

// writeRows appends the statements that overwrite with full rows, in their order.
func (w *rowWriter) writeRows(rows []change.Row) error {
	for i, r := range rows {
		if err := w.t.check(r); err != nil {
			return rowError(i, err)
		}
		if err := w.put(i, nil, r); err != nil {
			return err
		}
	}
	return w.flush()
}
