package console

import (
	"net/http"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
)

// secretsView is the list of the secrets of an app. No call of the API returns a value.
type secretsView struct {
	Secrets       []secretRow // the first pageSize that match
	Total         int         // that match
	All           int         // of the app
	Prefix        string      // of the names; "": all
	Done          accessDone
	Name, Refused string // of the form
}

// secretRow is a secret with the modules that are allowed to read it.
type secretRow struct {
	*apiv1.Secret
	Modules []string
}

func (c *console) secretsPage(v *visit) error {
	view := secretsView{Name: v.r.URL.Query().Get("name")}
	view.Done, _ = noticeOf[accessDone](v)
	return c.showSecrets(v, http.StatusOK, view)
}

func (c *console) showSecrets(v *visit, code int, view secretsView) error {
	view.Prefix = v.r.URL.Query().Get("prefix")
	var all []*apiv1.Secret
	var grants []*apiv1.ModuleGrants
	g, ctx := errgroup.WithContext(v.ctx)
	g.Go(func() error {
		answer, err := c.secrets.ListSecrets(ctx, &apiv1.ListSecretsRequest{App: v.app})
		all = answer.GetSecrets()
		return err
	})
	if c.visitor(v).May("modules.read", v.app) {
		g.Go(func() error {
			answer, err := c.grants.ListGrants(ctx, &apiv1.ListGrantsRequest{App: v.app})
			grants = answer.GetGrants()
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	view.All = len(all)
	for _, s := range all {
		if !strings.HasPrefix(s.Name, view.Prefix) {
			continue
		}
		if view.Total++; view.Total > pageSize {
			continue
		}
		row := secretRow{Secret: s}
		for _, m := range grants {
			if slices.Contains(m.GetGrants().GetSecrets(), s.Name) {
				row.Modules = append(row.Modules, m.Module)
			}
		}
		view.Secrets = append(view.Secrets, row)
	}
	return c.showStatus(v, code, "secrets", "secrets", view)
}

// setSecret creates a secret or replaces its value. No page shows the value again, also not after
// a refusal.
func (c *console) setSecret(v *visit) error {
	if err := v.parseForm(); err != nil {
		return err
	}
	name := strings.TrimSpace(v.r.PostForm.Get("name"))
	// Browsers send CRLF. A line break at the end is of the clipboard, and the command line removes it too.
	value := strings.TrimSuffix(strings.ReplaceAll(v.r.PostForm.Get("value"), "\r\n", "\n"), "\n")
	var set *apiv1.Secret
	err := error(nil)
	if value == "" {
		err = status.Error(codes.InvalidArgument, "the value is empty: delete the secret to remove it")
	} else {
		set, err = c.secrets.SetSecret(v.ctx, &apiv1.SetSecretRequest{App: v.app, Name: name, Value: value})
	}
	if why, ok := mendable(err); ok {
		return c.showSecrets(v, http.StatusUnprocessableEntity, secretsView{Name: name, Refused: why})
	}
	if err != nil {
		return err
	}
	v.redirectWith(href("apps", v.app, "secrets"), accessDone{"secrets.set", set.Name + " · " + count(set.Version)})
	return nil
}

func (c *console) deleteSecretPage(v *visit) error {
	return c.show(v, "confirm", "secrets", confirmView{
		Question: "secrets.delete.question", Effect: "secrets.delete.effect", Button: "secrets.delete.button",
		Subject: v.r.PathValue("name"), Back: href("apps", v.app, "secrets"),
	})
}

func (c *console) deleteSecret(v *visit) error {
	name := v.r.PathValue("name")
	if _, err := c.secrets.DeleteSecret(v.ctx, &apiv1.DeleteSecretRequest{App: v.app, Name: name}); err != nil {
		return err
	}
	v.redirectWith(href("apps", v.app, "secrets"), accessDone{"secrets.deleted", name})
	return nil
}

// hasSecret reports whether the form of a request contains a secret, which no page of the sign-in
// may hold: the next visitor of the browser could read it.
func hasSecret(r *http.Request) bool {
	switch r.Pattern {
	case "POST /apps/{app}/secrets",
		"POST /apps/{app}/alerts/channels", "POST /apps/{app}/alerts/channels/{name}": // the address of a channel may have a key
		return true
	}
	return false
}
