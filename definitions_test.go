package runnel

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/runnel-dev/runnel/change"
)

func TestLoadDefinitionsReadsAFolder(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "10-servers.yaml", `
kind: source
name: shop
type: mysql
address: db1:3306
user: runnel
passwordFile: /run/secrets/shop
tls: {mode: verify, caFile: /etc/ca.pem}
copyReaders: 4
labels: {team: orders}
---
kind: target
name: lake
type: mysql
address: db2:3306
user: runnel
passwordEnv: LAKE_PASSWORD
connections: 3
---
`)
	write(t, dir, "sub/pipeline.yml", `
kind: pipeline
name: all
source: shop
target: lake
tables: {include: [shop.*], exclude: [shop.tmp_*]}
route: {schema: copy_of_schema}
`)
	write(t, dir, ".hidden/x.yaml", "kind: nonsense")
	write(t, dir, "README.md", "no definitions")
	d, err := LoadDefinitions(dir)
	if err != nil {
		t.Fatalf("load: %v", err)
	}
	if len(d.Sources) != 1 || len(d.Targets) != 1 || len(d.Pipelines) != 1 {
		t.Fatalf("got %d sources, %d targets, %d pipelines, want one of each", len(d.Sources), len(d.Targets), len(d.Pipelines))
	}
	s := d.Sources[0]
	if s.Name != "shop" || s.TLS.CAFile != "/etc/ca.pem" || s.CopyReaders != 4 || s.Labels["team"] != "orders" {
		t.Errorf("source: got %+v", s)
	}
	p := d.Pipelines[0]
	if !p.Matches(change.TableID{Schema: "shop", Name: "orders"}) || p.Matches(change.TableID{Schema: "shop", Name: "tmp_1"}) {
		t.Errorf("pipeline patterns: got %+v", p.Tables)
	}
	if err := d.Validate(func(string, string) bool { return false }); err != nil {
		t.Errorf("validate references: %v", err)
	}
}

func TestDefinitionFaultsNameFileAndLine(t *testing.T) {
	const text = `kind: source
name: shop
type: mysql
adress: db1:3306
user: runnel
---
kind: target
name: Lake
type: oracle
address: db2
---
kind: pipeline
name: all
source: shop
tables:
  includes: [shop.*]
chunkRows: many
---
kind: sources
---
name: x
---
- a list
`
	var d Definitions
	got := errorText(ReadDefinitions(&d, "d.yaml", strings.NewReader(text)))
	for _, want := range []string{
		`d.yaml:4: unknown key "adress"; did you mean "address"?`,
		`d.yaml:7: target name "Lake": want 1 to 63`,
		`d.yaml:7: target Lake: type "oracle" is not known`,
		`d.yaml:7: target Lake: address "db2": want host:port`,
		`d.yaml:7: target Lake: user is missing`,
		`d.yaml:16: unknown key "tables.includes"; did you mean "include"?`,
		`d.yaml:17: want a number, found text "many"`,
		`d.yaml:19: kind "sources" is not known; did you mean source?`,
		`d.yaml:21: kind is missing`,
		`d.yaml:23: want a mapping with a kind`,
	} {
		if !strings.Contains(got, want) {
			t.Errorf("faults lack %q; got:\n%s", want, got)
		}
	}
}

func TestDefinitionsRefuseSecretsWithoutRepeatingThem(t *testing.T) {
	for text, want := range map[string]string{
		"password: hunter2":                         "d.yaml:6: password: a password may not stand here; write it to a file and name that with passwordFile",
		"Password: hunter2":                         "passwordEnv",
		"dsn: mysql://u:hunter2@h:1/":               `unknown key "dsn"; use address`,
		"address: runnel:hunter2@db1:3306":          "d.yaml:6: address: want host:port only",
		"address: mysql://runnel:hunter2@db1:3306/": "address: want host:port only",
		"<<: {password: hunter2}":                   "merge keys",
		"passwordFile: /a\npasswordEnv: B":          "keep one",
	} {
		var d Definitions
		err := ReadDefinitions(&d, "d.yaml", strings.NewReader("kind: source\nname: shop\ntype: mysql\nuser: u\ncopyReaders: 1\n"+text+"\n"))
		got := errorText(err)
		if !strings.Contains(got, want) {
			t.Errorf("%q: got %q, want %q in it", text, got, want)
		}
		if strings.Contains(got, "hunter2") {
			t.Errorf("%q: the password is repeated: %s", text, got)
		}
	}
}

func TestPathsAreTakenFromTheFolderOfTheFile(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "sub/s.yaml", "kind: source\nname: a\ntype: mysql\naddress: h:1\nuser: u\npasswordFile: ../p\ntls: {mode: verify, caFile: ca.pem, keyFile: /k}\n")
	d, err := LoadDefinitions(dir)
	if err != nil {
		t.Fatal(err)
	}
	s := d.Sources[0]
	if got, want := s.PasswordFile, filepath.Join(dir, "p"); got != want {
		t.Errorf("passwordFile: got %s, want %s", got, want)
	}
	if got, want := s.TLS.CAFile, filepath.Join(dir, "sub", "ca.pem"); got != want || s.TLS.KeyFile != "/k" || s.TLS.CertFile != "" {
		t.Errorf("tls: got %+v, want caFile %s", s.TLS, want)
	}
}

func TestExamplesAreValid(t *testing.T) {
	d, err := LoadDefinitions("examples/shop")
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Validate(func(string, string) bool { return false }); err != nil {
		t.Errorf("examples/shop: %v", err)
	}
	c, err := LoadConfig("examples/runnel.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var defaults Config
	defaults.Fill()
	if c != defaults {
		t.Errorf("examples/runnel.yaml: got %+v, want the defaults %+v", c, defaults)
	}
}

func TestLoadDefinitionsWithoutFiles(t *testing.T) {
	dir := t.TempDir()
	if _, err := LoadDefinitions(dir); err == nil || !strings.Contains(err.Error(), "holds no .yaml or .yml file") {
		t.Errorf("empty folder: got %v", err)
	}
	if _, err := LoadDefinitions(filepath.Join(dir, "absent")); err == nil {
		t.Error("missing path: got no error")
	}
	big := filepath.Join(dir, "big.yaml")
	write(t, dir, "big.yaml", "# "+strings.Repeat("x", maxDefinitionBytes))
	if _, err := LoadDefinitions(big); err == nil || !strings.Contains(err.Error(), "larger than 8MiB") {
		t.Errorf("large file: got %v", err)
	}
}

func FuzzReadDefinitions(f *testing.F) {
	f.Add("kind: source\nname: a")
	f.Add("a: &a {<<: *a}")
	f.Add("kind: pipeline\ntables: &t {include: *t}")
	f.Fuzz(func(t *testing.T, text string) {
		var d Definitions
		if err := ReadDefinitions(&d, "f", strings.NewReader(text)); err == nil {
			for _, s := range d.Sources {
				if err := s.Validate("source"); err != nil {
					t.Errorf("accepted, yet invalid: %v", err)
				}
			}
		}
	})
}

func write(t *testing.T, dir, name, text string) {
	t.Helper()
	file := filepath.Join(dir, name)
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
