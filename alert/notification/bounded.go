package notification

import (
	"errors"
	"fmt"
	htmltemplate "html/template"
	"io"
	"slices"
	"strings"
	"text/template"
	"text/template/parse"
)

// What a template may use. Each step is one list of nodes that is executed: a branch, a
// turn of a range, a template that is called. Steps bound the time without a clock, so a
// template that is accepted once is accepted on every machine.
const (
	maxSteps    = 20_000
	maxTemplate = 16 << 10  // bytes of one template
	maxTitle    = 250       // bytes of a title
	maxLine     = 120       // bytes of a title in a digest
	maxBody     = 64 << 10  // bytes of a text
	maxHTML     = 256 << 10 // bytes of the HTML of a mail
	maxPrinted  = 64 << 10  // bytes of a text that printf makes
)

var (
	errSteps = fmt.Errorf("the template takes more than %d steps", maxSteps)
	errSize  = errors.New("the template writes too much")
)

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

// funcs returns the functions for one execution. step counts.
func funcs(d Dialect, isHTML bool, step func() (bool, error)) template.FuncMap {
	f := template.FuncMap{"step": step, "printf": printf, "cut": func(n int, s string) string { return Cut(s, n) }}
	if !isHTML {
		f["bold"], f["link"] = d.Bold, d.Link
	}
	return f
}

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

// unbound stands for the function that each execution replaces.
func unbound() (bool, error) { return false, errSteps }

// run executes a template and returns at most limit bytes.
func run(p program, view *View, d Dialect, isHTML bool, limit int) (string, error) {
	steps := 0
	w := &limited{left: limit}
	err := p.run(w, view, funcs(d, isHTML, func() (bool, error) {
		if steps++; steps > maxSteps {
			return false, errSteps
		}
		return false, nil
	}))
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

func printf(format string, args ...any) (string, error) {
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
	for i := 0; i+1 < len(format); i++ {
		// A width is padded up to a million bytes.
		if strings.ContainsRune("%0123456789.+- #", rune(format[i])) && (format[i+1] == '*' || isDigit(format[i]) && isDigit(format[i+1]) && i+2 < len(format) && isDigit(format[i+2])) {
			return "", errors.New("printf takes widths of at most two digits, and no *")
		}
	}
	if size += verbs * (6*widest + 128); size > maxPrinted { // %q makes up to six bytes of one
		return "", errSize
	}
	return fmt.Sprintf(format, args...), nil
}

func isDigit(b byte) bool { return '0' <= b && b <= '9' }

// counter is the node that counts a step: it prints nothing in any context of HTML.
var counter = template.Must(template.New("").Funcs(template.FuncMap{"step": unbound}).Parse("{{if step}}{{end}}")).Root.Nodes[0]

// count puts the counter in front of each list of nodes, and refuses functions that are
// not in allowed.
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
	for _, n := range list.Nodes {
		if err := countNode(n, allowed); err != nil {
			return err
		}
	}
	list.Nodes = append([]parse.Node{counter.Copy()}, list.Nodes...)
	return nil
}

func countNode(n parse.Node, allowed []string) error {
	branch := func(b *parse.BranchNode) error {
		return errors.Join(checkPipe(b.Pipe, allowed), countList(b.List, allowed), countList(b.ElseList, allowed))
	}
	switch n := n.(type) {
	case *parse.ActionNode:
		return checkPipe(n.Pipe, allowed)
	case *parse.IfNode:
		return branch(&n.BranchNode)
	case *parse.RangeNode:
		return branch(&n.BranchNode)
	case *parse.WithNode:
		return branch(&n.BranchNode)
	case *parse.TemplateNode:
		return checkPipe(n.Pipe, allowed)
	}
	return nil
}

func checkPipe(p *parse.PipeNode, allowed []string) error {
	if p == nil {
		return nil
	}
	for _, c := range p.Cmds {
		for _, arg := range c.Args {
			if err := checkArg(arg, allowed); err != nil {
				return err
			}
		}
	}
	return nil
}

func checkArg(n parse.Node, allowed []string) error {
	switch n := n.(type) {
	case *parse.IdentifierNode:
		if !slices.Contains(allowed, n.Ident) {
			return fmt.Errorf("function %q is not offered: use one of %s", n.Ident, strings.Join(allowed, ", "))
		}
	case *parse.PipeNode:
		return checkPipe(n, allowed)
	case *parse.ChainNode:
		return checkArg(n.Node, allowed)
	}
	return nil
}
