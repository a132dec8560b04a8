package demo

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/runnel-dev/runnel/internal/testdb"
)

const (
	shownTables = 5 // tables whose differences are shown
	shownRows   = 3 // differing rows shown of each
)

// compare dumps both servers and counts the rows that only one of them has. A
// table that is missing on one side counts as one more.
func compare(ctx context.Context, source, target *testdb.MariaDB, schemas []string) (tables, differences int, lines []string, err error) {
	var dumps [2]map[string]string
	var errs [2]error
	var wg sync.WaitGroup
	for i, db := range []*testdb.MariaDB{source, target} {
		wg.Go(func() { dumps[i], errs[i] = db.Dump(ctx, schemas...) })
	}
	wg.Wait()
	if err := errors.Join(errs[:]...); err != nil {
		return 0, 0, nil, err
	}
	delete(dumps[0], schemas[0]+"."+scratchTable)
	tables, differences, lines = compareDumps(dumps[0], dumps[1])
	return tables, differences, lines, nil
}

// compareDumps compares contents by table. tables counts those of the source.
func compareDumps(source, target map[string]string) (tables, differences int, lines []string) {
	names := make(map[string]string, len(source))
	maps.Copy(names, source)
	maps.Copy(names, target)
	shown := 0
	for _, name := range slices.Sorted(maps.Keys(names)) {
		want, atSource := source[name]
		got, atTarget := target[name]
		if atSource {
			tables++
		}
		n, detail := compareTable(rowsOf(want), rowsOf(got))
		switch {
		case !atTarget:
			n, detail = n+1, []string{"the table is missing at the target"}
		case !atSource:
			n, detail = n+1, []string{"the table is not at the source"}
		}
		if n == 0 {
			continue
		}
		differences += n
		if shown++; shown <= shownTables {
			lines = append(lines, fmt.Sprintf("%s: %d rows differ", name, n))
			for _, l := range detail {
				lines = append(lines, "  "+l)
			}
		}
	}
	if shown > shownTables {
		lines = append(lines, fmt.Sprintf("and %d more tables", shown-shownTables))
	}
	return tables, differences, lines
}

func rowsOf(dump string) []string {
	if dump == "" {
		return nil
	}
	return strings.Split(dump, "\n")
}

// compareTable counts the rows of two sorted lists that are in one of them only.
func compareTable(want, got []string) (n int, detail []string) {
	show := func(side, row string) {
		if n++; n <= shownRows {
			detail = append(detail, side+" "+short(row))
		}
	}
	i, j := 0, 0
	for i < len(want) || j < len(got) {
		switch {
		case j == len(got) || i < len(want) && want[i] < got[j]:
			show("only at the source:", want[i])
			i++
		case i == len(want) || got[j] < want[i]:
			show("only at the target:", got[j])
			j++
		default:
			i, j = i+1, j+1
		}
	}
	return n, detail
}
