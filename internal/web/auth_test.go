package web

import (
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const goodToken = "0123456789abcdef-token"

func TestTokensAreAskedFor(t *testing.T) {
	tokens, err := ParseTokens(strings.NewReader("# ours\n\n" + goodToken + "\nsha256:" + fmt.Sprintf("%x", sha256.Sum256([]byte("another"))) + "\n"))
	if err != nil {
		t.Fatal(err)
	}
	s := newTestServer(t, Config{Tokens: tokens})
	for _, path := range []string{"/api/v1/tasks", "/api/v1/openapi.json", "/metrics", "/", "/nowhere"} {
		for _, auth := range []string{"", "Bearer", "Bearer wrong", "Bearer " + goodToken + "x", "Token " + goodToken, "Basic eDp5"} {
			w := call(s, "GET", path, "", "Authorization", auth)
			wantProblem(t, w, 401, "unauthorized")
			scheme := "Bearer"
			if path == "/" {
				scheme = "Basic"
			}
			if got := w.Header().Get("WWW-Authenticate"); !strings.HasPrefix(got, scheme) {
				t.Errorf("%s: got challenge %q, want %s", path, got, scheme)
			}
		}
	}
	for _, auth := range []string{"Bearer " + goodToken, "bearer " + goodToken, "Bearer another"} {
		if w := call(s, "GET", "/api/v1/tasks", "", "Authorization", auth, "Host", "runnel.example"); w.Code != 200 {
			t.Errorf("%s: got %d", auth, w.Code)
		}
	}
	// admin:TOKEN, as a browser sends it
	if w := call(s, "GET", "/", "", "Authorization", "Basic YWRtaW46MDEyMzQ1Njc4OWFiY2RlZi10b2tlbg=="); w.Code != 200 {
		t.Errorf("basic: got %d", w.Code)
	}
	for _, path := range []string{"/healthz", "/readyz"} {
		if w := call(s, "GET", path, ""); w.Code != 200 {
			t.Errorf("%s without a token: got %d", path, w.Code)
		}
	}
}

func TestWithoutTokensOnlyLocalNamesAreServed(t *testing.T) {
	s := newTestServer(t, Config{})
	for host, want := range map[string]int{
		"127.0.0.1:7717": 200, "localhost:7717": 200, "localhost": 200, "[::1]:7717": 200, "127.8.8.8": 200,
		"evil.example": 403, "evil.example:7717": 403, "10.0.0.1:7717": 403, "": 403, "localhost.evil.example": 403,
	} {
		if got := call(s, "GET", "/api/v1/version", "", "Host", host).Code; got != want {
			t.Errorf("host %q: got %d, want %d", host, got, want)
		}
	}
	wantProblem(t, call(s, "GET", "/", "", "Host", "evil.example"), 403, "foreign-host")
}

func TestOtherWebSitesCannotCommand(t *testing.T) {
	f := newFake()
	s := newTestServer(t, Config{Control: f})
	w := call(s, "POST", "/api/v1/tasks/task/shop:0/0000/pause", "", "Sec-Fetch-Site", "cross-site", "Origin", "https://evil.example")
	wantProblem(t, w, 403, "cross-origin")
	if f.tasks[0].State == "paused" {
		t.Error("the command was carried out")
	}
	if w := call(s, "POST", "/api/v1/tasks/task/shop:0/0000/pause", "", "Sec-Fetch-Site", "same-origin"); w.Code != 200 {
		t.Errorf("same origin: got %d", w.Code)
	}
}

func TestTokenFaultsDoNotRepeatTheToken(t *testing.T) {
	for text, want := range map[string]string{
		"":                 "it holds no token",
		"# only this":      "it holds no token",
		"hunter2":          "line 1: the token is shorter than 16 characters",
		"\nsha256:hunter2": "line 2: want sha256: and 64 hex digits",
		"sha256:" + "00ff": "line 1: want sha256",
	} {
		file := filepath.Join(t.TempDir(), "tokens")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := LoadTokens(file)
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), file) {
			t.Errorf("%q: got %v, want %q and the file", text, err, want)
		}
		if err != nil && strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%q: the token is repeated: %v", text, err)
		}
	}
	if _, err := LoadTokens(filepath.Join(t.TempDir(), "none")); err == nil {
		t.Error("missing file: got no error")
	}
}

func FuzzParseTokens(f *testing.F) {
	f.Add("sha256:00\n#\nabc")
	f.Fuzz(func(t *testing.T, text string) {
		tokens, err := ParseTokens(strings.NewReader(text))
		if err == nil && !tokens.Required() {
			t.Error("accepted a file without a token")
		}
		if err == nil && tokens.Accepts("") {
			t.Error("the empty token is accepted")
		}
	})
}
