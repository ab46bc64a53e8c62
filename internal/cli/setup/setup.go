// Package setup has the commands that name servers (context) and that show where settings of
// callers come from (config).
package setup

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/wheelworkhq/wheelwork/internal/cli/command"
	"github.com/wheelworkhq/wheelwork/internal/cli/connect"
	"github.com/wheelworkhq/wheelwork/internal/cli/contexts"
	"github.com/wheelworkhq/wheelwork/internal/cli/output"
	"github.com/wheelworkhq/wheelwork/internal/spelling"
	"github.com/wheelworkhq/wheelwork/job/naming"
)

// commands are the commands about contexts and settings.
type commands struct {
	*output.Printer
	*connect.Server
}

// Commands returns the commands "context" and "config".
func Commands(printer *output.Printer, server *connect.Server) []*cobra.Command {
	c := &commands{printer, server}
	return []*cobra.Command{
		command.Group("context", "Name servers, and choose the one that commands talk to",
			c.set(), c.use(), c.list(), c.show(), c.delete()),
		command.Group("config", "Show where the settings of commands come from", c.explain()),
	}
}

// named is a context for the output.
type named struct {
	Name      string `json:"name"`
	Current   bool   `json:"current"` // of the file
	URL       string `json:"url"`
	App       string `json:"app"`
	TokenFile string `json:"token_file"`
	CACert    string `json:"ca_cert"`
	Overlay   string `json:"overlay"`
}

var columns = []string{"name", "current", "url", "app", "token file", "ca cert"}

func record(file *contexts.File, name string) output.Record {
	x := file.Contexts[name]
	n := named{name, name == file.Current, x.URL, x.App, x.TokenFile, x.CACert, x.Overlay}
	return output.Object(n, func() []output.Cell {
		current := ""
		if n.Current {
			current = "yes"
		}
		return []output.Cell{{Text: n.Name}, {Text: current, Tint: output.Green}, {Text: n.URL}, {Text: n.App}, {Text: n.TokenFile}, {Text: n.CACert}}
	})
}

func (c *commands) set() *cobra.Command {
	var overlay string
	cmd := &cobra.Command{
		Use:        "set NAME",
		SuggestFor: []string{"add", "create", "new", "update"},
		Short:      "Store a server under a name, or change what is stored",
		Long: `Store the server at --url under a name, with the file of the caller's token
(--token-file), an app (--app), the authority of its certificate (--ca-cert) and the
overlay that plans for it use (--overlay). Of a context that exists, settings without a flag do not change, and an empty value
removes a setting. The file with the contexts has the path of each token and never
a token. "wheelwork context use" chooses the context of further commands.`,
		Example: `  wheelwork context set prod --url https://wheelwork.example --token-file ~/.secrets/prod --app shop
  wheelwork context set prod --app billing
  wheelwork context use prod`,
		Args:              command.Arguments("NAME"),
		ValidArgsFunction: c.complete,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := naming.Check("context", args[0]); err != nil {
				return command.Usage(cmd, "%s", err)
			}
			file, err := c.Contexts()
			if err != nil {
				return err
			}
			x, exists := file.Contexts[args[0]]
			some, err := c.Given(&x)
			if cmd.Flags().Changed("overlay") {
				x.Overlay, some = overlay, true
			}
			switch {
			case err != nil:
				return err
			case !some:
				return command.Usage(cmd, "say what to store: --url, --token-file, --ca-cert, --app or --overlay")
			case !exists && x.URL == "":
				return command.Usage(cmd, "--url is missing: context %s is new", args[0])
			}
			if x, err = x.Absolute(); err != nil {
				return err
			}
			if err := x.Check(); err != nil {
				return command.Usage(cmd, "%s", err)
			}
			for _, problem := range x.Problems() {
				c.Note("%s", problem)
			}
			file.Contexts[args[0]] = x
			if err := file.Save(); err != nil {
				return err
			}
			if file.Current == "" {
				c.Note("no context is current: use this one with \"wheelwork context use %s\", or with --context %[1]s", args[0])
			}
			return c.PrintOne(columns, record(file, args[0]))
		},
	}
	cmd.Flags().StringVar(&overlay, "overlay", "", "`file` with what differs in this environment on purpose")
	return cmd
}

func (c *commands) use() *cobra.Command {
	var none bool
	cmd := &cobra.Command{
		Use:   "use NAME",
		Short: "Make a context the current one, which commands use",
		Long: `Make a context the current one: commands take the settings from it that neither a
flag nor a variable gives. With --none no context is current.`,
		Example: `  wheelwork context use prod
  wheelwork context use --none`,
		ValidArgsFunction: c.complete,
	}
	cmd.Flags().BoolVar(&none, "none", false, "use no context")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		want := command.Arguments("NAME")
		if none {
			want = command.Arguments()
		}
		if err := want(cmd, args); err != nil {
			return err
		}
		file, err := c.Contexts()
		if err != nil {
			return err
		}
		file.Current = strings.Join(args, "")
		if !none {
			if _, err := file.Get(file.Current); err != nil {
				return err
			}
		}
		if err := file.Save(); err != nil {
			return err
		}
		if none {
			c.Note("no context is current")
			return nil
		}
		return c.PrintOne(columns, record(file, file.Current))
	}
	return cmd
}

func (c *commands) list() *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "List the contexts by name",
		Args:  command.Arguments(),
		RunE: func(*cobra.Command, []string) error {
			file, err := c.Contexts()
			if err != nil {
				return err
			}
			if len(file.Contexts) == 0 {
				c.Note("there is no context in %s: store one with \"wheelwork context set NAME --url URL --token-file FILE\"", file.Path())
			}
			return c.PrintAll(columns, output.Each(file.Names(), func(name string) output.Record { return record(file, name) }))
		},
	}
}

func (c *commands) show() *cobra.Command {
	return &cobra.Command{
		Use:   "show [NAME]",
		Short: "Show a context: by default the one that commands use now",
		Long: `Show a context: by default the one that commands use now, which --context, WHEELWORK_CONTEXT
or "wheelwork context use" has chosen. "wheelwork config explain" shows what a command
uses after all flags and variables.`,
		Args:              command.OptionalArgument("NAME"),
		ValidArgsFunction: c.complete,
		RunE: func(_ *cobra.Command, args []string) error {
			file, err := c.Contexts()
			if err != nil {
				return err
			}
			name := c.ContextName()
			if len(args) == 1 {
				name = args[0]
			}
			if name == "" {
				return command.Fail("not_found", "no context is in effect: choose one with \"wheelwork context use NAME\"; \"wheelwork context list\" shows them")
			}
			if _, err := file.Get(name); err != nil {
				return err
			}
			return c.PrintOne(columns, record(file, name))
		},
	}
}

func (c *commands) delete() *cobra.Command {
	return &cobra.Command{
		Use:               "delete NAME",
		SuggestFor:        []string{"remove", "rm"},
		Short:             "Delete a context; the file with its token stays",
		Args:              command.Arguments("NAME"),
		ValidArgsFunction: c.complete,
		RunE: func(_ *cobra.Command, args []string) error {
			file, err := c.Contexts()
			if err != nil {
				return err
			}
			if _, err := file.Get(args[0]); err != nil {
				return err
			}
			delete(file.Contexts, args[0])
			text := "context " + args[0] + ": deleted"
			if file.Current == args[0] {
				file.Current = ""
				text += "; no context is current now"
			}
			if err := file.Save(); err != nil {
				return err
			}
			c.Note("%s", text)
			return nil
		},
	}
}

// complete completes the name of a context in the shell.
func (c *commands) complete(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return c.CompleteContexts(), cobra.ShellCompDirectiveNoFileComp
}

// setting is a setting with the sources that it may come from.
type setting struct {
	Key    string          `json:"key"`
	Value  string          `json:"value"`
	Source string          `json:"source"`
	Name   string          `json:"name"`
	Levels []connect.Level `json:"levels"`
}

func (c *commands) explain() *cobra.Command {
	return &cobra.Command{
		Use:   "explain [KEY]",
		Short: "Show where the value of a setting comes from",
		Long: `Show each source that a setting may come from, the strongest first, with its value, and
which of them a command uses: a flag has precedence over a variable, a variable over
the context, and the context over the default. Tokens are not shown. Without KEY the
command shows what is used of every setting. The settings are ` + strings.Join(connect.Keys(), ", ") + `.

The settings of a process have other sources: "wheelwork server --print-config" shows them.`,
		Example: `  wheelwork config explain url
  wheelwork config explain token --context prod`,
		Args: command.OptionalArgument("KEY"),
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			return connect.Keys(), cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := c.Ready(); err != nil {
				return err
			}
			if len(args) == 0 {
				return c.PrintAll([]string{"key", "value", "source", "name"}, output.Each(connect.Keys(), func(key string) output.Record {
					s := c.setting(key)
					return output.Object(s, func() []output.Cell {
						return []output.Cell{{Text: s.Key}, {Text: s.Value}, {Text: s.Source}, {Text: s.Name}}
					})
				}))
			}
			key, ok := keyOf(args[0])
			if !ok {
				hint := "want one of " + strings.Join(connect.Keys(), ", ")
				if near := spelling.Nearest(args[0], slices.Collect(maps.Keys(spellings()))); near != "" {
					hint = fmt.Sprintf("did you mean %q?", near)
				}
				return command.Usage(cmd, "there is no setting %q: %s", args[0], hint)
			}
			s := c.setting(key)
			if c.Format != output.Table {
				return c.PrintOne(nil, output.Object(s, nil))
			}
			return c.PrintAll([]string{"source", "name", "value", "used"}, output.Each(s.Levels, levelRecord))
		},
	}
}

func levelRecord(l connect.Level) output.Record {
	return output.Object(l, func() []output.Cell {
		used := ""
		if l.Used {
			used = "yes"
		}
		return []output.Cell{{Text: l.Source}, {Text: l.Name}, {Text: l.Value}, {Text: used, Tint: output.Green}}
	})
}

func (c *commands) setting(key string) setting {
	s := setting{Key: key, Levels: c.Levels(key)}
	for _, l := range s.Levels {
		if l.Used {
			s.Value, s.Source, s.Name = l.Value, l.Source, l.Name
		}
	}
	return s
}

// spellings returns the keys by every name that a person may know them by: that of the flag,
// of the variable, and of the field in JSON.
func spellings() map[string]string {
	all := map[string]string{"token-file": "token"}
	for _, key := range connect.Keys() {
		all[key] = key
	}
	for name, key := range maps.Clone(all) {
		snake := strings.ReplaceAll(name, "-", "_")
		all[snake], all["WHEELWORK_"+strings.ToUpper(snake)] = key, key
	}
	return all
}

func keyOf(name string) (string, bool) {
	key, ok := spellings()[strings.TrimPrefix(name, "--")]
	return key, ok
}
