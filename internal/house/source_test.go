package house

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// root is the folder of the repository: go test runs in the folder of the package.
var root = filepath.Join("..", "..")

// source is one Go file. Its path uses slashes and is relative to root.
type source struct {
	path  string
	text  []byte
	files *token.FileSet
	file  *ast.File
}

// room is the folder of the file, which is also the package's import path relative to the
// module.
func (s source) room() string { return path.Dir(s.path) }

func (s source) isTest() bool { return strings.HasSuffix(s.path, "_test.go") }

// imports returns the file's import paths as written.
func (s source) imports() []string {
	var out []string
	for _, spec := range s.file.Imports {
		if name, err := strconv.Unquote(spec.Path.Value); err == nil {
			out = append(out, name)
		}
	}
	return out
}

// at returns the position of a node in a form that editors understand.
func (s source) at(n ast.Node) string {
	return s.path + ":" + strconv.Itoa(s.files.Position(n.Pos()).Line)
}

// sources reads every Go file of the repository, including the modules in bench and
// tools.
func sources(t *testing.T) []source {
	t.Helper()
	var out []source
	err := filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if name != root && ignored(d.Name()) {
				return filepath.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(name, ".go") {
			return nil
		}
		s, err := readSource(name)
		out = append(out, s)
		return err
	})
	if err != nil {
		t.Fatalf("read the repository: %v", err)
	}
	if len(out) == 0 {
		t.Fatalf("no Go file below %s", root)
	}
	return out
}

// ignored reports whether the go command or .gitignore skips a folder.
func ignored(dir string) bool {
	return strings.HasPrefix(dir, ".") || strings.HasPrefix(dir, "_") ||
		dir == "testdata" || dir == "bin" || dir == "tmp"
}

func readSource(name string) (source, error) {
	text, err := os.ReadFile(name)
	if err != nil {
		return source{}, err
	}
	below, err := filepath.Rel(root, name)
	if err != nil {
		return source{}, err
	}
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, name, text, parser.ParseComments|parser.SkipObjectResolution)
	return source{path: filepath.ToSlash(below), text: text, files: files, file: file}, err
}

// lineOf returns the number of the line that holds the byte at offset.
func lineOf(text []byte, offset int) int {
	return bytes.Count(text[:offset], []byte("\n")) + 1
}
