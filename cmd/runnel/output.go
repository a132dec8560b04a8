package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
)

// outputFlag is the form in which a command prints.
type outputFlag string

const (
	outputTable outputFlag = "table"
	outputJSON  outputFlag = "json"
)

// String implements pflag.Value.
func (o *outputFlag) String() string { return string(*o) }

// Type implements pflag.Value.
func (o *outputFlag) Type() string { return "table|json" }

// Set implements pflag.Value.
func (o *outputFlag) Set(s string) error {
	if s != string(outputTable) && s != string(outputJSON) {
		return fmt.Errorf("want table or json")
	}
	*o = outputFlag(s)
	return nil
}

func addOutputFlag(c *cobra.Command) *outputFlag {
	o := outputTable
	c.Flags().VarP(&o, "output", "o", "form of the output")
	completeWords(c, "output", []string{string(outputTable), string(outputJSON)})
	return &o
}

// completeWords offers the words as values of a flag.
func completeWords(c *cobra.Command, flag string, words []string) {
	if err := c.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(words, cobra.ShellCompDirectiveNoFileComp)); err != nil {
		panic(err) // invariant: the caller has added the flag
	}
}

// printJSON writes one indented value.
func printJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(v); err != nil {
		return fmt.Errorf("print: %w", err)
	}
	return nil
}

// table prints aligned columns under a header.
type table struct {
	w *tabwriter.Writer
}

func newTable(w io.Writer, header ...string) *table {
	t := &table{tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)}
	t.row(header...)
	return t
}

func (t *table) row(cells ...string) {
	for i, c := range cells {
		if c == "" {
			c = "-"
		}
		cells[i] = oneLine(c)
	}
	fmt.Fprintln(t.w, strings.Join(cells, "\t")) // the error comes back from flush
}

func (t *table) flush() error {
	if err := t.w.Flush(); err != nil {
		return fmt.Errorf("print: %w", err)
	}
	return nil
}

// oneLine keeps a foreign text from breaking the table or steering the terminal.
func oneLine(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r >= 0x80 && r < 0xa0 {
			return ' '
		}
		return r
	}, s)
}

// fields prints names and values below each other, leaving out empty values.
func fields(w io.Writer, pairs ...string) error {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for i := 0; i+1 < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			fmt.Fprintf(tw, "%s\t%s\n", pairs[i], oneLine(pairs[i+1]))
		}
	}
	if err := tw.Flush(); err != nil {
		return fmt.Errorf("print: %w", err)
	}
	return nil
}

// seconds prints a lag.
func seconds(s float64) string { return strconv.FormatFloat(s, 'f', 3, 64) + "s" }

func count[N int | int64 | uint64](n N) string { return fmt.Sprint(n) }
