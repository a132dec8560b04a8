package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/runnel-dev/runnel/bench/actors/workload"
)

// peersPath is where the programs of the peers are.
const peersPath = "github.com/runnel-dev/runnel/bench/actors/peers/"

// build compiles the program of each peer into dir. The working directory is in
// this module.
func build(ctx context.Context, dir string, peers []string) error {
	args := []string{"build", "-o", dir + string(filepath.Separator)}
	for _, p := range peers {
		args = append(args, peersPath+p)
	}
	if b, err := exec.CommandContext(ctx, "go", args...).CombinedOutput(); err != nil {
		return fmt.Errorf("build the peers (run this in bench/actors): %w\n%s", err, b)
	}
	return nil
}

// childCase is one workload on one peer.
type childCase struct {
	peer, workload string
	scale          float64
	limit          time.Duration
	profile        string // file for a CPU profile; "" means none
}

// run runs the case in a process of its own, the program in dir.
func (k childCase) run(ctx context.Context, dir string) ([]workload.Sample, error) {
	// The program ends by itself at the limit and says what it waits for.
	ctx, cancel := context.WithTimeout(ctx, k.limit+30*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(dir, k.peer), "-workload", k.workload,
		"-scale", fmt.Sprint(k.scale), "-limit", k.limit.String(), "-cpuprofile", k.profile)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("%s on %s: %w: %s", k.workload, k.peer, err, firstLines(errs.String(), 5))
	}
	// A runtime may print too; the result is the last line.
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	var samples []workload.Sample
	if err := json.Unmarshal([]byte(lines[len(lines)-1]), &samples); err != nil {
		return nil, fmt.Errorf("%s on %s: read result: %w", k.workload, k.peer, err)
	}
	if len(samples) == 0 {
		return nil, fmt.Errorf("%s on %s: no result", k.workload, k.peer)
	}
	return samples, nil
}

func firstLines(s string, n int) string {
	lines := strings.Split(strings.TrimSpace(s), "\n")
	return strings.Join(lines[:min(n, len(lines))], " | ")
}
