package api

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/sched/core"
)

// collect deletes the bytes of versions that nothing refers to. The rows of the versions
// stay, so that old runs can name their version and a version never gets other bytes. The
// record that the bytes are deleted comes first. After a crash between the record and the
// deletion, the file belongs to no version, and the next collection deletes it.
func (s *Services) collect(ctx context.Context, app string, age time.Duration, dryRun bool) (*apiv1.CollectModulesResponse, error) {
	s.uploads.blobs.Lock()
	defer s.uploads.blobs.Unlock()
	files, err := s.cfg.Modules.List()
	if err != nil {
		return nil, status.Error(codes.Internal, err.Error())
	}
	f, err := core.AskDurable(ctx, s.loop, func(l *core.Loop, answer func(*core.Collected, error)) {
		l.Catalog.CollectThen(app, age, dryRun, answer)
	})
	if err != nil {
		return nil, err
	}
	for _, b := range files {
		switch {
		case f.Named[b.Digest]:
			continue
		case of(f.Resp.Collected, b.Digest):
		case f.At.Sub(b.UsedAt) < age: // an upload that was interrupted a moment ago may be tried again
			continue
		default:
			f.Resp.Orphans++
		}
		f.Resp.Bytes += b.Bytes
		if !dryRun {
			err = errors.Join(err, b.Remove())
		}
	}
	if err != nil {
		return nil, status.Error(codes.Internal, fmt.Sprintf("the versions are marked, and some files could not be removed: %v: try again", err))
	}
	return f.Resp, nil
}

// deleteModule deletes the bytes of one version, whatever its age. As in collect, the record
// comes first.
func (s *Services) deleteModule(ctx context.Context, app, ref string, force bool) (*apiv1.DeleteModuleResponse, error) {
	s.uploads.blobs.Lock()
	defer s.uploads.blobs.Unlock()
	files, err := s.cfg.Modules.List()
	if err != nil {
		return nil, status.Error(codes.Internal, err.Error())
	}
	g, err := core.AskDurable(ctx, s.loop, func(l *core.Loop, answer func(*core.Deleted, error)) { l.Catalog.DeleteThen(app, ref, force, answer) })
	if err != nil {
		return nil, err
	}
	resp := &apiv1.DeleteModuleResponse{}
	for _, b := range files {
		if b.Digest != g.Digest || g.Named {
			continue
		}
		if err := b.Remove(); err != nil {
			return nil, status.Errorf(codes.Internal, "the version is marked, and its file could not be removed: %v: try again", err)
		}
		resp.Bytes += b.Bytes
	}
	return resp, nil
}

func of(collected []*apiv1.Module, digest string) bool {
	for _, m := range collected {
		if m.Digest == digest {
			return true
		}
	}
	return false
}
