package testdb

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
)

// findProgram looks for a program: where the environment variable points, in
// PATH, then in dirs. The error says how to get it.
func findProgram(envName string, names, dirs []string, remedy string) (string, error) {
	if path := os.Getenv(envName); envName != "" && path != "" {
		found, err := exec.LookPath(path)
		if err != nil {
			return "", fmt.Errorf("find the program %s names: %w: %w", envName, ErrNotInstalled, err)
		}
		return filepath.Abs(found)
	}
	for _, name := range names {
		if path, err := exec.LookPath(name); err == nil {
			return filepath.Abs(path)
		}
		for _, dir := range dirs {
			if path, err := exec.LookPath(filepath.Join(dir, name)); err == nil {
				return path, nil
			}
		}
	}
	return "", fmt.Errorf("find %s: %w: %s", names[0], ErrNotInstalled, remedy)
}

var versionText = regexp.MustCompile(`\d+\.\d+(\.\d+)?`)

// programVersion asks a program for its version number, as "10.11.6".
func programVersion(ctx context.Context, program string) (string, error) {
	out, err := exec.CommandContext(ctx, program, "--version").Output()
	if err != nil {
		return "", fmt.Errorf("ask %s for its version: %w", program, err)
	}
	v := versionText.FindString(strings.TrimPrefix(string(out), program))
	if v == "" {
		return "", fmt.Errorf("ask %s for its version: no number in %q", program, out)
	}
	return v, nil
}

// runTool runs a program to its end under acct and quotes its output when it
// does not succeed.
func runTool(ctx context.Context, acct account, dir, program string, args ...string) error {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Dir = dir
	cmd.Env = serverEnv()
	cmd.SysProcAttr = serverAttr(acct, 0)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("run %s %s: %w\n%s", program, strings.Join(args, " "), err, strings.TrimSpace(string(out)))
	}
	return nil
}

// openDir returns the directory of a new server: the caller's, made when it does
// not exist and not given away, or a temporary one.
func openDir(dir, kind string, acct account) (path string, temp bool, err error) {
	if dir == "" {
		path, err = acct.tempDir(kind)
		return path, true, err
	}
	if path, err = filepath.Abs(dir); err != nil {
		return "", false, fmt.Errorf("name server directory: %w", err)
	}
	if err := os.MkdirAll(path, 0o755); err != nil {
		return "", false, fmt.Errorf("make server directory: %w", err)
	}
	return path, false, nil
}

// subDir makes a directory inside a server's own that the server may write to.
func subDir(dir, name string, acct account) (string, error) {
	path := filepath.Join(dir, name)
	if err := os.Mkdir(path, 0o755); err != nil && !isDir(path) {
		return "", fmt.Errorf("make server directory: %w", err)
	}
	return path, acct.give(path)
}
