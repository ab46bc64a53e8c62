// Command crosscheck type-checks a program for other systems, without compiling it:
//
//	go run ./crosscheck ../cmd/wheelwork windows/amd64 darwin/arm64
//
// It checks the packages of the program's own module completely, and of all others the
// declarations. That takes seconds, where a build of the dependencies takes minutes.
package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/tools/go/packages"
)

func main() {
	if len(os.Args) < 3 {
		fmt.Fprintln(os.Stderr, "usage: crosscheck DIR GOOS/GOARCH...")
		os.Exit(2)
	}
	failed := false
	for _, target := range os.Args[2:] {
		n, errs := check(os.Args[1], target)
		for _, err := range errs {
			fmt.Fprintf(os.Stderr, "%s: %s\n", target, err)
		}
		if len(errs) > 0 {
			failed = true
			continue
		}
		fmt.Printf("%s: %d packages\n", target, n)
	}
	if failed {
		os.Exit(1)
	}
}

// check returns the number of packages that the program in dir has on a target, and what is
// wrong with them.
func check(dir, target string) (int, []string) {
	system, processor, ok := strings.Cut(target, "/")
	if !ok {
		return 0, []string{"want GOOS/GOARCH"}
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return 0, []string{err.Error()}
	}
	env := append(os.Environ(), "GOOS="+system, "GOARCH="+processor, "CGO_ENABLED=0")
	root, err := packages.Load(&packages.Config{Mode: packages.NeedModule, Dir: dir, Env: env}, ".")
	if err != nil || len(root) != 1 || root[0].Module == nil {
		return 0, []string{fmt.Sprintf("find the module of %s: %v", dir, err)}
	}
	own := root[0].Module.Dir + string(filepath.Separator)
	loaded, err := packages.Load(&packages.Config{
		Mode: packages.LoadAllSyntax, Dir: dir, Env: env,
		ParseFile: func(fset *token.FileSet, name string, src []byte) (*ast.File, error) {
			f, err := parser.ParseFile(fset, name, src, parser.SkipObjectResolution)
			if f != nil && !strings.HasPrefix(name, own) {
				dropBodies(f)
			}
			return f, err
		},
	}, ".")
	if err != nil {
		return 0, []string{err.Error()}
	}
	n, errs := 0, []string(nil)
	packages.Visit(loaded, nil, func(p *packages.Package) {
		n++
		for _, e := range p.Errors {
			if p.Module != nil && p.Module.Main || !dropped(e.Msg) {
				errs = append(errs, e.Error())
			}
		}
	})
	return n, errs
}

// dropBodies removes the bodies of the functions of a file.
func dropBodies(f *ast.File) {
	for _, d := range f.Decls {
		if d, ok := d.(*ast.FuncDecl); ok {
			d.Body = nil
		}
	}
}

// dropped reports whether an error only says that the body of a function was removed.
func dropped(message string) bool {
	for _, part := range []string{"missing function body", "func init must have a body", "imported and not used", "imported as"} {
		if strings.Contains(message, part) {
			return true
		}
	}
	return false
}
