package node

import (
	"context"
	"log/slog"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
)

// unitBackups serves copies of what a server of a cluster owns.
type unitBackups struct {
	apiv1.UnimplementedBackupsServer
	m   *memberParts
	log *slog.Logger
}

// of calls f with the state of a unit that this server owns.
func (a *unitBackups) of(ctx context.Context, name string, f func(ctx context.Context, u *unit, s *state) error) error {
	u := a.m.router.units[name]
	if u == nil {
		return status.Errorf(codes.NotFound, "the cluster has no unit %q", name)
	}
	rack, err := a.m.router.enter(ctx, name, "")
	if err != nil {
		return err
	}
	defer rack.leave()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() { // a copy must not hold up the unit
		select {
		case <-rack.gone:
			cancel()
		case <-ctx.Done():
		}
	}()
	return f(ctx, u, &state{
		id: a.m.id, group: name, store: u.conf.Store,
		settle: func(asked context.Context) error { return rack.sched.CaughtUp(asked) },
	})
}

// Backup streams all of a cluster that has one unit. The units of one that has
// several are stores of their own, which no server without a cluster could serve.
func (a *unitBackups) Backup(_ *apiv1.BackupRequest, stream apiv1.Backups_BackupServer) error {
	if n := len(a.m.units); n > 1 {
		return status.Errorf(codes.Unimplemented, "the cluster has %d units, and a backup is of one: copy the data directories of servers that are stopped, all of them, and etcd's", n)
	}
	return a.of(stream.Context(), a.m.roster.fallback(), func(ctx context.Context, u *unit, s *state) error {
		s.dir, s.modules, s.queue = a.m.data, u.conf.Modules, a.m.queue
		return (&backupsAPI{s: s, log: a.log}).send(ctx, s, stream.Send)
	})
}

// FetchState streams what a standby of a unit begins with.
func (a *unitBackups) FetchState(req *apiv1.FetchStateRequest, stream apiv1.Backups_FetchStateServer) error {
	return a.of(stream.Context(), req.Group, func(ctx context.Context, _ *unit, s *state) error {
		return (&backupsAPI{s: s, log: a.log}).send(ctx, s, stream.Send)
	})
}
