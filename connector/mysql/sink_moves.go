package mysql

import (
	"strconv"

	"github.com/runnel-dev/runnel/change"
)

// movesTogether is how many checkpoints one statement moves.
const movesTogether = 100

// moveCheckpoint appends the compare-and-set of the checkpoint of batch i. It
// affects one row or none: the counter makes an update that changes nothing else
// count.
func (g *group) moveCheckpoint(i int) error {
	b := &g.batches[i]
	sql := "UPDATE " + g.s.tables.checkpoint + " SET position=" + quoteString(b.New.String()) + ",moves=moves+1" +
		g.s.whereCheckpoint(g.f, b.Key, b.Expected) + " AND intent IS NULL"
	return g.sc.add([]byte(sql), piece{batch: i, row: -1, checkpoint: true})
}

// moveCheckpoints appends the compare-and-set of the checkpoints of all batches
// left, many in a statement: that takes less than half the time of one for each.
// A lane that has two batches gets one statement for each, in their order.
func (g *group) moveCheckpoints() error {
	seen := make(map[change.CheckpointKey]bool, len(g.left))
	once := len(g.left) > 1
	for _, i := range g.left {
		k := g.batches[i].Key
		once = once && !seen[k]
		seen[k] = true
	}
	if !once {
		for _, i := range g.left {
			if err := g.moveCheckpoint(i); err != nil {
				return err
			}
		}
		return nil
	}
	for rest := g.left; len(rest) > 0; {
		n := min(len(rest), movesTogether)
		if err := g.sc.add(g.moveMany(rest[:n]), piece{batch: -1, row: -1, checkpoint: true}); err != nil {
			return err
		}
		rest = rest[n:]
	}
	return nil
}

// moveMany moves several lanes' checkpoints. The index is forced: a scan, which
// the server may prefer while the table is small, would meet the rows of others.
func (g *group) moveMany(batches []int) []byte {
	var set, where []byte
	for n, i := range batches {
		b := &g.batches[i]
		if n > 0 {
			where = append(where, " OR "...)
		}
		key := len(where) + 1
		where = append(where, "(incarnation="...)
		where = appendQuoted(where, []byte(b.Key.Incarnation))
		where = append(where, " AND part="...)
		where = strconv.AppendUint(where, uint64(b.Key.Part), 10)
		set = append(append(append(set, " WHEN "...), where[key:]...), " THEN "...)
		set = appendQuoted(set, []byte(b.New.String()))
		where = append(where, " AND position="...)
		where = append(appendQuoted(where, []byte(b.Expected.String())), ')')
	}
	sql := append([]byte("UPDATE "+g.s.tables.checkpoint+" FORCE INDEX (PRIMARY) SET moves=moves+1,position=CASE"), set...)
	sql = append(append(sql, " END WHERE ("...), where...)
	return append(sql, ") AND owner="+quoteString(g.f.Owner)+" AND intent IS NULL"...)
}

// whereCheckpoint finds a checkpoint that stands at a position.
func (s *Sink) whereCheckpoint(f change.Fence, k change.CheckpointKey, at change.Position) string {
	return " WHERE incarnation=" + quoteString(k.Incarnation) + " AND part=" + strconv.Itoa(int(k.Part)) +
		" AND owner=" + quoteString(f.Owner) + " AND position=" + quoteString(at.String())
}
