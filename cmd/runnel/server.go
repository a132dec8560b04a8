package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"

	"github.com/spf13/cobra"

	"github.com/runnel-dev/runnel"
)

// defaultConfigFile is read when it exists and no other is named.
const defaultConfigFile = "runnel.yaml"

func (a *app) serverCmd() *cobra.Command {
	var file string
	var printConfig bool
	var over runnel.Config
	c := &cobra.Command{
		Use:   "server",
		Short: "Run the syncing process",
		Long: `Runs the process that keeps tables in sync and serves API, metrics and overview
until it gets SIGINT or SIGTERM. It keeps its state in the data directory and
goes on where it stood, however it ended.`,
		Example: `  runnel server
  runnel server --config /etc/runnel.yaml
  runnel server --data-dir /var/lib/runnel --listen 127.0.0.1:7717 --log-format json
  runnel server --listen 0.0.0.0:7717 --token-file /etc/runnel.tokens
  runnel server --print-config > runnel.yaml`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := serverConfig(file, over)
			if err != nil {
				return err
			}
			if printConfig {
				_, err := io.WriteString(a.out, cfg.String())
				return err
			}
			log, err := newLogger(a.err, cfg.Log)
			if err != nil {
				return err
			}
			return runnel.Run(cmd.Context(), cfg, runnel.RunOptions{Log: log, Version: runnel.BuildVersion()})
		},
	}
	fl := c.Flags()
	fl.StringVarP(&file, "config", "c", "", "configuration file; "+defaultConfigFile+" when that exists")
	fl.StringVar(&over.DataDir, "data-dir", "", "directory of the state; runnel-data when not set anywhere")
	fl.StringVar(&over.Listen, "listen", "", "address of API and overview; "+runnel.DefaultListen+" when not set anywhere")
	fl.StringVar(&over.TokenFile, "token-file", "", "file with the accepted access tokens, one per line")
	fl.StringVar(&over.Log.Level, "log-level", "", "debug, info, warn or error")
	fl.StringVar(&over.Log.Format, "log-format", "", "text or json")
	fl.BoolVar(&printConfig, "print-config", false, "print the configuration with its defaults, and end")
	return c
}

// serverConfig reads the file and lets flags win over it. What only the flags
// have wrong is a usage error.
func serverConfig(file string, over runnel.Config) (runnel.Config, error) {
	if err := flagFaults(over); err != nil {
		return over, &usageError{err}
	}
	var cfg runnel.Config
	text, err := readConfigFile(&file)
	if err != nil {
		return cfg, err
	}
	cfg, err = runnel.ParseConfig(file, text, func(c *runnel.Config) { override(c, over) })
	if err == nil {
		return cfg, nil
	}
	plain, fileErr := runnel.ParseConfig(file, text)
	if fileErr != nil {
		return cfg, err
	}
	override(&plain, over)
	return cfg, &usageError{plain.Validate()}
}

// flagFaults finds values that no file could make right.
func flagFaults(over runnel.Config) error {
	if over.TokenFile == "" {
		over.TokenFile = "of the file" // whether one is needed shows when all is known
	}
	over.Fill()
	return over.Validate()
}

// override takes over what flags set.
func override(c *runnel.Config, over runnel.Config) {
	for _, f := range []struct {
		to   *string
		from string
	}{
		{&c.DataDir, over.DataDir}, {&c.Listen, over.Listen}, {&c.TokenFile, over.TokenFile},
		{&c.Log.Level, over.Log.Level}, {&c.Log.Format, over.Log.Format},
	} {
		if f.from != "" {
			*f.to = f.from
		}
	}
}

func readConfigFile(file *string) ([]byte, error) {
	named := *file != ""
	if !named {
		*file = defaultConfigFile
	}
	text, err := os.ReadFile(*file)
	if !named && errors.Is(err, fs.ErrNotExist) {
		*file = "command line"
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read configuration: %w", err)
	}
	return text, nil
}

func newLogger(w io.Writer, c runnel.LogConfig) (*slog.Logger, error) {
	var level slog.Level
	if err := level.UnmarshalText([]byte(c.Level)); err != nil {
		return nil, fmt.Errorf("set log level: %w", err)
	}
	o := &slog.HandlerOptions{Level: level}
	if c.Format == "json" {
		return slog.New(slog.NewJSONHandler(w, o)), nil
	}
	return slog.New(slog.NewTextHandler(w, o)), nil
}
