package console

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/modules/transfer"
)

// uploadAPI accepts the bytes of a module as the raw body of a PUT. It returns 201 for a
// new version, and 200 when the version exists with the same bytes. The header
// X-Wheelwork-Manifest may contain a manifest.
func (c *console) uploadAPI(w http.ResponseWriter, r *http.Request) {
	token, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if !ok {
		writeAPIError(w, status.Error(codes.Unauthenticated, "no token: send it as Authorization: Bearer TOKEN"))
		return
	}
	answer, err := c.push(r, token, &apiv1.PushModuleRequest_Head{
		App:      r.PathValue("app"),
		Name:     r.PathValue("name"),
		Version:  r.PathValue("version"),
		Manifest: r.Header.Get("X-Wheelwork-Manifest"),
	}, r.Body)
	if err != nil {
		writeAPIError(w, err)
		return
	}
	body, err := jsonForm().Marshal(answer)
	if err != nil {
		writeAPIError(w, err)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	if answer.Result == "created" {
		w.WriteHeader(http.StatusCreated)
	}
	_, _ = w.Write(body)
}

// push streams a module to the API: the head, then the bytes.
func (c *console) push(r *http.Request, token string, head *apiv1.PushModuleRequest_Head, from io.Reader) (*apiv1.PushModuleResponse, error) {
	ctx, cancel := context.WithCancel(c.withToken(r, token)) // if the reader fails, no partial module must wait
	defer cancel()
	stream, err := c.modules.PushModule(ctx)
	if err != nil {
		return nil, err
	}
	return transfer.Push(stream, head, uploadBody{from}, chunkSize)
}

// uploadBody is the body of an upload whose errors are for the uploader.
type uploadBody struct{ io.Reader }

func (b uploadBody) Read(p []byte) (int, error) {
	n, err := b.Reader.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		err = readError(err)
	}
	return n, err
}
