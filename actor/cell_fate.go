package actor

import "slices"

// fate is a failure of another actor that befalls this one: of a child, which
// escalates it, or of a sibling that shares its directive.
type fate struct {
	f *Failure
	d Directive // Escalate (of a child), Restart or Stop (of a sibling)
}

// befall makes ft arrive as a system message.
func (c *cell) befall(ft fate) {
	c.mu.Lock()
	wake := false
	if c.phase != closed {
		l := c.linksLocked()
		l.fate = append(l.fate, ft)
		wake = c.postLocked(sysFate)
	}
	c.mu.Unlock()
	if wake {
		c.spec.disp.schedule(c, nil)
	}
}

// shareFate makes d befall the siblings that share it.
func (c *cell) shareFate(f *Failure, d Directive) {
	if c.spec.sup.Scope != AllForOne {
		return
	}
	c.parent.mu.Lock()
	var group []*cell
	if c.parent.links != nil {
		for _, k := range c.parent.links.kids {
			if k != c && k.spec.sup.Scope == AllForOne {
				group = append(group, k)
			}
		}
	}
	c.parent.mu.Unlock()
	for _, k := range group {
		k.befall(fate{f, d})
	}
}

// meetFate acts on what has befallen the actor.
func (c *cell) meetFate(w *worker) {
	c.mu.Lock()
	var all []fate
	if c.links != nil {
		all = slices.Clone(c.links.fate)
		c.links.fate = nil
	}
	c.mu.Unlock()
	for _, ft := range all {
		switch {
		case c.life > suspended: // it restarts or stops anyway
		case ft.d == Escalate && c.isGuardian():
			c.spec.sys.log.Error("failure escalated to a guardian: the actor has stopped", keyPath, ft.f.Path, keyError, ft.f.Err)
		case ft.d == Escalate:
			c.fail(w, &Failure{Path: c.path(), Err: ft.f, Panic: ft.f.Panic, Stack: ft.f.Stack})
		case ft.d == Stop:
			c.beginStop(ft.f)
		default:
			c.beginRestart(w, ft.f, true)
		}
	}
}

func (c *cell) isGuardian() bool { return c.parent == nil || c.parent.parent == nil }
