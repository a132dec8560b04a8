package runnel

import (
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"strings"

	"github.com/runnel-dev/runnel/change"
	"github.com/runnel-dev/runnel/connector/mysql"
	"github.com/runnel-dev/runnel/internal/tablesync"
)

// mysqlConfig turns a declared server into what the connector needs, with its
// password. kind is source or target. Errors are *change.Problem and never hold
// the password.
func mysqlConfig(kind string, s *tablesync.ServerSpec) (mysql.Config, error) {
	subject := kind + " " + s.Name
	password, err := passwordOf(subject, s)
	if err != nil {
		return mysql.Config{}, err
	}
	c := mysql.Config{Name: subject, Addr: s.Address, User: s.User, Password: password}
	c.TLS = mysql.TLSConfig{CAFile: s.TLS.CAFile, CertFile: s.TLS.CertFile, KeyFile: s.TLS.KeyFile}
	if mode, ok := tlsMode(s.TLS.Mode); ok && mode != "" {
		c.TLS.Mode = addressTLS[mode]
	}
	return c, nil
}

// addressTLS is how an address spells the modes of a definition. Both spellings
// are taken in both places.
var addressTLS = map[string]string{"disabled": "false", "required": "skip-verify", "verify": "true"}

// tlsMode is a mode as definitions spell it.
func tlsMode(word string) (mode string, ok bool) {
	if word == "" {
		return "", true
	}
	for mode, other := range addressTLS {
		if word == mode || word == other {
			return mode, true
		}
	}
	return word, false
}

// parseAddress reads mysql://user@host:port/?tls=…. No error holds the password.
func parseAddress(address string) (mysql.Config, error) {
	u, err := url.Parse(address)
	if err != nil {
		return mysql.ParseDSN(address) // which knows how to say it
	}
	q := u.Query()
	if words := q["tls"]; len(words) > 0 {
		word := words[len(words)-1]
		mode, ok := tlsMode(word)
		if !ok {
			return mysql.Config{}, fmt.Errorf("parse server address of %s: tls is %q, want disabled, required or verify", u.Host, word)
		}
		q.Set("tls", addressTLS[mode])
		u.RawQuery = q.Encode()
	}
	return mysql.ParseDSN(u.String())
}

// passwordOf reads the password where the specification says it is.
func passwordOf(subject string, s *tablesync.ServerSpec) (string, error) {
	switch {
	case s.PasswordFile != "":
		b, err := os.ReadFile(s.PasswordFile)
		if err != nil {
			why := err
			var pe *fs.PathError
			if errors.As(err, &pe) {
				why = pe.Err
			}
			return "", &change.Problem{
				Code: "password-file", Subject: subject,
				Cause:  fmt.Sprintf("the password file %s cannot be read (%v)", s.PasswordFile, why),
				Remedy: "write the password to it, readable by the user that runs Runnel, or correct passwordFile",
			}
		}
		password := strings.TrimRight(string(b), "\r\n")
		if password == "" {
			return "", &change.Problem{
				Code: "password-file", Subject: subject, Cause: "the password file " + s.PasswordFile + " is empty",
				Remedy: "write the password to it; for an account without a password leave passwordFile out",
			}
		}
		return password, nil
	case s.PasswordEnv != "":
		v, ok := os.LookupEnv(s.PasswordEnv)
		if !ok {
			return "", &change.Problem{
				Code: "password-env", Subject: subject,
				Cause:  fmt.Sprintf("the environment variable %s is not set in this process", s.PasswordEnv),
				Remedy: "set it before the process starts, or use passwordFile",
			}
		}
		if v == "" {
			return "", &change.Problem{
				Code: "password-env", Subject: subject, Cause: "the environment variable " + s.PasswordEnv + " is empty in this process",
				Remedy: "set it to the password before the process starts; for an account without a password leave passwordEnv out",
			}
		}
		return v, nil
	}
	return "", nil
}
