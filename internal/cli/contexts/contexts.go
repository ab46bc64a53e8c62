// Package contexts stores the servers that a user's commands talk to, each under a name, in
// the file config.yaml of the user's configuration directory.
package contexts

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"go.yaml.in/yaml/v3"

	"github.com/wheelworkhq/wheelwork/internal/cli/command"
	"github.com/wheelworkhq/wheelwork/internal/credential"
	"github.com/wheelworkhq/wheelwork/internal/datadir"
	"github.com/wheelworkhq/wheelwork/internal/spelling"
	"github.com/wheelworkhq/wheelwork/job/naming"
)

// maxFile bounds the bytes of the file.
const maxFile = 1 << 20

// Context is one server with what a caller needs there. "" leaves a setting to its default.
type Context struct {
	URL       string `yaml:"url,omitempty"`
	TokenFile string `yaml:"token-file,omitempty"`
	CACert    string `yaml:"ca-cert,omitempty"`
	App       string `yaml:"app,omitempty"`
	Overlay   string `yaml:"overlay,omitempty"` // the file with what differs in this environment on purpose
}

// Check refuses a context that no command could use.
func (c Context) Check() error {
	for address := range strings.SplitSeq(c.URL, ",") {
		if u, err := url.Parse(address); c.URL != "" && (err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https") {
			return fmt.Errorf("url %q is not the address of a server: want http://HOST:PORT or https://HOST:PORT", address)
		}
	}
	if c.App != "" {
		return naming.Check("app", c.App)
	}
	return nil
}

// Absolute returns the context with absolute paths: the command that uses it later may have
// another working directory.
func (c Context) Absolute() (Context, error) {
	for _, path := range []*string{&c.TokenFile, &c.CACert, &c.Overlay} {
		if *path == "" {
			continue
		}
		whole, err := filepath.Abs(*path)
		if err != nil {
			return Context{}, err
		}
		*path = whole
	}
	return c, nil
}

// Problems returns why the files of a context cannot be used now. They may be written later.
func (c Context) Problems() []string {
	var problems []string
	if c.TokenFile != "" {
		if _, err := credential.ReadPrivate(c.TokenFile); err != nil {
			problems = append(problems, "the token cannot be read yet: "+err.Error())
		}
	}
	if c.CACert != "" {
		if _, err := os.Stat(c.CACert); err != nil {
			problems = append(problems, "the authority of the certificate cannot be read yet: "+err.Error())
		}
	}
	return problems
}

// File is the file with the contexts of a user.
type File struct {
	// Current is the context of commands that name none; "": there is none.
	Current  string
	Contexts map[string]Context
	path     string
}

// content is the form of the file.
type content struct {
	Current  string             `yaml:"current-context,omitempty"`
	Contexts map[string]Context `yaml:"contexts,omitempty"`
}

// ErrNowhere is the error of an environment that names no directory for the file.
var ErrNowhere = errors.New("there is no directory for contexts: set HOME or XDG_CONFIG_HOME to an absolute path")

// Path returns the path of the file by the rules of the XDG base directories.
func Path(getenv func(string) string) (string, error) {
	dir := getenv("XDG_CONFIG_HOME")
	if !filepath.IsAbs(dir) { // the specification ignores a relative path
		home := cmp.Or(getenv("HOME"), getenv("USERPROFILE"))
		if home == "" {
			return "", ErrNowhere
		}
		dir = filepath.Join(home, ".config")
	}
	return filepath.Join(dir, "wheelwork", "config.yaml"), nil
}

// Load reads the file at a path. A missing file has no contexts.
func Load(path string) (*File, error) {
	file := &File{path: path, Contexts: map[string]Context{}}
	source, err := read(path)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
		return file, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read contexts: %w", err)
	}
	if err := file.decode(source); err != nil {
		return nil, fmt.Errorf("read contexts: %s: %w", path, err)
	}
	return file, nil
}

func read(path string) ([]byte, error) {
	f, err := credential.OpenPrivate(path)
	if err != nil {
		return nil, err
	}
	defer f.Close() //nolint:errcheck // only read
	source, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err == nil && len(source) > maxFile {
		err = fmt.Errorf("%s is larger than %d MiB: remove what is no context from it", path, maxFile>>20)
	}
	return source, err
}

func (f *File) decode(source []byte) error {
	decoder := yaml.NewDecoder(bytes.NewReader(source))
	decoder.KnownFields(true)
	var c content
	if err := decoder.Decode(&c); err != nil && !errors.Is(err, io.EOF) {
		return command.YAMLError(err, c)
	}
	if err := decoder.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) {
		return errors.New("there is more than one document: put all contexts into the first one")
	}
	for _, name := range slices.Sorted(maps.Keys(c.Contexts)) {
		context := c.Contexts[name]
		if err := cmp.Or(naming.Check("context", name), context.Check()); err != nil {
			return fmt.Errorf("context %s: %w", name, err)
		}
		context.TokenFile, context.CACert, context.Overlay = f.absolute(context.TokenFile), f.absolute(context.CACert), f.absolute(context.Overlay)
		f.Contexts[name] = context
	}
	f.Current = c.Current
	return nil
}

// absolute resolves a path in the file, which is relative to the directory of the file.
func (f *File) absolute(path string) string {
	if path == "" || filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(filepath.Dir(f.path), path)
}

// Path returns the path of the file.
func (f *File) Path() string { return f.path }

// Names returns the names of the contexts in their order.
func (f *File) Names() []string { return slices.Sorted(maps.Keys(f.Contexts)) }

// Get returns the context with a name.
func (f *File) Get(name string) (Context, error) {
	if c, ok := f.Contexts[name]; ok {
		return c, nil
	}
	hint := "\"wheelwork context list\" shows the contexts that there are"
	if near := spelling.Nearest(name, f.Names()); near != "" {
		hint = fmt.Sprintf("did you mean %q?", near)
	}
	return Context{}, command.Fail("not_found", "there is no context %q in %s: %s", name, f.path, hint)
}

// Save replaces the file as a whole, durably. Only its owner can read it. Of a symbolic link
// it replaces the target.
func (f *File) Save() error {
	var b bytes.Buffer
	encoder := yaml.NewEncoder(&b)
	encoder.SetIndent(2)
	if err := cmp.Or(encoder.Encode(content{f.Current, f.Contexts}), encoder.Close()); err != nil {
		return fmt.Errorf("write contexts: %w", err)
	}
	if b.Len() > maxFile {
		return fmt.Errorf("write contexts: %s would be larger than %d MiB: delete contexts with \"wheelwork context delete NAME\"", f.path, maxFile>>20)
	}
	path := f.path
	if target, err := filepath.EvalSymlinks(path); err == nil {
		path = target
	}
	err := os.MkdirAll(filepath.Dir(path), 0o700)
	if err == nil {
		err = datadir.WriteFile(path, b.Bytes(), 0o600)
	}
	if err == nil {
		err = datadir.SyncDir(filepath.Dir(path))
	}
	if err != nil {
		return fmt.Errorf("write contexts: %w", err)
	}
	return nil
}
