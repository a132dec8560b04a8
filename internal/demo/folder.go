package demo

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

const (
	folderPrefix = "runnel-demo-"
	ownerFile    = "owner.pid"
)

// folder is where one demo keeps data and log. It holds a file with the pid of
// its owner, whose lock the kernel frees however the owner ends. A folder without
// that file is nobody's business: it was left on purpose.
type folder struct {
	path  string
	owner *os.File // locked
}

// newFolder makes a folder that is ours until remove or release.
func newFolder() (*folder, error) {
	path, err := os.MkdirTemp("", folderPrefix)
	if err != nil {
		return nil, fmt.Errorf("make working directory: %w", err)
	}
	f := &folder{path: path}
	if err := f.own(); err != nil {
		return nil, errors.Join(fmt.Errorf("own working directory: %w", err), os.RemoveAll(path))
	}
	return f, nil
}

// own publishes the file with its lock held, so that nobody sees it unlocked.
func (f *folder) own() error {
	name := filepath.Join(f.path, ownerFile)
	file, err := os.OpenFile(name+".new", os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	_, err = file.WriteString(strconv.Itoa(os.Getpid()) + "\n")
	if err == nil {
		_, err = tryLock(file)
	}
	if err == nil {
		err = os.Rename(name+".new", name)
	}
	if err != nil {
		return errors.Join(err, file.Close())
	}
	f.owner = file
	return nil
}

// remove removes the folder with all that is in it.
func (f *folder) remove() error { return errors.Join(os.RemoveAll(f.path), f.owner.Close()) }

// release leaves the folder to people; no later demo removes it.
func (f *folder) release() error {
	return errors.Join(os.Remove(filepath.Join(f.path, ownerFile)), f.owner.Close())
}

// removeDead removes the folders of demos whose process is gone, and tells which.
// Those that are not ours to read are left alone.
func removeDead() (removed []string, err error) {
	paths, err := filepath.Glob(filepath.Join(os.TempDir(), folderPrefix+"*"))
	errs := []error{err}
	for _, path := range paths {
		text, err := removeIfDead(path)
		if text != "" {
			removed = append(removed, text)
		}
		errs = append(errs, err)
	}
	return removed, errors.Join(errs...)
}

func removeIfDead(path string) (text string, err error) {
	if fi, err := os.Lstat(path); err != nil || !fi.IsDir() {
		return "", nil // gone meanwhile, or not made by a demo
	}
	owner, err := os.Open(filepath.Join(path, ownerFile))
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, fs.ErrPermission):
		return "", nil
	case err != nil:
		return "", fmt.Errorf("look for the owner of %s: %w", path, err)
	}
	defer owner.Close()
	dead, err := tryLock(owner)
	if err != nil || !dead {
		return "", err
	}
	pid, err := os.ReadFile(owner.Name())
	if err != nil {
		return "", nil // another start is at it
	}
	if err := os.RemoveAll(path); err != nil {
		return "", fmt.Errorf("remove what a dead demo left: %w", err)
	}
	return fmt.Sprintf("%s of process %s", path, strings.TrimSpace(string(pid))), nil
}
