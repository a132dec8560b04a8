package main

import (
	"encoding/json"
	"testing"

	"github.com/runnel-dev/runnel/internal/benchactors"
)

func TestBenchActors(t *testing.T) {
	c := newCLI(t, newEngine())
	c.want(exitOK, []string{"order errors", "third actor handled"}, "bench", "actors")
	c.want(exitOK, []string{`"overlaps": 0`}, "bench", "actors", "--json")
	var got benchactors.Result
	if err := json.Unmarshal(c.out.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	if got.Sharing.Handled != 40_000 || !got.Starving.OtherAnswered {
		t.Errorf("got %+v, want 40,000 handled and an answer of the other dispatcher", got)
	}
	c.want(exitUsage, nil, "bench", "actors", "more")
}
