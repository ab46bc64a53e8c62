package console

import (
	"bytes"
	"cmp"
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/document"
)

// alertKind is a kind of documents about alerts.
type alertKind struct {
	Path        string // in addresses
	document    string // the kind of the document
	deletion    string // the kind of a deletion
	read, write string // permissions
}

var (
	alertRules    = alertKind{"rules", "AlertRule", "alertrule", "alerts.read", "alerts.write"}
	alertChannels = alertKind{"channels", "AlertChannel", "alertchannel", "channels.read", "channels.write"}
)

// alertDocumentView is the page of the document of a rule or a channel.
type alertDocumentView struct {
	alertKind
	Name     string // "": it is a new one
	Text     string
	Revision int64 // of the definition that the text was made from; 0: it was none
	Write    bool  // the visitor may change it
	Checked  bool  // the server accepts the text
	Problems []problemView
	Moved    string        // the document as it is now, if another caller has changed it since; "": none has
	Deleted  bool          // another caller has deleted it since
	Failed   string        // why a call failed, other than by the text
	Preview  *alertPreview // of a channel that is stored; nil: of none
}

// alertPreview is what a channel would send for an example.
type alertPreview struct {
	*apiv1.AlertPreview
	Event, Language string // of the form
	Refused         string // why there is no preview
}

// Events returns the events that an example can have.
func (alertPreview) Events() []string {
	kind, err := document.Find(alertRules.document)
	if err != nil {
		return nil
	}
	return kind.Fields[slices.IndexFunc(kind.Fields, func(f document.Field) bool { return f.Path == "events" })].Enum
}

// Request returns the first line of the request, or the server of a mail.
func (p alertPreview) Request() string { return strings.TrimSpace(p.GetMethod() + " " + p.GetUrl()) }

// Text returns the body, JSON in lines.
func (p alertPreview) Text() string {
	var b bytes.Buffer
	if json.Indent(&b, []byte(p.GetBody()), "", "  ") != nil {
		return p.GetBody()
	}
	return b.String()
}

// previewChannel asks what a channel would send for the example that the address names.
func (c *console) previewChannel(v *visit, name string) *alertPreview {
	q := v.r.URL.Query()
	p := &alertPreview{Event: cmp.Or(q.Get("event"), "failed"), Language: q.Get("language")}
	var err error
	p.AlertPreview, err = c.alerts.PreviewAlert(v.ctx, &apiv1.PreviewAlertRequest{App: v.app, Channel: name, Event: p.Event, Language: p.Language})
	if err != nil {
		p.Refused = status.Convert(err).Message()
	}
	return p
}

// ofKind returns the handler of a page for one kind of documents.
func ofKind(kind alertKind, page func(*visit, alertKind) error) func(*visit) error {
	return func(v *visit) error { return page(v, kind) }
}

// mayWrite reports whether the visitor may change documents of a kind: a change is a set of changes of definitions.
func (c *console) mayWrite(v *visit, kind alertKind) bool {
	x := c.visitor(v)
	return x.May("definitions.write", v.app) && x.May(kind.write, v.app)
}

// alertDefinition returns the definition of a kind with a name, and its revision; nil: there is none.
func (c *console) alertDefinition(v *visit, kind alertKind, name string) (proto.Message, int64, error) {
	if kind == alertRules {
		rules, err := c.rules(v.ctx, v.app)
		if i := slices.IndexFunc(rules, func(r *apiv1.AlertRule) bool { return r.Name == name }); i >= 0 {
			return rules[i], rules[i].Revision, nil
		}
		return nil, 0, err
	}
	channels, err := c.channels(v.ctx, v.app)
	if i := slices.IndexFunc(channels, func(m *apiv1.AlertChannel) bool { return m.Name == name }); i >= 0 {
		return channels[i], channels[i].Revision, nil
	}
	return nil, 0, err
}

// alertText returns the document of a definition.
func alertText(kind alertKind, spec proto.Message) (string, error) {
	k, err := document.Find(kind.document)
	if err != nil {
		return "", err
	}
	text, err := document.Marshal(document.Of(k, spec))
	return string(text), err
}

// alertDocumentPage shows the document of the definition that the address names, or one to begin with.
func (c *console) alertDocumentPage(v *visit, kind alertKind) error {
	view := &alertDocumentView{alertKind: kind, Name: v.r.PathValue("name"), Write: c.mayWrite(v, kind)}
	var spec proto.Message
	var err error
	if view.Name == "" {
		if !view.Write {
			return status.Errorf(codes.PermissionDenied, "a change takes the permissions definitions.write and %s in app %s", kind.write, v.app)
		}
		channel, rule := sampleDefinitions(v.app)
		if spec = channel; kind == alertRules {
			spec = rule
		}
	} else {
		spec, view.Revision, err = c.alertDefinition(v, kind, view.Name)
		if err == nil && spec == nil {
			err = status.Errorf(codes.NotFound, "there is no %s %.100q in app %s", kind.deletion, view.Name, v.app)
		}
	}
	if err != nil {
		return err
	}
	if view.Text, err = alertText(kind, spec); err != nil {
		return err
	}
	if kind == alertChannels && view.Name != "" {
		view.Preview = c.previewChannel(v, view.Name)
	}
	return c.show(v, "alertdocument", "alerts", view)
}

// editAlertDocument checks a document, and saves it if the form says so. It shows the text again with the problems
// that the visitor can mend.
func (c *console) editAlertDocument(v *visit, kind alertKind) error {
	if err := v.parseForm(); err != nil {
		return err
	}
	form := v.r.PostForm
	revision, _ := strconv.ParseInt(form.Get("revision"), 10, 64)
	view := &alertDocumentView{
		alertKind: kind, Name: v.r.PathValue("name"), Text: strings.ReplaceAll(form.Get("text"), "\r\n", "\n"), // browsers send CRLF
		Revision: revision, Write: true,
	}
	if err := c.editAlertStep(v, view, form.Get("do") == "save"); err != nil {
		return c.showAgain(v, err, &view.Failed, func(code int) error { return c.showStatus(v, code, "alertdocument", "alerts", view) })
	}
	return nil
}

// editAlertStep checks a document, and saves it if it is valid and the visitor wants that.
func (c *console) editAlertStep(v *visit, view *alertDocumentView, save bool) error {
	d, err := c.checkAlertDocument(v, view)
	if err != nil {
		return err
	}
	if save && d != nil {
		return c.saveAlertDocument(v, view, d)
	}
	code := http.StatusOK // a check that finds problems has succeeded
	if save {
		code = http.StatusUnprocessableEntity
	}
	return c.showStatus(v, code, "alertdocument", "alerts", view)
}

// checkAlertDocument reads the text and asks the API whether it would accept it. It returns nil if there are problems,
// which it puts into the view.
func (c *console) checkAlertDocument(v *visit, view *alertDocumentView) (*document.Document, error) {
	kind, err := document.Find(view.document)
	if err != nil {
		return nil, err
	}
	d, problems := oneDocument(kind, view.Text, v.app)
	if view.Problems = problems; len(problems) > 0 {
		return nil, nil
	}
	if view.Name != "" && d.Name != view.Name {
		view.Problems = []problemView{{d.FieldAt("name").Line, "name: the name " + view.Name + " cannot change: make a new one, and delete this one"}}
		return nil, nil
	}
	if err := c.applyAlertDocument(v, view, d, true); err != nil || len(view.Problems) > 0 {
		return nil, err
	}
	view.Checked = true
	return d, nil
}

// applyAlertDocument sends a document to the API. A refusal that the visitor can mend becomes a problem of the view.
func (c *console) applyAlertDocument(v *visit, view *alertDocumentView, d *document.Document, dry bool) error {
	change := &apiv1.Change{}
	switch spec := proto.Clone(d.Spec).(type) {
	case *apiv1.AlertRule:
		change.Kind = &apiv1.Change_AlertRule{AlertRule: spec}
	case *apiv1.AlertChannel:
		change.Kind = &apiv1.Change_AlertChannel{AlertChannel: spec}
	}
	_, err := c.changes.ApplyChangeSet(v.ctx, &apiv1.ApplyChangeSetRequest{App: v.app, Changes: []*apiv1.Change{change}, DryRun: dry})
	if status.Code(err) == codes.PermissionDenied || err != nil && !refusal(err) {
		return err
	}
	if err != nil {
		p := refusedAt(d, err)
		if all := refusalOf(status.Convert(err)).GetProblems(); len(all) > 0 {
			p = refusedAt(d, status.Error(codes.InvalidArgument, all[0].Error))
		}
		view.Problems = []problemView{p}
	}
	return nil
}

// saveAlertDocument saves a document that was checked. If the definition is another one than that which the text was made
// from, nothing is saved, and the page shows both. The API has no condition for a set of changes: a change between
// the look and the change is overwritten.
func (c *console) saveAlertDocument(v *visit, view *alertDocumentView, d *document.Document) error {
	stored, revision, err := c.alertDefinition(v, view.alertKind, d.Name)
	if err != nil {
		return err
	}
	if revision != view.Revision {
		if view.Name == "" {
			view.Problems = []problemView{{d.FieldAt("name").Line, "name: " + d.Name + " exists: choose another name, or change that one"}}
			return c.showStatus(v, http.StatusConflict, "alertdocument", "alerts", view)
		}
		if view.Deleted = stored == nil; stored != nil {
			if view.Moved, err = alertText(view.alertKind, stored); err != nil {
				return err
			}
		}
		view.Revision = revision
		return c.showStatus(v, http.StatusConflict, "alertdocument", "alerts", view)
	}
	if err := c.applyAlertDocument(v, view, d, false); err != nil {
		return err
	}
	if len(view.Problems) > 0 {
		return c.showStatus(v, http.StatusUnprocessableEntity, "alertdocument", "alerts", view)
	}
	v.redirectWith(href("apps", v.app, "alerts"), accessDone{"alerts.done.saved", d.Name})
	return nil
}

func (c *console) deleteAlertDocumentPage(v *visit, kind alertKind) error {
	name := v.r.PathValue("name")
	return c.show(v, "confirm", "alerts", confirmView{
		Question: "alerts.delete.question." + kind.Path, Effect: "alerts.delete.effect." + kind.Path, Button: "alerts.delete.button",
		Subject: name, Back: href("apps", v.app, "alerts", kind.Path, name),
	})
}

func (c *console) deleteAlertDocument(v *visit, kind alertKind) error {
	name := v.r.PathValue("name")
	change := &apiv1.Change{Kind: &apiv1.Change_Delete{Delete: &apiv1.Deletion{Kind: kind.deletion, Name: name}}}
	if _, err := c.changes.ApplyChangeSet(v.ctx, &apiv1.ApplyChangeSetRequest{App: v.app, Changes: []*apiv1.Change{change}}); err != nil {
		return err
	}
	v.redirectWith(href("apps", v.app, "alerts"), accessDone{"alerts.done.deleted", name})
	return nil
}
