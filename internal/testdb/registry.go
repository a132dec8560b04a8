package testdb

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
)

// Ports below the range the kernel hands out to outgoing connections, so that no
// stranger takes a server's port while it restarts.
const firstPort, portCount = 16000, 12000

// tempPrefix starts the name of every directory a reaper may remove.
const tempPrefix = "runnel-testdb-"

var errPortTaken = errors.New("port is taken")

// portHold keeps a port for this process among all users of this package.
type portHold struct {
	port int
	name net.Listener // abstract socket, freed by the kernel with the process
}

// Close lets others have the port.
func (h *portHold) Close() error {
	if h.name == nil {
		return nil
	}
	return h.name.Close()
}

// reservePort finds a free loopback port. Process-wide abstract sockets named by
// port number, which live in the same network namespace as the ports themselves,
// keep two starting servers apart.
func reservePort() (*portHold, error) {
	const tries = 200
	var last error
	for range tries {
		n, err := rand.Int(rand.Reader, big.NewInt(portCount))
		if err != nil {
			return nil, fmt.Errorf("choose port: %w", err)
		}
		h := &portHold{port: firstPort + int(n.Int64())}
		if runtime.GOOS == "linux" {
			h.name, err = net.Listen("unix", "@runnel-testdb-port-"+strconv.Itoa(h.port))
			if err != nil {
				last = err
				continue
			}
		}
		l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(h.port)))
		if err == nil {
			err = l.Close()
		}
		if err == nil {
			return h, nil
		}
		last = errors.Join(err, h.Close())
	}
	return nil, fmt.Errorf("reserve a loopback port between %d and %d: %w", firstPort, firstPort+portCount-1, last)
}

// record is one server as the next start needs to know it, should this process
// die. It is written before the server starts and removed when it has ended.
type record struct {
	path string

	Space      string   `json:"space"`       // where the process ids below are valid
	Owner      int      `json:"owner"`       // process that started the server
	OwnerStart string   `json:"owner_start"` // tells the owner from a later process with its id
	Server     int      `json:"server"`      // 0 until it has started
	DataDir    string   `json:"data_dir"`    // must stand on the server's command line
	TempDirs   []string `json:"temp_dirs"`   // removed with the server
}

// registryDir holds the records of this user.
func registryDir() (string, error) {
	dir := filepath.Join(os.TempDir(), "runnel-testdb-records-"+strconv.Itoa(os.Getuid()))
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", fmt.Errorf("make registry of servers: %w", err)
	}
	return dir, nil
}

func newRecord(dataDir string, tempDirs []string) (*record, error) {
	dir, err := registryDir()
	if err != nil {
		return nil, err
	}
	r := &record{
		path:  filepath.Join(dir, fmt.Sprintf("%d-%s.json", os.Getpid(), rand.Text())),
		Space: procSpace(), Owner: os.Getpid(), OwnerStart: procStart(os.Getpid()),
		DataDir: dataDir, TempDirs: tempDirs,
	}
	return r, r.save()
}

// save writes the record so that a reader sees all of it or none.
func (r *record) save() error {
	b, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("encode server record: %w", err)
	}
	tmp := r.path + ".new"
	if err := os.WriteFile(tmp, b, 0o600); err != nil {
		return fmt.Errorf("write server record: %w", err)
	}
	if err := os.Rename(tmp, r.path); err != nil {
		return fmt.Errorf("publish server record: %w", err)
	}
	return nil
}

func (r *record) setServer(pid int) error {
	r.Server = pid
	return r.save()
}

func (r *record) remove() error {
	if err := os.Remove(r.path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove server record: %w", err)
	}
	return nil
}

// ownerAlive says whether the process that started the server still runs.
func (r *record) ownerAlive() bool {
	start := procStart(r.Owner)
	return start != "" && start == r.OwnerStart
}

// reapOrphans ends the servers whose owners are dead and removes what they left.
// When another process is at it already there is nothing to do.
func reapOrphans() error {
	dir, err := registryDir()
	if err != nil {
		return err
	}
	return reapIn(dir)
}

func reapIn(dir string) error {
	unlock, ok, err := tryLockFile(filepath.Join(dir, "reaper.lock"))
	if err != nil || !ok {
		return err
	}
	files, err := filepath.Glob(filepath.Join(dir, "*.json"))
	errs := []error{err}
	for _, f := range files {
		errs = append(errs, reapRecord(f))
	}
	return errors.Join(append(errs, unlock())...)
}

func reapRecord(path string) error {
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // its server was stopped meanwhile
	}
	if err != nil {
		return fmt.Errorf("read server record: %w", err)
	}
	r := record{path: path}
	if err := json.Unmarshal(b, &r); err != nil {
		return fmt.Errorf("parse server record %s, remove it by hand: %w", path, err)
	}
	if r.Space != procSpace() || r.ownerAlive() {
		return nil
	}
	if r.Server != 0 && r.DataDir != "" {
		kids := procChildren(r.Server)
		killVerified([]int{r.Server}, r.DataDir)
		killVerified(kids, childName)
	}
	errs := []error{}
	for _, d := range r.TempDirs {
		if strings.HasPrefix(filepath.Base(d), tempPrefix) {
			errs = append(errs, os.RemoveAll(d))
		}
	}
	return errors.Join(append(errs, r.remove())...)
}

// childName is on the command line of every child of a PostgreSQL server, the
// only one that has some.
const childName = "postgres"

// killVerified kills those processes that still carry want on their command
// line. One that is gone, or is another process by now, is left alone.
func killVerified(pids []int, want string) {
	for _, pid := range pids {
		if pid <= 1 || !strings.Contains(procCommand(pid), want) {
			continue
		}
		p, err := os.FindProcess(pid)
		if err != nil {
			continue // gone
		}
		if err := p.Signal(syscall.SIGKILL); err != nil {
			continue // gone, or not ours to end
		}
	}
}
