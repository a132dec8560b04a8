package testdb

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
)

// templateFormat changes when the way templates are built does, so that older
// ones in the cache are left aside.
const templateFormat = 1

// template returns a directory that holds a pristine data directory of one
// server version. It is built at most once per user and machine: build fills a
// directory that acct owns, the result is copied into the cache and appears
// there by rename.
func template(ctx context.Context, name string, acct account, build func(ctx context.Context, dir string) error) (path string, err error) {
	base, err := os.UserCacheDir()
	if err != nil {
		base = filepath.Join(os.TempDir(), tempPrefix+"cache-"+strconv.Itoa(os.Getuid()))
	}
	if err := os.MkdirAll(base, 0o755); err != nil {
		return "", fmt.Errorf("make cache directory: %w", err)
	}
	path = filepath.Join(base, fmt.Sprintf("%s%s-f%d", tempPrefix, name, templateFormat))
	if isDir(path) {
		return path, nil
	}
	unlock, err := lockFile(ctx, path+".lock")
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, unlock()) }()
	if isDir(path) {
		return path, nil
	}
	return path, buildTemplate(ctx, path, acct, build)
}

func buildTemplate(ctx context.Context, path string, acct account, build func(ctx context.Context, dir string) error) (err error) {
	work, err := acct.tempDir("template")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(work)) }()
	data := filepath.Join(work, "data")
	if err := build(ctx, data); err != nil {
		return err
	}
	if err := removeStale(path + ".new-*"); err != nil {
		return err
	}
	made, err := os.MkdirTemp(filepath.Dir(path), filepath.Base(path)+".new-*")
	if err != nil {
		return fmt.Errorf("make cache directory: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(made)) }()
	if err := copyTree(data, filepath.Join(made, "data"), ownAccount()); err != nil {
		return err
	}
	if err := os.Rename(made, path); err != nil && !isDir(path) {
		return fmt.Errorf("publish template directory: %w", err)
	}
	return nil
}

// removeStale removes what a builder that was killed has left. The caller holds
// the lock, so none of it is in use.
func removeStale(pattern string) error {
	left, err := filepath.Glob(pattern)
	errs := []error{err}
	for _, dir := range left {
		errs = append(errs, os.RemoveAll(dir))
	}
	return errors.Join(errs...)
}

// fillFrom gives a server a fresh data directory. It appears complete or not at
// all, so an interrupted copy is not taken for data later.
func fillFrom(tmpl, dataDir string, acct account) error {
	part := dataDir + ".part"
	if err := os.RemoveAll(part); err != nil {
		return fmt.Errorf("remove unfinished copy: %w", err)
	}
	if err := copyTree(filepath.Join(tmpl, "data"), part, acct); err != nil {
		return err
	}
	if err := os.Rename(part, dataDir); err != nil {
		return fmt.Errorf("publish data directory: %w", err)
	}
	return nil
}

// copyTree copies directories and regular files with their permissions and gives
// the copies to acct.
func copyTree(from, to string, acct account) error {
	return filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return fmt.Errorf("walk template: %w", err)
		}
		rel, err := filepath.Rel(from, path)
		if err != nil {
			return fmt.Errorf("walk template: %w", err)
		}
		dst := filepath.Join(to, rel)
		fi, err := d.Info()
		if err != nil {
			return fmt.Errorf("walk template: %w", err)
		}
		switch {
		case d.IsDir():
			if err := os.Mkdir(dst, fi.Mode().Perm()|0o700); err != nil {
				return fmt.Errorf("copy template: %w", err)
			}
		case d.Type().IsRegular():
			if err := copyFile(path, dst, fi.Mode().Perm()); err != nil {
				return fmt.Errorf("copy template: %w", err)
			}
		default:
			return nil // sockets and the like are made anew by the server
		}
		return acct.give(dst)
	})
}

// copyFile copies one file and leaves holes for blocks of zeros: most of a
// pristine redo log is nothing else.
func copyFile(from, to string, perm os.FileMode) (err error) {
	src, err := os.Open(from)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, src.Close()) }()
	dst, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, perm)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, dst.Close()) }()
	const block = 64 << 10
	buf, zeros := make([]byte, block), make([]byte, block)
	var size int64
	for {
		n, rerr := io.ReadFull(src, buf)
		if n > 0 && !bytes.Equal(buf[:n], zeros[:n]) {
			if _, err := dst.WriteAt(buf[:n], size); err != nil {
				return err
			}
		}
		size += int64(n)
		if rerr == io.EOF || rerr == io.ErrUnexpectedEOF {
			return dst.Truncate(size)
		}
		if rerr != nil {
			return rerr
		}
	}
}

func isDir(path string) bool {
	fi, err := os.Stat(path)
	return err == nil && fi.IsDir()
}
