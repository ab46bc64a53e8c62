package console

import (
	"cmp"
	"maps"
	"net/http"
	"slices"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
)

// retryView is the form that retries a run with changes.
type retryView struct {
	Run     *apiv1.Run
	Modules []string     // versions and aliases of the run's module; none: it has no module, or the visitor may not choose one
	Hosts   []retryHost  // by name; none: other runs execute this one
	Refused string       // the API's reason for a refusal
	Choice  *retryChoice // what the visitor has chosen
}

type retryHost struct{ ID, Name string }

type retryChoice struct{ FromNode, Module, Host string }

func (c *console) retryPage(v *visit) error {
	run, err := c.runs.GetRun(v.ctx, &apiv1.GetRunRequest{App: v.app, Id: v.r.PathValue("id")})
	if err != nil {
		return err
	}
	return c.showRetry(v, http.StatusOK, retryView{Run: run, Choice: &retryChoice{FromNode: v.r.URL.Query().Get("node")}})
}

// showRetry shows the form with the nodes, versions and hosts that a retry may name.
func (c *console) showRetry(v *visit, code int, view retryView) error {
	name, _, ok := strings.Cut(cmp.Or(view.Run.Alias, view.Run.Module), "@")
	if ok && c.visitor(v).May("jobs.write", v.app) {
		aliases, err := c.modules.ListAliases(v.ctx, &apiv1.ListAliasesRequest{App: v.app, Module: name})
		if err != nil {
			return err
		}
		for _, a := range aliases.Aliases {
			view.Modules = append(view.Modules, a.Module+"@"+a.Name)
		}
		versions, err := c.modules.ListModules(v.ctx, &apiv1.ListModulesRequest{App: v.app})
		if err != nil {
			return err
		}
		for _, m := range versions.Modules {
			if m.Name == name && m.CollectedAt == nil {
				view.Modules = append(view.Modules, m.Name+"@"+m.Version)
			}
		}
	}
	if len(view.Run.Nodes) == 0 && view.Run.Fanout == "" {
		names := c.hostNames(v)
		for _, id := range slices.SortedFunc(maps.Keys(names), func(a, b string) int { return cmp.Or(cmp.Compare(names[a], names[b]), cmp.Compare(a, b)) }) {
			view.Hosts = append(view.Hosts, retryHost{id, cmp.Or(names[id], id)})
		}
	}
	return c.showStatus(v, code, "retry", "runs", view)
}

// retryRun creates a new run from an ended one. Refused choices are shown again.
func (c *console) retryRun(v *visit) error {
	if err := v.parseForm(); err != nil {
		return err
	}
	form := v.r.PostForm
	choice := retryChoice{form.Get("node"), form.Get("module"), form.Get("host")}
	made, err := c.runs.RetryRun(v.ctx, &apiv1.RetryRunRequest{App: v.app, Id: v.r.PathValue("id"), FromNode: choice.FromNode, Module: choice.Module, Host: choice.Host})
	if code := status.Code(err); choice != (retryChoice{}) && (code == codes.InvalidArgument || code == codes.FailedPrecondition) {
		run, gone := c.runs.GetRun(v.ctx, &apiv1.GetRunRequest{App: v.app, Id: v.r.PathValue("id")})
		if gone != nil {
			return gone
		}
		return c.showRetry(v, http.StatusUnprocessableEntity, retryView{Run: run, Choice: &choice, Refused: status.Convert(err).Message()})
	}
	if err != nil {
		return err
	}
	v.redirect(href("apps", v.app, "runs", made.Id))
	return nil
}
