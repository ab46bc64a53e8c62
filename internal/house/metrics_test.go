package house

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// instruments are the methods of a meter that register a metric, with the type that the
// Prometheus exporter gives it.
var instruments = map[string]string{
	"Int64Counter": "counter", "Float64Counter": "counter", "Int64ObservableCounter": "counter", "Float64ObservableCounter": "counter",
	"Int64Gauge": "gauge", "Float64Gauge": "gauge", "Int64ObservableGauge": "gauge", "Float64ObservableGauge": "gauge",
	"Int64UpDownCounter": "gauge", "Int64ObservableUpDownCounter": "gauge", "Int64Histogram": "histogram", "Float64Histogram": "histogram",
}

// TestMetricsAreDocumented compares the metrics that the code registers with the table of
// docs/metrics.md.
func TestMetricsAreDocumented(t *testing.T) {
	registered := map[string]string{} // type by name
	root := filepath.Join("..", "..")
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && (strings.HasPrefix(d.Name(), ".") && path != root || d.Name() == "node_modules" || d.Name() == "bench") {
			return filepath.SkipDir
		}
		if !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return nil
		}
		f, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		if err != nil {
			return err
		}
		ast.Inspect(f, func(n ast.Node) bool {
			if call, ok := n.(*ast.CallExpr); ok {
				if name, kind := metricOf(call); name != "" {
					registered[name] = kind
				}
			}
			return true
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(filepath.Join(root, "docs", "metrics.md"))
	if err != nil {
		t.Fatal(err)
	}
	documented := map[string]string{}
	for _, row := range regexp.MustCompile("(?m)^\\| `(wheelwork_\\w+)` \\| (\\w+) \\|").FindAllStringSubmatch(string(page), -1) {
		documented[row[1]] = row[2]
	}
	if len(registered) < 10 {
		t.Fatalf("the code registers %d metrics: the test does not find them", len(registered))
	}
	for name, kind := range registered {
		if documented[name] != kind {
			t.Errorf("docs/metrics.md has %s as %q, the code as %q", name, documented[name], kind)
		}
	}
	for name := range documented {
		if registered[name] == "" {
			t.Errorf("docs/metrics.md has %s, which the code does not register", name)
		}
	}
}

// metricOf returns the name and the type that Prometheus shows for a metric whose name is
// constant; "": the call registers none.
func metricOf(call *ast.CallExpr) (name, kind string) {
	sel, ok := call.Fun.(*ast.SelectorExpr)
	if !ok || len(call.Args) == 0 || instruments[sel.Sel.Name] == "" {
		return "", ""
	}
	text, ok := literal(call.Args[0])
	if !ok || !strings.HasPrefix(text, "wheelwork.") {
		return "", ""
	}
	kind = instruments[sel.Sel.Name]
	name = strings.ReplaceAll(text, ".", "_")
	for _, option := range call.Args[1:] {
		o, ok := option.(*ast.CallExpr)
		if !ok || len(o.Args) != 1 {
			continue
		}
		if s, ok := o.Fun.(*ast.SelectorExpr); ok && s.Sel.Name == "WithUnit" {
			unit, _ := literal(o.Args[0])
			if suffix := map[string]string{"s": "_seconds", "By": "_bytes"}[unit]; suffix != "" {
				name += suffix
			} else if !strings.HasPrefix(unit, "{") && !slices.Contains([]string{"", "1"}, unit) {
				name += "_" + unit
			}
		}
	}
	if kind == "counter" {
		name += "_total"
	}
	return name, kind
}

// literal returns the text of a string literal.
func literal(x ast.Expr) (string, bool) {
	l, ok := x.(*ast.BasicLit)
	if !ok || l.Kind != token.STRING {
		return "", false
	}
	text, err := strconv.Unquote(l.Value)
	return text, err == nil
}
