package sched_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/modules"
)

// TestTryScript tries scripts as callers with several roles. A trial stores nothing.
func TestTryScript(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAudited(t, false)
		defer a.end()
		mods := apiv1.NewModulesClient(a.c.conn)
		as := func(role string) context.Context {
			made, err := apiv1.NewAccessClient(a.c.conn).CreateToken(a.admin, &apiv1.CreateTokenRequest{Name: role, Role: role, Scope: "app:shop"})
			if err != nil {
				t.Fatal(err)
			}
			return withToken(t, made.Token)
		}
		script := "script for " + modules.Digest(codeOf("interpreter"))
		try := func(ctx context.Context, change func(*apiv1.TryScriptRequest)) (*apiv1.TryScriptResponse, error) {
			req := &apiv1.TryScriptRequest{App: "shop", Name: "s", Code: []byte(script), Input: "Ada"}
			if change != nil {
				change(req)
			}
			return mods.TryScript(ctx, req)
		}
		developer := as("developer")
		if _, err := try(developer, nil); status.Code(err) != codes.FailedPrecondition || !strings.Contains(err.Error(), "fetch it so") {
			t.Errorf("without the interpreter: %v", err)
		}
		push, err := mods.PushModule(a.admin)
		if err == nil {
			err = push.Send(&apiv1.PushModuleRequest{Part: &apiv1.PushModuleRequest_Head_{Head: &apiv1.PushModuleRequest_Head{App: "shop", Name: "n", Version: "interpreter"}}})
		}
		if err == nil {
			err = push.Send(&apiv1.PushModuleRequest{Part: &apiv1.PushModuleRequest_Chunk{Chunk: codeOf("interpreter")}})
		}
		if err == nil {
			_, err = push.CloseAndRecv()
		}
		if err != nil {
			t.Fatal(err)
		}
		before := len(a.events(&apiv1.ListAuditEventsRequest{}))
		r, err := try(developer, nil)
		if err != nil || r.Outcome != "succeeded" || r.Output != "Ada" || r.TookMs != 1000 || len(r.Log) != 1 || r.Log[0].Text != "a\uFFFDb" {
			t.Errorf("a trial: %v, %v", r, err)
		}
		if got := a.trials[0]; got.App != "shop" || got.Module != "s" || got.Timeout != 10*time.Second {
			t.Errorf("the trial was %v", got)
		}
		if r, err := try(developer, func(r *apiv1.TryScriptRequest) { r.Timeout = "30s" }); err != nil || a.trials[1].Timeout != 30*time.Second {
			t.Errorf("with a timeout: %v, %v", r, err)
		}
		// A deployer may upload and not execute, an operator may execute and not upload.
		for _, role := range []string{"deployer", "operator", "viewer"} {
			if _, err := try(as(role), nil); status.Code(err) != codes.PermissionDenied {
				t.Errorf("a %s: %v", role, err)
			}
		}
		if _, err := try(developer, func(r *apiv1.TryScriptRequest) { r.App = "bank" }); status.Code(err) != codes.PermissionDenied {
			t.Errorf("in another app: %v", err)
		}
		for name, change := range map[string]func(*apiv1.TryScriptRequest){
			"no script":    func(r *apiv1.TryScriptRequest) { r.Code = codeOf("interpreter") },
			"too long":     func(r *apiv1.TryScriptRequest) { r.Timeout = "31s" },
			"no time":      func(r *apiv1.TryScriptRequest) { r.Timeout = "soon" },
			"a large text": func(r *apiv1.TryScriptRequest) { r.Input = strings.Repeat("x", 1<<20+1) },
			"a bad name":   func(r *apiv1.TryScriptRequest) { r.Name = "a/b" },
		} {
			if _, err := try(developer, change); status.Code(err) != codes.InvalidArgument {
				t.Errorf("%s: %v", name, err)
			}
		}
		a.badScript = errors.New("module refused: main.js:1:2: SyntaxError")
		if _, err := try(developer, nil); status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), "main.js:1:2") {
			t.Errorf("an error of syntax: %v", err)
		}
		list, err := mods.ListModules(a.admin, &apiv1.ListModulesRequest{App: "shop"})
		if err != nil || len(list.Modules) != 1 {
			t.Errorf("after the trials there are the modules %v, %v", list, err)
		}
		if n := len(a.trials); n != 2 {
			t.Errorf("%d scripts were executed, want 2", n)
		}
		for _, e := range a.events(&apiv1.ListAuditEventsRequest{})[before:] {
			if !strings.HasPrefix(e.Code, "access.") {
				t.Errorf("a trial made the audit event %s", e.Code)
			}
		}
	})
}
