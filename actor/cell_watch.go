package actor

// watcher wants to know that a cell has stopped: an actor, or a channel to close.
type watcher struct {
	cell *cell
	done chan struct{}
}

// termination is the envelope of a Terminated signal.
type termination struct{ Terminated }

// watch adds w, or notifies it at once if c is buried.
func (c *cell) watch(w watcher) {
	c.mu.Lock()
	if c.phase == closed {
		c.mu.Unlock()
		w.notify(c, nil)
		return
	}
	defer c.mu.Unlock()
	l := c.linksLocked()
	if l.watcher == (watcher{}) {
		l.watcher = w
		return
	}
	if l.more == nil {
		l.more = map[watcher]struct{}{}
	}
	l.more[w] = struct{}{}
}

func (c *cell) unwatch(w watcher) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.links == nil {
		return
	}
	if c.links.watcher == w {
		c.links.watcher = watcher{}
	}
	delete(c.links.more, w)
}

func (w watcher) notify(c *cell, cause error) {
	if w.done != nil {
		close(w.done)
		return
	}
	_ = w.cell.tell(nil, &termination{Terminated{Addr{c}, cause}}) // a watcher that has stopped does not care
}

// notifyWatchers tells all watchers of a buried cell.
func (l *links) notifyWatchers(c *cell, cause error) {
	if l.watcher != (watcher{}) {
		l.watcher.notify(c, cause)
	}
	for w := range l.more {
		w.notify(c, cause)
	}
}

// watchOther makes c a watcher of to.
func (c *cell) watchOther(to recipient) {
	x := c.x()
	if _, already := x.watching[to]; already || c.life >= stopping {
		return
	}
	if x.watching == nil {
		x.watching = map[recipient]struct{}{}
	}
	x.watching[to] = struct{}{}
	to.watch(watcher{cell: c})
}

// unwatchOther undoes watchOther, also for a Terminated that waits in the mailbox.
func (c *cell) unwatchOther(to recipient) {
	if c.ext == nil {
		return
	}
	if _, is := c.ext.watching[to]; is {
		delete(c.ext.watching, to)
		to.unwatch(watcher{cell: c})
	}
}

// takeWatch ends a watch whose Terminated has come, and reports whether there
// was one: not after an Unwatch or a restart.
func (c *cell) takeWatch(to recipient) bool {
	if c.ext == nil {
		return false
	}
	_, is := c.ext.watching[to]
	delete(c.ext.watching, to)
	return is
}

// dropWatches ends all that c watches, so that nobody keeps a watcher that is gone.
func (c *cell) dropWatches() {
	for to := range c.ext.watching {
		to.unwatch(watcher{cell: c})
	}
	c.ext.watching = nil
}
