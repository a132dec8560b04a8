package actor

import (
	"fmt"
	"slices"
	"strings"
)

// Select returns the actors that take messages of type M and whose path matches
// the pattern now, by path. In a pattern * stands for any characters within one
// name, and ** as a whole name for any number of names, none included:
//
//	/user/*/orders    /user/shop-*/**    /**
//
// Errors: ErrBadPattern. No match is no error. It looks at every actor that the
// names before the first * do not exclude.
func Select[M any](s *System, pattern string) ([]Ref[M], error) {
	cells, err := s.find(pattern)
	if err != nil {
		return nil, err
	}
	var refs []Ref[M]
	for _, c := range cells {
		c.mu.Lock()
		_, ok := c.core.(*typed[M])
		c.mu.Unlock()
		if ok {
			refs = append(refs, Ref[M]{c})
		}
	}
	return refs, nil
}

// Select returns the addresses of all actors whose path matches, whatever they
// take. See the function Select.
func (s *System) Select(pattern string) ([]Addr, error) {
	cells, err := s.find(pattern)
	if err != nil {
		return nil, err
	}
	addrs := make([]Addr, len(cells))
	for i, c := range cells {
		addrs[i] = Addr{c}
	}
	return addrs, nil
}

// find returns the matching actors by path; the guardians are none.
func (s *System) find(pattern string) ([]*cell, error) {
	rest, ok := strings.CutPrefix(pattern, "/")
	names := strings.Split(rest, "/")
	if !ok || slices.ContainsFunc(names, func(n string) bool { return n == "" || n != "**" && strings.Contains(n, "**") }) {
		return nil, fmt.Errorf("select %q: %w: begin with /, write * within a name and ** as a whole name", pattern, ErrBadPattern)
	}
	found := map[*cell]struct{}{}
	s.root.match(names, found)
	cells := make([]*cell, 0, len(found))
	paths := make(map[*cell]string, len(found))
	for c := range found {
		if !c.isGuardian() {
			cells = append(cells, c)
			paths[c] = c.path()
		}
	}
	slices.SortFunc(cells, func(a, b *cell) int { return strings.Compare(paths[a], paths[b]) })
	return cells, nil
}

// match adds c, if the names are used up, and what matches below it.
func (c *cell) match(names []string, found map[*cell]struct{}) {
	if len(names) == 0 {
		found[c] = struct{}{}
		return
	}
	name, rest := names[0], names[1:]
	switch {
	case name == "**":
		c.match(rest, found)
		for _, k := range c.kids() {
			k.match(names, found)
		}
	case !strings.Contains(name, "*"):
		if k := c.child(name); k != nil {
			k.match(rest, found)
		}
	default:
		for _, k := range c.kids() {
			if matchName(name, k.name) {
				k.match(rest, found)
			}
		}
	}
}

func (c *cell) kids() []*cell {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.links == nil {
		return nil
	}
	kids := make([]*cell, 0, len(c.links.kids))
	for _, k := range c.links.kids {
		kids = append(kids, k)
	}
	return kids
}

// matchName matches a name against a pattern in which * stands for any characters.
func matchName(pattern, name string) bool {
	parts := strings.Split(pattern, "*")
	name, ok := strings.CutPrefix(name, parts[0])
	if !ok || len(parts) == 1 {
		return ok && name == ""
	}
	last := parts[len(parts)-1]
	for _, p := range parts[1 : len(parts)-1] {
		_, after, found := strings.Cut(name, p)
		if !found {
			return false
		}
		name = after
	}
	return strings.HasSuffix(name, last)
}

// Node is one actor in a printed tree.
type Node struct {
	Path       string
	Dispatcher string
	State      string // starting, running, suspended, restarting, stopping
	Waiting    int    // messages in its mailbox that count against its bound
	Children   []Node // by path
	More       int    // children that the limit left out
}

// Tree returns the actor at path and those below it, at most limit children of
// each, the first by name; limit of 0 or less means 100. "/" is the whole System.
// It is a view of a moving thing: each node is right for one instant. Errors:
// ErrNotFound.
func (s *System) Tree(path string, limit int) (Node, error) {
	c := s.lookup(path)
	if c == nil {
		return Node{}, fmt.Errorf("show tree of %q: %w", path, ErrNotFound)
	}
	if limit <= 0 {
		limit = 100
	}
	return c.node(limit), nil
}

func (c *cell) node(limit int) Node {
	n := Node{Path: c.path(), Dispatcher: c.spec.disp.name}
	c.mu.Lock()
	n.State, n.Waiting = c.life.String(), int(c.waiting)
	c.mu.Unlock()
	kids := c.kids()
	slices.SortFunc(kids, func(a, b *cell) int { return strings.Compare(a.name, b.name) })
	shown := min(limit, len(kids))
	n.More = len(kids) - shown
	for _, k := range kids[:shown] {
		n.Children = append(n.Children, k.node(limit))
	}
	return n
}

// String prints the tree, one actor a line, indented by two spaces a level.
func (n Node) String() string {
	var b strings.Builder
	n.print(&b, 0)
	return b.String()
}

func (n Node) print(b *strings.Builder, depth int) {
	name := n.Path
	if i := strings.LastIndexByte(n.Path, '/'); depth > 0 && i >= 0 {
		name = n.Path[i+1:]
	}
	indent := strings.Repeat("  ", depth)
	fmt.Fprintf(b, "%s%s %s, %d waiting, %s\n", indent, name, n.State, n.Waiting, n.Dispatcher)
	for _, k := range n.Children {
		k.print(b, depth+1)
	}
	if n.More > 0 {
		fmt.Fprintf(b, "%s  and %d more\n", indent, n.More)
	}
}

// String returns the word that Node.State shows.
func (l life) String() string {
	return [...]string{"starting", "running", "suspended", "restarting", "stopping", "stopping", "stopped"}[l]
}

// lookup returns the actor or guardian that has the path now, or nil.
func (s *System) lookup(path string) *cell {
	rest, ok := strings.CutPrefix(path, "/")
	if !ok {
		return nil
	}
	c := s.root
	if rest == "" {
		return c
	}
	for name := range strings.SplitSeq(rest, "/") {
		if c = c.child(name); c == nil {
			return nil
		}
	}
	return c
}
