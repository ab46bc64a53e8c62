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
)

// uploadAPI takes the bytes of a module as the raw body of a PUT: 201 when the
// version is new, 200 when the same bytes were there. A manifest may come in
// the header X-Wheelwork-Manifest.
func (c *console) uploadAPI(w http.ResponseWriter, r *http.Request) {
	token, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if !ok {
		writeAPIError(w, status.Error(codes.Unauthenticated, "no token: send it as Authorization: Bearer TOKEN"))
		return
	}
	answer, err := c.push(r.Context(), token, &apiv1.PushModuleRequest_Head{
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
func (c *console) push(ctx context.Context, token string, head *apiv1.PushModuleRequest_Head, from io.Reader) (*apiv1.PushModuleResponse, error) {
	ctx, cancel := context.WithCancel(withToken(ctx, token)) // a reader that fails must not leave half a module waiting
	defer cancel()
	stream, err := c.modules.PushModule(ctx)
	if err != nil {
		return nil, err
	}
	req := &apiv1.PushModuleRequest{Part: &apiv1.PushModuleRequest_Head_{Head: head}}
	buf := make([]byte, chunkSize)
	for {
		if err := stream.Send(req); errors.Is(err, io.EOF) {
			break // the API has answered already; CloseAndRecv says what
		} else if err != nil {
			return nil, err
		}
		n, err := io.ReadFull(from, buf)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
			return nil, readError(err)
		}
		req = &apiv1.PushModuleRequest{Part: &apiv1.PushModuleRequest_Chunk{Chunk: buf[:n]}}
	}
	return stream.CloseAndRecv()
}
