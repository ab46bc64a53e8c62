package console

import (
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
)

// appsView is the list of the apps that the visitor sees.
type appsView struct {
	Shown   []*apiv1.App // the first pageSize that match
	Total   int          // that match
	Prefix  string       // of the names; "": all
	Done    accessDone
	Denied  string // why an app was not deleted
	Refused string // why an app was not created
	Form    appForm
}

// appForm is the form that creates an app, as the visitor filled it in.
type appForm struct{ Name, Description, Weight, RetainRuns, RetainLogs string }

// Full reports whether an app has used up one of its limits.
func (appsView) Full(a *apiv1.App) bool {
	for _, l := range limitsOf(a) {
		if l.Most > 0 && l.Used >= l.Most {
			return true
		}
	}
	return false
}

// appsPage shows the apps. With a section it changes the app.
func (c *console) appsPage(v *visit) error {
	if v.r.URL.Query().Has("section") {
		return c.switchApp(v)
	}
	view := appsView{}
	view.Done, _ = noticeOf[accessDone](v)
	return c.showApps(v, http.StatusOK, view)
}

func (c *console) showApps(v *visit, code int, view appsView) error {
	answer, err := c.apps.ListApps(v.ctx, &apiv1.ListAppsRequest{})
	if err != nil {
		return err
	}
	view.Prefix = v.r.URL.Query().Get("prefix")
	for _, a := range answer.Apps {
		if !strings.HasPrefix(a.Name, view.Prefix) {
			continue
		}
		if view.Total++; view.Total <= pageSize {
			view.Shown = append(view.Shown, a)
		}
	}
	return c.showStatus(v, code, "apps", "apps", view)
}

func readAppForm(f url.Values) appForm {
	field := func(name string) string { return strings.TrimSpace(f.Get(name)) }
	return appForm{field("name"), field("description"), field("weight"), field("retain_runs"), field("retain_logs")}
}

// createApp creates an app with settings. An app that has settings keeps them: the call would
// replace all of them.
func (c *console) createApp(v *visit) error {
	if err := v.parseForm(); err != nil {
		return err
	}
	form := readAppForm(v.r.PostForm)
	made := &apiv1.App{Name: form.Name, Description: form.Description, RetainRuns: form.RetainRuns, RetainLogs: form.RetainLogs}
	err := error(nil)
	if form.Weight != "" {
		n, wrong := strconv.ParseInt(form.Weight, 10, 32)
		if wrong != nil {
			err = status.Errorf(codes.InvalidArgument, "weight: %.40q is not a number", form.Weight)
		}
		made.Weight = int32(n)
	}
	if err == nil {
		err = c.hasNoSettings(v, form.Name)
	}
	if err == nil {
		_, err = c.apps.PutApp(v.ctx, &apiv1.PutAppRequest{App: made})
	}
	if why, ok := mendable(err); ok {
		return c.showApps(v, http.StatusUnprocessableEntity, appsView{Form: form, Refused: why})
	}
	if err != nil {
		return err
	}
	v.redirectWith(inApp("/apps", v.app), accessDone{"apps.created", form.Name})
	return nil
}

// hasNoSettings returns the error for an app that has settings.
func (c *console) hasNoSettings(v *visit, name string) error {
	a, err := c.apps.GetApp(v.ctx, &apiv1.GetAppRequest{Name: name})
	switch {
	case status.Code(err) == codes.NotFound:
		return nil
	case err != nil:
		return err
	case a.UpdatedAt != nil:
		return status.Errorf(codes.AlreadyExists, "app %s exists and has settings: change them with `wheelwork app set %s`", name, name)
	}
	return nil
}

func (c *console) deleteAppPage(v *visit) error {
	return c.show(v, "confirm", "apps", confirmView{
		Question: "apps.delete.question", Effect: "apps.delete.effect", Button: "apps.delete.button",
		Subject: v.app, Back: inApp("/apps", v.app),
	})
}

// deleteApp deletes an app. An app with jobs or live runs is refused, and the list says why.
func (c *console) deleteApp(v *visit) error {
	answer, err := c.apps.DeleteApp(v.ctx, &apiv1.DeleteAppRequest{Name: v.app})
	if why, ok := mendable(err); ok {
		return c.showApps(v, http.StatusConflict, appsView{Denied: why})
	}
	if err != nil {
		return err
	}
	v.redirectWith("/apps", accessDone{"apps.deleted", v.app + " · " + byteSize(answer.Bytes)})
	return nil
}
