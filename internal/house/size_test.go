package house

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// A struct or a type with more fields or methods than these is too large to be understood
// at once.
const (
	maxFields  = 30
	maxMethods = 40
)

// largeTypes are the types that may exceed the bounds. The package comment of job says
// why.
var largeTypes = map[string]bool{"job.Slot": true, "job.Run": true, "job.Job": true}

// TestTypesAreSmall checks the number of fields and of methods of each type in the rooms
// that decide.
func TestTypesAreSmall(t *testing.T) {
	for _, root := range []string{"sched", "cluster", "node", "job", "nameserver", "access"} {
		for dir, files := range packagesIn(t, root) {
			fields, methods := map[string]int{}, map[string]int{}
			for _, f := range files {
				for _, d := range f.ast.Decls {
					switch d := d.(type) {
					case *ast.FuncDecl:
						if d.Recv != nil {
							methods[receiver(d)]++
						}
					case *ast.GenDecl:
						for _, s := range d.Specs {
							if s, ok := s.(*ast.TypeSpec); ok {
								if x, ok := s.Type.(*ast.StructType); ok {
									fields[s.Name.Name] = x.Fields.NumFields()
								}
							}
						}
					}
				}
			}
			for name, n := range fields {
				if n > maxFields && !largeTypes[dir+"."+name] {
					t.Errorf("%s.%s has %d fields, the limit is %d", dir, name, n, maxFields)
				}
			}
			for name, n := range methods {
				if n > maxMethods && !largeTypes[dir+"."+name] {
					t.Errorf("%s.%s has %d methods, the limit is %d", dir, name, n, maxMethods)
				}
			}
		}
	}
}

// upward bounds the references inside the packages of a room that run back up: from a file
// to one that, in the best order of the files, is above it. Lower a bound when a change
// makes room, and never raise one.
var upward = map[string]int{"sched": 47, "node": 7, "job": 33}

// TestReferencesRunDown counts the references that run back up.
func TestReferencesRunDown(t *testing.T) {
	for _, root := range slices.Sorted(maps.Keys(upward)) {
		up, all := 0, 0
		for dir, files := range packagesIn(t, root) {
			u, n := runBack(references(files))
			t.Logf("%s: %d of %d references run back up", dir, u, n)
			up, all = up+u, all+n
		}
		t.Logf("%s in all: %d of %d, at most %d", root, up, all, upward[root])
		if up > upward[root] {
			t.Errorf("%s: %d references run back up, the limit is %d: move what is used by more basic files into one of these", root, up, upward[root])
		}
	}
}

type sourceFile struct {
	name string
	ast  *ast.File
}

// packagesIn parses the hand-written files, without tests, of the packages under a folder.
func packagesIn(t *testing.T, root string) map[string][]sourceFile {
	t.Helper()
	packages := map[string][]sourceFile{}
	base := filepath.Join("..", "..", root)
	err := filepath.WalkDir(base, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") || strings.HasSuffix(path, ".pb.go") {
			return err
		}
		f, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		if err != nil {
			return err
		}
		dir, err := filepath.Rel(filepath.Join("..", ".."), filepath.Dir(path))
		packages[filepath.ToSlash(dir)] = append(packages[filepath.ToSlash(dir)], sourceFile{filepath.Base(path), f})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return packages
}

func receiver(d *ast.FuncDecl) string {
	x := d.Recv.List[0].Type
	if p, ok := x.(*ast.StarExpr); ok {
		x = p.X
	}
	if i, ok := x.(*ast.IndexExpr); ok {
		x = i.X
	}
	if id, ok := x.(*ast.Ident); ok {
		return id.Name
	}
	return ""
}

// references returns, for each pair of files, whether the first uses a name that the second
// declares: a function, type, variable or constant of the package, or a method whose name
// only one type of the package has.
func references(files []sourceFile) map[[2]string]bool {
	at, methodAt := map[string]string{}, map[string]string{}
	for _, f := range files {
		for _, d := range f.ast.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				if d.Recv == nil {
					at[d.Name.Name] = f.name
				} else if _, twice := methodAt[d.Name.Name]; twice {
					methodAt[d.Name.Name] = ""
				} else {
					methodAt[d.Name.Name] = f.name
				}
			case *ast.GenDecl:
				for _, s := range d.Specs {
					switch s := s.(type) {
					case *ast.TypeSpec:
						at[s.Name.Name] = f.name
					case *ast.ValueSpec:
						for _, n := range s.Names {
							at[n.Name] = f.name
						}
					}
				}
			}
		}
	}
	refs := map[[2]string]bool{}
	for _, f := range files {
		use := func(file string) {
			if file != "" && file != f.name {
				refs[[2]string{f.name, file}] = true
			}
		}
		for _, id := range f.ast.Unresolved { // not declared in this file
			use(at[id.Name])
		}
		imported := map[string]bool{}
		for _, spec := range f.ast.Imports {
			path := strings.Trim(spec.Path.Value, `"`)
			imported[path[strings.LastIndex(path, "/")+1:]] = true
			if spec.Name != nil {
				imported[spec.Name.Name] = true
			}
		}
		ast.Inspect(f.ast, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			if sel, ok := call.Fun.(*ast.SelectorExpr); ok {
				if x, ok := sel.X.(*ast.Ident); !ok || !imported[x.Name] {
					use(methodAt[sel.Sel.Name])
				}
			}
			return true
		})
	}
	return refs
}

// runBack puts the files into an order in which few references run back, and counts these.
// It removes files that nothing or only removed files use, then those that use none, and
// when neither is left the one that uses most more files than use it (Eades, Lin and Smyth,
// "A fast and effective heuristic for the feedback arc set problem", 1993).
func runBack(refs map[[2]string]bool) (back, all int) {
	uses, usedBy := map[string]map[string]bool{}, map[string]map[string]bool{}
	add := func(m map[string]map[string]bool, a, b string) {
		if m[a] == nil {
			m[a] = map[string]bool{}
		}
		m[a][b] = true
	}
	left := map[string]bool{}
	for r := range refs {
		add(uses, r[0], r[1])
		add(usedBy, r[1], r[0])
		left[r[0]], left[r[1]] = true, true
	}
	count := func(m map[string]bool) (n int) {
		for x := range m {
			if left[x] {
				n++
			}
		}
		return n
	}
	var top, bottom []string
	for len(left) > 0 {
		best, most, low := "", 0, false
		for _, f := range slices.Sorted(maps.Keys(left)) {
			out, in := count(uses[f]), count(usedBy[f])
			if out == 0 {
				best, low = f, true
				break
			}
			if gain := out - in; in == 0 || best == "" || gain > most {
				best, most = f, gain
			}
		}
		delete(left, best)
		if low {
			bottom = append(bottom, best)
		} else {
			top = append(top, best)
		}
	}
	slices.Reverse(bottom)
	position := map[string]int{}
	for i, f := range append(top, bottom...) {
		position[f] = i
	}
	for r := range refs {
		all++
		if position[r[0]] > position[r[1]] {
			back++
		}
	}
	return back, all
}
