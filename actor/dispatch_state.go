package actor

// phase is where a cell stands between its mailbox and its dispatcher.
//
//	          schedule             begin                rest
//	idle ───────────────▶ scheduled ─────▶ processing ─────────▶ idle
//	                          ▲                │  │
//	                          └─────yield──────┘  └──close──▶ closed
//
// Invariants, all under the mailbox mutex:
//  1. A cell is in a run queue exactly while it is scheduled, and in one place.
//  2. Only the worker that began a turn may yield, rest or close it; hence the
//     handlers of one cell never overlap.
//  3. A cell is idle only if it has nothing runnable. Whoever adds something
//     runnable to an idle cell gets true from schedule and must hand the cell
//     to its dispatcher; hence no wake-up is lost and none is doubled.
//  4. closed is final.
type phase uint8

const (
	idle phase = iota
	scheduled
	processing
	closed
)

// schedule moves idle to scheduled. True obliges the caller to enqueue the cell.
func (p *phase) schedule() bool {
	if *p != idle {
		return false
	}
	*p = scheduled
	return true
}

// begin moves scheduled to processing at the start of a turn.
func (p *phase) begin() { p.move(scheduled, processing) }

// yield moves processing to scheduled at the end of a turn that left work. The
// caller must enqueue the cell.
func (p *phase) yield() { p.move(processing, scheduled) }

// rest moves processing to idle at the end of a turn that left nothing runnable.
func (p *phase) rest() { p.move(processing, idle) }

// close moves processing to closed: the cell never runs again.
func (p *phase) close() { p.move(processing, closed) }

func (p *phase) move(from, to phase) {
	if *p != from {
		// invariant: each transition is called by the one owner of the state before it
		panic("actor: dispatch state: " + p.String() + " where " + from.String() + " is required")
	}
	*p = to
}

// String returns the name used above.
func (p phase) String() string {
	return [...]string{"idle", "scheduled", "processing", "closed"}[p]
}
