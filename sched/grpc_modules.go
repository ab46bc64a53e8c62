package sched

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/job"
	"github.com/wheelworkhq/wheelwork/job/naming"
	"github.com/wheelworkhq/wheelwork/modules"
	"github.com/wheelworkhq/wheelwork/modules/transfer"
)

type modulesAPI struct {
	apiv1.UnimplementedModulesServer
	s *Server
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
	defer code.Close() //nolint:errcheck // what is kept of it was put
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
		return invalid(err)
	}
	m.Kind, m.Handlers, m.Imports, m.Needs = info.Kind, info.Handlers, info.Imports, info.Needs
	m.Size, m.Requests, m.Interpreter = code.Size(), info.Requests, info.Interpreter
	if err := job.CheckGrants(m.Requests); err != nil {
		return invalid(fmt.Errorf("the manifest asks for what cannot be granted: %w", err))
	}
	m.Digest = info.Digest
	if m.Signatures, err = checkSignatures(head.Signatures, m.Digest); err != nil {
		return err
	}
	// Check this before the bytes are stored: an app that requires signatures must not store
	// uploads without them.
	mayPut := func(l *loop) error { return cmp.Or(l.mayPut(m), l.hasInterpreter(m, info.GetInterpreter)) }
	if _, err := ask(ctx, a.s.loop, func(l *loop) (struct{}, error) { return struct{}{}, mayPut(l) }); err != nil {
		return err
	}
	a.s.uploads.blobs.RLock()
	defer a.s.uploads.blobs.RUnlock()
	if err := a.s.cfg.Modules.PutUpload(code, m.Digest); err != nil {
		return status.Error(codes.ResourceExhausted, err.Error())
	}
	resp, err := askDurable(ctx, a.s.loop, func(l *loop, answer func(*apiv1.PushModuleResponse, error)) {
		if err := mayPut(l); err != nil { // its interpreter may have been collected meanwhile
			answer(nil, err)
			return
		}
		m, result, err := l.putModule(m)
		if err != nil {
			answer(nil, err)
			return
		}
		l.onDurable(func(err error) {
			answer(&apiv1.PushModuleResponse{Module: m, Result: result}, err)
			if err == nil {
				l.prefetch(l.app(m.App), m)
			}
		})
	})
	if err != nil {
		return err
	}
	return stream.SendAndClose(resp)
}

func newModule(head *apiv1.PushModuleRequest_Head) (*apiv1.Module, error) {
	m := &apiv1.Module{App: appOf(head.App), Name: head.Name, Version: head.Version, Manifest: head.Manifest}
	if err := naming.Check("app", m.App); err != nil {
		return nil, invalid(err)
	}
	if _, _, err := job.ParseModule(head.Name + "@" + head.Version); err != nil {
		return nil, invalid(err)
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
			return nil, invalid(err)
		}
		kept, _ = withSignature(kept, &apiv1.Signature{Key: s.Key, Signature: s.Signature})
	}
	return kept, nil
}

// withSignature adds a signature, unless there is one with the same key.
func withSignature(all []*apiv1.Signature, s *apiv1.Signature) (_ []*apiv1.Signature, added bool) {
	if slices.ContainsFunc(all, func(x *apiv1.Signature) bool { return x.Key == s.Key }) {
		return all, false
	}
	return append(slices.Clip(all), s), true
}

// trust caches the trust id of an app.
type trust struct {
	of *apiv1.App // the settings from which id was computed
	id string     // "": the app requires no signatures
}

// checkTrust fails if an app has too many trusted keys or a malformed one, or requires
// signatures without a trusted key.
func checkTrust(m *apiv1.App) error {
	if len(m.TrustedKeys) > modules.MaxKeys {
		return fmt.Errorf("trusted_keys: %d keys, the limit is %d", len(m.TrustedKeys), modules.MaxKeys)
	}
	for _, key := range m.TrustedKeys {
		if _, err := modules.ParseKey(key); err != nil {
			return fmt.Errorf("trusted_keys: %w", err)
		}
	}
	if m.RequireSigned && len(m.TrustedKeys) == 0 {
		return errors.New("require_signed without trusted_keys would refuse every module: trust a key first")
	}
	return nil
}

// trustID identifies the keys that the app trusts; "": it requires no signatures.
func (a *app) trustID() string {
	if s := a.slots[job.ModuleSlot].Settings; s != a.trust.of {
		a.trust = trust{of: s}
		if s.RequireSigned {
			a.trust.id = modules.TrustID(s.TrustedKeys)
		}
	}
	return a.trust.id
}

// signed fails if the app requires signatures and the version has none by a trusted key.
func (a *app) signed(m *apiv1.Module) error {
	s := a.slots[job.ModuleSlot].Settings
	if !s.GetRequireSigned() {
		return nil
	}
	if err := modules.Trusted(m.Digest, signaturesOf(m), s.TrustedKeys); err != nil {
		return status.Errorf(codes.FailedPrecondition, "app %s takes only modules that are signed by one of its %d trusted keys, and %s@%s (%.19s…) is not: sign it with `wheelwork module sign`, or trust the key with `wheelwork app set %s --trust KEY`",
			a.name, len(s.TrustedKeys), m.Name, m.Version, m.Digest, a.name)
	}
	return nil
}

func signaturesOf(m *apiv1.Module) []modules.Signature {
	all := make([]modules.Signature, len(m.Signatures))
	for i, s := range m.Signatures {
		all[i] = modules.Signature{Key: s.Key, Signature: s.Signature}
	}
	return all
}

func (l *loop) module(app, ref string) (*apiv1.Module, error) {
	if a := l.apps[app]; a != nil {
		if m := a.version(ref); m != nil {
			return m, nil
		}
	}
	return nil, status.Errorf(codes.NotFound, "there is no module %s in app %s: `wheelwork module list` shows what there is", ref, app)
}

// target returns a version by name@version, name@alias, or name@latest.
func (l *loop) target(app, name, version string) (*apiv1.Module, error) {
	a := l.apps[app]
	ref := name + "@" + version
	if a == nil {
		return l.module(app, ref)
	}
	if x := a.aliases()[ref]; x != nil {
		ref = name + "@" + x.Version
	}
	if m := a.version(ref); m != nil || version != "latest" {
		return l.module(app, ref)
	}
	var last *apiv1.Module
	for _, m := range l.modules(app) { // the newest of each name first
		if m.Name == name && last == nil {
			last = m
		}
	}
	if last == nil {
		return nil, status.Errorf(codes.NotFound, "there is no module %s in app %s: `wheelwork module list` shows what there is", name, app)
	}
	return last, nil
}

// modules lists versions by name, the newest first.
func (l *loop) modules(app string) []*apiv1.Module {
	a := l.apps[app]
	if a == nil {
		return nil
	}
	var all []*apiv1.Module
	for _, m := range a.slots[job.ModuleSlot].Modules {
		all = append(all, m)
	}
	slices.SortFunc(all, func(x, y *apiv1.Module) int {
		return cmp.Or(cmp.Compare(x.Name, y.Name), y.CreatedAt.AsTime().Compare(x.CreatedAt.AsTime()), cmp.Compare(x.Version, y.Version))
	})
	return all
}

// hasInterpreter fails if a version is a script whose interpreter the server does not have:
// no host could run it. get tells the user how to get the interpreter.
func (l *loop) hasInterpreter(m *apiv1.Module, get string) error {
	if m.Interpreter == "" || l.named(nil)[m.Interpreter] {
		return nil
	}
	return status.Errorf(codes.FailedPrecondition, "%s@%s is a script, and the server does not have the interpreter that it is packed for (%.19s…): %s", m.Name, m.Version, m.Interpreter, get)
}

// mayPut fails if a version cannot be added: its name is that of an alias, the version exists
// with other bytes, or a signature that the app requires is missing.
func (l *loop) mayPut(m *apiv1.Module) error {
	a, ref := l.app(m.App), m.Name+"@"+m.Version
	if a.aliases()[ref] != nil {
		return status.Errorf(codes.AlreadyExists, "%s is an alias: push the version under another name", ref)
	}
	old := a.version(ref)
	if old != nil && old.Digest != m.Digest {
		return status.Errorf(codes.AlreadyExists, "module %s is there with other bytes (%.19s…), and a version never changes: push these bytes (%.19s…) as a new version", ref, old.Digest, m.Digest)
	}
	if old != nil { // the signatures that it has count as well
		with := proto.CloneOf(old)
		with.Signatures = append(with.Signatures, m.Signatures...)
		return a.signed(with)
	}
	return a.signed(m)
}

// putModule adds a version whose bytes are in the module store, restores one whose bytes were
// deleted, or adds signatures to one that exists. result is created, restored or unchanged.
func (l *loop) putModule(m *apiv1.Module) (_ *apiv1.Module, result string, err error) {
	if err := l.mayPut(m); err != nil {
		return nil, "", err
	}
	now := timestamppb.New(l.now)
	for _, s := range m.Signatures {
		s.AddedAt = now
	}
	old := l.app(m.App).version(m.Name + "@" + m.Version)
	if old == nil {
		m.CreatedAt = now
		return m, "created", l.recordModule(m)
	}
	next, result := proto.CloneOf(old), "unchanged"
	if next.CollectedAt != nil {
		next.CollectedAt, result = nil, "restored"
	}
	signed := false
	for _, s := range m.Signatures {
		added := false
		if next.Signatures, added = withSignature(next.Signatures, s); added {
			signed = true
		}
	}
	switch {
	case len(next.Signatures) > modules.MaxSignatures:
		return nil, "", tooManySignatures(old)
	case result == "unchanged" && !signed:
		return old, result, nil
	}
	return next, result, l.recordModule(next)
}

func tooManySignatures(m *apiv1.Module) error {
	return status.Errorf(codes.ResourceExhausted, "module %s@%s has %d signatures, and the limit is %d", m.Name, m.Version, len(m.Signatures), modules.MaxSignatures)
}

func (l *loop) recordModule(m *apiv1.Module) error {
	if err := l.refuse(); err != nil {
		return err
	}
	l.record(l.app(m.App).slots[job.ModuleSlot], &apiv1.Record{Kind: &apiv1.Record_ModulePut{ModulePut: &apiv1.ModulePut{Module: m}}})
	return nil
}

func (a *modulesAPI) GetModule(ctx context.Context, req *apiv1.GetModuleRequest) (*apiv1.Module, error) {
	return ask(ctx, a.s.loop, func(l *loop) (*apiv1.Module, error) {
		return l.target(appOf(req.App), req.Name, req.Version)
	})
}

func (a *modulesAPI) ListModules(ctx context.Context, req *apiv1.ListModulesRequest) (*apiv1.ListModulesResponse, error) {
	return ask(ctx, a.s.loop, func(l *loop) (*apiv1.ListModulesResponse, error) {
		return &apiv1.ListModulesResponse{Modules: l.modules(appOf(req.App))}, nil
	})
}

func (a *modulesAPI) DownloadModule(req *apiv1.DownloadModuleRequest, stream apiv1.Modules_DownloadModuleServer) error {
	m, err := ask(stream.Context(), a.s.loop, func(l *loop) (*apiv1.Module, error) { return l.target(appOf(req.App), req.Name, req.Version) })
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
	return askDurable(ctx, a.s.loop, func(l *loop, answer func(*apiv1.Module, error)) {
		m, err := l.signModule(appOf(req.App), req.Name+"@"+req.Version, req.Signature)
		if err != nil {
			answer(nil, err)
			return
		}
		l.onDurable(func(err error) { answer(m, err) })
	})
}

func (l *loop) signModule(app, ref string, s *apiv1.Signature) (*apiv1.Module, error) {
	old, err := l.module(app, ref)
	if err != nil {
		return nil, err
	}
	if err := (modules.Signature{Key: s.Key, Signature: s.Signature}).Verify(old.Digest); err != nil {
		return nil, invalid(err)
	}
	m := proto.CloneOf(old)
	added := false
	m.Signatures, added = withSignature(m.Signatures, &apiv1.Signature{Key: s.Key, Signature: s.Signature, AddedAt: timestamppb.New(l.now)})
	switch {
	case !added:
		return old, nil
	case len(m.Signatures) > modules.MaxSignatures:
		return nil, tooManySignatures(old)
	}
	return m, l.recordModule(m)
}

func (a *modulesAPI) SetAlias(ctx context.Context, req *apiv1.SetAliasRequest) (*apiv1.Alias, error) {
	req = proto.CloneOf(req)
	req.App = appOf(req.App)
	for _, n := range []struct{ what, name string }{{"app", req.App}, {"module", req.Module}, {"alias", req.Name}} {
		if err := naming.Check(n.what, n.name); err != nil {
			return nil, invalid(err)
		}
	}
	switch {
	case req.Version == "" && req.Canary == nil && !req.EndCanary:
		return nil, status.Error(codes.InvalidArgument, "nothing to do: name a version, a canary, or the end of one")
	case req.Canary != nil && req.EndCanary:
		return nil, status.Error(codes.InvalidArgument, "the request both sets a canary and ends it: choose one")
	}
	if req.Version != "" {
		if err := naming.Check("version", req.Version); err != nil {
			return nil, invalid(err)
		}
	}
	if req.Canary != nil {
		if err := job.CheckCanary(req.Canary); err != nil {
			return nil, invalid(err)
		}
	}
	return askDurable(ctx, a.s.loop, func(l *loop, answer func(*apiv1.Alias, error)) {
		x, err := l.setAlias(req)
		if err != nil {
			answer(nil, err)
			return
		}
		l.onDurable(func(err error) { answer(x, err) })
	})
}

func (a *modulesAPI) GetAlias(ctx context.Context, req *apiv1.GetAliasRequest) (*apiv1.Alias, error) {
	return ask(ctx, a.s.loop, func(l *loop) (*apiv1.Alias, error) {
		app, ref := l.apps[appOf(req.App)], req.Module+"@"+req.Name
		if app == nil || app.aliases()[ref] == nil {
			return nil, noAlias(appOf(req.App), ref)
		}
		return l.aliasMessage(app, app.aliases()[ref]), nil
	})
}

func (a *modulesAPI) ListAliases(ctx context.Context, req *apiv1.ListAliasesRequest) (*apiv1.ListAliasesResponse, error) {
	return ask(ctx, a.s.loop, func(l *loop) (*apiv1.ListAliasesResponse, error) {
		return &apiv1.ListAliasesResponse{Aliases: l.listAliases(appOf(req.App), req.Module)}, nil
	})
}

func (a *modulesAPI) DeleteAlias(ctx context.Context, req *apiv1.DeleteAliasRequest) (*apiv1.DeleteAliasResponse, error) {
	return askDurable(ctx, a.s.loop, func(l *loop, answer func(*apiv1.DeleteAliasResponse, error)) {
		if err := l.deleteAlias(appOf(req.App), req.Module, req.Name, req.Force); err != nil {
			answer(nil, err)
			return
		}
		l.onDurable(func(err error) { answer(&apiv1.DeleteAliasResponse{}, err) })
	})
}

func (a *modulesAPI) GetRollout(ctx context.Context, req *apiv1.GetRolloutRequest) (*apiv1.Rollout, error) {
	return ask(ctx, a.s.loop, func(l *loop) (*apiv1.Rollout, error) {
		m, err := l.target(appOf(req.App), req.Name, req.Version)
		if err != nil {
			return nil, err
		}
		return l.rollout(l.app(m.App), m), nil
	})
}

func (a *modulesAPI) DeleteModule(ctx context.Context, req *apiv1.DeleteModuleRequest) (*apiv1.DeleteModuleResponse, error) {
	return a.s.deleteModule(ctx, appOf(req.App), req.Name+"@"+req.Version, req.Force)
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
	return a.s.collect(ctx, appOf(req.App), age, req.DryRun)
}

func (a *workerAPI) GetModuleProof(ctx context.Context, req *apiv1.GetModuleProofRequest) (*apiv1.ModuleProof, error) {
	return ask(ctx, a.s.loop, func(l *loop) (*apiv1.ModuleProof, error) {
		app := l.apps[req.App]
		if app == nil {
			return nil, status.Errorf(codes.NotFound, "there is no app %q", req.App)
		}
		s := app.slots[job.ModuleSlot].Settings
		p := &apiv1.ModuleProof{Required: s.GetRequireSigned(), Keys: s.GetTrustedKeys()}
		for _, m := range app.slots[job.ModuleSlot].Modules {
			if m.Digest != req.Digest {
				continue
			}
			for _, sig := range m.Signatures {
				p.Signatures, _ = withSignature(p.Signatures, sig)
			}
		}
		return p, nil
	})
}
