package runnel

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestConfigDefaultsAreValidAndRoundTrip(t *testing.T) {
	c, err := ParseConfig("runnel.yaml", nil)
	if err != nil {
		t.Fatalf("parse empty configuration: %v", err)
	}
	if got, want := c.Listen, "127.0.0.1:7717"; got != want {
		t.Errorf("listen: got %s, want %s", got, want)
	}
	c.Budgets.CaptureBytes = 3<<20 + 1
	c.Log.Level = "debug"
	back, err := ParseConfig("printed", []byte(c.String()))
	if err != nil {
		t.Fatalf("parse what String wrote: %v\n%s", err, c)
	}
	if back != c {
		t.Errorf("read back: got %+v, want %+v", back, c)
	}
}

func TestConfigFaultsAreReportedAllAtOnce(t *testing.T) {
	text := `
datadir: x
listen: 0.0.0.0:7717
log: {level: loud, format: xml, colour: red}
budgets:
  captureBytes: 2MB
frobnicate: 1
`
	_, err := ParseConfig("runnel.yaml", []byte(text))
	got := errorText(err)
	for _, want := range []string{
		`runnel.yaml:2: unknown key "datadir"; did you mean "dataDir"?`,
		`runnel.yaml:4: unknown key "log.colour"; known here: format, level`,
		`runnel.yaml:7: unknown key "frobnicate"; known here: budgets, dataDir, listen, log, tokenFile`,
		`runnel.yaml:6: size "2MB": want a whole number`,
		`listen 0.0.0.0:7717 can be reached from other machines; set tokenFile`,
		`log.level "loud": want debug, info, warn or error`,
		`log.format "xml": want text or json`,
	} {
		if !strings.Contains(got, want) {
			t.Errorf("faults lack %q; got:\n%s", want, got)
		}
	}
}

func TestConfigBudget(t *testing.T) {
	for text, want := range map[string]string{"1KiB": "want 1MiB to 64GiB", "65GiB": "want 1MiB to 64GiB", "1MiB": "", "104857600": ""} {
		_, err := ParseConfig("x", []byte("budgets: {captureBytes: "+text+"}"))
		if got := errorText(err); !strings.Contains(got, want) || (want == "") != (got == "") {
			t.Errorf("%s: got %q, want %q", text, got, want)
		}
	}
}

func TestConfigListen(t *testing.T) {
	for _, tc := range []struct {
		listen, token string
		ok            bool
	}{
		{"127.0.0.1:0", "", true},
		{"localhost:80", "", true},
		{"[::1]:7717", "", true},
		{"[::ffff:127.0.0.1]:7717", "", true},
		{":7717", "", false},
		{":7717", "t", true},
		{"0.0.0.0:7717", "", false},
		{"10.0.0.1:7717", "", false},
		{"db.example:7717", "", false},
		{"db.example:7717", "t", true},
		{"127.0.0.1", "", false},
		{"127.0.0.1:http", "", false},
		{"127.0.0.1:70000", "", false},
	} {
		c := Config{Listen: tc.listen, TokenFile: tc.token}
		c.Fill()
		if err := c.Validate(); (err == nil) != tc.ok {
			t.Errorf("listen %q, token file %q: got %v, want ok %v", tc.listen, tc.token, err, tc.ok)
		}
	}
}

func TestConfigRefusesWhatBelongsElsewhere(t *testing.T) {
	for text, want := range map[string]string{
		"token: abc":           "put it in a file and name that with tokenFile",
		"kind: source":         "runnel apply -f FILE",
		"- a":                  "x:1: want a mapping of keys to values",
		"listen: a\n---\nb:":   "x:3: a second document",
		"listen: [1]":          "x:1: want text, found a list",
		"listen: {":            "x:1: ",
		"listen: a\nlisten: b": "already defined",
	} {
		_, err := ParseConfig("x", []byte(text))
		if got := errorText(err); !strings.Contains(got, want) {
			t.Errorf("%q: got %q, want %q in it", text, got, want)
		}
	}
}

func TestLoadConfigNamesTheFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "no.yaml")
	if _, err := LoadConfig(file); err == nil || !strings.Contains(err.Error(), file) {
		t.Errorf("missing file: got %v, want its name", err)
	}
	if err := os.WriteFile(file, []byte("listen: 127.0.0.1:1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := LoadConfig(file)
	if err != nil || c.Listen != "127.0.0.1:1" {
		t.Errorf("got %v, %v", c.Listen, err)
	}
}

func TestBytes(t *testing.T) {
	for s, want := range map[string]Bytes{"0": 0, "17": 17, "1KiB": 1024, "64 MiB": 64 << 20, "3GiB": 3 << 30} {
		if got, err := ParseBytes(s); err != nil || got != want {
			t.Errorf("%q: got %d, %v, want %d", s, got, err, want)
		}
	}
	for _, s := range []string{"", "MiB", "-1", "1.5GiB", "9223372036854775807GiB", "1 TB"} {
		if got, err := ParseBytes(s); err == nil {
			t.Errorf("%q: got %d, want an error", s, got)
		}
	}
	for b, want := range map[Bytes]string{0: "0", 1000: "1000", 1 << 20: "1MiB", 1<<20 + 1024: "1025KiB"} {
		if got := b.String(); got != want {
			t.Errorf("%d: got %s, want %s", int64(b), got, want)
		}
	}
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
