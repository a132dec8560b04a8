package mysql

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/runnel-dev/runnel/change"
)

// assembler turns log events into groups. It does no I/O beside spilling and is
// driven by one goroutine.
//
//	GTID (or BEGIN)  opens a draft; its start is the position before it
//	row events       of wanted tables are copied into it
//	XID, COMMIT      end it: delivered
//	ROLLBACK         ends it: delivered empty
//	XA PREPARE       puts it aside under its xid; XA COMMIT delivers it, XA ROLLBACK drops it
//	a statement      is an event of it, or all of it (DDL)
//	end of a file    a draft without an end was cut off by a crash: dropped
//
// Invariants: a group is delivered once, at the event that ends it; position only
// grows; a draft's rows are those of tables wanted at its row events, and skipped
// names the others.
type assembler struct {
	server  serverInfo
	filter  change.Filter
	options SourceOptions

	file     string // name of the log file that is being read
	fileNo   uint64
	pos      uint64 // offset behind the last event
	checksum bool
	last     string // gtid of the last ended group; "" when none is known
	// safe is the last place that a dump can start from: offsets of 4 GiB and more
	// cannot be asked for.
	safe     place
	previous change.Position // end of the last group

	tables   map[uint64]*tableMap
	recent   *tableMap // tables[recentID], which most events ask for
	recentID uint64
	fresh    map[change.TableID]bool // created in front of us, wanted by pattern
	cur      *draft
	spare    *draft            // empty, to use again
	held     map[string]*draft // XA prepared, by xid
	heldMem  int
	guess    extent // of the last group, to size the next one's memory

	text []byte // scratch
	now  func() time.Time
}

// place is an offset in the current file and the gtid in front of it.
type place struct {
	offset uint64
	gtid   string
}

const maxDumpOffset = 1<<32 - 1

func newAssembler(server serverInfo, filter change.Filter, options SourceOptions, at dumpStart) *assembler {
	return &assembler{
		server: server, filter: filter, options: options,
		file: at.file, fileNo: at.fileNo, pos: at.offset, last: at.gtid, checksum: true,
		safe:   place{at.offset, at.gtid},
		tables: map[uint64]*tableMap{}, fresh: map[change.TableID]bool{}, held: map[string]*draft{},
		now: time.Now,
	}
}

// delivery is what an event ended: a group, and what the stream must know about
// it.
type delivery struct {
	group      *change.Group
	generation uint64           // of the filter when the group began
	skipped    []change.TableID // tables whose rows or statements were left out
	missed     []change.TableID // names whose CREATE or RENAME was left out
	redefined  []change.TableID // tables, wanted or not, that statements define or drop; a schema has no Name
	traces     []trace          // of cascades
}

// event takes the next event, checksum included; d.group is nil unless it ended a
// group.
func (a *assembler) event(raw []byte) (d delivery, err error) {
	e, err := parseHeader(raw)
	if err != nil {
		return d, a.damaged(err)
	}
	if e.artificial() {
		if e.kind == evHeartbeat || e.kind == evHeartbeatV2 {
			return a.heartbeat(&e), nil
		}
		return d, a.artificial(&e, raw)
	}
	before := a.pos
	if err := a.advance(&e); err != nil {
		return d, a.damaged(err)
	}
	if e.kind == evFormatDescription {
		a.cur = nil // a crash cut it off, and the server rolled it back
		a.forgetTables()
		return d, a.describe(&e, raw)
	}
	if a.checksum {
		trimmed, err := trimChecksum(raw)
		if err != nil {
			return d, a.damaged(err)
		}
		e.body = trimmed[eventHeaderBytes:]
	}
	d, err = a.dispatch(&e, before)
	if err != nil && change.ClassOf(err) == change.Transient {
		err = a.damaged(err)
	}
	return d, err
}

// damaged gives an error of the log its place.
func (a *assembler) damaged(err error) error {
	return change.WithClass(change.SourceWide, fmt.Errorf("read log of %s at %s: %w", a.server.subject, a.where(), err))
}

func (a *assembler) where() string { return fmt.Sprintf("%s:%d", a.file, a.pos) }

func (a *assembler) dispatch(e *event, before uint64) (delivery, error) {
	switch {
	case isRows(e.kind):
		return delivery{}, a.rows(e)
	case knownKind(e.kind):
		return delivery{}, nil
	}
	switch e.kind {
	case evTableMap:
		return delivery{}, a.tableMap(e)
	case evMariaGTID:
		g, err := parseMariaGTID(e)
		if err != nil {
			return delivery{}, err
		}
		return delivery{}, a.open(g, before, true)
	case evGTID, evAnonymousGTID:
		g, err := parseMySQLGTID(e.body)
		if err != nil {
			return delivery{}, err
		}
		return delivery{}, a.open(g, before, false)
	case evQuery, evQueryCompressed, evExecuteLoadQuery:
		q, err := parseQuery(e.kind, e.body)
		if err != nil {
			return delivery{}, err
		}
		return a.query(e, &q, before)
	case evXID:
		return a.commit(e)
	case evXAPrepare:
		return a.prepare(e)
	case evRotate:
		r, err := parseRotation(e.body)
		if err != nil {
			return delivery{}, err
		}
		return delivery{}, a.enter(r)
	case evIncident:
		return a.incident(e, before)
	}
	if e.flags&flagIgnorable != 0 {
		return delivery{}, nil
	}
	return delivery{}, unreadable(a.server.subject, e.kind, a.where())
}

// advance moves the position past an event of the log. The server gives 32 bits
// of it, or none.
func (a *assembler) advance(e *event) error {
	next := a.pos + uint64(e.size)
	if e.logPos != 0 && e.logPos != uint32(next) {
		// Events that are not sent to readers leave gaps.
		gap := e.logPos - uint32(next)
		if gap > 1<<30 {
			return fmt.Errorf("event of type %d ends at %d (modulo 4 GiB), expected %d: %w", e.kind, e.logPos, next, errDamaged)
		}
		next += uint64(gap)
	}
	a.pos = next
	return nil
}

// artificial handles what the server made for this connection.
func (a *assembler) artificial(e *event, raw []byte) error {
	switch e.kind {
	case evRotate:
		if trimmed, err := trimChecksum(raw); err == nil { // with and without one are in use
			e.body = trimmed[eventHeaderBytes:]
		}
		r, err := parseRotation(e.body)
		if err != nil {
			return a.damaged(err)
		}
		if r.file == a.file {
			return nil
		}
		if err := a.enter(r); err != nil {
			return a.damaged(err)
		}
	case evFormatDescription:
		return a.describe(e, raw)
	}
	return nil
}

func (a *assembler) describe(e *event, raw []byte) error {
	d, err := parseFormatDescription(e.body)
	if err != nil {
		return a.damaged(err)
	}
	if d.checksum {
		if _, err := trimChecksum(raw); err != nil {
			return a.damaged(err)
		}
	}
	a.checksum = d.checksum
	return nil
}

// enter goes on in another file.
func (a *assembler) enter(r rotation) error {
	n, ok := fileNumber(r.file)
	if !ok {
		return fmt.Errorf("log file name %q has no number: %w", r.file, errDamaged)
	}
	a.file, a.fileNo, a.pos = r.file, n, r.pos
	a.safe = place{r.pos, a.last}
	a.forgetTables()
	return nil
}

// fileNumber reads the number that a log file's name ends with.
func fileNumber(name string) (uint64, bool) {
	n, err := strconv.ParseUint(name[strings.LastIndexByte(name, '.')+1:], 10, 64)
	return n, err == nil
}

// position is the place behind offset, with the gtid of the group in front.
func (a *assembler) position(offset uint64, gtid string) change.Position {
	at := place{offset, gtid}
	if offset > maxDumpOffset {
		at = a.safe // the order says where we are, the token where reading can start
	}
	p := a.order(offset)
	a.text = append(a.appendPlace(a.text[:0], at.offset), at.gtid...)
	p.Token = string(a.text)
	return p
}

// order is a position without its token.
func (a *assembler) order(offset uint64) change.Position {
	p := change.Position{History: a.server.history}
	binary.BigEndian.PutUint64(p.Order[:], a.fileNo)
	binary.BigEndian.PutUint64(p.Order[8:], offset)
	return p
}

// appendPlace writes the token up to the GTID.
func (a *assembler) appendPlace(dst []byte, offset uint64) []byte {
	dst = append(append(dst, a.file...), ':')
	return append(strconv.AppendUint(dst, offset, 10), ':')
}

// startAt is the position of a group that begins at offset.
func (a *assembler) startAt(offset uint64) change.Position {
	if p := a.previous; !p.IsZero() && binary.BigEndian.Uint64(p.Order[8:]) == offset &&
		binary.BigEndian.Uint64(p.Order[:8]) == a.fileNo {
		return p
	}
	return a.position(offset, a.last)
}

func (g gtid) append(dst []byte) []byte {
	if g.isUUID {
		for i, c := range g.uuid {
			if i == 4 || i == 6 || i == 8 || i == 10 {
				dst = append(dst, '-')
			}
			dst = append(dst, hexDigits[c>>4], hexDigits[c&15])
		}
		dst = append(dst, '/') // ":" parts the token
		return strconv.AppendUint(dst, g.seq, 10)
	}
	dst = strconv.AppendUint(dst, uint64(g.domain), 10)
	dst = strconv.AppendUint(append(dst, '-'), uint64(g.server), 10)
	return strconv.AppendUint(append(dst, '-'), g.seq, 10)
}

// open begins a draft at a GTID event. MariaDB's also stands for BEGIN.
func (a *assembler) open(g groupStart, before uint64, begun bool) error {
	if a.cur != nil {
		return fmt.Errorf("a group begins before the one from %s ended: %w", a.cur.start.Token, errDamaged)
	}
	a.cur = a.newDraft(before)
	a.cur.groupStart = g
	a.cur.begun = begun && !g.standalone
	return nil
}

func (a *assembler) newDraft(before uint64) *draft {
	if len(a.tables) > 1<<16 { // maps are sent again in each group
		a.forgetTables()
	}
	d := a.spare
	if a.spare = nil; d == nil {
		d = new(draft)
	}
	d.start, d.generation, d.guess = a.startAt(before), a.filter.Generation(), a.guess
	return d
}

// commit ends the current draft at e and delivers it.
func (a *assembler) commit(e *event) (delivery, error) {
	if a.cur == nil {
		return delivery{}, fmt.Errorf("a commit without a group: %w", errDamaged)
	}
	d := a.cur
	a.cur = nil
	return a.deliver(d, e), nil
}

// deliver makes the group of a draft that ends at e.
func (a *assembler) deliver(d *draft, e *event) delivery {
	end := a.endAt(d.gtid)
	if a.pos <= maxDumpOffset {
		a.safe = place{a.pos, a.last}
	}
	a.previous = end
	if d.own && !a.options.RelayOwn {
		d.events, d.size = nil, 0
	}
	a.guess = extent{d.used, len(d.events)}
	out := delivery{generation: d.generation, skipped: d.skipped, missed: d.missed, redefined: d.redefined, traces: d.traces}
	open := a.openFrom()
	if !open.IsZero() {
		end.Token += openMark + open.Token
	}
	out.group = &change.Group{
		Start: d.start, End: end, OpenFrom: open,
		CommitTime: time.Unix(int64(e.timestamp), 0), ReadTime: a.now(),
		Events: d.events, SizeBytes: d.size, Own: d.own,
	}
	*d = draft{opened: d.opened[:0], hits: d.hits[:0]}
	a.spare = d
	return out
}

// endAt is the position behind the last event, where the group with the GTID ends.
// The text of the GTID is shared with the token.
func (a *assembler) endAt(g gtid) change.Position {
	if g.seq == 0 {
		return a.position(a.pos, a.last)
	}
	if a.pos > maxDumpOffset {
		a.last = string(g.append(nil))
		return a.position(a.pos, a.last)
	}
	a.text = a.appendPlace(a.text[:0], a.pos)
	at := len(a.text)
	a.text = g.append(a.text)
	p := a.order(a.pos)
	p.Token = string(a.text)
	a.last = p.Token[at:]
	return p
}

// heartbeat makes an empty group of a server that has nothing to send: whoever
// waits for the end of the log gets there, also when it ends with events that
// belong to no group.
func (a *assembler) heartbeat(e *event) delivery {
	at := uint64(e.logPos)
	if a.cur != nil || at < a.pos || a.pos > maxDumpOffset || binary.BigEndian.Uint64(a.previous.Order[8:]) == at &&
		binary.BigEndian.Uint64(a.previous.Order[:8]) == a.fileNo {
		return delivery{}
	}
	a.pos = at
	d := a.deliver(a.newDraft(at), e)
	d.group.CommitTime = d.group.ReadTime
	return d
}

// openFrom is the lowest start of the groups put aside.
func (a *assembler) openFrom() (low change.Position) {
	for _, d := range a.held {
		if low.IsZero() || d.start.Before(low) {
			low = d.start
		}
	}
	return low
}

// prepare puts the current draft aside, or ends it when it commits in one phase.
// The end of preparing is an empty group: it moves the position.
func (a *assembler) prepare(e *event) (delivery, error) {
	x, err := parseXAPrepare(e.body)
	if err != nil {
		return delivery{}, err
	}
	if x.onePhase || a.cur == nil {
		return a.commit(e)
	}
	d := a.cur
	a.cur = nil
	a.held[x.xid] = d
	a.heldMem += d.size
	if a.heldMem > a.options.SpillBytes && d.size > 0 {
		a.heldMem -= d.size
		if err := d.toDisk(a.options.SpillDir); err != nil {
			return delivery{}, err
		}
		a.heldMem += d.size
	}
	marker := &draft{start: d.start, groupStart: d.groupStart, generation: d.generation}
	return a.deliver(marker, e), nil
}

// settle ends the group that XA COMMIT or XA ROLLBACK makes, with the rows that
// were put aside when it commits.
func (a *assembler) settle(e *event, xid string, commit bool) (delivery, error) {
	if a.cur == nil {
		a.cur = a.newDraft(a.pos - uint64(e.size))
	}
	d := a.cur
	held, known := a.held[xid]
	delete(a.held, xid)
	switch {
	case known && commit:
		a.heldMem -= held.size
		held.groupStart, held.generation = d.groupStart, min(held.generation, d.generation)
		a.cur = held
	case known:
		a.heldMem -= held.size
		d.start = held.start
	case commit: // prepared before this stream began: its rows cannot be had
		d.add(change.Event{Statement: &change.Statement{Kind: change.LostRows, SQL: "XA COMMIT " + xid}}, 0)
	}
	return a.commit(e)
}

// incident: the server lost events.
func (a *assembler) incident(e *event, before uint64) (delivery, error) {
	lost := change.Event{Statement: &change.Statement{Kind: change.LostRows}}
	if a.cur != nil {
		a.cur.add(lost, 0)
		return delivery{}, nil
	}
	d := a.newDraft(before)
	d.add(lost, 0)
	return a.deliver(d, e), nil
}

// tableMap notes a map and judges whether its table is wanted.
func (a *assembler) tableMap(e *event) error {
	if len(e.body) < 8 {
		return fmt.Errorf("read table map: %w", errDamaged)
	}
	id := tableID(e.body)
	m := a.table(id)
	if m == nil || string(m.raw) != string(e.body[8:]) {
		var err error
		if m, err = parseTableMap(e.body, a.server.mariaDB); err != nil {
			return err
		}
		a.tables[id] = m
		a.recent, a.recentID = m, id
	}
	if gen := a.filter.Generation(); !m.judged || m.gen != gen {
		m.judged, m.gen = true, gen
		m.own = slices.ContainsFunc(a.options.Own, func(o change.TableID) bool {
			return o.Schema == m.table.Schema && (o.Name == "" || o.Name == m.table.Name)
		})
		m.wanted = a.wants(m.table)
	}
	if m.wanted && a.cur != nil {
		a.cur.opens(m)
	}
	return nil
}

// table finds a map by its number.
func (a *assembler) table(id uint64) *tableMap {
	if a.recent != nil && a.recentID == id {
		return a.recent
	}
	m := a.tables[id]
	if m != nil {
		a.recent, a.recentID = m, id
	}
	return m
}

func (a *assembler) forgetTables() {
	a.recent = nil
	clear(a.tables)
}

// wants is the filter's answer, and true for a table that was created in front of
// the reader, until the filter knows it.
func (a *assembler) wants(t change.TableID) bool {
	if a.filter.Wants(t) {
		return true
	}
	return a.fresh[t] && a.filter.WantsNew(t)
}

// rows copies a row event of a wanted table.
func (a *assembler) rows(e *event) error {
	if len(e.body) < 8 {
		return fmt.Errorf("read row event: %w", errDamaged)
	}
	id := tableID(e.body)
	m := a.table(id)
	switch {
	case m == nil && id == 0xffffff: // marks the end of a statement, has no rows
		return nil
	case m == nil:
		return fmt.Errorf("row event for table number %d without a table map: %w", id, errDamaged)
	case a.cur == nil:
		return fmt.Errorf("row event of %s outside of a group: %w", m.table, errDamaged)
	}
	if m.own {
		a.cur.own = true
	}
	a.cur.wrote(m, e)
	if !m.wanted || m.own && !a.options.RelayOwn {
		a.cur.skip(m.table)
		return nil
	}
	body := e.body[8:]
	h, err := parseRowsHead(e.kind, body)
	if err != nil {
		return fmt.Errorf("%s: %w", m.table, err)
	}
	if h.width != len(m.types) {
		return fmt.Errorf("row event of %s has %d columns, its table map %d: %w", m.table, h.width, len(m.types), errDamaged)
	}
	if err := a.cur.copyRows(m, e.kind, body, &a.options); err != nil {
		return change.WithClass(change.SourceWide, err)
	}
	if !allSet(h.before, h.width) || h.after != nil && !allSet(h.after, h.width) {
		a.cur.partial(m.table)
	}
	return nil
}
