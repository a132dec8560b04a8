package main

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/runnel-dev/runnel"
	"github.com/runnel-dev/runnel/internal/web"
)

// serverFlags say which running process a command speaks to.
type serverFlags struct{ server, tokenFile string }

func (a *app) addServerFlags(c *cobra.Command) *serverFlags {
	f := new(serverFlags)
	def := a.getenv("RUNNEL_SERVER")
	if def == "" {
		def = runnel.DefaultListen
	}
	c.Flags().StringVar(&f.server, "server", def, "address of the process, or RUNNEL_SERVER")
	c.Flags().StringVar(&f.tokenFile, "token-file", a.getenv("RUNNEL_TOKEN_FILE"), "file with the access token, or RUNNEL_TOKEN_FILE")
	return f
}

// client connects to the process.
func (f *serverFlags) client() (*web.Client, error) {
	token, err := readToken(f.tokenFile)
	if err != nil {
		return nil, err
	}
	c, err := web.NewClient(f.server, token)
	if err != nil {
		return nil, &usageError{err}
	}
	return c, nil
}

// readToken takes the first token of a file, which may be the server's own.
func readToken(file string) (string, error) {
	if file == "" {
		return "", nil
	}
	b, err := os.ReadFile(file)
	if err != nil {
		return "", fmt.Errorf("read access token: %w", err)
	}
	for line := range strings.Lines(string(b)) {
		line = strings.TrimSpace(line)
		switch {
		case line == "" || line[0] == '#':
		case strings.HasPrefix(line, "sha256:"):
			return "", errors.New("read access token: " + file + " holds only its hash; a client needs the token itself")
		default:
			return line, nil
		}
	}
	return "", errors.New("read access token: " + file + " is empty")
}
