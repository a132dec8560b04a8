package tablesync_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/runnel-dev/runnel/actor"
	"github.com/runnel-dev/runnel/cluster"
	"github.com/runnel-dev/runnel/internal/tablesync"
	"github.com/runnel-dev/runnel/internal/testdb"
	"github.com/runnel-dev/runnel/persistence"
	"github.com/runnel-dev/runnel/persistence/sqlite"
)

// The kill tests run the engine in a child process (this test binary again) and
// end it with SIGKILL at random moments. The child writes a line whenever what it
// does changes, so that the parent knows which phase a kill hit.

const childEnv = "RUNNEL_TEST_CHILD_DIR"

func TestMain(m *testing.M) {
	if dir := os.Getenv(childEnv); dir != "" {
		if err := runChild(dir); err != nil {
			fmt.Fprintln(os.Stderr, "child:", err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// childStatus is a line that the child writes.
type childStatus struct {
	Phase string                  `json:"phase"`
	Count map[tablesync.State]int `json:"count"`
	Idle  bool                    `json:"idle"`
	// Trouble tells why tasks stopped.
	Trouble []string `json:"trouble,omitempty"`
}

// runChild runs an engine on dir until it is killed or its input ends. Input
// lines are "verb schema.table" or "apply <definitions as JSON>".
func runChild(dir string) error {
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	reg, folders, err := tablesync.Registry()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	store, err := sqlite.Open(ctx, dir, sqlite.Options{Folders: folders, Log: log})
	if err != nil {
		return err
	}
	sys, err := actor.New(actor.Config{Name: "child"})
	if err != nil {
		return err
	}
	engine, err := tablesync.New(tablesync.Config{Store: store, Connect: &connector{}, Log: log}, func(kinds []persistence.Kind) (*cluster.Region, error) {
		return cluster.NewRegion(cluster.RegionConfig{System: sys, Store: store, Registry: reg, Kinds: kinds, Log: log})
	})
	if err != nil {
		return err
	}
	go childInput(ctx, cancel, engine)
	go childReport(ctx, engine)
	return errors.Join(engine.Run(ctx, func() { fmt.Println(`{"phase":"ready"}`) }), store.Close())
}

func childInput(ctx context.Context, cancel func(), engine *tablesync.Engine) {
	defer cancel()
	in := bufio.NewScanner(os.Stdin)
	in.Buffer(nil, 1<<20)
	for in.Scan() {
		verb, rest, _ := strings.Cut(in.Text(), " ")
		var err error
		if verb == "apply" {
			var d tablesync.Definitions
			if err = json.Unmarshal([]byte(rest), &d); err == nil {
				_, err = engine.Apply(ctx, d, tablesync.ApplyOptions{})
			}
		} else {
			var page tablesync.TaskPage
			if page, err = engine.Tasks(tablesync.TaskQuery{Table: rest}); err == nil && len(page.Tasks) == 1 {
				err = engine.Command(ctx, page.Tasks[0].ID, verb)
			}
		}
		if err != nil && ctx.Err() == nil {
			fmt.Fprintf(os.Stderr, "child: %s: %v\n", in.Text(), err)
		}
	}
}

// childReport writes a line whenever the picture changes. The phase names the
// rarest thing that goes on.
func childReport(ctx context.Context, engine *tablesync.Engine) {
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	out := json.NewEncoder(os.Stdout)
	last := ""
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		page, err := engine.Tasks(tablesync.TaskQuery{Limit: 1000})
		if err != nil {
			continue
		}
		st := childStatus{Count: page.Count, Idle: engine.Counters().Idle, Phase: phaseOf(engine, page)}
		for _, task := range page.Tasks {
			if task.Reason != "" {
				st.Trouble = append(st.Trouble, task.Table.String()+": "+task.Reason)
			}
		}
		if line := fmt.Sprint(st); line != last {
			last = line
			if out.Encode(st) != nil {
				return
			}
		}
	}
}

func phaseOf(engine *tablesync.Engine, page tablesync.TaskPage) string {
	c := page.Count
	switch {
	case c[tablesync.Failed]+c[tablesync.NeedsResync]+c[tablesync.OwnedElsewhere] > 0:
		return "trouble"
	case c[tablesync.CatchingUp] > 0:
		return "catching-up"
	case c[tablesync.Paused] > 0:
		return "paused"
	case c[tablesync.Pending] > 0:
		return "pending"
	case c[tablesync.Copying] > 0:
		return "copying"
	case c[tablesync.Streaming] == 0:
		return "starting"
	case !engine.Counters().Idle:
		return "applying"
	}
	return "idle"
}

// child is a running child process as the parent sees it.
type child struct {
	cmd   *exec.Cmd
	in    io.WriteCloser
	lines chan childStatus
	errs  *strings.Builder
}

func (r *rig) child() *child {
	r.t.Helper()
	exe, err := os.Executable()
	if err != nil {
		r.t.Fatal(err)
	}
	c := &child{cmd: exec.Command(exe), lines: make(chan childStatus, 1024), errs: &strings.Builder{}}
	c.cmd.Env = append(os.Environ(), childEnv+"="+r.dir)
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	c.cmd.Stderr = c.errs
	if c.in, err = c.cmd.StdinPipe(); err != nil {
		r.t.Fatal(err)
	}
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		r.t.Fatal(err)
	}
	if err := c.cmd.Start(); err != nil {
		r.t.Fatal(err)
	}
	go func() {
		defer close(c.lines)
		sc := bufio.NewScanner(out)
		for sc.Scan() {
			var st childStatus
			if json.Unmarshal(sc.Bytes(), &st) == nil {
				c.lines <- st
			}
		}
	}()
	r.t.Cleanup(func() { c.kill() })
	return c
}

func (c *child) send(line string) error {
	_, err := fmt.Fprintln(c.in, line)
	return err
}

// kill ends the child and waits for it; it returns what it wrote to stderr.
func (c *child) kill() string {
	if c.cmd.ProcessState == nil {
		c.cmd.Process.Kill()
		for range c.lines {
		}
		c.cmd.Wait() // killed: its exit status says so
	}
	return c.errs.String()
}

// until reads lines until ok, and fails the test when the child ends or nothing
// comes of it.
func (c *child) until(t *testing.T, what string, ok func(childStatus) bool) childStatus {
	t.Helper()
	deadline := time.NewTimer(30 * time.Second)
	defer deadline.Stop()
	var last childStatus
	for {
		select {
		case st, open := <-c.lines:
			if !open {
				t.Fatalf("the child ended while the test waited for %s: %s", what, c.kill())
			}
			if last = st; ok(st) {
				return st
			}
		case <-deadline.C:
			t.Fatalf("%s did not come about; last %+v; %s", what, last, c.kill())
		}
	}
}

// load writes to the source until stopped: multi-row transactions, deletes, key
// changes and rollbacks over the tables.
func (r *rig) load(tables []string) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() {
		rnd := rand.New(rand.NewPCG(7, 7))
		for n := 0; ctx.Err() == nil; n++ {
			sql := []string{"BEGIN"}
			for range 1 + rnd.IntN(4) {
				t := tables[rnd.IntN(len(tables))]
				id := rnd.IntN(400)
				switch rnd.IntN(5) {
				case 0:
					sql = append(sql, fmt.Sprintf("DELETE FROM shop.%s WHERE id=%d", t, id))
				case 1:
					sql = append(sql, fmt.Sprintf("UPDATE IGNORE shop.%s SET id=id+%d WHERE id=%d", t, 1+rnd.IntN(50), id))
				default:
					sql = append(sql, fmt.Sprintf("REPLACE INTO shop.%s(id,v) VALUES(%d,'v%d'),(%d,'w%d')", t, id, n, id+1, n))
				}
			}
			end := "COMMIT"
			if rnd.IntN(8) == 0 {
				end = "ROLLBACK"
			}
			if err := r.source.Exec(ctx, append(sql, end)...); err != nil && ctx.Err() == nil {
				r.t.Errorf("load: %v", err)
				return
			}
		}
	})
	return func() { cancel(); wg.Wait() }
}

// killRounds runs rounds: act brings the child towards a wanted phase, then it is
// killed there, a random moment later. Every phase must be hit.
func (r *rig) killRounds(rounds int, phases []string, act func(round int, c *child)) {
	t := r.t.(*testing.T)
	hit := map[string]int{}
	rnd := rand.New(rand.NewPCG(uint64(time.Now().UnixNano()), 1))
	for round := range rounds {
		want := phases[round%len(phases)]
		c := r.child()
		c.until(t, "ready", func(s childStatus) bool { return s.Phase == "ready" })
		if round == 0 {
			d, err := json.Marshal(r.definitions())
			if err != nil {
				t.Fatal(err)
			}
			if err := c.send("apply " + string(d)); err != nil {
				t.Fatal(err)
			}
		}
		act(round, c)
		phase := c.until(t, "phase "+want, func(s childStatus) bool { return s.Phase == want }).Phase
		moment := time.NewTimer(time.Duration(rnd.IntN(4000)) * time.Microsecond)
		for waiting := true; waiting; {
			select {
			case st, open := <-c.lines:
				if !open {
					t.Fatalf("the child ended by itself: %s", c.kill())
				}
				phase = st.Phase
			case <-moment.C:
				waiting = false
			}
		}
		if out := c.kill(); strings.Contains(out, "panic") || strings.Contains(out, "DATA RACE") {
			t.Fatalf("child: %s", out)
		}
		hit[phase]++
		t.Logf("round %d: killed while %s (aimed at %s)", round+1, phase, want)
	}
	for _, p := range phases {
		if hit[p] == 0 {
			t.Errorf("no round hit %q: %v", p, hit)
		}
	}
}

func (r *rig) definitions() tablesync.Definitions {
	p := shopPipeline
	p.ChunkRows = 200
	return tablesync.Definitions{
		Sources:   []tablesync.ServerSpec{{Name: "shop", Type: "mysql", Address: r.source.Addr(), User: "root"}},
		Targets:   []tablesync.ServerSpec{{Name: "copy", Type: "mysql", Address: r.target.Addr(), User: "root"}},
		Pipelines: []tablesync.PipelineSpec{p},
	}
}

// settle runs a last child until everything streams, and compares the servers.
func (r *rig) settle(tasks int, commands ...string) {
	t := r.t.(*testing.T)
	c := r.child()
	c.until(t, "ready", func(s childStatus) bool { return s.Phase == "ready" })
	for _, line := range commands {
		if err := c.send(line); err != nil {
			t.Fatal(err)
		}
	}
	c.until(t, "everything streams", func(s childStatus) bool { return s.Count[tablesync.Streaming] == tasks && s.Idle })
	go func() {
		for range c.lines { // keep the pipe empty
		}
	}()
	r.same("shop")
	c.cmd.Process.Kill()
	c.cmd.Wait() // killed: its exit status says so
}

const killRoundsEach = 20

func TestKillDuringStreaming(t *testing.T) {
	t.Parallel()
	r := newRig(t, testdb.MariaDBOptions{})
	tables := []string{"a", "b", "c"}
	r.exec("CREATE DATABASE shop")
	for _, name := range tables {
		r.exec("CREATE TABLE shop." + name + "(id INT PRIMARY KEY, v VARCHAR(40))")
	}
	stop := r.load(tables)
	r.killRounds(killRoundsEach, []string{"applying", "idle"}, func(round int, c *child) {
		if round%5 == 4 {
			r.exec(fmt.Sprintf("ALTER TABLE shop.a ADD COLUMN c%d INT DEFAULT %d", round, round))
		}
	})
	stop()
	r.settle(len(tables))
}

func TestKillDuringCopy(t *testing.T) {
	t.Parallel()
	r := newRig(t, testdb.MariaDBOptions{RowMetadata: "FULL"})
	r.exec("CREATE DATABASE shop", "CREATE TABLE shop.t0(id INT PRIMARY KEY, v VARCHAR(40))")
	stop := r.load([]string{"t0"})
	n := 1
	r.killRounds(killRoundsEach, []string{"pending", "copying", "copying", "applying"}, func(round int, c *child) {
		c.until(t, "streaming", func(s childStatus) bool { return s.Count[tablesync.Streaming] > 0 })
		r.exec(fmt.Sprintf("CREATE TABLE shop.t%d(id INT PRIMARY KEY, v VARCHAR(40)) AS SELECT seq AS id, CONCAT('row ', seq) AS v FROM test.seq_1_to_4000", n))
		n++
	})
	stop()
	r.settle(n)
}

func TestKillAroundPauseAndResume(t *testing.T) {
	t.Parallel()
	r := newRig(t, testdb.MariaDBOptions{})
	tables := []string{"a", "b", "c"}
	r.exec("CREATE DATABASE shop")
	for _, name := range tables {
		r.exec("CREATE TABLE shop." + name + "(id INT PRIMARY KEY, v VARCHAR(40))")
	}
	stop := r.load(tables)
	send := func(c *child, line string) {
		if err := c.send(line); err != nil {
			t.Fatal(err)
		}
	}
	r.killRounds(killRoundsEach, []string{"paused", "catching-up", "catching-up", "applying"}, func(round int, c *child) {
		send(c, "resume shop.a") // it may have been killed while paused
		c.until(t, "streaming", func(s childStatus) bool { return s.Count[tablesync.Streaming] == len(tables) })
		send(c, "pause shop.a")
		if round%4 == 0 {
			return
		}
		c.until(t, "paused", func(s childStatus) bool { return s.Count[tablesync.Paused] == 1 })
		send(c, "resume shop.a")
	})
	stop()
	r.settle(len(tables), "resume shop.a")
}

// TestKillAroundResync makes a table anew again and again under load.
func TestKillAroundResync(t *testing.T) {
	t.Parallel()
	r := newRig(t, testdb.MariaDBOptions{})
	tables := []string{"a", "b"}
	r.exec("CREATE DATABASE shop")
	for _, name := range tables {
		r.exec("CREATE TABLE shop." + name + "(id INT PRIMARY KEY, v VARCHAR(40))")
	}
	r.exec("USE shop", "INSERT INTO shop.a SELECT seq+1000, 'old' FROM seq_1_to_3000")
	stop := r.load(tables)
	r.killRounds(killRoundsEach, []string{"pending", "copying", "copying", "applying"}, func(round int, c *child) {
		c.until(t, "streaming", func(s childStatus) bool { return s.Count[tablesync.Streaming] == len(tables) })
		for range 1 + round%3 {
			if err := c.send("resync shop.a"); err != nil {
				t.Fatal(err)
			}
		}
		r.exec(fmt.Sprintf("DELETE FROM shop.a WHERE id BETWEEN %d AND %d", 1000+round*100, 1099+round*100))
	})
	stop()
	r.settle(len(tables))
}
