package definition

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/wheelworkhq/wheelwork/document"
	"github.com/wheelworkhq/wheelwork/internal/cli/command"
	"github.com/wheelworkhq/wheelwork/sdk"
)

// ownerLabel is the label that says which set of documents a definition belongs to.
const ownerLabel = "wheelwork/owner"

// scope has the flags that say which documents count, and which definitions belong to them.
type scope struct {
	files []string
	owner string
	prune bool
}

func (s *scope) flags(cmd *cobra.Command) {
	cmd.Flags().StringArrayVarP(&s.files, "filename", "f", nil, "`file` with documents, a folder of such files, or - for standard input; may be repeated")
	cmd.Flags().StringVar(&s.owner, "owner", "", "`name` of the set of documents, which the definitions get as the label "+ownerLabel)
	cmd.Flags().BoolVar(&s.prune, "prune", false, "with --owner, delete the owner's definitions that the documents do not name")
}

// read reads the documents of the files, and labels them with the owner.
func (s *scope) read(cmd *cobra.Command, c *commands) ([]*document.Document, error) {
	if s.prune && s.owner == "" {
		return nil, command.Usage(cmd, "--prune needs --owner, which says whose definitions may be deleted")
	}
	documents, err := c.documents(cmd, s.files, s.prune && cmd.Flags().Changed("app")) // without a document all of the owner's definitions go
	if err != nil || s.owner == "" {
		return documents, err
	}
	var problems document.Problems
	for _, d := range documents {
		if other, labelled := d.Labels[ownerLabel]; labelled && other != s.owner {
			problems = append(problems, document.Problem{At: d.FieldAt("labels." + ownerLabel), Text: fmt.Sprintf("%s has the label %s: %s, but --owner says %s: change one of them", d, ownerLabel, other, s.owner)})
			continue
		}
		d.SetLabel(ownerLabel, s.owner)
	}
	if len(problems) > 0 {
		return nil, problems
	}
	return documents, nil
}

// titleOf names a definition in a table, with its app if the table has several.
func titleOf(kind, app, name string, several bool) string {
	if several {
		name = app + "/" + name
	}
	return strings.ToLower(kind) + " " + name
}

// plan is what documents change in one app.
type plan struct {
	app       string
	documents []*document.Document // in the order of [document.Compare]
	gone      []*document.Document // definitions to delete, as the server has them
}

func (p plan) len() int { return len(p.documents) + len(p.gone) }

// at returns the document or the deletion with an index in the change set.
func (p plan) at(i int) *document.Document {
	if i < len(p.documents) {
		return p.documents[i]
	}
	return p.gone[i-len(p.documents)]
}

// plans returns the plans of documents, by app. With --prune they have the owner's definitions
// that no document names: in the apps of the documents, and in the given one if named is set.
func (s *scope) plans(ctx context.Context, client *sdk.Client, given string, named bool, documents []*document.Document) ([]plan, error) {
	byApp := map[string]*plan{}
	of := func(app string) *plan {
		if byApp[app] == nil {
			byApp[app] = &plan{app: app}
		}
		return byApp[app]
	}
	for _, d := range documents {
		p := of(d.App)
		p.documents = append(p.documents, d)
	}
	if s.prune && named {
		of(given)
	}
	var all []plan
	for _, app := range slices.Sorted(maps.Keys(byApp)) {
		p := byApp[app]
		slices.SortStableFunc(p.documents, document.Compare)
		if s.prune {
			if err := s.findGone(ctx, client, p); err != nil {
				return nil, err
			}
		}
		all = append(all, *p)
	}
	return all, nil
}

// findGone adds the owner's definitions that no document names to a plan.
func (s *scope) findGone(ctx context.Context, client *sdk.Client, p *plan) error {
	stays := map[string]bool{}
	for _, d := range p.documents {
		stays[d.String()] = true
	}
	for _, k := range document.Kinds() {
		list, err := owned(ctx, client, k, p.app, s.owner)
		if err != nil {
			return err
		}
		for _, d := range list {
			if !stays[d.String()] {
				p.gone = append(p.gone, d)
			}
		}
	}
	return nil
}

// owned returns the definitions of a kind that have the label of an owner. Settings of apps
// have none.
func owned(ctx context.Context, client *sdk.Client, k *document.Kind, app, owner string) (all []*document.Document, err error) {
	switch nameOf(k) {
	case sdk.KindApp:
		return nil, nil
	case sdk.KindJob:
		for job, err := range client.Jobs(ctx, sdk.JobQuery{App: app, Labels: map[string]string{ownerLabel: owner}, NoInput: true}) {
			if err != nil {
				return nil, err
			}
			all = append(all, document.Of(k, job))
		}
		return all, nil
	}
	all, err = readAll(ctx, client, k, app)
	return slices.DeleteFunc(all, func(d *document.Document) bool { return d.Labels[ownerLabel] != owner }), err
}

// revisionKind returns the name of a kind in the API.
func revisionKind(k *document.Kind) string {
	if name := nameOf(k); name != "grant" {
		return name
	}
	return sdk.KindGrants
}

// showDifferences prints how the server would differ after plans, field by field. It returns
// [command.ErrDiffers] if it would.
func (c *commands) showDifferences(ctx context.Context, client *sdk.Client, plans []plan) error {
	var documents []*document.Document
	for _, p := range plans {
		documents = append(documents, p.documents...)
	}
	all, err := differences(ctx, client, documents)
	if err != nil {
		return err
	}
	for _, p := range plans {
		for _, d := range p.gone {
			all = append(all, difference{Kind: d.Kind.Name, App: d.App, Name: d.Name, Result: sdk.Deleted, Changes: []sdk.Change{}})
		}
	}
	if err := c.printDifferences(all); err != nil {
		return err
	}
	if len(all) > 0 {
		return command.ErrDiffers
	}
	return nil
}
