//go:build !unix

package sqlite

import (
	"errors"
	"fmt"
	"os"
)

// lockDir refuses: without a lock that dies with its process two writers could
// corrupt each other.
func lockDir(dir string) (*os.File, error) {
	return nil, fmt.Errorf("lock data directory %s: %w: run on Linux, macOS or BSD", dir, errors.ErrUnsupported)
}

func syncDir(string) error { return nil }
