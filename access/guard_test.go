package access

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
)

// TestRefusalNamesTheFile checks that a refusal names the file with the token that the
// method needs.
func TestRefusalNamesTheFile(t *testing.T) {
	g := New()
	g.Allow("the-administrator", Admin)
	g.Allow("a-worker-program", Worker)
	for _, tt := range []struct {
		method, token string
		code          codes.Code
		want          string
	}{
		{apiv1.Worker_Work_FullMethodName, "wrong", codes.Unauthenticated, "the token was refused: it is not one of this server; a worker uses the one in the file host-token of the server's data directory"},
		{apiv1.Nameserver_Watch_FullMethodName, "the-administrator", codes.PermissionDenied, "the token's role admin lacks the permission work: a worker uses the one in the file host-token"},
		{apiv1.Worker_Work_FullMethodName, "", codes.Unauthenticated, "a token is needed: a worker uses the one in the file host-token"},
		{apiv1.Jobs_ListJobs_FullMethodName, "wrong", codes.Unauthenticated, "people sign in with `wheelwork login`, programs use a token of `wheelwork token create`"},
		{apiv1.Jobs_ListJobs_FullMethodName, "a-worker-program", codes.PermissionDenied, "lacks the permission jobs.read: people sign in with `wheelwork login`"},
		{apiv1.Nameserver_Join_FullMethodName, "the-administrator", codes.PermissionDenied, "(--server-token-file)"},
	} {
		ctx := t.Context()
		if tt.token != "" {
			ctx = metadata.NewIncomingContext(ctx, metadata.Pairs("authorization", "Bearer "+tt.token))
		}
		if err := g.Check(ctx, tt.method); status.Code(err) != tt.code || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s with %q: %v, want %q", tt.method, tt.token, err, tt.want)
		}
	}
}

// TestRefusalOfLongApp refuses a call whose app has a size of MiB: neither the answer nor the audit log has
// it.
func TestRefusalOfLongApp(t *testing.T) {
	g := New()
	g.Issue([]Credential{{Digest: Digest("text"), Of: &Principal{Name: "ci", Kind: KindService, Token: "tok-1", Bindings: Bindings{{Role: "viewer", Scope: Scope{App: "shop"}}}}}})
	ctx := metadata.NewIncomingContext(t.Context(), metadata.Pairs("authorization", "Bearer text"))
	_, err := g.Unary(ctx, &apiv1.GetJobRequest{App: strings.Repeat("x", 3<<20), Name: "j"}, &grpc.UnaryServerInfo{FullMethod: apiv1.Jobs_GetJob_FullMethodName}, func(context.Context, any) (any, error) {
		t.Error("the call was not refused")
		return nil, nil
	})
	if status.Code(err) != codes.PermissionDenied || len(err.Error()) > 1<<10 || !strings.Contains(err.Error(), "xxx…") {
		t.Errorf("an answer of %d bytes: %.300s", len(err.Error()), err)
	}
	events := g.Refusals.Take(time.Now())
	if len(events) != 1 || len(events[0].App) > 2<<10 || len(events[0].Message) > 1<<10 {
		t.Errorf("%d events", len(events))
	}
}

// TestReplaceTokens replaces the tokens of a guard while streams are open. A stream ends if its
// token is gone or has another role, and its caller learns why; the others continue.
func TestReplaceTokens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := New()
		g.Replace(Token{"stays", Admin}, Token{"goes", Worker}, Token{"changes", Host}, Token{"", Server})
		g.Allow("added", Server)
		open := map[string]context.Context{}
		for _, token := range []string{"stays", "goes", "changes", "added", "never"} {
			open[token] = g.Bound(t.Context(), []string{"Bearer " + token})
		}
		g.Replace(Token{"stays", Admin}, Token{"changes", Worker}, Token{"new", Host})
		for token, want := range map[string]string{"stays": "admin", "goes": "", "changes": "worker", "added": "", "new": "host", "": ""} {
			role := ""
			if p, err := g.Identify(token); err == nil {
				role = p.Role()
			}
			if role != want {
				t.Errorf("the token %q has the role %q, want %q", token, role, want)
			}
		}
		synctest.Wait()
		for token, want := range map[string]bool{"stays": true, "never": true, "goes": false, "changes": false, "added": false} {
			if err := open[token].Err(); (err == nil) != want {
				t.Errorf("the stream of the token %q: %v", token, err)
			}
		}
		info := &grpc.StreamServerInfo{FullMethod: "/grpc.health.v1.Health/Watch"}
		for token, want := range map[string]codes.Code{"goes": codes.Unauthenticated, "stays": codes.Canceled} {
			err := g.Stream(nil, stream{ctx: open[token]}, info, func(any, grpc.ServerStream) error { return status.Error(codes.Canceled, "the context has ended") })
			if status.Code(err) != want {
				t.Errorf("the caller with the token %q gets %v, want %v", token, err, want)
			}
		}
	})
}

// stream is a stream with a context alone.
type stream struct {
	grpc.ServerStream
	ctx context.Context
}

func (s stream) Context() context.Context { return s.ctx }

// TestSignInIsAnsweredWhenItsTokenIsKnown: another server has issued the token, and this one learns of it later.
func TestSignInIsAnsweredWhenItsTokenIsKnown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := New()
		signIn := func() (took time.Duration, known bool) {
			begin := time.Now()
			resp, err := g.Unary(t.Context(), nil, &grpc.UnaryServerInfo{FullMethod: apiv1.Access_SignIn_FullMethodName}, func(context.Context, any) (any, error) {
				return &apiv1.SignInResponse{Token: "wws_x"}, nil
			})
			if s, ok := resp.(*apiv1.SignInResponse); err != nil || !ok || s.Token != "wws_x" {
				t.Fatalf("%v, %v", resp, err)
			}
			_, err = g.Identify("wws_x")
			return time.Since(begin), err == nil
		}
		if took, known := signIn(); took != 5*time.Second || known {
			t.Errorf("a token that stays unknown: %v, %v", took, known)
		}
		go func() {
			time.Sleep(time.Second)
			g.Issue(nil)
			time.Sleep(time.Second)
			g.Issue([]Credential{{Digest: Digest("wws_x"), Of: &Principal{Name: "ada"}}})
		}()
		if took, known := signIn(); took != 2*time.Second || !known {
			t.Errorf("a token that another server has issued: %v, %v", took, known)
		}
		if took, _ := signIn(); took != 0 {
			t.Errorf("a known token: %v", took)
		}
	})
}
