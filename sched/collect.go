package sched

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/job"
)

// collect deletes the bytes of versions that nothing refers to. The rows of the versions
// stay, so that old runs can name their version and a version never gets other bytes. The
// record that the bytes are deleted comes first. After a crash between the record and the
// deletion, the file belongs to no version, and the next collection deletes it.
func (s *Server) collect(ctx context.Context, app string, age time.Duration, dryRun bool) (*apiv1.CollectModulesResponse, error) {
	s.uploads.blobs.Lock()
	defer s.uploads.blobs.Unlock()
	files, err := s.cfg.Modules.List()
	if err != nil {
		return nil, status.Error(codes.Internal, err.Error())
	}
	type found struct {
		resp  *apiv1.CollectModulesResponse
		named map[string]bool // the digests of all versions with bytes, of all apps
		at    time.Time
	}
	f, err := askDurable(ctx, s.loop, func(l *loop, answer func(found, error)) {
		if err := l.apps[app].errIfSplit(); err != nil {
			answer(found{}, err)
			return
		}
		resp, err := l.collect(app, age, dryRun)
		if err != nil {
			answer(found{}, err)
			return
		}
		f := found{resp, l.named(resp.Collected), l.now}
		l.onDurable(func(err error) {
			if err == nil && !dryRun {
				l.unload(resp.Collected)
			}
			answer(f, err)
		})
	})
	if err != nil {
		return nil, err
	}
	for _, b := range files {
		switch {
		case f.named[b.Digest]:
			continue
		case of(f.resp.Collected, b.Digest):
		case f.at.Sub(b.UsedAt) < age: // an upload that was interrupted a moment ago may be tried again
			continue
		default:
			f.resp.Orphans++
		}
		f.resp.Bytes += b.Bytes
		if !dryRun {
			err = errors.Join(err, b.Remove())
		}
	}
	if err != nil {
		return nil, status.Error(codes.Internal, fmt.Sprintf("the versions are marked, and some files could not be removed: %v: try again", err))
	}
	return f.resp, nil
}

// deleteModule deletes the bytes of one version, whatever its age. As in collect, the record
// comes first.
func (s *Server) deleteModule(ctx context.Context, app, ref string, force bool) (*apiv1.DeleteModuleResponse, error) {
	s.uploads.blobs.Lock()
	defer s.uploads.blobs.Unlock()
	files, err := s.cfg.Modules.List()
	if err != nil {
		return nil, status.Error(codes.Internal, err.Error())
	}
	type gone struct {
		digest string
		named  bool // another version has the same bytes
	}
	g, err := askDurable(ctx, s.loop, func(l *loop, answer func(gone, error)) {
		m, err := l.deleteModule(app, ref, force)
		if err != nil {
			answer(gone{}, err)
			return
		}
		g := gone{m.Digest, l.named(nil)[m.Digest]}
		l.onDurable(func(err error) {
			if err == nil && !g.named {
				l.unload([]*apiv1.Module{m})
			}
			answer(g, err)
		})
	})
	if err != nil {
		return nil, err
	}
	resp := &apiv1.DeleteModuleResponse{}
	for _, b := range files {
		if b.Digest != g.digest || g.named {
			continue
		}
		if err := b.Remove(); err != nil {
			return nil, status.Errorf(codes.Internal, "the version is marked, and its file could not be removed: %v: try again", err)
		}
		resp.Bytes += b.Bytes
	}
	return resp, nil
}

// deleteModule records that the bytes of a version are deleted. It accepts a version that was
// deleted before, because an earlier call may have ended before it deleted the file.
func (l *loop) deleteModule(app, ref string, force bool) (*apiv1.Module, error) {
	a := l.apps[app]
	if a == nil || a.version(ref) == nil {
		return nil, status.Errorf(codes.NotFound, "there is no module %s in app %s: `wheelwork module list` shows what there is", ref, app)
	}
	if err := a.errIfSplit(); err != nil {
		return nil, err
	}
	m := proto.CloneOf(a.version(ref))
	if !force {
		if err := referenced("module "+ref, l.versionNamers(a, m)); err != nil {
			return nil, err
		}
	}
	if err := l.refuseChange(); err != nil {
		return nil, err
	}
	m.CollectedAt = timestamppb.New(l.now)
	l.record(a.slots[job.ModuleSlot], &apiv1.Record{Kind: &apiv1.Record_ModulePut{ModulePut: &apiv1.ModulePut{Module: m}}})
	return m, nil
}

func of(collected []*apiv1.Module, digest string) bool {
	for _, m := range collected {
		if m.Digest == digest {
			return true
		}
	}
	return false
}

// named returns the digests of all versions whose bytes exist, except the digests of the
// versions in without.
func (l *loop) named(without []*apiv1.Module) map[string]bool {
	digests := map[string]bool{}
	for _, a := range l.apps {
		for _, m := range a.slots[job.ModuleSlot].Modules {
			if m.CollectedAt == nil {
				digests[m.Digest] = true
			}
		}
	}
	for _, m := range without {
		delete(digests, m.Digest)
	}
	return digests
}

// collect records that the bytes of an app's versions are deleted, if nothing refers to the
// versions and they have reached age. With dryRun it only returns them.
func (l *loop) collect(app string, age time.Duration, dryRun bool) (*apiv1.CollectModulesResponse, error) {
	resp := &apiv1.CollectModulesResponse{}
	a := l.apps[app]
	if a == nil {
		return resp, nil
	}
	if !dryRun {
		if err := l.refuseChange(); err != nil {
			return nil, err
		}
	}
	refs, goes := a.referred(), map[*apiv1.Module]bool{}
	for ref, m := range a.slots[job.ModuleSlot].Modules {
		goes[m] = m.CollectedAt == nil && !refs[ref] && l.now.Sub(m.CreatedAt.AsTime()) >= age
	}
	// The interpreter of a script is needed as long as the script is.
	needed := map[string]bool{}
	for _, other := range l.apps {
		for _, m := range other.slots[job.ModuleSlot].Modules {
			if m.CollectedAt == nil && !goes[m] {
				needed[m.Interpreter] = true
			}
		}
	}
	for m := range goes {
		goes[m] = goes[m] && !needed[m.Digest]
	}
	// Versions, also of different apps, may have the same bytes. All of them must be
	// unused before the bytes can be deleted.
	stillNeeded := map[string]bool{}
	for _, other := range l.apps {
		for _, m := range other.slots[job.ModuleSlot].Modules {
			if m.CollectedAt == nil && !goes[m] {
				stillNeeded[m.Digest] = true
			}
		}
	}
	for _, m := range l.modules(app) {
		switch {
		case m.CollectedAt != nil:
			continue
		case !goes[m] || stillNeeded[m.Digest]:
			resp.Kept++
			continue
		}
		m = proto.CloneOf(m)
		m.CollectedAt = timestamppb.New(l.now)
		resp.Collected = append(resp.Collected, m)
		if !dryRun {
			l.record(a.slots[job.ModuleSlot], &apiv1.Record{Kind: &apiv1.Record_ModulePut{ModulePut: &apiv1.ModulePut{Module: m}}})
		}
	}
	return resp, nil
}
