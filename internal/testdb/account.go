package testdb

import (
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
)

// account is the user a server runs as.
type account struct {
	name     string
	uid, gid int
	groups   []uint32
	switched bool // differs from ours: files are given to it, the child takes it on
}

// ownAccount is the user this process runs as.
func ownAccount() account { return account{uid: os.Getuid(), gid: os.Getgid()} }

// serverAccount is the user a server runs as when it is called name on systems
// that install it: that user when we are root, else ourselves.
func serverAccount(name string) (account, error) {
	if os.Getuid() != 0 {
		return ownAccount(), nil
	}
	u, err := user.Lookup(name)
	if err != nil {
		return account{}, fmt.Errorf("look up user %q to run the server as: %w", name, err)
	}
	a := account{name: name, switched: true}
	if a.uid, err = strconv.Atoi(u.Uid); err != nil {
		return account{}, fmt.Errorf("read user id of %q: %w", name, err)
	}
	if a.gid, err = strconv.Atoi(u.Gid); err != nil {
		return account{}, fmt.Errorf("read group id of %q: %w", name, err)
	}
	gids, err := u.GroupIds()
	if err != nil {
		return account{}, fmt.Errorf("list groups of %q: %w", name, err)
	}
	for _, g := range gids {
		n, err := strconv.ParseUint(g, 10, 32)
		if err != nil {
			return account{}, fmt.Errorf("read group id of %q: %w", name, err)
		}
		a.groups = append(a.groups, uint32(n))
	}
	return a, nil
}

// reaches says whether the account may pass through dir and all above it.
func (a account) reaches(dir string) bool {
	if !a.switched {
		return true
	}
	for {
		fi, err := os.Stat(dir)
		if err != nil || !a.passes(fi) {
			return false
		}
		up := filepath.Dir(dir)
		if up == dir {
			return true
		}
		dir = up
	}
}

func (a account) passes(fi os.FileInfo) bool {
	uid, gid := ownerOf(fi)
	bit := os.FileMode(0o001)
	if uid == a.uid {
		bit = 0o100
	} else if gid == a.gid {
		bit = 0o010
	}
	return fi.Mode()&bit != 0
}

// give makes the account the owner of one file or directory.
func (a account) give(path string) error {
	if !a.switched {
		return nil
	}
	if err := os.Lchown(path, a.uid, a.gid); err != nil {
		return fmt.Errorf("give %s to user %s: %w", path, a.name, err)
	}
	return nil
}

// tempDir makes a new temporary directory that the account owns and can reach.
func (a account) tempDir(kind string) (string, error) {
	base := os.TempDir()
	if !a.reaches(base) {
		base = "/tmp"
	}
	dir, err := os.MkdirTemp(base, tempPrefix+kind+"-*")
	if err != nil {
		return "", fmt.Errorf("make temporary directory: %w", err)
	}
	return dir, a.give(dir)
}
