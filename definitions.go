package runnel

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/runnel-dev/runnel/internal/tablesync"
)

// Definitions are sources, targets and pipelines as declared in YAML.
type Definitions = tablesync.Definitions

// maxDefinitionBytes bounds one definitions file.
const maxDefinitionBytes = 8 << 20

// serverDoc, pipelineDoc: one document of a definitions file.
type (
	serverDoc struct {
		Kind                 string `yaml:"kind"`
		tablesync.ServerSpec `yaml:",inline"`
	}
	pipelineDoc struct {
		Kind                   string `yaml:"kind"`
		tablesync.PipelineSpec `yaml:",inline"`
	}
)

// LoadDefinitions reads a YAML file, or every .yaml and .yml file of a folder and
// the folders in it, in the order of their names. Each document has a kind:
// source, target or pipeline. Every document is validated by itself; references
// between them are not, since what they name may exist already. Errors name file
// and line, all faults at once.
func LoadDefinitions(path string) (Definitions, error) {
	files, err := definitionFiles(path)
	if err != nil {
		return Definitions{}, err
	}
	var d Definitions
	var errs []error
	for _, file := range files {
		errs = append(errs, loadFile(&d, file))
	}
	return d, errors.Join(errs...)
}

func loadFile(d *Definitions, file string) error {
	r, err := os.Open(file)
	if err != nil {
		return fmt.Errorf("read definitions: %w", err)
	}
	defer r.Close()
	return ReadDefinitions(d, file, r)
}

func definitionFiles(path string) ([]string, error) {
	fi, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("read definitions: %w", err)
	}
	if !fi.IsDir() {
		return []string{path}, nil
	}
	var files []string
	err = filepath.WalkDir(path, func(p string, e fs.DirEntry, err error) error {
		hidden := p != path && strings.HasPrefix(e.Name(), ".")
		switch {
		case err != nil:
			return err
		case e.IsDir() && hidden:
			return fs.SkipDir
		case !e.IsDir() && !hidden && slices.Contains([]string{".yaml", ".yml"}, filepath.Ext(p)):
			files = append(files, p)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read definitions: %w", err)
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("read definitions: folder %s holds no .yaml or .yml file", path)
	}
	return files, nil
}

// ReadDefinitions adds the documents of one YAML stream to d; file names it in
// errors. Paths in the documents are taken from the file's folder.
func ReadDefinitions(d *Definitions, file string, r io.Reader) error {
	f := &faults{file: file}
	limited := &io.LimitedReader{R: r, N: maxDefinitionBytes + 1}
	docs := documents(f, limited)
	if limited.N == 0 {
		f.list = nil
		f.add(0, "larger than %s; split it", Bytes(maxDefinitionBytes))
		return errors.Join(f.list...)
	}
	for _, n := range docs {
		readDocument(d, f, n)
	}
	return errors.Join(f.list...)
}

func readDocument(d *Definitions, f *faults, n *yaml.Node) {
	if n.Kind != yaml.MappingNode {
		f.add(n.Line, "want a mapping with a kind: source, target or pipeline")
		return
	}
	kind, line := kindOf(n)
	before := len(f.list)
	switch kind {
	case tablesync.KindSource, tablesync.KindTarget:
		var doc serverDoc
		decodeStrict(f, n, &doc, refuseSecrets)
		hideSecrets(f, n, &doc.ServerSpec)
		resolvePaths(f, n.Line, &doc.ServerSpec)
		if mode, ok := tlsMode(doc.TLS.Mode); ok {
			doc.TLS.Mode = mode
		}
		if len(f.list) == before {
			validate(f, n.Line, doc.Validate(kind))
		}
		if kind == tablesync.KindSource {
			d.Sources = append(d.Sources, doc.ServerSpec)
		} else {
			d.Targets = append(d.Targets, doc.ServerSpec)
		}
	case tablesync.KindPipeline:
		var doc pipelineDoc
		decodeStrict(f, n, &doc, nil)
		if len(f.list) == before {
			validate(f, n.Line, doc.Validate())
		}
		d.Pipelines = append(d.Pipelines, doc.PipelineSpec)
	case "":
		f.add(n.Line, "kind is missing; want source, target or pipeline (the server's own configuration goes to: runnel server --config)")
	default:
		text := "want source, target or pipeline"
		if near := nearest(kind, []string{tablesync.KindSource, tablesync.KindTarget, tablesync.KindPipeline}); near != "" {
			text = fmt.Sprintf("did you mean %s?", near)
		}
		f.add(line, "kind %q is not known; %s", kind, text)
	}
}

func kindOf(n *yaml.Node) (kind string, line int) {
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == "kind" {
			return n.Content[i+1].Value, n.Content[i+1].Line
		}
	}
	return "", n.Line
}

func decodeStrict(f *faults, n *yaml.Node, into any, refuse func(string) string) {
	checkKeys(f, n, reflect.TypeOf(into), "", refuse)
	if err := n.Decode(into); err != nil {
		f.addYAML(err)
	}
}

func validate(f *faults, line int, err error) {
	for _, e := range joined(err) {
		f.add(line, "%s", e)
	}
}

// refuseSecrets keeps passwords out of files that are shared and stored.
func refuseSecrets(key string) string {
	switch strings.ToLower(key) {
	case "password", "passwd", "pass", "pwd", "secret":
		return fmt.Sprintf("%s: a password may not stand here; write it to a file and name that with passwordFile, or name an environment variable of the server with passwordEnv", key)
	case "dsn", "url":
		return fmt.Sprintf("unknown key %q; use address (host:port), user, and passwordFile or passwordEnv", key)
	}
	return ""
}

// hideSecrets refuses a password inside the address, and takes it out so that no
// later message repeats it.
func hideSecrets(f *faults, n *yaml.Node, s *tablesync.ServerSpec) {
	i := strings.LastIndexByte(s.Address, '@')
	if i < 0 {
		return
	}
	s.Address = s.Address[i+1:]
	line := n.Line
	for k := 0; k+1 < len(n.Content); k += 2 {
		if n.Content[k].Value == "address" {
			line = n.Content[k].Line
		}
	}
	f.add(line, "address: want host:port only; give the account with user, and its password with passwordFile or passwordEnv")
}

// resolvePaths makes the paths of a document absolute: the process that reads
// those files stands in another directory than the file that names them.
func resolvePaths(f *faults, line int, s *tablesync.ServerSpec) {
	for _, p := range []*string{&s.PasswordFile, &s.TLS.CAFile, &s.TLS.CertFile, &s.TLS.KeyFile} {
		if *p == "" || filepath.IsAbs(*p) {
			continue
		}
		abs, err := filepath.Abs(filepath.Join(filepath.Dir(f.file), *p))
		if err != nil {
			f.add(line, "path %s: %v", *p, err)
			continue
		}
		*p = abs
	}
}
