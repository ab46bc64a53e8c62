package api

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/job"
	"github.com/wheelworkhq/wheelwork/job/naming"
	"github.com/wheelworkhq/wheelwork/modules"
	"github.com/wheelworkhq/wheelwork/modules/transfer"
	"github.com/wheelworkhq/wheelwork/sched/core"
)

type modulesAPI struct {
	apiv1.UnimplementedModulesServer
	s *Services
}

func (a *modulesAPI) PushModule(stream apiv1.Modules_PushModuleServer) error {
	first, err := stream.Recv()
	if err != nil {
		return err
	}
	head := first.GetHead()
	if head == nil {
		return status.Error(codes.InvalidArgument, "the first message of an upload must hold the head")
	}
	m, err := newModule(head)
	if err != nil {
		return err
	}
	of, leave, err := a.s.uploads.admit(m.App)
	if err != nil {
		return err
	}
	defer leave()
	code, err := a.s.cfg.Modules.NewUpload()
	if err != nil {
		return status.Error(codes.ResourceExhausted, err.Error())
	}
	defer code.Close() //nolint:errcheck // the module store has a copy
	if most := a.s.cfg.UploadBytes; most != nil {
		code.Limit(most())
	}
	if err := transfer.Receive(stream, code); err != nil {
		return err
	}
	ctx := stream.Context()
	endTurn, err := of.enter(ctx)
	if err != nil {
		return err
	}
	info, err := a.s.cfg.Inspect(ctx, code, head.Manifest)
	endTurn()
	switch {
	case ctx.Err() != nil:
		return status.FromContextError(ctx.Err()).Err()
	case err != nil:
		if _, ok := status.FromError(err); ok { // the upload verifier itself failed
			return err
		}
		return core.Invalid(err)
	}
	m.Kind, m.Handlers, m.Imports, m.Needs = info.Kind, info.Handlers, info.Imports, info.Needs
	m.Size, m.Requests, m.Interpreter, m.InputSchemas = code.Size(), info.Requests, info.Interpreter, info.InputSchemas
	if err := job.CheckGrants(m.Requests); err != nil {
		return core.Invalid(fmt.Errorf("the manifest asks for what cannot be granted: %w", err))
	}
	m.Digest = info.Digest
	if m.Signatures, err = checkSignatures(head.Signatures, m.Digest); err != nil {
		return err
	}
	// Check this before the bytes are stored: an app that requires signatures must not store
	// uploads without them.
	mayPut := func(l *core.Loop) error {
		return cmp.Or(l.Catalog.MayPut(m), l.Catalog.HasInterpreter(m, info.GetInterpreter))
	}
	if _, err := core.Ask(ctx, a.s.loop, func(l *core.Loop) (struct{}, error) { return struct{}{}, mayPut(l) }); err != nil {
		return err
	}
	if err := a.checkScript(ctx, of, code, m.Interpreter); err != nil {
		return err
	}
	if head.DryRun {
		return stream.SendAndClose(&apiv1.PushModuleResponse{Module: m, Result: "checked"})
	}
	a.s.uploads.blobs.RLock()
	defer a.s.uploads.blobs.RUnlock()
	if err := a.s.cfg.Modules.PutUpload(code, m.Digest); err != nil {
		return status.Error(codes.ResourceExhausted, err.Error())
	}
	resp, err := core.AskDurable(ctx, a.s.loop, func(l *core.Loop, answer func(*apiv1.PushModuleResponse, error)) {
		if err := mayPut(l); err != nil { // its interpreter may have been collected meanwhile
			answer(nil, err)
			return
		}
		l.Catalog.PutThen(m, answer)
	})
	if err != nil {
		return err
	}
	return stream.SendAndClose(resp)
}

// checkScript lets the upload verifier parse an upload that is a script.
func (a *modulesAPI) checkScript(ctx context.Context, of *appUploads, code *modules.Upload, digest string) error {
	if digest == "" || a.s.cfg.Scripts == nil {
		return nil
	}
	interpreter, err := a.s.cfg.Modules.Get(digest)
	if err != nil {
		return status.Errorf(codes.Internal, "read the interpreter of the script: %v", err)
	}
	endTurn, err := of.enter(ctx)
	if err != nil {
		return err
	}
	defer endTurn()
	err = a.s.cfg.Scripts.CheckScript(ctx, code, interpreter)
	if _, ok := status.FromError(err); err == nil || ok { // ok: the upload verifier itself failed
		return err
	}
	return core.Invalid(err)
}

func newModule(head *apiv1.PushModuleRequest_Head) (*apiv1.Module, error) {
	m := &apiv1.Module{App: core.AppOf(head.App), Name: head.Name, Version: head.Version, Manifest: head.Manifest}
	if err := naming.Check("app", m.App); err != nil {
		return nil, core.Invalid(err)
	}
	if _, _, err := job.ParseModule(head.Name + "@" + head.Version); err != nil {
		return nil, core.Invalid(err)
	}
	return m, nil
}

// checkSignatures verifies the signatures of a digest, and returns one for each key.
func checkSignatures(sent []*apiv1.Signature, digest string) ([]*apiv1.Signature, error) {
	if len(sent) > modules.MaxSignatures {
		return nil, status.Errorf(codes.InvalidArgument, "%d signatures came, the limit is %d", len(sent), modules.MaxSignatures)
	}
	var kept []*apiv1.Signature
	for _, s := range sent {
		if err := (modules.Signature{Key: s.GetKey(), Signature: s.GetSignature()}).Verify(digest); err != nil {
			return nil, core.Invalid(err)
		}
		kept, _ = core.WithSignature(kept, &apiv1.Signature{Key: s.Key, Signature: s.Signature})
	}
	return kept, nil
}

func (a *modulesAPI) GetModule(ctx context.Context, req *apiv1.GetModuleRequest) (*apiv1.Module, error) {
	return core.Ask(ctx, a.s.loop, func(l *core.Loop) (*apiv1.Module, error) {
		return l.Catalog.Target(core.AppOf(req.App), req.Name, req.Version)
	})
}

func (a *modulesAPI) ListModules(ctx context.Context, req *apiv1.ListModulesRequest) (*apiv1.ListModulesResponse, error) {
	return core.Ask(ctx, a.s.loop, func(l *core.Loop) (*apiv1.ListModulesResponse, error) {
		return &apiv1.ListModulesResponse{Modules: l.Catalog.Modules(core.AppOf(req.App))}, nil
	})
}

func (a *modulesAPI) DownloadModule(req *apiv1.DownloadModuleRequest, stream apiv1.Modules_DownloadModuleServer) error {
	m, err := core.Ask(stream.Context(), a.s.loop, func(l *core.Loop) (*apiv1.Module, error) {
		return l.Catalog.Target(core.AppOf(req.App), req.Name, req.Version)
	})
	if err != nil {
		return err
	}
	code, err := a.s.cfg.Modules.Get(m.Digest)
	switch {
	case errors.Is(err, modules.ErrNotFound) && m.CollectedAt != nil:
		return status.Errorf(codes.FailedPrecondition, "the bytes of module %s@%s were deleted, or collected because nothing referred to it: push the same bytes again", m.Name, m.Version)
	case errors.Is(err, modules.ErrNotFound):
		return status.Error(codes.NotFound, err.Error())
	case err != nil:
		return status.Error(codes.DataLoss, err.Error())
	}
	return transfer.Send(code, func(chunk []byte) error {
		return stream.Send(&apiv1.DownloadModuleResponse{Data: chunk})
	})
}

func (a *modulesAPI) SignModule(ctx context.Context, req *apiv1.SignModuleRequest) (*apiv1.Module, error) {
	if req.Signature == nil {
		return nil, status.Error(codes.InvalidArgument, "the signature is missing")
	}
	return core.Change(ctx, a.s.loop, func(l *core.Loop) (*apiv1.Module, error) {
		return l.Catalog.SignModule(core.AppOf(req.App), req.Name+"@"+req.Version, req.Signature)
	})
}

func (a *modulesAPI) SetAlias(ctx context.Context, req *apiv1.SetAliasRequest) (*apiv1.Alias, error) {
	req, err := core.AliasRequest(req)
	if err != nil {
		return nil, err
	}
	return core.Change(ctx, a.s.loop, func(l *core.Loop) (*apiv1.Alias, error) { return l.Catalog.SetAlias(req) })
}

func (a *modulesAPI) GetAlias(ctx context.Context, req *apiv1.GetAliasRequest) (*apiv1.Alias, error) {
	return core.Ask(ctx, a.s.loop, func(l *core.Loop) (*apiv1.Alias, error) {
		return l.Catalog.GetAlias(core.AppOf(req.App), req.Module+"@"+req.Name)
	})
}

func (a *modulesAPI) ListAliases(ctx context.Context, req *apiv1.ListAliasesRequest) (*apiv1.ListAliasesResponse, error) {
	return core.Ask(ctx, a.s.loop, func(l *core.Loop) (*apiv1.ListAliasesResponse, error) {
		return &apiv1.ListAliasesResponse{Aliases: l.Catalog.ListAliases(core.AppOf(req.App), req.Module)}, nil
	})
}

func (a *modulesAPI) DeleteAlias(ctx context.Context, req *apiv1.DeleteAliasRequest) (*apiv1.DeleteAliasResponse, error) {
	return core.Change(ctx, a.s.loop, func(l *core.Loop) (*apiv1.DeleteAliasResponse, error) {
		return &apiv1.DeleteAliasResponse{}, l.Catalog.DeleteAlias(core.AppOf(req.App), req.Module, req.Name, req.Force)
	})
}

func (a *modulesAPI) GetRollout(ctx context.Context, req *apiv1.GetRolloutRequest) (*apiv1.Rollout, error) {
	return core.Ask(ctx, a.s.loop, func(l *core.Loop) (*apiv1.Rollout, error) {
		return l.Catalog.RolloutOf(core.AppOf(req.App), req.Name, req.Version)
	})
}

func (a *modulesAPI) DeleteModule(ctx context.Context, req *apiv1.DeleteModuleRequest) (*apiv1.DeleteModuleResponse, error) {
	return a.s.deleteModule(ctx, core.AppOf(req.App), req.Name+"@"+req.Version, req.Force)
}

// defaultAge is the age from which a collection deletes a version that nothing refers to. The
// age counts from the creation of the version.
const defaultAge = 24 * time.Hour

func (a *modulesAPI) CollectModules(ctx context.Context, req *apiv1.CollectModulesRequest) (*apiv1.CollectModulesResponse, error) {
	age := defaultAge
	if req.OlderThan != "" {
		var err error
		if age, err = time.ParseDuration(req.OlderThan); err != nil || age < 0 {
			return nil, status.Errorf(codes.InvalidArgument, "older_than: %q is not a time, as 24h", req.OlderThan)
		}
	}
	return a.s.collect(ctx, core.AppOf(req.App), age, req.DryRun)
}

func (a *workerAPI) GetModuleProof(ctx context.Context, req *apiv1.GetModuleProofRequest) (*apiv1.ModuleProof, error) {
	return core.Ask(ctx, a.s.loop, func(l *core.Loop) (*apiv1.ModuleProof, error) { return l.Catalog.Proof(req.App, req.Digest) })
}
