package api

import (
	"context"
	"strings"
	"time"
	"unicode/utf8"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/wheelworkhq/wheelwork/access"
	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/job"
	"github.com/wheelworkhq/wheelwork/modules"
	"github.com/wheelworkhq/wheelwork/sched/core"
)

// Bounds of a trial.
const (
	maxTrialInput = 1 << 20
	trialTime     = 10 * time.Second // by default
	maxTrialTime  = 30 * time.Second
)

// TryScript executes a handler of a script that is not stored. It takes the turns of uploads, so an
// app has at most one trial or upload in the verifier.
func (a *modulesAPI) TryScript(ctx context.Context, req *apiv1.TryScriptRequest) (*apiv1.TryScriptResponse, error) {
	app, by := core.AppOf(req.App), access.Caller(ctx)
	if by == nil {
		return nil, status.Error(codes.PermissionDenied, "the call has no principal")
	}
	if a.s.cfg.Scripts == nil {
		return nil, status.Error(codes.FailedPrecondition, "this server tries no scripts: try it with `wheelwork module run`")
	}
	t, err := trialOf(app, req)
	if err != nil {
		return nil, err
	}
	of, leave, err := a.s.uploads.admit(app)
	if err != nil {
		return nil, err
	}
	defer leave()
	code, err := a.s.cfg.Modules.NewUpload()
	if err != nil {
		return nil, status.Error(codes.ResourceExhausted, err.Error())
	}
	defer code.Close() //nolint:errcheck // nothing keeps its bytes
	if _, err := code.Write(req.Code); err != nil {
		return nil, core.Invalid(err)
	}
	endTurn, err := of.enter(ctx)
	if err != nil {
		return nil, err
	}
	defer endTurn()
	interpreter, err := a.interpreterOf(ctx, code, req)
	if err != nil {
		return nil, err
	}
	r, err := a.s.cfg.Scripts.TryScript(ctx, code, interpreter, t)
	switch {
	case ctx.Err() != nil:
		return nil, status.FromContextError(ctx.Err()).Err()
	case err != nil:
		return nil, refused(err)
	}
	a.s.cfg.Logger.InfoContext(ctx, "a script was tried", "app", app, "module", t.Module, "caller", by.Name, "outcome", r.Outcome, "took", r.Took)
	return messageOf(r), nil
}

// trialOf checks a request.
func trialOf(app string, req *apiv1.TryScriptRequest) (Trial, error) {
	t := Trial{App: app, Module: req.Name, Handler: req.Handler, Input: []byte(req.Input), Timeout: trialTime}
	if _, _, err := job.ParseModule(req.Name + "@1"); err != nil {
		return t, core.Invalid(err)
	}
	if len(t.Input) > maxTrialInput {
		return t, status.Errorf(codes.InvalidArgument, "input: %d bytes, at most %d are accepted", len(t.Input), maxTrialInput)
	}
	if req.Timeout != "" {
		var err error
		if t.Timeout, err = time.ParseDuration(req.Timeout); err != nil || t.Timeout <= 0 || t.Timeout > maxTrialTime {
			return t, status.Errorf(codes.InvalidArgument, "timeout: %.40q is not a time of at most %s, as 10s", req.Timeout, maxTrialTime)
		}
	}
	return t, nil
}

// interpreterOf returns the interpreter of a script, after the upload verifier has inspected the
// script. It adds the manifest of the request to the code.
func (a *modulesAPI) interpreterOf(ctx context.Context, code *modules.Upload, req *apiv1.TryScriptRequest) ([]byte, error) {
	info, err := a.s.cfg.Inspect(ctx, code, req.Manifest)
	switch {
	case ctx.Err() != nil:
		return nil, status.FromContextError(ctx.Err()).Err()
	case err != nil:
		return nil, refused(err)
	case info.Interpreter == "":
		return nil, status.Error(codes.InvalidArgument, "the code is no script: modules of other languages run on hosts, and here with `wheelwork module run`")
	}
	m := &apiv1.Module{App: core.AppOf(req.App), Name: req.Name, Version: "the text", Interpreter: info.Interpreter}
	if _, err := core.Ask(ctx, a.s.loop, func(l *core.Loop) (struct{}, error) {
		return struct{}{}, l.Catalog.HasInterpreter(m, info.GetInterpreter)
	}); err != nil {
		return nil, err
	}
	interpreter, err := a.s.cfg.Modules.Get(info.Interpreter)
	if err != nil {
		return nil, status.Errorf(codes.Internal, "read the interpreter of the script: %v", err)
	}
	return interpreter, nil
}

// refused returns an error of the upload verifier: its own as it is, and why it refuses a module as
// one for the caller.
func refused(err error) error {
	if _, ok := status.FromError(err); ok {
		return err
	}
	return core.Invalid(err)
}

// valid returns a text of a script as UTF-8.
func valid(text string) string { return strings.ToValidUTF8(text, "\uFFFD") }

func messageOf(r Tried) *apiv1.TryScriptResponse {
	m := &apiv1.TryScriptResponse{Outcome: r.Outcome, Error: valid(r.Error), Code: valid(r.Code), Trace: valid(r.Trace), TookMs: r.Took.Milliseconds()}
	if utf8.Valid(r.Output) {
		m.Output = string(r.Output)
	} else {
		m.OutputBytes = r.Output
	}
	for _, line := range r.Log {
		m.Log = append(m.Log, &apiv1.TriedLine{Level: line.Level, Text: valid(line.Text)})
	}
	return m
}
