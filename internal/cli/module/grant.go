package module

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/proto"

	"github.com/wheelworkhq/wheelwork/internal/cli/command"
	"github.com/wheelworkhq/wheelwork/internal/cli/output"
	"github.com/wheelworkhq/wheelwork/sdk"
)

// grantFlags holds the grants of a command line.
type grantFlags struct {
	http, kv, secrets, enqueue, files []string
	requested                         string
	only, none                        bool
}

func (c *commands) grant() *cobra.Command {
	var f grantFlags
	cmd := &cobra.Command{
		Use:   "grant NAME",
		Short: "Allow a module to use what its manifest requests",
		Long: `Allow the handlers of a module to use values, secrets, other jobs, the network
and files of their app. They get what the manifest of their version requests and a
grant allows; "wheelwork module grants" shows both. The command adds to the earlier
grants; --only replaces them.

NAME may be builtin:http: its requests may then use the named secrets, and send them
to the named servers.`,
		Example: `  wheelwork module grant totals --requested 1
  wheelwork module grant totals --kv state --kv rates:read --secret api-token --enqueue settle
  wheelwork module grant totals --http api.example.com --http 'hooks.example.com methods=POST paths=/in/'
  wheelwork module grant totals --file '/tmp write bytes=1048576'
  wheelwork module grant builtin:http --secret api-token --http 'api.example.com methods=POST paths=/in/'
  wheelwork module grant totals --none`,
		Args: command.Arguments("NAME"),
	}
	flags := cmd.Flags()
	flags.StringArrayVar(&f.http, "http", nil, "`HOST` to send requests to, followed by methods=A,B paths=/a,/b private")
	flags.StringArrayVar(&f.kv, "kv", nil, "`BUCKET` to read and write; BUCKET:read only to read")
	flags.StringArrayVar(&f.secrets, "secret", nil, "`NAME` of a secret")
	flags.StringArrayVar(&f.enqueue, "enqueue", nil, "`JOB` to trigger, or APP/JOB; * for every job of the app")
	flags.StringArrayVar(&f.files, "file", nil, "`PATH` of files, followed by write bytes=N dir=NAME")
	flags.StringVar(&f.requested, "requested", "", "all that this `VERSION` requests")
	flags.BoolVar(&f.only, "only", false, "remove all earlier grants")
	flags.BoolVar(&f.none, "none", false, "remove all grants")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		more, err := f.read()
		if err != nil {
			return command.Usage(cmd, "%s", err)
		}
		named := more != nil || f.requested != ""
		if named == f.none || f.none && f.only {
			return command.Usage(cmd, "say what to grant, or --none")
		}
		return c.Call(func(ctx context.Context, client *sdk.Client, _ *cobra.Command, args []string) error {
			now, err := client.Grants(ctx, c.App, args[0])
			if err != nil {
				return err
			}
			g := &sdk.Grants{}
			if !f.none && !f.only && now.GetGrants() != nil {
				g = now.GetGrants()
			}
			if f.requested != "" {
				i := slices.IndexFunc(now.GetVersions(), func(v *sdk.GrantedVersion) bool { return v.GetVersion() == f.requested })
				if i < 0 {
					return fmt.Errorf("there is no module %s@%s in app %s: `wheelwork module list` shows the modules", args[0], f.requested, c.App)
				}
				addGrants(g, now.GetVersions()[i].GetRequested())
			}
			addGrants(g, more)
			kept, err := client.PutGrants(ctx, &sdk.ModuleGrants{App: c.App, Module: args[0], Grants: g, Labels: now.GetLabels()})
			if err != nil {
				return err
			}
			if len(kept.GetVersions()) == 0 && !strings.Contains(args[0], ":") && !f.none {
				c.Note("there is no module %s in app %s yet: the grants are for one that is pushed under this name", args[0], c.App)
			}
			return c.PrintOne(grantColumns, grantsRecord(kept))
		})(cmd, args)
	}
	return cmd
}

// read converts the flags to grants; nil: there are none.
func (f *grantFlags) read() (*sdk.Grants, error) {
	g := &sdk.Grants{Secrets: f.secrets, Enqueue: f.enqueue}
	for _, text := range f.http {
		h := &sdk.HTTPGrant{}
		err := attributes(text, &h.Host, map[string]func(string) error{
			"methods": func(v string) error { h.Methods = strings.Split(v, ","); return nil },
			"paths":   func(v string) error { h.Paths = strings.Split(v, ","); return nil },
			"private": truth(&h.Private),
		})
		if err != nil {
			return nil, fmt.Errorf("--http %q: %w", text, err)
		}
		g.Http = append(g.Http, h)
	}
	for _, text := range f.kv {
		name, how, _ := strings.Cut(text, ":")
		if how != "" && how != "read" && how != "write" {
			return nil, fmt.Errorf("--kv %q: want BUCKET, or BUCKET:read", text)
		}
		g.Kv = append(g.Kv, &sdk.BucketGrant{Name: name, Write: how != "read"})
	}
	for _, text := range f.files {
		file := &sdk.FileGrant{}
		err := attributes(text, &file.Mount, map[string]func(string) error{
			"dir":   func(v string) error { file.Dir = v; return nil },
			"write": truth(&file.Write),
			"bytes": func(v string) (err error) { file.Bytes, err = command.Size(v); return err },
		})
		if err != nil {
			return nil, fmt.Errorf("--file %q: %w", text, err)
		}
		g.Files = append(g.Files, file)
	}
	if proto.Size(g) == 0 {
		return nil, nil
	}
	return g, nil
}

// attributes parses a text of a first word and further words of the form name or
// name=value.
func attributes(text string, first *string, known map[string]func(string) error) error {
	words := strings.Fields(text)
	if len(words) == 0 {
		return fmt.Errorf("it is empty")
	}
	*first = words[0]
	for _, w := range words[1:] {
		name, value, _ := strings.Cut(w, "=")
		set, ok := known[name]
		if !ok {
			return fmt.Errorf("%q is not known here", name)
		}
		if err := set(value); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

// truth parses an attribute without a value.
func truth(to *bool) func(string) error {
	return func(v string) error {
		if v != "" {
			return fmt.Errorf("it takes no value")
		}
		*to = true
		return nil
	}
}

// addGrants adds grants to others. A grant replaces an earlier one with the same name.
func addGrants(g, more *sdk.Grants) {
	for _, h := range more.GetHttp() {
		if i := slices.IndexFunc(g.Http, func(x *sdk.HTTPGrant) bool { return x.GetHost() == h.GetHost() }); i >= 0 {
			g.Http = slices.Delete(g.Http, i, i+1)
		}
		g.Http = append(g.Http, h)
	}
	for _, b := range more.GetKv() {
		if i := slices.IndexFunc(g.Kv, func(x *sdk.BucketGrant) bool { return x.GetName() == b.GetName() }); i >= 0 {
			g.Kv = slices.Delete(g.Kv, i, i+1)
		}
		g.Kv = append(g.Kv, b)
	}
	for _, f := range more.GetFiles() {
		if i := slices.IndexFunc(g.Files, func(x *sdk.FileGrant) bool { return x.GetMount() == f.GetMount() }); i >= 0 {
			g.Files = slices.Delete(g.Files, i, i+1)
		}
		g.Files = append(g.Files, f)
	}
	g.Secrets = append(g.Secrets, more.GetSecrets()...)
	g.Enqueue = append(g.Enqueue, more.GetEnqueue()...)
}

var grantColumns = []string{"module", "granted", "asked for and not granted"}

func grantsRecord(m *sdk.ModuleGrants) output.Record {
	return output.Message(m, func() []output.Cell {
		var lacks []string
		for _, v := range m.GetVersions() {
			has := grantWords(v.GetEffective())
			missing := slices.DeleteFunc(grantWords(v.GetRequested()), func(w string) bool { return slices.Contains(has, w) })
			if len(missing) > 0 {
				lacks = append(lacks, "@"+v.GetVersion()+": "+strings.Join(missing, ", "))
			}
		}
		return []output.Cell{{Text: m.GetModule()}, {Text: strings.Join(grantWords(m.GetGrants()), ", ")}, {Text: strings.Join(lacks, "; ")}}
	})
}

// grantWords describes grants briefly.
func grantWords(g *sdk.Grants) []string {
	var words []string
	for _, h := range g.GetHttp() {
		words = append(words, "http "+h.GetHost())
	}
	for _, b := range g.GetKv() {
		how := ""
		if !b.GetWrite() {
			how = ":read"
		}
		words = append(words, "kv "+b.GetName()+how)
	}
	for _, name := range g.GetSecrets() {
		words = append(words, "secret "+name)
	}
	for _, target := range g.GetEnqueue() {
		words = append(words, "enqueue "+target)
	}
	for _, f := range g.GetFiles() {
		words = append(words, "files "+f.GetMount())
	}
	return words
}

func (c *commands) grants() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "grants [NAME]",
		Short: "Show what modules request and what grants allow; -o json shows every detail",
		Args:  command.OptionalArgument("NAME"),
	}
	cmd.RunE = c.Call(func(ctx context.Context, client *sdk.Client, _ *cobra.Command, args []string) error {
		if len(args) == 1 {
			g, err := client.Grants(ctx, c.App, args[0])
			if err != nil {
				return err
			}
			return c.PrintOne(grantColumns, grantsRecord(g))
		}
		all, err := client.AllGrants(ctx, c.App)
		if err != nil {
			return err
		}
		return c.PrintAll(grantColumns, output.Each(all, grantsRecord))
	})
	return cmd
}
