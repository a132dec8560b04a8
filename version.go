package runnel

import (
	"os"
	"runtime"
	"runtime/debug"
	"time"

	"github.com/runnel-dev/runnel/internal/web"
)

// Version tells what runs.
type Version = web.Version

// BuildVersion reads the version that the Go tool stored in the program; "devel"
// when it was built from a working copy. Started is now.
func BuildVersion() Version {
	v := Version{Version: "devel", Go: runtime.Version(), Started: time.Now().UTC(), PID: os.Getpid()}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return v
	}
	if m := info.Main.Version; m != "" && m != "(devel)" {
		v.Version = m
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" && len(s.Value) >= 12 {
			v.Commit = s.Value[:12]
		}
	}
	return v
}
