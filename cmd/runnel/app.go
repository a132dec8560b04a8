package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"regexp"
	"strings"

	"github.com/spf13/cobra"

	"github.com/runnel-dev/runnel/change"
	"github.com/runnel-dev/runnel/internal/web"
)

// Exit codes.
const (
	exitOK     = 0
	exitFailed = 1 // a problem was found, or the work could not be done
	exitUsage  = 2 // the command line is wrong
)

// app is one call of the program.
type app struct {
	in       io.Reader
	out, err io.Writer
	getenv   func(string) string

	secrets []string // texts that no output may hold
}

// usageError says that the command line is wrong.
type usageError struct{ err error }

func (e *usageError) Error() string { return e.err.Error() }
func (e *usageError) Unwrap() error { return e.err }

func usagef(format string, a ...any) error { return &usageError{fmt.Errorf(format, a...)} }

// errFound ends a command whose output has told already what is wrong.
var errFound = errors.New("problems were found")

// run executes one command line and returns the exit code.
func (a *app) run(ctx context.Context, args []string) int {
	a.hideSecretsOf(args)
	root := a.newRoot()
	root.SetArgs(append([]string{}, args...)) // nil would mean those of the process
	cmd, err := root.ExecuteContextC(ctx)
	var usage *usageError
	switch {
	case err == nil:
		return exitOK
	case errors.Is(err, errFound):
		return exitFailed
	case errors.As(err, &usage):
		a.complain("%s\nsee: %s --help\n", err, cmd.CommandPath())
		return exitUsage
	case errors.Is(err, context.Canceled) && ctx.Err() != nil:
		a.complain("interrupted\n")
		return exitFailed
	}
	a.explain(err)
	return exitFailed
}

// explain prints an error with everything that helps to mend it.
func (a *app) explain(err error) {
	var p *web.Problem
	if !errors.As(err, &p) {
		a.complain("%s\n", err)
		return
	}
	switch {
	case len(p.Problems) > 0:
		a.tellProblems(p.Problems)
	case len(p.Faults) > 0:
		for _, f := range p.Faults {
			a.complain("%s\n", f)
		}
		a.complain("remedy: %s\n", p.Remedy)
	case p.Remedy != "":
		a.complain("%s\n  remedy: %s\n", p.Detail, p.Remedy)
	default:
		a.complain("%s\n", p.Detail)
	}
}

// complain writes to standard error, without secrets.
func (a *app) complain(format string, args ...any) {
	text := a.clean(fmt.Sprintf(format, args...))
	fmt.Fprint(a.err, "runnel: ", text)
}

func (a *app) tellProblems(problems []*change.Problem) {
	for _, p := range problems {
		a.complain("%s: %s\n  remedy: %s\n", p.Subject, p.Cause, p.Remedy)
	}
}

var passwordInURL = regexp.MustCompile(`(//[^\s/:@"']*):[^\s@"']+@`)

// clean takes the secrets of the command line, and whatever looks like the
// password of a server address, out of a text.
func (a *app) clean(s string) string {
	for _, secret := range a.secrets {
		s = strings.ReplaceAll(s, secret, "***")
	}
	return passwordInURL.ReplaceAllStringFunc(s, func(m string) string {
		before, password, _ := strings.Cut(m, ":")
		if password == "password@" { // the form of an address, in a help text
			return m
		}
		return before + ":***@"
	})
}

// hideSecretsOf notes the passwords in server addresses among the arguments, also
// of addresses that are not well-formed.
func (a *app) hideSecretsOf(args []string) {
	for _, arg := range args {
		_, rest, ok := strings.Cut(arg, "://")
		at := strings.LastIndexByte(rest, '@')
		if !ok || at < 0 {
			continue
		}
		if _, password, ok := strings.Cut(rest[:at], ":"); ok {
			a.hide(password)
		}
	}
}

// hide keeps a text out of everything that is printed. Very short ones would
// blank out half of a message and are no secrets.
func (a *app) hide(secret string) {
	const least = 3
	if len(secret) < least {
		return
	}
	a.secrets = append(a.secrets, secret)
	if plain, err := url.PathUnescape(secret); err == nil && plain != secret {
		a.secrets = append(a.secrets, plain)
	}
}

// writeClean prints a text without secrets.
func (a *app) writeClean(s string) (int, error) {
	n, err := io.WriteString(a.out, a.clean(s))
	if err != nil {
		return n, fmt.Errorf("print: %w", err)
	}
	return n, nil
}

// newRoot builds the command tree. It is built for each call, since flags keep
// their values.
func (a *app) newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:   "runnel",
		Short: "Keep many tables in sync, each as a durable task of its own",
		Long: `Runnel copies tables from MariaDB servers to MariaDB or MySQL servers and keeps them
in sync from the binary log. Every table is a task of its own: it can be paused,
resumed, repaired or removed, and nobody else notices.`,
		Example: `  runnel demo                        see it work on two private servers
  runnel check mysql://user@db1:3306/  is this server fit to be a source?
  runnel server                      run the syncing process
  runnel apply -f pipelines/         declare sources, targets and pipelines
  runnel task list                   where every table stands`,
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          cobra.ArbitraryArgs,
		RunE:          groupRun,
	}
	root.SuggestionsMinimumDistance = 2
	root.SetIn(a.in)
	root.SetOut(a.out)
	root.SetErr(a.err)
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return &usageError{err} })
	root.AddCommand(a.demoCmd(), a.serverCmd(), a.applyCmd(), a.checkCmd(),
		a.sourceCmd(), a.targetCmd(), a.pipelineCmd(), a.taskCmd(), a.benchCmd(), a.versionCmd())
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	refuseUnknownTopics(root)
	checkArgsOf(root)
	return root
}

// refuseUnknownTopics makes the commands that cobra adds complain about words
// that they do not know, as all others do.
func refuseUnknownTopics(root *cobra.Command) {
	for _, c := range root.Commands() {
		switch c.Name() {
		case "completion":
			c.Args, c.RunE = cobra.ArbitraryArgs, groupRun
		case "help":
			c.RunE = func(_ *cobra.Command, args []string) error {
				topic, rest, err := root.Find(args)
				if err != nil || len(rest) > 0 {
					return usagef("there is no help for %q", strings.Join(args, " "))
				}
				topic.InitDefaultHelpFlag()
				return topic.Help()
			}
		}
	}
}

// checkArgsOf makes every complaint about arguments a usage error.
func checkArgsOf(c *cobra.Command) {
	if check := c.Args; check != nil {
		c.Args = func(cmd *cobra.Command, args []string) error {
			if err := check(cmd, args); err != nil {
				return &usageError{err}
			}
			return nil
		}
	}
	for _, sub := range c.Commands() {
		checkArgsOf(sub)
	}
}

// groupRun is what a command does that only holds others: without arguments it
// shows them.
func groupRun(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return cmd.Help()
	}
	text := fmt.Sprintf("unknown command %q for %q", args[0], cmd.CommandPath())
	if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
		text += "; did you mean " + strings.Join(near, " or ") + "?"
	}
	return usagef("%s", text)
}

// group makes a command that only holds others.
func group(use, short string, aliases []string, subs ...*cobra.Command) *cobra.Command {
	c := &cobra.Command{Use: use, Short: short, Aliases: aliases, Args: cobra.ArbitraryArgs, RunE: groupRun}
	c.SuggestionsMinimumDistance = 2
	c.AddCommand(subs...)
	return c
}
