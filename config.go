package runnel

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"reflect"
	"strconv"

	"go.yaml.in/yaml/v3"
)

// Config is the configuration of one process. The zero value with defaults
// filled is usable. It holds no secret, so it may be printed.
type Config struct {
	// DataDir holds everything that must survive a restart; one process at a time
	// uses it. "runnel-data" when empty.
	DataDir string `yaml:"dataDir"`
	// Listen is the address of API, metrics and overview, host:port;
	// 127.0.0.1:7717 when empty. Port 0 takes a free one. An address that other
	// machines reach needs TokenFile.
	Listen string `yaml:"listen"`
	// TokenFile names a file with one access token per line, either as it is (at
	// least 16 characters) or as sha256:HEX. Empty: no token is asked for.
	TokenFile string `yaml:"tokenFile,omitempty"`
	// Log says what is logged to standard error.
	Log LogConfig `yaml:"log"`
	// Budgets limit the memory that queued rows keep alive.
	Budgets BudgetConfig `yaml:"budgets"`
}

// LogConfig says what is logged and how.
type LogConfig struct {
	Level  string `yaml:"level"`  // "debug", "info" (default), "warn" or "error"
	Format string `yaml:"format"` // "text" (default) or "json"
}

// BudgetConfig limits rows in memory.
type BudgetConfig struct {
	CaptureBytes Bytes `yaml:"captureBytes"` // of all tables of one source; 64MiB when 0
}

// DefaultListen is where a process listens unless told otherwise.
const DefaultListen = "127.0.0.1:7717"

// Fill sets defaults where a field is empty.
func (c *Config) Fill() {
	def := func(s *string, v string) {
		if *s == "" {
			*s = v
		}
	}
	def(&c.DataDir, "runnel-data")
	def(&c.Listen, DefaultListen)
	def(&c.Log.Level, "info")
	def(&c.Log.Format, "text")
	if c.Budgets.CaptureBytes == 0 {
		c.Budgets.CaptureBytes = 64 << 20
	}
}

// Validate reports every fault at once. Call Fill first.
func (c *Config) Validate() error {
	var errs []error
	bad := func(format string, a ...any) { errs = append(errs, fmt.Errorf(format, a...)) }
	if fi, err := os.Stat(c.DataDir); err == nil && !fi.IsDir() {
		bad("dataDir %s is a file; name a directory", c.DataDir)
	}
	host, port, err := net.SplitHostPort(c.Listen)
	switch n, perr := strconv.ParseUint(port, 10, 16); {
	case err != nil || perr != nil || n > 65535:
		bad("listen %q: want host:port, such as %s", c.Listen, DefaultListen)
	case !isLoopback(host) && c.TokenFile == "":
		bad("listen %s can be reached from other machines; set tokenFile to a file with an access token, or listen on 127.0.0.1", c.Listen)
	}
	switch c.Log.Level {
	case "debug", "info", "warn", "error":
	default:
		bad("log.level %q: want debug, info, warn or error", c.Log.Level)
	}
	switch c.Log.Format {
	case "text", "json":
	default:
		bad("log.format %q: want text or json", c.Log.Format)
	}
	const least, most = 1 << 20, 64 << 30
	if b := c.Budgets.CaptureBytes; b < least || b > most {
		bad("budgets.captureBytes %s: want %s to %s", b, Bytes(least), Bytes(most))
	}
	return errors.Join(errs...)
}

// isLoopback says whether only this machine reaches the host.
func isLoopback(host string) bool {
	if host == "localhost" {
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.Unmap().IsLoopback()
}

// String is the configuration as YAML; ParseConfig reads it back.
func (c Config) String() string {
	b, err := yaml.Marshal(c)
	if err != nil {
		return "invalid: " + err.Error() // unreachable: plain data always encodes
	}
	return string(b)
}

// LoadConfig reads a file; see ParseConfig.
func LoadConfig(path string) (Config, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return Config{}, fmt.Errorf("read configuration: %w", err)
	}
	return ParseConfig(path, b)
}

// ParseConfig reads one YAML document, lets overrides change it, fills defaults and
// validates. Errors name file and line, all faults at once; an unknown key is a
// fault.
func ParseConfig(file string, text []byte, overrides ...func(*Config)) (Config, error) {
	f := &faults{file: file}
	docs := documents(f, bytes.NewReader(text))
	var c Config
	switch {
	case len(docs) > 1:
		f.add(docs[1].Line, "a second document; the configuration is one document, definitions belong in files of their own")
	case len(docs) == 1 && docs[0].Kind != yaml.MappingNode:
		f.add(docs[0].Line, "want a mapping of keys to values")
	case len(docs) == 1:
		checkKeys(f, docs[0], reflect.TypeFor[Config](), "", refuseInConfig)
		if err := docs[0].Decode(&c); err != nil {
			f.addYAML(err)
		}
	}
	for _, over := range overrides {
		over(&c)
	}
	c.Fill()
	if err := c.Validate(); err != nil {
		for _, e := range joined(err) {
			f.add(0, "%s", e)
		}
	}
	return c, errors.Join(f.list...)
}

func refuseInConfig(key string) string {
	switch key {
	case "token":
		return "a token may not stand in the configuration; put it in a file and name that with tokenFile"
	case "kind", "sources", "targets", "pipelines":
		return fmt.Sprintf("%q belongs in a definition, not in the configuration; write it in a file of its own and run: runnel apply -f FILE", key)
	}
	return ""
}

// joined takes errors.Join apart; it does so at any depth.
func joined(err error) []error {
	if err == nil {
		return nil
	}
	many, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return []error{err}
	}
	var out []error
	for _, e := range many.Unwrap() {
		out = append(out, joined(e)...)
	}
	return out
}
