package definition

import (
	"context"
	"slices"

	"github.com/spf13/cobra"

	"github.com/wheelworkhq/wheelwork/document"
	"github.com/wheelworkhq/wheelwork/internal/cli/command"
	"github.com/wheelworkhq/wheelwork/internal/cli/output"
	"github.com/wheelworkhq/wheelwork/sdk"
)

func (c *commands) export() *cobra.Command {
	var dir string
	var prune bool
	cmd := &cobra.Command{
		Use:   "export [KIND [NAME...]]",
		Short: "Print all definitions of an app as documents",
		Long: `Print the definitions of an app as documents in canonical form: settings of the app,
calendars, grants, aliases and jobs, or only those of one kind, or only the named ones.
The form has no defaults, no times and no counters, so the same definitions always give
the same bytes. Secrets are named, and their values stay on the server. The digest of a
job's module is a comment.

With -d each definition becomes a file, as job/report.yaml. The folder must be empty or
hold an earlier export of the app, which its file .wheelwork-export says. Files of
definitions that are gone stay, except with --prune. Files that no export has written
are never touched.

` + kinds,
		Example: `  wheelwork export --app shop > shop.yaml
  wheelwork export -d definitions --prune
  wheelwork export job report settle`,
		Args:              cobra.ArbitraryArgs,
		ValidArgsFunction: c.completeKinds,
	}
	cmd.Flags().StringVarP(&dir, "dir", "d", "", "write a file for each definition to this `folder`")
	cmd.Flags().BoolVar(&prune, "prune", false, "with -d, remove the files that an earlier export wrote for definitions that are gone")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		chosen := document.Kinds()
		if len(args) > 0 {
			k, err := kindOf(cmd, args[0])
			if err != nil {
				return err
			}
			chosen, args = []*document.Kind{k}, args[1:]
		}
		switch asked := cmd.Flags().Changed("output"); {
		case prune && dir == "":
			return command.Usage(cmd, "--prune needs -d")
		case prune && len(args) > 0:
			return command.Usage(cmd, "--prune and NAME: export a whole kind to remove the files of the others")
		case asked && dir != "" && c.Format != output.YAML:
			return command.Usage(cmd, "-d writes YAML: leave out -o %s", c.Format)
		case !asked:
			c.Format = output.YAML
		}
		return c.Wait(func(ctx context.Context, client *sdk.Client, _ *cobra.Command, _ []string) error {
			all, err := c.collect(ctx, client, chosen, args)
			if err != nil {
				return err
			}
			if len(all) == 0 {
				c.noteEmpty(ctx, client, c.App)
			}
			if dir == "" {
				return c.printDocuments(all)
			}
			return c.writeFolder(dir, chosen, all, len(args) == 0, prune)
		})(cmd, args)
	}
	return cmd
}

// collect reads the definitions of kinds, or only those with the names if there are any, in
// the order of the canonical form.
func (c *commands) collect(ctx context.Context, client *sdk.Client, chosen []*document.Kind, names []string) ([]*document.Document, error) {
	var all []*document.Document
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		d, err := read(ctx, client, chosen[0], c.App, name)
		if err != nil {
			return nil, err
		}
		all = append(all, d)
	}
	if len(names) == 0 {
		for _, k := range chosen {
			list, err := readAll(ctx, client, k, c.App)
			if err != nil {
				return nil, err
			}
			all = append(all, list...)
		}
	}
	slices.SortStableFunc(all, document.Compare)
	return all, nil
}

// printDocuments prints documents in canonical form, or the messages of the API as JSON.
func (c *commands) printDocuments(all []*document.Document) error {
	if c.Format == output.YAML {
		text, err := document.Marshal(all...)
		if err != nil {
			return err
		}
		_, err = c.Out.Write(text)
		return err
	}
	return c.PrintAll([]string{"kind", "name"}, output.Each(all, func(d *document.Document) output.Record {
		return output.Message(d.Spec, func() []output.Cell { return []output.Cell{{Text: d.Kind.Name}, {Text: d.Name}} })
	}))
}

func (c *commands) writeFolder(dir string, chosen []*document.Kind, all []*document.Document, whole, prune bool) error {
	f, err := openFolder(dir, c.App)
	if err != nil {
		return err
	}
	defer f.close()
	if err := f.write(all); err != nil {
		return err
	}
	stale := f.stale(chosen, whole)
	if prune {
		if err := f.remove(stale); err != nil {
			return err
		}
	}
	if err := f.finish(); err != nil {
		return err
	}
	c.Note("%s: %s written, %d unchanged", dir, command.Count(f.written, "file"), len(all)-f.written)
	switch {
	case len(stale) > 0 && prune:
		c.Note("%s: %s removed", dir, command.Count(len(stale), "file"))
	case len(stale) > 0:
		c.Note("%s: the definitions of %s are gone, as that of %s: --prune removes the files", dir, command.Count(len(stale), "file"), stale[0])
	}
	return nil
}
