package mysql

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/go-mysql-org/go-mysql/client"
	"github.com/go-mysql-org/go-mysql/mysql"

	"github.com/runnel-dev/runnel/change"
)

const (
	dialTimeout      = 10 * time.Second
	handshakeTimeout = 15 * time.Second
)

// Config says how to reach one MySQL or MariaDB server. Printing it, in any
// format, leaves the password out.
type Config struct {
	// Name is what messages call the server: "source shop", "target lake".
	Name string
	// Addr is host:port, or the path of a Unix socket.
	Addr     string
	User     string
	Password string `json:"-"`
	TLS      TLSConfig
}

// TLSConfig says how the connection is protected. The zero value is plain text.
type TLSConfig struct {
	// Mode is "" or "false" (off), "true" (the certificate must be valid for the
	// host) or "skip-verify" (encrypted, any certificate).
	Mode string
	// CAFile, CertFile and KeyFile are PEM files; "" means the system's
	// authorities and no client certificate.
	CAFile, CertFile, KeyFile string
	// ServerName overrides the host that the certificate must name.
	ServerName string
}

// String names the server without the password.
func (c Config) String() string {
	s := "mysql://" + c.User + "@" + c.Addr + "/"
	if c.TLS.Mode != "" {
		s += "?tls=" + c.TLS.Mode
	}
	return s
}

// GoString is String, so that %#v does not print the password either.
func (c Config) GoString() string { return "mysql.Config(" + c.String() + ")" }

// LogValue implements slog.LogValuer.
func (c Config) LogValue() slog.Value { return slog.StringValue(c.String()) }

// subject is how a Problem names the server.
func (c Config) subject() string {
	if c.Name != "" {
		return c.Name
	}
	return c.Addr
}

// ParseDSN reads mysql://user:password@host:port/?tls=true&ca=…&cert=…&key=…&server-name=….
// The port is 3306 when absent; mysql://user@/?socket=/run/x.sock names a Unix
// socket. No error text holds the password.
func ParseDSN(dsn string) (Config, error) {
	u, err := url.Parse(dsn)
	if err != nil {
		return Config{}, errors.New("parse server address: want mysql://user:password@host:port/, " +
			"with special characters in user and password percent-encoded")
	}
	if u.Scheme != "mysql" && u.Scheme != "mariadb" {
		return Config{}, fmt.Errorf("parse server address of %s: the scheme is %q, want mysql or mariadb", u.Host, u.Scheme)
	}
	c := Config{Addr: u.Host, User: u.User.Username()}
	c.Password, _ = u.User.Password()
	if p := strings.Trim(u.Path, "/"); p != "" {
		return Config{}, fmt.Errorf("parse server address of %s: the path %q is not used, a source or target is a whole server", u.Host, p)
	}
	socket, err := c.setOptions(u.Query())
	switch {
	case err != nil:
		return Config{}, fmt.Errorf("parse server address of %s: %w", u.Host, err)
	case socket != "" && u.Host != "":
		return Config{}, fmt.Errorf("parse server address of %s: host and socket exclude each other", u.Host)
	case socket != "":
		c.Addr = socket
	case u.Hostname() == "":
		return Config{}, errors.New("parse server address: the host is missing, want mysql://user:password@host:port/")
	case u.Port() == "":
		c.Addr = net.JoinHostPort(u.Hostname(), "3306")
	}
	return c, nil
}

// setOptions applies the query part of a DSN and returns the socket path in it.
func (c *Config) setOptions(q url.Values) (socket string, err error) {
	for k, v := range q {
		value := v[len(v)-1]
		switch k {
		case "tls":
			c.TLS.Mode = value
		case "ca":
			c.TLS.CAFile = value
		case "cert":
			c.TLS.CertFile = value
		case "key":
			c.TLS.KeyFile = value
		case "server-name":
			c.TLS.ServerName = value
		case "socket":
			socket = value
		default:
			return "", fmt.Errorf("unknown option %q, want tls, ca, cert, key, server-name or socket", k)
		}
	}
	switch c.TLS.Mode {
	case "", "false", "true", "skip-verify":
	default:
		return "", fmt.Errorf("tls is %q, want true, false or skip-verify", c.TLS.Mode)
	}
	if !c.TLS.on() && (c.TLS.CAFile != "" || c.TLS.CertFile != "" || c.TLS.KeyFile != "" || c.TLS.ServerName != "") {
		return "", errors.New("ca, cert, key and server-name need tls=true")
	}
	return socket, nil
}

func (t TLSConfig) on() bool { return t.Mode == "true" || t.Mode == "skip-verify" }

// build makes the crypto/tls form; nil when TLS is off.
func (t TLSConfig) build(addr string) (*tls.Config, error) {
	if !t.on() {
		return nil, nil
	}
	out := &tls.Config{ServerName: t.ServerName, InsecureSkipVerify: t.Mode == "skip-verify", MinVersion: tls.VersionTLS12}
	if out.ServerName == "" {
		if host, _, err := net.SplitHostPort(addr); err == nil {
			out.ServerName = host
		}
	}
	if t.CAFile != "" {
		pem, err := os.ReadFile(t.CAFile)
		if err != nil {
			return nil, fmt.Errorf("read certificate authorities: %w", err)
		}
		out.RootCAs = x509.NewCertPool()
		if !out.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("read certificate authorities: %s holds no PEM certificate", t.CAFile)
		}
	}
	if t.CertFile != "" || t.KeyFile != "" {
		pair, err := tls.LoadX509KeyPair(t.CertFile, t.KeyFile)
		if err != nil {
			return nil, fmt.Errorf("read client certificate: %w", err)
		}
		out.Certificates = []tls.Certificate{pair}
	}
	return out, nil
}

// connect opens a connection and runs the session statements on it. ctx bounds
// the connecting only: when it ends the socket is closed. Later calls on the
// connection go through guarded. Errors have the class given (SourceWide or
// TargetWide); those that a person can mend are *change.Problem.
func connect(ctx context.Context, cfg Config, class change.Class, session ...string) (*client.Conn, error) {
	c, err := dial(ctx, cfg)
	if err != nil {
		if ctx.Err() != nil {
			return nil, fmt.Errorf("connect to %s: %w", cfg.subject(), ctx.Err())
		}
		return nil, change.WithClass(class, connectProblem(cfg, err))
	}
	err = guarded(ctx, c, func() error {
		for _, sql := range session {
			if _, err := c.Execute(sql); err != nil {
				return fmt.Errorf("set up session with %s: %w", sql, err)
			}
		}
		return nil
	})
	if err != nil {
		c.Close()
		return nil, change.WithClass(class, fmt.Errorf("connect to %s: %w", cfg.subject(), err))
	}
	return c, nil
}

// dial connects and authenticates. A peer that speaks another protocol can upset
// the client library's handshake parser; that becomes an error here.
func dial(ctx context.Context, cfg Config) (c *client.Conn, err error) {
	defer func() {
		if r := recover(); r != nil {
			c, err = nil, fmt.Errorf("read handshake: %v", r)
		}
	}()
	tlsConfig, err := cfg.TLS.build(cfg.Addr)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, handshakeTimeout)
	defer cancel()
	stop := func() bool { return true }
	defer func() { stop() }()
	dialer := func(ctx context.Context, network, addr string) (net.Conn, error) {
		d := net.Dialer{Timeout: dialTimeout, KeepAlive: 15 * time.Second}
		raw, err := d.DialContext(ctx, network, addr)
		if err == nil {
			stop = context.AfterFunc(ctx, func() { raw.Close() })
		}
		return raw, err
	}
	c, err = client.ConnectWithDialer(ctx, "", cfg.Addr, cfg.User, cfg.Password, "", dialer, func(c *client.Conn) error {
		// Query attributes change the shape of COM_QUERY, which session writes itself.
		c.UnsetCapability(mysql.CLIENT_QUERY_ATTRIBUTES)
		// The sink loads rows with LOAD DATA LOCAL. No file is ever read: a server
		// that asks for one is refused, by the library and by session.
		c.SetCapability(mysql.CLIENT_LOCAL_FILES)
		c.SetAttributes(map[string]string{"program_name": "runnel"})
		if tlsConfig != nil {
			c.SetTLSConfig(tlsConfig)
		}
		return c.SetCollation("utf8mb4_general_ci")
	})
	if err == nil && !stop() { // the socket was closed under it
		c.Close()
		return nil, ctx.Err()
	}
	return c, err
}

// guarded runs fn, which uses c, and closes c's socket when ctx ends first; the
// error is then ctx's. A connection whose guarded call failed with ctx's error is
// of no further use.
func guarded(ctx context.Context, c *client.Conn, fn func() error) error {
	raw := c.Conn.Conn // the library's Close also writes fields that fn may be using
	stop := context.AfterFunc(ctx, func() { raw.Close() })
	err := fn()
	switch {
	case stop():
		return err
	case err == nil:
		return context.Cause(ctx)
	}
	return fmt.Errorf("%w (%v)", context.Cause(ctx), err)
}

// serverCode returns the server's error number in err, 0 when there is none.
func serverCode(err error) uint16 {
	var me *mysql.MyError
	if errors.As(err, &me) {
		return me.Code
	}
	return 0
}

// connectProblem names why a server cannot be connected to.
func connectProblem(cfg Config, err error) error {
	p := &change.Problem{Subject: cfg.subject()}
	var dns *net.DNSError
	var op *net.OpError
	var cert *tls.CertificateVerificationError
	switch code := serverCode(err); {
	case code == 1045 || code == 1698:
		p.Code = "access-denied"
		p.Cause = fmt.Sprintf("%s refuses user %q: wrong password, or no such account for this host (%v)", cfg.Addr, cfg.User, shortError(err))
		p.Remedy = "check user and password; the server's view: SELECT user, host FROM mysql.user"
	case code == 1130 || code == 1129:
		p.Code = "host-refused"
		p.Cause = fmt.Sprintf("%s does not accept connections from this host (%v)", cfg.Addr, shortError(err))
		p.Remedy = fmt.Sprintf("create the account '%s'@'%%', or run FLUSH HOSTS when the host is blocked", cfg.User)
	case code != 0:
		return fmt.Errorf("connect to %s at %s: %w", cfg.subject(), cfg.Addr, err)
	case errors.As(err, &dns):
		p.Code = "unknown-host"
		p.Cause = fmt.Sprintf("the host of %s cannot be resolved (%v)", cfg.Addr, dns.Err)
		p.Remedy = "check the host name and the name server"
	case errors.As(err, &cert):
		p.Code = "tls-certificate"
		p.Cause = fmt.Sprintf("the certificate of %s is not accepted (%v)", cfg.Addr, cert.Err)
		p.Remedy = "give the authority with ca=FILE, or the name in the certificate with server-name=NAME"
	case strings.Contains(err.Error(), "does not support TLS"):
		p.Code = "tls-unsupported"
		p.Cause = fmt.Sprintf("%s does not offer TLS", cfg.Addr)
		p.Remedy = "set up ssl_cert and ssl_key on the server, or use tls=false"
	case errors.As(err, &op) && op.Op == "dial", errors.Is(err, context.DeadlineExceeded):
		p.Code = "unreachable"
		p.Cause = fmt.Sprintf("%s does not answer (%v)", cfg.Addr, shortError(err))
		p.Remedy = "check that the server runs, its bind_address and port, and firewalls between"
	default:
		return fmt.Errorf("connect to %s at %s: %w", cfg.subject(), cfg.Addr, err)
	}
	return p
}

// shortError gives the innermost message, without the client library's chain.
func shortError(err error) error {
	var me *mysql.MyError
	if errors.As(err, &me) {
		return me
	}
	var op *net.OpError
	if errors.As(err, &op) {
		return op.Err
	}
	return err
}
