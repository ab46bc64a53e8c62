package console

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
)

const (
	// maxModule bounds the bytes of an upload by default. The API may allow fewer.
	maxModule = 64 << 20
	// uploadPattern is the route of an upload to the API.
	uploadPattern = "PUT /api/v1/apps/{app}/modules/{name}/versions/{version}"
	chunkSize     = 15 << 10 // for the stream to the API: gRPC has buffers of 16 and 32 KiB, and of 1 MiB for larger messages
	// maxField bounds the text fields beside the file; the manifest is the longest.
	maxField = 64 << 10
)

// pushed is the notice of an upload.
type pushed struct {
	Pushed string // name@version; "": none
	Result string // created, unchanged or restored
}

type modulesView struct {
	Modules []*apiv1.Module // the first pageSize
	Total   int
	Aliases []*apiv1.Alias // the first pageSize
	pushed
	Error string // reason for refusing an upload
	Form  *apiv1.PushModuleRequest_Head
}

func (c *console) modulesPage(v *visit) error {
	view := modulesView{Form: &apiv1.PushModuleRequest_Head{}}
	view.pushed, _ = noticeOf[pushed](v)
	return c.showModules(v, http.StatusOK, view)
}

func (c *console) showModules(v *visit, code int, view modulesView) error {
	answer, err := c.modules.ListModules(v.ctx, &apiv1.ListModulesRequest{App: v.app})
	if err != nil {
		return err
	}
	view.Total = len(answer.Modules)
	view.Modules = answer.Modules[:min(view.Total, pageSize)]
	aliases, err := c.modules.ListAliases(v.ctx, &apiv1.ListAliasesRequest{App: v.app})
	if err != nil {
		return err
	}
	view.Aliases = aliases.Aliases[:min(len(aliases.Aliases), pageSize)]
	return c.showStatus(v, code, "modules", "modules", view)
}

// uploadForm handles the form of the modules page. A refused upload shows the page again
// with the reason and the visitor's input.
func (c *console) uploadForm(v *visit) error {
	head, answer, err := c.pushForm(v)
	if err != nil {
		if code := status.Code(err); code == codes.Unauthenticated {
			return err
		}
		return c.showModules(v, http.StatusUnprocessableEntity, modulesView{Error: status.Convert(err).Message(), Form: head})
	}
	v.redirectWith(href("apps", v.app, "modules"), pushed{head.Name + "@" + head.Version, answer.Result})
	return nil
}

// pushForm streams the file of a form to the API. The text fields precede the file in the
// form, so nothing needs to be buffered.
func (c *console) pushForm(v *visit) (*apiv1.PushModuleRequest_Head, *apiv1.PushModuleResponse, error) {
	head := &apiv1.PushModuleRequest_Head{App: v.app}
	// If the body is not read to its end, browsers report a broken connection instead of
	// showing the response.
	defer func() { _, _ = io.Copy(io.Discard, v.r.Body) }()
	form, err := v.r.MultipartReader()
	if err != nil {
		return head, nil, status.Errorf(codes.InvalidArgument, "read the form: %v", err)
	}
	for {
		part, err := form.NextPart()
		if errors.Is(err, io.EOF) {
			return head, nil, status.Error(codes.InvalidArgument, "no file came with the form: choose a .wasm file")
		}
		if err != nil {
			return head, nil, readError(err)
		}
		if part.FormName() == "file" {
			answer, err := c.push(v.r, v.session.token, head, part)
			return head, answer, err
		}
		if err := readField(head, part); err != nil {
			return head, nil, err
		}
	}
}

func readField(head *apiv1.PushModuleRequest_Head, part *multipart.Part) error {
	b, err := io.ReadAll(io.LimitReader(part, maxField+1))
	if err != nil {
		return readError(err)
	}
	if len(b) > maxField {
		return status.Errorf(codes.InvalidArgument, "the field %q is longer than %d KiB", part.FormName(), maxField>>10)
	}
	text := string(bytes.TrimSpace(b))
	switch part.FormName() {
	case "name":
		head.Name = text
	case "version":
		head.Version = text
	case "manifest":
		head.Manifest = text
	}
	return nil
}

// readError returns an error with the limit when a body exceeded it.
func readError(err error) error {
	var tooLarge *http.MaxBytesError
	if errors.As(err, &tooLarge) {
		return status.Errorf(codes.ResourceExhausted, "the upload is larger than %d MiB, the limit for a module: make it smaller, or raise the server's --upload-size", tooLarge.Limit>>20)
	}
	return status.Error(codes.InvalidArgument, fmt.Sprintf("read the upload: %v", err))
}
