package notification

import (
	"errors"
	"fmt"
	htmltemplate "html/template"
	"io"
	"regexp"
	"slices"
	"strings"
	"text/template"
	"text/template/parse"
)

// What a template may use. A step is a call of a function, a node that is executed, or 64
// bytes that a function reads or makes. Steps bound the time without a clock, so a template
// that is accepted once is accepted on every machine.
const (
	maxSteps    = 50_000
	stepBytes   = 64
	maxTemplate = 16 << 10  // bytes of one template
	maxTitle    = 250       // bytes of a title
	maxLine     = 120       // bytes of a title in a digest
	maxBody     = 64 << 10  // bytes of a text
	maxHTML     = 256 << 10 // bytes of the HTML of a mail
	maxPrinted  = 8 << 10   // bytes of a text that printf makes
)

var (
	errSteps = fmt.Errorf("the template takes more than %d steps", maxSteps)
	errSize  = errors.New("the template writes too much")
)

// meter counts the steps of one execution.
type meter struct{ left int }

// step counts steps. It returns false, so that the branch that counts is not taken.
func (m *meter) step(n int) (bool, error) {
	if m.left -= n; m.left < 0 {
		return false, errSteps
	}
	return false, nil
}

// read counts the bytes of texts.
func (m *meter) read(texts ...string) error {
	n := 0
	for _, s := range texts {
		n += len(s) / stepBytes
	}
	_, err := m.step(n)
	return err
}

// functions are those of templates, beside those of their dialect. Functions that can
// multiply a text, such as js, and those that call others are not offered.
var functions = []string{"and", "or", "not", "len", "index", "slice", "eq", "ne", "lt", "le", "gt", "ge", "printf", "cut"}

// program is a parsed template of either kind.
type program interface {
	run(w io.Writer, view *View, funcs template.FuncMap) error
}

type textProgram struct{ *template.Template }

func (p textProgram) run(w io.Writer, view *View, funcs template.FuncMap) error {
	t, err := p.Clone()
	if err != nil {
		return err
	}
	return t.Funcs(funcs).Execute(w, view)
}

type htmlProgram struct{ *htmltemplate.Template }

func (p htmlProgram) run(w io.Writer, view *View, funcs template.FuncMap) error {
	t, err := p.Clone()
	if err != nil {
		return err
	}
	return t.Funcs(htmltemplate.FuncMap(funcs)).Execute(w, view)
}

// funcs returns the functions for one execution.
func funcs(d Dialect, isHTML bool, m *meter) template.FuncMap {
	f := template.FuncMap{
		"step":   m.step,
		"printf": func(format string, args ...any) (string, error) { return printf(m, format, args) },
		"cut":    func(n int, s string) (string, error) { return Cut(s, n), m.read(s) },
	}
	if !isHTML {
		f["bold"] = func(s string) (string, error) { return d.Bold(s), m.read(s) }
		f["link"] = func(s, address string) (string, error) { return d.Link(s, address), m.read(s, address) }
	}
	return f
}

// unbound has no steps: each execution replaces it.
var unbound = &meter{}

func parseText(name, text string) (program, error) {
	if len(text) > maxTemplate {
		return nil, fmt.Errorf("template %s has %d bytes, the limit is %d", name, len(text), maxTemplate)
	}
	t, err := template.New(name).Option("missingkey=error").Funcs(funcs(Plain, false, unbound)).Parse(text)
	if err != nil {
		return nil, err
	}
	for _, x := range t.Templates() {
		if err := count(x.Tree, append([]string{"bold", "link"}, functions...)); err != nil {
			return nil, fmt.Errorf("template %s: %w", name, err)
		}
	}
	return textProgram{t}, nil
}

func parseHTML(name, text string) (program, error) {
	if len(text) > maxTemplate {
		return nil, fmt.Errorf("template %s has %d bytes, the limit is %d", name, len(text), maxTemplate)
	}
	t, err := htmltemplate.New(name).Option("missingkey=error").Funcs(htmltemplate.FuncMap(funcs(Plain, true, unbound))).Parse(text)
	if err != nil {
		return nil, err
	}
	for _, x := range t.Templates() {
		if err := count(x.Tree, functions); err != nil {
			return nil, fmt.Errorf("template %s: %w", name, err)
		}
	}
	return htmlProgram{t}, nil
}

// run executes a template and returns at most limit bytes.
func run(p program, view *View, d Dialect, isHTML bool, limit int) (string, error) {
	w := &limited{left: limit}
	err := p.run(w, view, funcs(d, isHTML, &meter{maxSteps}))
	return w.String(), err
}

// limited collects what a template writes, and fails beyond the limit.
type limited struct {
	strings.Builder
	left int
}

func (l *limited) Write(p []byte) (int, error) {
	if l.left -= len(p); l.left < 0 {
		return 0, errSize
	}
	return l.Builder.Write(p)
}

// tooWide finds a width or a precision that pads a value: the package fmt takes up to a
// million.
var tooWide = regexp.MustCompile(`%[-+# 0-9.\[\]]*([0-9]{3}|\*)`)

func printf(m *meter, format string, args []any) (string, error) {
	size := len(format)
	widest := 0
	for _, a := range args {
		switch a := a.(type) {
		case string:
			widest = max(widest, len(a))
		case int, bool:
			widest = max(widest, 64)
		default:
			return "", fmt.Errorf("printf takes texts and numbers, and no %T", a)
		}
	}
	verbs := strings.Count(format, "%")
	if tooWide.MatchString(format) {
		return "", errors.New("printf takes widths of at most two digits, and no *")
	}
	if strings.ContainsAny(format, "qxXU+#") { // %q makes up to six bytes of one
		widest *= 6
	}
	if size += verbs * (widest + 128); size > maxPrinted {
		return "", errSize
	}
	if _, err := m.step(size / stepBytes); err != nil {
		return "", err
	}
	return fmt.Sprintf(format, args...), nil
}

// counter returns a node that counts steps: it prints nothing in any context of HTML.
func counter(steps int) (parse.Node, error) {
	t, err := template.New("").Funcs(template.FuncMap{"step": unbound.step}).Parse(fmt.Sprintf("{{if step %d}}{{end}}", steps))
	if err != nil {
		return nil, err
	}
	return t.Root.Nodes[0], nil
}

// count puts a counter in front of each list of nodes, with the steps of the list without
// those in its branches, and refuses functions that are not in allowed.
func count(t *parse.Tree, allowed []string) error {
	if t == nil || t.Root == nil {
		return nil
	}
	return countList(t.Root, allowed)
}

func countList(list *parse.ListNode, allowed []string) error {
	if list == nil {
		return nil
	}
	steps := 1
	for _, n := range list.Nodes {
		own, err := countNode(n, allowed)
		if err != nil {
			return err
		}
		steps += own
	}
	node, err := counter(steps)
	if err != nil {
		return err
	}
	list.Nodes = append([]parse.Node{node}, list.Nodes...)
	return nil
}

// countNode returns the steps of a node, and counts in its branches.
func countNode(n parse.Node, allowed []string) (int, error) {
	branch := func(b *parse.BranchNode) (int, error) {
		steps, err := pipeSteps(b.Pipe, allowed)
		return steps, errors.Join(err, countList(b.List, allowed), countList(b.ElseList, allowed))
	}
	switch n := n.(type) {
	case *parse.ActionNode:
		return pipeSteps(n.Pipe, allowed)
	case *parse.IfNode:
		return branch(&n.BranchNode)
	case *parse.RangeNode:
		return branch(&n.BranchNode)
	case *parse.WithNode:
		return branch(&n.BranchNode)
	case *parse.TemplateNode:
		return pipeSteps(n.Pipe, allowed)
	}
	return 1, nil
}

func pipeSteps(p *parse.PipeNode, allowed []string) (int, error) {
	steps := 1
	if p == nil {
		return steps, nil
	}
	for _, c := range p.Cmds {
		for _, arg := range c.Args {
			own, err := argSteps(arg, allowed)
			if err != nil {
				return 0, err
			}
			steps += own
		}
	}
	return steps, nil
}

func argSteps(n parse.Node, allowed []string) (int, error) {
	switch n := n.(type) {
	case *parse.IdentifierNode:
		if !slices.Contains(allowed, n.Ident) {
			return 0, fmt.Errorf("function %q is not offered: use one of %s", n.Ident, strings.Join(allowed, ", "))
		}
	case *parse.PipeNode:
		return pipeSteps(n, allowed)
	case *parse.ChainNode:
		return argSteps(n.Node, allowed)
	}
	return 1, nil
}
