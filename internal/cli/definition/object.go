package definition

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/wheelworkhq/wheelwork/document"
	"github.com/wheelworkhq/wheelwork/internal/cli/command"
	"github.com/wheelworkhq/wheelwork/internal/cli/connect"
	"github.com/wheelworkhq/wheelwork/sdk"
)

// kinds explains the arguments of the commands.
const kinds = `KIND is job, calendar, alias (NAME is MODULE@ALIAS), grant (NAME is the module),
alertrule, alertchannel, eventsource or app (NAME is the app).`

// object is the definition that a command is about.
type object struct {
	of              *document.Kind
	app, kind, name string // kind is as in the methods of revisions
}

// kindOf reads the argument KIND.
func kindOf(cmd *cobra.Command, arg string) (*document.Kind, error) {
	if strings.EqualFold(arg, sdk.KindGrants) { // as in the paths of the API
		arg = "grant"
	}
	k, err := document.Find(arg)
	if err != nil {
		return nil, command.Usage(cmd, "KIND %q: want %s", arg, strings.Join(kindNames(), ", "))
	}
	return k, nil
}

// nameOf returns the argument KIND of a kind.
func nameOf(k *document.Kind) string { return strings.ToLower(k.Name) }

func kindNames() (names []string) {
	for _, k := range document.Kinds() {
		names = append(names, nameOf(k))
	}
	return names
}

// object reads the arguments KIND and NAME.
func (c *commands) object(cmd *cobra.Command, args []string) (object, error) {
	k, err := kindOf(cmd, args[0])
	if err != nil {
		return object{}, err
	}
	o := object{k, c.App, nameOf(k), args[1]}
	switch {
	case o.kind == "grant":
		o.kind = sdk.KindGrants
	case o.kind == sdk.KindApp && cmd.Flags().Changed("app") && o.name != c.App:
		return o, command.Usage(cmd, "the app is named twice: NAME is %s and --app %s", o.name, c.App)
	case o.kind == sdk.KindApp:
		o.app = o.name
	}
	return o, nil
}

func (c *commands) completeKinds(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return kindNames(), cobra.ShellCompDirectiveNoFileComp
}

// read returns one definition of the server. It fails with [sdk.ErrNotFound] if there is none.
func read(ctx context.Context, client *sdk.Client, k *document.Kind, app, name string) (*document.Document, error) {
	var d *document.Document
	switch nameOf(k) {
	case sdk.KindJob:
		job, err := client.Job(ctx, app, name)
		if err != nil {
			return nil, err
		}
		return document.Of(k, job), nil
	case sdk.KindCalendar:
		calendar, err := client.Calendar(ctx, app, name)
		if err != nil {
			return nil, err
		}
		return document.Of(k, calendar), nil
	case sdk.KindAlias:
		alias, err := client.Alias(ctx, app, name)
		if err != nil {
			return nil, err
		}
		return document.Of(k, alias), nil
	case sdk.KindAlertRule, sdk.KindAlertChannel, sdk.KindEventSource:
		all, err := readAll(ctx, client, k, app)
		if err != nil {
			return nil, err
		}
		for _, d := range all {
			if d.Name == name {
				return d, nil
			}
		}
		return nil, fmt.Errorf("get %s %s: %w", nameOf(k), name, sdk.ErrNotFound)
	case sdk.KindApp:
		settings, err := client.App(ctx, name)
		if err != nil {
			return nil, err
		}
		d = document.Of(k, settings)
	default:
		grants, err := client.Grants(ctx, app, name)
		if err != nil {
			return nil, err
		}
		d = document.Of(k, grants)
	}
	if isEmpty(d) {
		return nil, fmt.Errorf("get %s: %w", d, sdk.ErrNotFound)
	}
	return d, nil
}

// readAll returns all definitions of a kind in an app. The error is nil if there is none.
func readAll(ctx context.Context, client *sdk.Client, k *document.Kind, app string) ([]*document.Document, error) {
	switch nameOf(k) {
	case sdk.KindJob:
		var all []*document.Document
		for job, err := range client.Jobs(ctx, sdk.JobQuery{App: app}) {
			if err != nil {
				return nil, err
			}
			all = append(all, document.Of(k, job))
		}
		return all, nil
	case sdk.KindCalendar:
		list, err := client.Calendars(ctx, app)
		return documents(list, func(x *sdk.Calendar) *document.Document { return document.Of(k, x) }), err
	case sdk.KindAlias:
		list, err := client.Aliases(ctx, app, "")
		return documents(list, func(x *sdk.Alias) *document.Document { return document.Of(k, x) }), err
	case sdk.KindAlertRule:
		list, err := client.AlertRules(ctx, app)
		return documents(list, func(x *sdk.AlertRule) *document.Document { return document.Of(k, x) }), err
	case sdk.KindAlertChannel:
		list, err := client.AlertChannels(ctx, app)
		return documents(list, func(x *sdk.AlertChannel) *document.Document { return document.Of(k, x) }), err
	case sdk.KindEventSource:
		list, err := client.EventSources(ctx, app)
		return documents(list, func(x *sdk.EventSource) *document.Document { return document.Of(k, x) }), err
	case sdk.KindApp:
		settings, err := client.App(ctx, app)
		switch {
		case errors.Is(err, sdk.ErrNotFound):
			return nil, nil
		case err != nil:
			return nil, err
		}
		return documents([]*sdk.App{settings}, func(x *sdk.App) *document.Document { return document.Of(k, x) }), nil
	}
	list, err := client.AllGrants(ctx, app)
	return documents(list, func(x *sdk.ModuleGrants) *document.Document { return document.Of(k, x) }), err
}

// documents converts a list, and leaves out objects without a definition.
func documents[T any](list []T, of func(T) *document.Document) (all []*document.Document) {
	for _, x := range list {
		if d := of(x); !isEmpty(d) {
			all = append(all, d)
		}
	}
	return all
}

// isEmpty reports whether the server lists an object that has no definition: an app without
// settings, or a module without grants.
func isEmpty(d *document.Document) bool {
	switch x := d.Spec.(type) {
	case *sdk.App:
		return len(document.Diff(document.Of(d.Kind, &sdk.App{Name: x.GetName()}), d)) == 0
	case *sdk.ModuleGrants:
		return len(document.Diff(document.Of(d.Kind, &sdk.ModuleGrants{App: x.GetApp(), Module: x.GetModule(), Grants: &sdk.Grants{}}), d)) == 0 ||
			len(document.Diff(document.Of(d.Kind, &sdk.ModuleGrants{App: x.GetApp(), Module: x.GetModule()}), d)) == 0
	}
	return false
}

// noteEmpty says why there is nothing to show, if the reason is a mistyped app.
func (c *commands) noteEmpty(ctx context.Context, client *sdk.Client, app string) {
	c.Note("%s", connect.WhyEmpty(ctx, client, app, ""))
}
