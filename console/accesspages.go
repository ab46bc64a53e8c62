package console

import (
	"cmp"
	"net/http"
	"net/url"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/job/schedule/cron"
)

// accessDone is the notice of a change.
type accessDone struct {
	Key     string // of the catalogue; its parameter is the subject. "": nothing
	Subject string
}

// mendable returns the sentence of an error that the visitor can mend in the form, and false for others.
func mendable(err error) (why string, ok bool) {
	switch s := status.Convert(err); s.Code() {
	case codes.InvalidArgument, codes.AlreadyExists, codes.NotFound, codes.FailedPrecondition, codes.PermissionDenied, codes.ResourceExhausted:
		return s.Message(), true
	}
	return "", false
}

// scopeForm is the part of a form that chooses a scope.
type scopeForm struct {
	Role, Kind, Scoped string        // Scoped is the app or the prefix; the cluster has none
	Roles              []*apiv1.Role // the choices
}

// Kinds returns the choices of the form.
func (scopeForm) Kinds() []string { return []string{"app", "app-prefix", "cluster"} }

func readScope(f url.Values) scopeForm {
	return scopeForm{Role: f.Get("role"), Kind: f.Get("kind"), Scoped: strings.TrimSpace(f.Get("scoped"))}
}

// scope returns the scope as the API writes it.
func (f scopeForm) scope() string {
	if f.Kind == "cluster" {
		return f.Kind
	}
	return f.Kind + ":" + f.Scoped
}

// secretView is the answer to a form that made a password, a token or a join token. No other page, address or
// log has the secret.
type secretView struct {
	Tab, Title, Subject string // Title is a key of the catalogue; its parameter is the subject
	Hint                string // key of the text about the use of the secret
	Secret              string
	Role, Scope         string                 // of a token
	Expires, Former     *timestamppb.Timestamp // of a token, and of the text that it replaced; nil: never, none
	Token               bool
	Join                *apiv1.JoinToken // nil: the secret is no join token
	Labels              []string         // of the join token
	Command             string           // the line for the machine that joins; "": there is none
}

func (c *console) showSecret(v *visit, view secretView) error {
	return c.show(v, "secret", "access", view)
}

type usersView struct {
	Principals    []*apiv1.Principal
	Done          accessDone
	Name, Refused string // of the form
}

func (c *console) usersPage(v *visit) error { return c.showUsers(v, http.StatusOK, usersView{}) }

func (c *console) showUsers(v *visit, code int, view usersView) error {
	answer, err := c.access.ListPrincipals(v.ctx, &apiv1.ListPrincipalsRequest{})
	if err != nil {
		return err
	}
	view.Principals = answer.Principals
	view.Done, _ = noticeOf[accessDone](v)
	return c.showStatus(v, code, "users", "access", view)
}

func (c *console) createUser(v *visit) error {
	if err := v.parseForm(); err != nil {
		return err
	}
	name := strings.TrimSpace(v.r.PostForm.Get("name"))
	made, err := c.access.CreateUser(v.ctx, &apiv1.CreateUserRequest{Name: name})
	if why, ok := mendable(err); ok {
		return c.showUsers(v, http.StatusUnprocessableEntity, usersView{Name: name, Refused: why})
	}
	if err != nil {
		return err
	}
	return c.showSecret(v, secretView{Tab: "users", Title: "user.created", Hint: "user.password.hint", Subject: made.Name, Secret: made.Password})
}

// principal returns a principal that the visitor sees.
func (c *console) principal(v *visit, name string) (*apiv1.Principal, error) {
	answer, err := c.access.ListPrincipals(v.ctx, &apiv1.ListPrincipalsRequest{})
	if err != nil {
		return nil, err
	}
	for _, p := range answer.Principals {
		if p.Principal == name {
			return p, nil
		}
	}
	return nil, status.Errorf(codes.NotFound, "there is no principal %.64q", name)
}

func (c *console) resetPasswordPage(v *visit) error { return c.confirmUser(v, "user.reset") }
func (c *console) disableUserPage(v *visit) error   { return c.confirmUser(v, "user.disable") }

// confirmUser asks for the confirmation of a change of a principal.
func (c *console) confirmUser(v *visit, key string) error {
	p, err := c.principal(v, v.r.PathValue("name"))
	if err != nil {
		return err
	}
	return c.show(v, "confirm", "access", confirmView{
		Question: key + ".question", Effect: key + ".effect", Button: key + ".button", Subject: p.Principal, Back: inApp("/access/users", v.app),
	})
}

func (c *console) resetPassword(v *visit) error {
	made, err := c.access.ResetPassword(v.ctx, &apiv1.ResetPasswordRequest{Name: v.r.PathValue("name")})
	if err != nil {
		return err
	}
	return c.showSecret(v, secretView{Tab: "users", Title: "user.resetdone", Hint: "user.password.hint", Subject: made.Name, Secret: made.Password})
}

func (c *console) disableUser(v *visit) error { return c.setDisabled(v, true, "user.disabled") }
func (c *console) enableUser(v *visit) error  { return c.setDisabled(v, false, "user.enabled") }

func (c *console) setDisabled(v *visit, disabled bool, done string) error {
	name := v.r.PathValue("name")
	if _, err := c.access.DisableUser(v.ctx, &apiv1.DisableUserRequest{Name: name, Disabled: disabled}); err != nil {
		return err
	}
	v.redirectWith(inApp("/access/users", v.app), accessDone{done, name})
	return nil
}

type bindingsView struct {
	Bindings []*apiv1.Binding
	Names    []string // of principals, for the form
	Done     accessDone
	Refused  string
	Form     bindingForm
}

type bindingForm struct {
	scopeForm
	Principal, Expires, Zone string
}

func (c *console) bindingsPage(v *visit) error {
	form := bindingForm{scopeForm: scopeForm{Kind: "app", Scoped: v.app}, Principal: v.r.URL.Query().Get("principal"), Zone: zoneOf(v.r).String()}
	return c.showBindings(v, http.StatusOK, bindingsView{Form: form})
}

func (c *console) showBindings(v *visit, code int, view bindingsView) error {
	answer, err := c.access.ListBindings(v.ctx, &apiv1.ListBindingsRequest{})
	if err != nil {
		return err
	}
	view.Bindings = answer.Bindings
	view.Done, _ = noticeOf[accessDone](v)
	all, err := c.access.ListPrincipals(v.ctx, &apiv1.ListPrincipalsRequest{})
	if err != nil {
		return err
	}
	for _, p := range all.Principals {
		if !p.BuiltIn { // its role is fixed
			view.Names = append(view.Names, p.Principal)
		}
	}
	if view.Form.Roles, err = c.roles(v); err != nil {
		return err
	}
	return c.showStatus(v, code, "bindings", "access", view)
}

func (c *console) addBinding(v *visit) error {
	if err := v.parseForm(); err != nil {
		return err
	}
	f := v.r.PostForm
	form := bindingForm{readScope(f), strings.TrimSpace(f.Get("principal")), f.Get("expires"), f.Get("zone")}
	req := &apiv1.AddBindingRequest{Principal: form.Principal, Role: form.Role, Scope: form.scope()}
	zone, err := cron.LoadZone(cmp.Or(form.Zone, "UTC")) // of the form, even if the visitor has chosen another one since
	if err != nil {
		return status.Error(codes.InvalidArgument, err.Error())
	}
	if req.ExpiresAt, err = optionalTime(form.Expires, zone); err == nil {
		_, err = c.access.AddBinding(v.ctx, req)
	}
	if why, ok := mendable(err); ok {
		return c.showBindings(v, http.StatusUnprocessableEntity, bindingsView{Form: form, Refused: why})
	}
	if err != nil {
		return err
	}
	v.redirectWith(inApp("/access/bindings", v.app), accessDone{"binding.added", bindingText(form.Principal, form.Role, req.Scope)})
	return nil
}

// bindingText describes a binding as the command line writes it.
func bindingText(principal, role, scope string) string {
	return principal + " · " + role + " · " + scope
}

func (c *console) removeBindingPage(v *visit) error {
	answer, err := c.access.ListBindings(v.ctx, &apiv1.ListBindingsRequest{})
	if err != nil {
		return err
	}
	for _, b := range answer.Bindings {
		if b.Id == v.r.PathValue("id") {
			return c.show(v, "confirm", "access", confirmView{
				Question: "binding.remove.question", Effect: "binding.remove.effect", Button: "binding.remove.button",
				Subject: bindingText(b.Principal, b.Role, b.Scope), Back: inApp("/access/bindings", v.app),
			})
		}
	}
	return status.Error(codes.NotFound, "there is no such binding")
}

func (c *console) removeBinding(v *visit) error {
	if _, err := c.access.RemoveBinding(v.ctx, &apiv1.RemoveBindingRequest{Id: v.r.PathValue("id")}); err != nil {
		return err
	}
	v.redirectWith(inApp("/access/bindings", v.app), accessDone{Key: "binding.removed"})
	return nil
}

// rolesView shows what each role is for, with its permissions, and the bindings of the visitor.
type rolesView struct {
	Roles []*apiv1.Role
	Own   []*apiv1.Binding
}

// roles returns the roles with their permissions.
func (c *console) roles(v *visit) ([]*apiv1.Role, error) {
	answer, err := c.access.ListRoles(v.ctx, &apiv1.ListRolesRequest{})
	return answer.GetRoles(), err
}

func (c *console) rolesPage(v *visit) error {
	all, err := c.roles(v)
	if err != nil {
		return err
	}
	return c.show(v, "roles", "access", rolesView{all, c.visitor(v).who.GetBindings()})
}
