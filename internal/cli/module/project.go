package module

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"

	"github.com/wheelworkhq/wheelwork/internal/cli/command"
	"github.com/wheelworkhq/wheelwork/internal/scriptkit"
	"github.com/wheelworkhq/wheelwork/internal/toolchain"
	"github.com/wheelworkhq/wheelwork/runtime/script"
	"github.com/wheelworkhq/wheelwork/sdk"
	"github.com/wheelworkhq/wheelwork/sdk/guest"
)

// projectFile marks a folder as the project of a module.
const projectFile = "module.yaml"

// project is the content of module.yaml.
type project struct {
	Name     string         `yaml:"name"`
	Language string         `yaml:"language"`
	Main     string         `yaml:"main,omitempty"`     // the source, for languages with one main file
	Output   string         `yaml:"output"`             // the module, in the project's folder
	Manifest map[string]any `yaml:"manifest,omitempty"` // handlers and capabilities, embedded in the module

	dir string
}

// kit is the support for a language.
type kit struct {
	language string
	aliases  []string // other names of the language
	main     string
	sdk      map[string]string // files of guest.Files for a project, and their paths in it
	ignore   []string          // files that a build leaves behind, for .gitignore
}

func kits() []kit {
	return []kit{
		{language: toolchain.Go, aliases: []string{"golang"}},
		{language: toolchain.Rust, aliases: []string{"rs"}, main: "main.rs", sdk: map[string]string{"rust/wheelwork.rs": "wheelwork.rs"}},
		{language: toolchain.C, main: "main.c", sdk: map[string]string{"c/wheelwork.h": "wheelwork.h"}},
		{language: toolchain.Zig, main: "main.zig", sdk: map[string]string{"zig/wheelwork.zig": "wheelwork.zig"}, ignore: []string{".zig-cache/"}},
		{language: toolchain.AssemblyScript, aliases: []string{"as"}, main: "main.ts", sdk: map[string]string{"assemblyscript/wheelwork.ts": "wheelwork.ts"}, ignore: []string{"node_modules/"}},
		{language: script.JavaScript, aliases: []string{"js"}, main: "main.js", sdk: map[string]string{"js/wheelwork.d.ts": "wheelwork.d.ts"}},
		{language: script.Python, aliases: []string{"py"}, main: "main.py", sdk: map[string]string{"python/wheelwork.pyi": "wheelwork.pyi"}},
	}
}

// kitOf finds a language by any of its names.
func kitOf(word string) (kit, bool) {
	for _, k := range kits() {
		if k.language == word || slices.Contains(k.aliases, word) {
			return k, true
		}
	}
	return kit{}, false
}

func languages() []string {
	var names []string
	for _, k := range kits() {
		names = append(names, k.language)
	}
	return names
}

func (c *commands) create() *cobra.Command {
	var language, dir string
	cmd := &cobra.Command{
		Use:   "new NAME",
		Short: "Create the project of a handler: source, SDK and cases",
		Long: `Create the project of a handler in a new folder: a source that greets, the SDK of
the language as a file beside it, module.yaml, and cases for "wheelwork module test".
The command downloads nothing and changes nothing outside the folder.`,
		Example: `  wheelwork module new hello --lang rust
  cd hello && wheelwork module test --build`,
		Args: command.Arguments("NAME"),
	}
	cmd.Flags().StringVar(&language, "lang", "", "the language: "+strings.Join(languages(), ", "))
	cmd.Flags().StringVar(&dir, "dir", "", "the `folder` to write to (default NAME)")
	command.Complete(cmd, "lang", languages()...)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		k, ok := kitOf(language)
		if !ok {
			return command.Usage(cmd, "--lang %q: want one of %s", language, strings.Join(languages(), ", "))
		}
		if _, _, err := sdk.SplitModule(args[0] + "@1"); err != nil {
			return command.Usage(cmd, "%s", err)
		}
		if dir == "" {
			dir = args[0]
		}
		files, err := k.files(args[0])
		if err != nil {
			return err
		}
		if err := writeNew(dir, files); err != nil {
			return err
		}
		for _, name := range sortedKeys(files) {
			fmt.Fprintln(c.Out, filepath.Join(dir, filepath.FromSlash(name)))
		}
		c.Note("next: cd %s && wheelwork module test --build", dir)
		return nil
	}
	return cmd
}

// files returns all files of a new project, by path.
func (k kit) files(name string) (map[string][]byte, error) {
	out := make(map[string][]byte)
	folder := "templates/" + k.language
	entries, err := guest.Files.ReadDir(folder)
	if err != nil {
		return nil, fmt.Errorf("the template of %s: %w", k.language, err)
	}
	copied := map[string]string{"templates/cases.yaml": "cases.yaml"}
	for _, e := range entries {
		copied[folder+"/"+e.Name()] = strings.TrimSuffix(e.Name(), ".tmpl")
	}
	for from, to := range k.sdk {
		copied[from] = to
	}
	if k.language == toolchain.Go {
		// The SDK for Go is a package: all of its files except the one for hosts.
		all, err := guest.Files.ReadDir(".")
		if err != nil {
			return nil, fmt.Errorf("the SDK of Go: %w", err)
		}
		for _, e := range all {
			if strings.HasSuffix(e.Name(), ".go") && e.Name() != "files.go" {
				copied[e.Name()] = "guest/" + e.Name()
			}
		}
	}
	for from, to := range copied {
		text, err := guest.Files.ReadFile(from)
		if err != nil {
			return nil, fmt.Errorf("the template of %s: %w", k.language, err)
		}
		if strings.HasSuffix(from, ".tmpl") {
			text = bytes.ReplaceAll(bytes.ReplaceAll(text, []byte("MODULE"), []byte(name)), []byte("NAME"), []byte(name))
		}
		out[to] = text
	}
	p := project{
		Name: name, Language: k.language, Main: k.main, Output: name + ".wasm",
		Manifest: map[string]any{"handlers": []any{map[string]any{"name": "main"}}},
	}
	if out[projectFile], err = yaml.Marshal(p); err != nil {
		return nil, fmt.Errorf("write %s: %w", projectFile, err)
	}
	out[".gitignore"] = []byte(strings.Join(append([]string{p.Output}, k.ignore...), "\n") + "\n")
	return out, nil
}

// writeNew writes files into a folder that does not exist or is empty.
func writeNew(dir string, files map[string][]byte) error {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("write the project: %w", err)
	}
	if len(entries) > 0 {
		return fmt.Errorf("write the project: %s is not empty: name another folder with --dir", dir)
	}
	for _, name := range sortedKeys(files) {
		file := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			return fmt.Errorf("write the project: %w", err)
		}
		if err := os.WriteFile(file, files[name], 0o644); err != nil {
			return fmt.Errorf("write the project: %w", err)
		}
	}
	return nil
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// readProject reads the module.yaml of a folder.
func readProject(dir string) (project, error) {
	file := filepath.Join(dir, projectFile)
	text, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return project{}, fmt.Errorf("%s does not exist: name the folder of a project, or create one with \"wheelwork module new\"", file)
	}
	if err != nil {
		return project{}, fmt.Errorf("read the project: %w", err)
	}
	p := project{dir: dir}
	if err := strictYAML(text, &p); err != nil {
		return project{}, fmt.Errorf("read %s: %w", file, err)
	}
	k, ok := kitOf(p.Language)
	switch {
	case !ok:
		return project{}, fmt.Errorf("read %s: there is no language %q: want one of %s", file, p.Language, strings.Join(languages(), ", "))
	case p.Name == "":
		return project{}, fmt.Errorf("read %s: the project has no name", file)
	case p.Output == "":
		p.Output = p.Name + ".wasm"
	}
	p.Language = k.language
	if p.Main == "" {
		p.Main = k.main
	}
	for _, name := range []string{p.Main, p.Output} {
		if name != "" && !filepath.IsLocal(filepath.FromSlash(name)) {
			return project{}, fmt.Errorf("read %s: %s is not in the project's folder", file, name)
		}
	}
	return p, nil
}

// strictYAML decodes one document and refuses unknown fields.
func strictYAML(text []byte, into any) error {
	d := yaml.NewDecoder(bytes.NewReader(text))
	d.KnownFields(true)
	if err := d.Decode(into); err != nil {
		if errors.Is(err, io.EOF) {
			return errors.New("it is empty")
		}
		return command.YAMLError(err, into)
	}
	if err := d.Decode(new(any)); !errors.Is(err, io.EOF) {
		return errors.New("it has more than one document")
	}
	return nil
}

// manifest returns the project's manifest as JSON; "" when it has none.
func (p project) manifest() (string, error) {
	if len(p.Manifest) == 0 {
		return "", nil
	}
	text, err := json.Marshal(p.Manifest)
	if err != nil {
		return "", fmt.Errorf("the manifest in %s has no form in JSON: %w", projectFile, err)
	}
	return string(text), nil
}

func (p project) output() string { return filepath.Join(p.dir, filepath.FromSlash(p.Output)) }

// isScript reports whether a file name is that of a script, and its language.
func isScript(file string) (language string, ok bool) {
	switch strings.ToLower(path.Ext(filepath.ToSlash(file))) {
	case ".js", ".mjs":
		return script.JavaScript, true
	case ".py":
		return script.Python, true
	}
	return "", false
}

// packScript packs sources with the SDK of their language. names are paths relative to
// dir; main is one of them.
func packScript(language, dir, main string, names []string) ([]byte, error) {
	texts := make(map[string]string, len(names))
	for _, name := range names {
		text, err := os.ReadFile(filepath.Join(dir, filepath.FromSlash(name)))
		if err != nil {
			return nil, fmt.Errorf("read the script: %w", err)
		}
		texts[filepath.ToSlash(name)] = string(text)
	}
	return scriptkit.Pack(language, filepath.ToSlash(main), texts)
}

// sources lists the script files below a folder. It skips hidden folders and folders of
// tools.
func sources(dir, language string) ([]string, error) {
	var names []string
	err := filepath.WalkDir(dir, func(file string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := e.Name()
		if e.IsDir() {
			if file != dir && (strings.HasPrefix(name, ".") || name == "node_modules" || name == "__pycache__") {
				return filepath.SkipDir
			}
			return nil
		}
		if got, ok := isScript(name); ok && got == language && e.Type().IsRegular() {
			rel, err := filepath.Rel(dir, file)
			if err != nil {
				return err
			}
			names = append(names, filepath.ToSlash(rel))
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read the script: %w", err)
	}
	return names, nil
}
