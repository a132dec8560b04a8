package web

import (
	"bufio"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strings"
)

// Tokens are the accepted access tokens, kept as SHA-256 hashes. Empty: nobody is
// asked for one.
type Tokens struct{ hashes [][sha256.Size]byte }

// minTokenBytes keeps tokens from being guessed.
const minTokenBytes = 16

// LoadTokens reads a token file; see ParseTokens.
func LoadTokens(path string) (Tokens, error) {
	f, err := os.Open(path)
	if err != nil {
		return Tokens{}, fmt.Errorf("read token file: %w", err)
	}
	defer f.Close()
	t, err := ParseTokens(f)
	if err != nil {
		return Tokens{}, fmt.Errorf("read token file %s: %w", path, err)
	}
	return t, nil
}

// ParseTokens reads one token per line, as it is or as sha256:HEX; lines that are
// empty or start with # are left out. No error repeats a token.
func ParseTokens(r io.Reader) (Tokens, error) {
	var t Tokens
	sc := bufio.NewScanner(io.LimitReader(r, 1<<20))
	for n := 1; sc.Scan(); n++ {
		line := strings.TrimSpace(sc.Text())
		if line == "" || line[0] == '#' {
			continue
		}
		hash := sha256.Sum256([]byte(line))
		if text, ok := strings.CutPrefix(line, "sha256:"); ok {
			b, err := hex.DecodeString(text)
			if err != nil || len(b) != sha256.Size {
				return Tokens{}, fmt.Errorf("line %d: want sha256: and 64 hex digits", n)
			}
			copy(hash[:], b)
		} else if len(line) < minTokenBytes {
			return Tokens{}, fmt.Errorf("line %d: the token is shorter than %d characters; make one with: openssl rand -hex 24", n, minTokenBytes)
		}
		t.hashes = append(t.hashes, hash)
	}
	if err := sc.Err(); err != nil {
		return Tokens{}, err
	}
	if len(t.hashes) == 0 {
		return Tokens{}, errors.New("it holds no token; make one with: openssl rand -hex 24")
	}
	return t, nil
}

// Required says whether a token is asked for.
func (t Tokens) Required() bool { return len(t.hashes) > 0 }

// Accepts compares in constant time.
func (t Tokens) Accepts(token string) bool {
	hash := sha256.Sum256([]byte(token))
	ok := 0
	for i := range t.hashes {
		ok |= subtle.ConstantTimeCompare(hash[:], t.hashes[i][:])
	}
	return ok == 1
}

// guard lets a request pass that may: with a token where one is required, from
// this machine's own names where none is, and never from another web site.
func (s *Server) guard(next http.Handler, browser bool) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if p := s.refuse(w, r, browser); p != nil {
			s.fail(w, r, p)
			return
		}
		next.ServeHTTP(w, r)
	})
}

func (s *Server) refuse(w http.ResponseWriter, r *http.Request, browser bool) error {
	if err := s.origin.Check(r); err != nil {
		return problem(http.StatusForbidden, "cross-origin", "the request comes from another web site: "+err.Error(), "send it from a program, or from this server's own pages")
	}
	if !s.cfg.Tokens.Required() {
		if !localName(r.Host) {
			return problem(http.StatusForbidden, "foreign-host",
				fmt.Sprintf("the request is for host %q, and without an access token only localhost is served", r.Host),
				"use http://localhost with the port, or set tokenFile")
		}
		return nil
	}
	if s.cfg.Tokens.Accepts(bearer(r)) {
		return nil
	}
	w.Header().Set("WWW-Authenticate", `Bearer realm="runnel"`)
	if browser {
		w.Header().Set("WWW-Authenticate", `Basic realm="runnel: any user, the access token as password"`)
	}
	return problem(http.StatusUnauthorized, "unauthorized", "the access token is missing or not accepted", "send it as Authorization: Bearer TOKEN; on the command line: --token-file FILE")
}

// bearer returns the token of a request: of the bearer scheme, or the password of
// the basic scheme, which is what browsers can ask for.
func bearer(r *http.Request) string {
	if _, pass, ok := r.BasicAuth(); ok {
		return pass
	}
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if strings.EqualFold(scheme, "bearer") {
		return strings.TrimSpace(token)
	}
	return ""
}

// localName tells names of this machine from names that a stranger's name server
// could point at it.
func localName(host string) bool {
	name := host
	if h, _, err := net.SplitHostPort(host); err == nil {
		name = h
	}
	name = strings.Trim(name, "[]")
	if name == "localhost" {
		return true
	}
	ip, err := netip.ParseAddr(name)
	return err == nil && ip.Unmap().IsLoopback()
}
