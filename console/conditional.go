package console

import (
	"context"
	"net/http"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
)

// ifMatchKey is the metadata key with which the gateway passes the header If-Match to
// conditional.
const ifMatchKey = "if-match"

// conditional copies the header If-Match of an HTTP request into the message of its call.
// It refuses the header for calls that would ignore it, because the client relies on the
// condition.
type conditional struct{ grpc.ClientConnInterface }

func (c conditional) Invoke(ctx context.Context, method string, args, reply any, opts ...grpc.CallOption) error {
	md, _ := metadata.FromOutgoingContext(ctx)
	headers := md.Get(ifMatchKey)
	if len(headers) == 0 {
		return c.ClientConnInterface.Invoke(ctx, method, args, reply, opts...)
	}
	etag, err := oneEtag(headers)
	if err != nil {
		return err
	}
	switch req := args.(type) {
	case *apiv1.ApplyJobRequest:
		req.IfMatch = etag
	case *apiv1.DeleteJobRequest:
		req.IfMatch = etag
	default:
		return status.Error(codes.InvalidArgument, "the header If-Match goes with PUT and DELETE of a job only: leave it out")
	}
	md = md.Copy()
	md.Delete(ifMatchKey)
	return c.ClientConnInterface.Invoke(metadata.NewOutgoingContext(ctx, md), method, args, reply, opts...)
}

// oneEtag parses If-Match: "ETAG" or *. It accepts weak etags too: compressing proxies
// make an etag weak, and it still identifies the same definition.
func oneEtag(headers []string) (string, error) {
	text := strings.TrimSpace(headers[0])
	if text == "*" && len(headers) == 1 {
		return text, nil
	}
	etag, opened := strings.CutPrefix(strings.TrimPrefix(text, "W/"), `"`)
	etag, closed := strings.CutSuffix(etag, `"`)
	if !opened || !closed || etag == "" || etag == "*" || strings.Contains(etag, `"`) || len(headers) > 1 {
		return "", status.Errorf(codes.InvalidArgument, "the header If-Match is %q: send the one ETag of the answer that the change is made from, with its quotes, or *", strings.Join(headers, ", "))
	}
	return etag, nil
}

// setETag sets the header ETag of a response that contains a job.
func setETag(_ context.Context, w http.ResponseWriter, m proto.Message) error {
	var j *apiv1.Job
	switch m := m.(type) {
	case *apiv1.Job:
		j = m
	case *apiv1.ApplyJobResponse:
		j = m.GetJob()
	}
	if etag := j.GetEtag(); etag != "" {
		w.Header().Set("ETag", `"`+etag+`"`)
	}
	return nil
}
