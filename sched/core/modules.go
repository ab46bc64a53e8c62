package core

import (
	"cmp"
	"slices"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/job"
	"github.com/wheelworkhq/wheelwork/modules"
)

// WithSignature adds a signature, unless there is one with the same key.
func WithSignature(all []*apiv1.Signature, s *apiv1.Signature) (_ []*apiv1.Signature, added bool) {
	if slices.ContainsFunc(all, func(x *apiv1.Signature) bool { return x.Key == s.Key }) {
		return all, false
	}
	return append(slices.Clip(all), s), true
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
func (a *app) signed(m *apiv1.Module, with *Together) error {
	s := with.settingsOf(a)
	if !s.GetRequireSigned() {
		return nil
	}
	if err := modules.Trusted(m.Digest, signaturesOf(m), s.TrustedKeys); err != nil {
		return status.Errorf(codes.FailedPrecondition, "app %s takes only modules with a signature of a key that it trusts (%d now), and %s@%s (%.19s…) has none: sign it with `wheelwork module sign`, or trust the key with `wheelwork app set %s --trust KEY`",
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

func (ca *Catalog) module(app, ref string) (*apiv1.Module, error) {
	if a := ca.l.State.apps[app]; a != nil {
		if m := a.version(ref); m != nil {
			return m, nil
		}
	}
	return nil, status.Errorf(codes.NotFound, "there is no module %s in app %s: `wheelwork module list` shows what there is", ref, app)
}

// Target returns a version by name@version, name@alias, or name@latest.
func (ca *Catalog) Target(app, name, version string) (*apiv1.Module, error) {
	a := ca.l.State.apps[app]
	ref := name + "@" + version
	if a == nil {
		return ca.module(app, ref)
	}
	if x := a.aliases()[ref]; x != nil {
		ref = name + "@" + x.Version
	}
	if m := a.version(ref); m != nil || version != "latest" {
		return ca.module(app, ref)
	}
	var last *apiv1.Module
	for _, m := range ca.Modules(app) { // the newest of each name first
		if m.Name == name && last == nil {
			last = m
		}
	}
	if last == nil {
		return nil, status.Errorf(codes.NotFound, "there is no module %s in app %s: `wheelwork module list` shows what there is", name, app)
	}
	return last, nil
}

// Modules lists versions by name, the newest first.
func (ca *Catalog) Modules(app string) []*apiv1.Module {
	a := ca.l.State.apps[app]
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

// HasInterpreter fails if a version is a script whose interpreter the server does not have:
// no host could run it. get tells the user how to get the interpreter.
func (ca *Catalog) HasInterpreter(m *apiv1.Module, get string) error {
	if m.Interpreter == "" || ca.named(nil)[m.Interpreter] {
		return nil
	}
	return status.Errorf(codes.FailedPrecondition, "%s@%s is a script, and the server does not have the interpreter that it is packed for (%.19s…): %s", m.Name, m.Version, m.Interpreter, get)
}

// MayPut fails if a version cannot be added: its name is that of an alias, the version exists
// with other bytes, or a signature that the app requires is missing.
func (ca *Catalog) MayPut(m *apiv1.Module) error {
	if err := ca.l.limits.mayAddApp(m.App); err != nil {
		return err
	}
	a, ref := ca.l.State.app(m.App), m.Name+"@"+m.Version
	if a.aliases()[ref] != nil {
		return status.Errorf(codes.AlreadyExists, "%s is an alias: push the version under another name", ref)
	}
	old := a.version(ref)
	if old != nil && old.Digest != m.Digest {
		return status.Errorf(codes.AlreadyExists, "module %s is there with other bytes (%.19s…), and a version never changes: push these bytes (%.19s…) as a new version", ref, old.Digest, m.Digest)
	}
	if old == nil || old.CollectedAt != nil {
		if err := a.mayStore(m); err != nil {
			return err
		}
	}
	if old != nil { // the signatures that it has count as well
		with := proto.CloneOf(old)
		with.Signatures = append(with.Signatures, m.Signatures...)
		return a.signed(with, nil)
	}
	return a.signed(m, nil)
}

// putModule adds a version whose bytes are in the module store, restores one whose bytes were
// deleted, or adds signatures to one that exists. result is created, restored or unchanged.
func (ca *Catalog) putModule(m *apiv1.Module) (_ *apiv1.Module, result string, err error) {
	if err := ca.MayPut(m); err != nil {
		return nil, "", err
	}
	now := timestamppb.New(ca.l.clock.now)
	for _, s := range m.Signatures {
		s.AddedAt = now
	}
	old := ca.l.State.app(m.App).version(m.Name + "@" + m.Version)
	if old == nil {
		m.CreatedAt = now
		return m, "created", ca.recordModule(m)
	}
	next, result := proto.CloneOf(old), "unchanged"
	if next.CollectedAt != nil {
		next.CollectedAt, result = nil, "restored"
	}
	signed := false
	for _, s := range m.Signatures {
		added := false
		if next.Signatures, added = WithSignature(next.Signatures, s); added {
			signed = true
		}
	}
	switch {
	case len(next.Signatures) > modules.MaxSignatures:
		return nil, "", tooManySignatures(old)
	case result == "unchanged" && !signed:
		return old, result, nil
	}
	return next, result, ca.recordModule(next)
}

func tooManySignatures(m *apiv1.Module) error {
	return status.Errorf(codes.ResourceExhausted, "module %s@%s has %d signatures, and the limit is %d", m.Name, m.Version, len(m.Signatures), modules.MaxSignatures)
}

func (ca *Catalog) recordModule(m *apiv1.Module) error {
	if err := ca.l.commits.refuse(); err != nil {
		return err
	}
	ca.l.commits.record(ca.l.State.app(m.App).slots[job.ModuleSlot], &apiv1.Record{Kind: &apiv1.Record_ModulePut{ModulePut: &apiv1.ModulePut{Module: m}}})
	return nil
}

// SignModule adds a signature to a version, after it has verified the signature.
func (ca *Catalog) SignModule(app, ref string, s *apiv1.Signature) (*apiv1.Module, error) {
	old, err := ca.module(app, ref)
	if err != nil {
		return nil, err
	}
	if err := (modules.Signature{Key: s.Key, Signature: s.Signature}).Verify(old.Digest); err != nil {
		return nil, Invalid(err)
	}
	m := proto.CloneOf(old)
	added := false
	m.Signatures, added = WithSignature(m.Signatures, &apiv1.Signature{Key: s.Key, Signature: s.Signature, AddedAt: timestamppb.New(ca.l.clock.now)})
	switch {
	case !added:
		return old, nil
	case len(m.Signatures) > modules.MaxSignatures:
		return nil, tooManySignatures(old)
	}
	return m, ca.recordModule(m)
}

// Missing returns the digests of modules whose code is not on this server's disk, sorted.
func (ca *Catalog) Missing() (digests []string) {
	for _, a := range ca.l.State.apps {
		for _, s := range a.slots {
			for _, m := range s.Modules {
				if m.CollectedAt == nil && !ca.l.cfg.HasModule(m.Digest) && !slices.Contains(digests, m.Digest) {
					digests = append(digests, m.Digest)
				}
			}
		}
	}
	slices.Sort(digests)
	return digests
}

// resolveModule checks the module that a definition names, if it names one: see resolve.
func (ca *Catalog) resolveModule(def *apiv1.Job, with *Together) error {
	if def.Handler.Module == "" {
		return nil // the handler is in no module: hosts announce it (ADR 17)
	}
	return ca.resolve(def, with)
}

// PutThen is putModule with an answer when its record is durable. Then it also asks the
// hosts to load the version.
func (ca *Catalog) PutThen(m *apiv1.Module, answer func(*apiv1.PushModuleResponse, error)) {
	m, result, err := ca.putModule(m)
	if err != nil {
		answer(nil, err)
		return
	}
	ca.l.commits.onDurable(func(err error) {
		answer(&apiv1.PushModuleResponse{Module: m, Result: result}, err)
		if err == nil {
			ca.l.Sessions.prefetch(ca.l.State.app(m.App), m)
		}
	})
}

// Proof returns the signatures of a module's bytes and the keys that an app trusts.
func (ca *Catalog) Proof(app, digest string) (*apiv1.ModuleProof, error) {
	a := ca.l.State.apps[app]
	if a == nil {
		return nil, status.Errorf(codes.NotFound, "there is no app %q", app)
	}
	s := a.slots[job.ModuleSlot].Settings
	p := &apiv1.ModuleProof{Required: s.GetRequireSigned(), Keys: s.GetTrustedKeys()}
	for _, m := range a.slots[job.ModuleSlot].Modules {
		if m.Digest != digest {
			continue
		}
		for _, sig := range m.Signatures {
			p.Signatures, _ = WithSignature(p.Signatures, sig)
		}
	}
	return p, nil
}

// RolloutOf returns which hosts have loaded a version, see target and sessions.rollout.
func (ca *Catalog) RolloutOf(app, name, version string) (*apiv1.Rollout, error) {
	m, err := ca.Target(app, name, version)
	if err != nil {
		return nil, err
	}
	return ca.l.Sessions.rollout(ca.l.State.app(m.App), m), nil
}
