package mysql

import (
	"fmt"
	"os"
	"runtime"
)

// spillFile holds row events of one large group. The file is gone from its
// directory as soon as it is made, where the system allows that, so a crash
// leaves nothing behind; its space is free once no block refers to it any more.
type spillFile struct {
	file *os.File
	size int64
}

func newSpillFile(dir string) (*spillFile, error) {
	f, err := os.CreateTemp(dir, "runnel-group-*.rows")
	if err != nil {
		return nil, fmt.Errorf("spill large group: %w", err)
	}
	s := &spillFile{file: f}
	name := f.Name()
	if os.Remove(name) == nil {
		name = ""
	}
	runtime.AddCleanup(s, func(f *os.File) {
		f.Close()
		if name != "" {
			os.Remove(name) // a second try, now that it is closed; nobody can mend a failure
		}
	}, f)
	return s, nil
}

// append writes b and returns where it lies.
func (s *spillFile) append(b []byte) (int64, error) {
	at := s.size
	if _, err := s.file.WriteAt(b, at); err != nil {
		return 0, fmt.Errorf("spill large group: %w", err)
	}
	s.size += int64(len(b))
	return at, nil
}
