package api

import (
	"context"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/sched/core"
)

type changeSetsAPI struct {
	apiv1.UnimplementedChangeSetsServer
	s *Services
}

func (a *changeSetsAPI) ApplyChangeSet(ctx context.Context, req *apiv1.ApplyChangeSetRequest) (*apiv1.ApplyChangeSetResponse, error) {
	set, err := core.NewChangeSet(ctx, req)
	if err != nil {
		return nil, err
	}
	return core.AskDurable(ctx, a.s.loop, func(l *core.Loop, answer func(*apiv1.ApplyChangeSetResponse, error)) {
		l.ChangeSets.Begin(set, answer)
	})
}
