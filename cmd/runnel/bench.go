package main

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/runnel-dev/runnel/internal/benchactors"
)

func (a *app) benchCmd() *cobra.Command {
	return group("bench", "Show on this machine what the parts promise", nil, a.benchActorsCmd())
}

func (a *app) benchActorsCmd() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:   "actors",
		Short: "Many actors on two workers; two blocked handlers starve a third",
		Long: `Does two experiments with the actor runtime, in about a second.

The first lets 10,000 actors handle 40,000 ordered messages on two workers: which
goroutines ran handlers, whether handlers of one actor overlapped, whether messages
came out of order.

The second blocks both workers of a dispatcher. A third actor there must wait, as
is shown; an actor on another dispatcher, and one on an elastic dispatcher with two
blocked handlers of its own, must answer meanwhile.

The exit code is 1 when either shows something else.`,
		Example: `  runnel bench actors
  runnel bench actors --json`,
		Args: cobra.NoArgs,
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print the result as JSON")
	c.RunE = func(cmd *cobra.Command, _ []string) error {
		r, err := benchactors.Run(cmd.Context())
		if err != nil {
			return err
		}
		if asJSON {
			err = printJSON(a.out, r)
		} else {
			err = a.printBenchActors(r)
		}
		if err != nil {
			return err
		}
		faults := r.Faults()
		for _, f := range faults {
			a.complain("%s\n", f)
		}
		if len(faults) > 0 {
			return errFound
		}
		return nil
	}
	return c
}

func (a *app) printBenchActors(r benchactors.Result) error {
	s, t := r.Sharing, r.Starving
	return fields(a.out,
		"actors", count(s.Actors),
		"messages", count(s.Messages),
		"workers", count(s.Workers),
		"handled", count(s.Handled),
		"goroutines with handlers", count(s.Goroutines),
		"goroutines of the actors", count(s.Added),
		"handlers at once", count(s.Concurrent),
		"overlaps", count(s.Overlaps),
		"order errors", count(s.OrderErrors),
		"handlers while idle", count(s.IdleHandlers),
		"two workers blocked for", t.WatchedFor.String(),
		"third actor handled", yesOrNo(t.ThirdWhileBlocked),
		"other dispatcher answered", yesOrNo(t.OtherAnswered),
		"elastic dispatcher answered", yesOrNo(t.ElasticAnswered),
		"third after the release", yesOrNo(t.ThirdAfterRelease),
		"named as holding a worker", strings.Join(t.Named, ", "))
}

func yesOrNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}
