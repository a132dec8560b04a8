package runnel

import (
	"strings"
	"testing"

	"github.com/runnel-dev/runnel/internal/tablesync"
)

// TestTLSWordsAreTheSameEverywhere: an address and a definition take both
// spellings and mean the same by them.
func TestTLSWordsAreTheSameEverywhere(t *testing.T) {
	for word, want := range map[string]struct{ mode, connector string }{
		"disabled": {"disabled", "false"}, "false": {"disabled", "false"},
		"required": {"required", "skip-verify"}, "skip-verify": {"required", "skip-verify"},
		"verify": {"verify", "true"}, "true": {"verify", "true"},
	} {
		cfg, err := parseAddress("mysql://u:p%40ss@h:1/?tls=" + word)
		if err != nil || cfg.TLS.Mode != want.connector || cfg.Password != "p@ss" || cfg.Addr != "h:1" {
			t.Errorf("address with tls=%s: got mode %q, password kept %v, %v, want %s", word, cfg.TLS.Mode, cfg.Password == "p@ss", err, want.connector)
		}
		var d Definitions
		err = ReadDefinitions(&d, "d.yaml", strings.NewReader("{kind: source, name: s, type: mysql, address: 'h:1', user: u, tls: {mode: "+word+"}}"))
		if err != nil {
			t.Errorf("tls.mode %s: %v", word, err)
			continue
		}
		if got := d.Sources[0].TLS.Mode; got != want.mode {
			t.Errorf("tls.mode %s: got %s, want %s", word, got, want.mode)
		}
		cfg, err = mysqlConfig(tablesync.KindSource, &d.Sources[0])
		if err != nil || cfg.TLS.Mode != want.connector {
			t.Errorf("tls.mode %s: got %q, %v for the connector, want %s", word, cfg.TLS.Mode, err, want.connector)
		}
	}
	if _, err := parseAddress("mysql://u:hunter2@h:1/?tls=maybe"); err == nil || !strings.Contains(err.Error(), "want disabled, required or verify") || strings.Contains(err.Error(), "hunter2") {
		t.Errorf("got %v, want the words and no password", err)
	}
	var d Definitions
	err := ReadDefinitions(&d, "d.yaml", strings.NewReader("{kind: source, name: s, type: mysql, address: 'h:1', user: u, tls: {mode: maybe}}"))
	if err == nil || !strings.Contains(err.Error(), "want disabled, required or verify") {
		t.Errorf("got %v, want the words", err)
	}
	if cfg, err := parseAddress("mysql://u@h/"); err != nil || cfg.TLS.Mode != "" || cfg.Addr != "h:3306" {
		t.Errorf("without options: got %+v, %v", cfg, err)
	}
}
